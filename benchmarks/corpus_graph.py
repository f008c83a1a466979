"""A recorded graph as a FusionDefinition, and the inputs that were recorded with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusec.diagnostics import FusecError, Unsupported
from fusec.ir import dtype as dtypes
from fusec.ir.dtype import DType
from fusec.ir.graph import Fusion
from fusec.ops import TABLE
from fusec.parse.dsl import FusionDefinition
from fusec.parse.dsl.inputs import Actual
from fusec.parse.dsl.session import recording

Graph = Mapping[str, Any]
Contiguity = Sequence[bool | None]


@dataclass(frozen=True)
class Example:
    """One argument: a tensor's shape and strides, or a scalar's value; with data where recorded."""

    shape: tuple[int, ...] | None
    strides: tuple[int, ...] = ()
    value: Any = None
    values: Any = None
    int_range: tuple[int, int] | None = None


def read_graph(path: Path) -> Graph:
    """Return a graph from its file; FusecError where it is none."""
    try:
        graph = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FusecError(f"`{path.name}` cannot be read as a graph: {error}") from None
    keys = ("inputs", "scalars", "ops", "outputs")
    if not isinstance(graph, dict) or not all(isinstance(graph.get(k), list) for k in keys):
        raise FusecError(f"`{path.name}` is no graph", help=f"lists needed: {', '.join(keys)}")
    return _with_open_scalars(graph)


def _with_open_scalars(graph: Graph) -> Graph:
    """Return the graph with constants of no value as what nvFuser makes of them: inputs."""
    open_ = [s for s in graph["scalars"] if s.get("value", 0) is None]
    inputs = [{"id": s["id"], "kind": "scalar", "dtype": s["dtype"]} for s in open_]
    return {
        **graph,
        "inputs": [*graph["inputs"], *inputs],
        "scalars": [s for s in graph["scalars"] if s not in open_],
    }


def define(
    graph: Graph, name: str, contiguity: Mapping[str, Contiguity] | None = None
) -> FusionDefinition:
    """Return the graph spoken call by call; `contiguity` replaces that of some inputs."""
    try:
        with FusionDefinition(name=name, doc="A graph of the corpus.") as fd:
            _Speaker(fd, graph, contiguity or {}).speak()
    except (KeyError, TypeError, ValueError, IndexError) as error:
        if not _is_own(error):
            raise
        raise FusecError(f"the graph is malformed: {type(error).__name__} {error}") from None
    return fd


def _is_own(error: BaseException) -> bool:
    """Return whether an error was raised by this file itself and not inside fusec."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename == __file__


class _Speaker:
    def __init__(
        self, fd: FusionDefinition, graph: Graph, contiguity: Mapping[str, Contiguity]
    ) -> None:
        self.fd, self.graph, self.contiguity = fd, graph, contiguity
        self.handles: dict[str, Any] = {}

    def speak(self) -> None:
        for entry in self.graph["inputs"]:
            self._input(entry)
        for entry in self.graph["scalars"]:
            value, dtype = _literal(entry["value"]), _dtype(entry["dtype"])
            self.handles[entry["id"]] = self.fd.define_scalar(value, dtype)
        for number, entry in enumerate(self.graph["ops"]):
            try:
                self._operation(entry)
            except FusecError as error:
                raise _in_graph(error, number, entry) from None
        for entry in self.graph["outputs"]:
            alias = entry.get("alias_of")
            self.fd.add_output(
                self.handles[entry["id"]],
                alias_input=None if alias is None else self.handles[alias],
                stride_order=entry.get("stride_order"),
            )

    def _input(self, entry: Mapping[str, Any]) -> None:
        dtype = _dtype(entry["dtype"])
        if entry["kind"] == "tensor":
            self.handles[entry["id"]] = self.fd.define_tensor(
                shape=entry["shape"], dtype=dtype, name=entry["id"], is_cpu=entry["is_cpu"],
                contiguity=list(self.contiguity.get(entry["id"], entry["contiguity"])),
                stride_order=entry["stride_order"],
            )  # fmt: skip
            return
        for name in entry["elements"] if entry["kind"] == "vector" else [entry["id"]]:
            self.handles[name] = self.fd.define_scalar(dtype=dtype, name=name)

    def _operation(self, entry: Mapping[str, Any]) -> None:
        name: str = entry["op"]
        function: Callable[..., Any] = getattr(self.fd.ops, name)
        args = [self._argument(a) for a in entry["args"]]
        options = {k: self._argument(v) for k, v in entry["kwargs"].items() if v is not None}
        if name == "cat":
            args = [args]
        known = [p.name for p in TABLE[name].operands] if name in TABLE else []
        if options.keys() & set(known):
            # An operand among the named arguments: the others follow in order around it.
            rest = [k for k in known if k not in entry["kwargs"]]
            options, args = {**dict(zip(rest, args, strict=False)), **options}, []
        if _is_old_squeeze(entry):
            args += [options.pop("dims"), options.pop("squeeze_expanded")]
        elif _is_old_random(entry):
            options["dtype"] = options.pop("rng_seed")
        elif name in TABLE and name != "cat":
            # Operands are recorded first, wherever they stand in the argument list.
            operands = [p.name for p in TABLE[name].operands]
            if operands != [p.name for p in TABLE[name].params[: len(operands)]]:
                options.update(zip(operands, args, strict=False))
                args = []
        outputs: list[str] = entry["outputs"]
        if name != "stride_order":
            options["name"] = outputs
        results = function(*args, **options)
        several = list(results) if len(outputs) > 1 or name == "shape" else [results]
        if len(several) != len(outputs):
            raise FusecError(f"`{name}` has {len(several)} results, the graph names {len(outputs)}")
        self.handles.update(zip(outputs, several, strict=True))

    def _argument(self, value: Any) -> Any:
        if isinstance(value, dict) and "ref" in value:
            return self.handles[value["ref"]]
        if isinstance(value, dict) and "dtype" in value:
            return _dtype(value["dtype"])
        if isinstance(value, list):
            return [self._argument(v) for v in value]
        return _literal(value)


def _is_old_squeeze(entry: Mapping[str, Any]) -> bool:
    """Return whether a squeeze has the old form: the operand's shape, then the dims."""
    return entry["op"] == "squeeze" and isinstance(entry["kwargs"].get("squeeze_expanded"), list)


def _is_old_random(entry: Mapping[str, Any]) -> bool:
    """Return whether random numbers are asked for in the old form: a dtype follows the shape."""
    seed = entry["kwargs"].get("rng_seed")
    return isinstance(seed, dict) and "dtype" in seed


def old_forms(graph: Graph) -> list[str]:
    """Return the operations recorded in a form of which the names of arguments are wrong."""
    return sorted(
        {entry["op"] for entry in graph["ops"] if _is_old_squeeze(entry) or _is_old_random(entry)}
    )


def _in_graph(error: FusecError, number: int, entry: Mapping[str, Any]) -> FusecError:
    """Return the error placed at an operation of the graph instead of a line of this file."""
    old = error.diagnostic
    notes = [n for n in old.notes if " is defined at " not in n]
    outputs = ", ".join(entry["outputs"])
    place = f"operation {number} of the graph: {outputs} = {entry['op']}(...)"
    return type(error)(old.message, notes=[*notes, place], help=old.help)


def _literal(value: Any) -> Any:
    if isinstance(value, dict):
        if "float" in value:
            return float(value["float"])
        return complex(*value["complex"])
    return value


def _dtype(name: str) -> DType:
    if name.startswith("float4"):
        raise Unsupported(f"the element type {name}")
    return dtypes.find(name)


def bind(fd: FusionDefinition, examples: Sequence[Example], graph: Graph) -> Fusion:
    """Return the fusion as it is executed on inputs like `examples`."""
    bound: list[Fusion] = []

    def note(fusion: Fusion, _: Any) -> None:
        bound.append(fusion)

    with recording(note):
        fd.execute(_actuals(graph, examples))
    return bound[0]


def _actuals(graph: Graph, examples: Sequence[Example]) -> list[Any]:
    given = iter(examples)
    actuals: list[Any] = []
    for entry in graph["inputs"]:
        for _ in entry.get("elements", [None]):
            example = next(given, None)
            if example is None:
                raise FusecError("fewer inputs are recorded than the graph has")
            if example.shape is None:
                actuals.append(example.value)
                continue
            dtype = _dtype(entry["dtype"])
            actuals.append(Actual(example.shape, example.strides, dtype, _no_data, _no_write))
    return actuals


def _no_data() -> Any:
    raise FusecError("the data of an input is needed to define the fusion")


def _no_write(_: Any) -> None:
    """Leave inputs alone: nothing is executed."""


def recorded_examples(graph: Graph) -> list[Example] | None:
    """Return the first recorded inputs, vectors laid flat, or None where there are none."""
    sets = graph.get("all_example_inputs") or [graph.get("example_inputs")]
    first = sets[0]
    if not first or graph.get("synthetic_extent") is not None:
        return None if any(e.get("kind") for e in graph["inputs"]) else []
    examples: list[Example] = []
    for entry in first:
        if entry["kind"] == "tensor":
            low_high = entry.get("int_range")
            examples.append(
                Example(
                    tuple(entry["shape"]), tuple(entry["stride"]), values=entry.get("values"),
                    int_range=None if low_high is None else (low_high[0], low_high[1]),
                )
            )  # fmt: skip
        elif entry["kind"] == "vector":
            examples += [Example(None, value=v) for v in entry["value"]]
        else:
            examples.append(Example(None, value=_literal(entry["value"])))
    return examples


def synthetic_examples(
    graph: Graph, size: int, shapes: Mapping[str, Sequence[int]]
) -> list[Example]:
    """Return dense inputs with `size` for every unknown extent and integer; `shapes` go first."""
    examples: list[Example] = []
    for entry in graph["inputs"]:
        if entry["kind"] == "tensor":
            plain = [size if n < 0 else n for n in entry["shape"]]
            shape = list(shapes.get(entry["id"], plain))
            strides = _dense_strides(entry, shape)
            examples.append(Example(tuple(shape), tuple(strides)))
            continue
        value = {"bool": True, "int64": size, "int32": size}.get(entry["dtype"], 0.5)
        examples += [Example(None, value=value) for _ in entry.get("elements", [None])]
    return examples


def slow_to_fast(entry: Mapping[str, Any]) -> list[int]:
    """Return the dims of a declared tensor in its stride order."""
    rank = len(entry["shape"])
    order = entry["stride_order"] or range(rank - 1, -1, -1)
    return sorted(range(rank), key=lambda axis: -order[axis])


def _dense_strides(entry: Mapping[str, Any], shape: Sequence[int]) -> list[int]:
    """Return dense strides in the declared order; dims declared broadcast have none."""
    strides, step = [0] * len(shape), 1
    axes = slow_to_fast(entry)
    for axis, declared in reversed(list(zip(axes, entry["contiguity"], strict=True))):
        if declared is not None or shape[axis] == 1:
            strides[axis] = step
            step *= shape[axis]
    return strides
