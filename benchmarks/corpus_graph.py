"""A recorded graph as a FusionDefinition, and the inputs that were recorded with it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fusec.diagnostics import FusecError, Unsupported
from fusec.ir import dtype as dtypes
from fusec.ir.dim import product
from fusec.ir.dtype import DType
from fusec.ir.graph import Fusion
from fusec.parse.dsl import FusionDefinition
from fusec.parse.dsl.inputs import Actual
from fusec.parse.dsl.session import recording

SYNTHETIC = (16, 8, 4, 64, 2)
"""Sizes that stand for every unknown extent of a graph without recorded inputs, tried in turn."""
MOST_ELEMENTS = 40_000_000
"""Elements of one value up to which both references evaluate a graph whole."""
MOST_TOTAL = 300_000_000
"""Elements of all values together up to which they do."""
LEAST_EXTENT = 64

Graph = Mapping[str, Any]


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
    return graph


def define(graph: Graph, name: str) -> FusionDefinition:
    """Return the graph spoken call by call through FusionDefinition."""
    try:
        with FusionDefinition(name=name) as fd:
            _Speaker(fd, graph).speak()
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
    def __init__(self, fd: FusionDefinition, graph: Graph) -> None:
        self.fd, self.graph = fd, graph
        self.handles: dict[str, Any] = {}

    def speak(self) -> None:
        for entry in self.graph["inputs"]:
            self._input(entry)
        for entry in self.graph["scalars"]:
            value = _literal(entry["value"])
            if value is None:
                raise FusecError(f"the constant `{entry['id']}` has no value")
            self.handles[entry["id"]] = self.fd.define_scalar(value, _dtype(entry["dtype"]))
        for entry in self.graph["ops"]:
            self._operation(entry)
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
                shape=entry["shape"], contiguity=entry["contiguity"], dtype=dtype,
                is_cpu=entry["is_cpu"], stride_order=entry["stride_order"], name=entry["id"],
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
        if name == "squeeze" and not isinstance(options.get("squeeze_expanded", True), bool):
            # The old form with the operand's shape in between, recorded under the new names.
            args += [options.pop("dims"), options.pop("squeeze_expanded")]
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
    if not sets[0] or graph.get("synthetic_extent") is not None:
        return None if any(e.get("kind") for e in graph["inputs"]) else []
    examples: list[Example] = []
    for entry in sets[0]:
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


def synthetic_examples(graph: Graph, size: int) -> list[Example]:
    """Return dense inputs with `size` for every unknown extent and integer."""
    examples: list[Example] = []
    for entry in graph["inputs"]:
        if entry["kind"] == "tensor":
            shape = [size if n < 0 else n for n in entry["shape"]]
            order = entry.get("stride_order") or range(len(shape) - 1, -1, -1)
            strides = [
                math.prod(n for n, rank in zip(shape, order, strict=True) if rank < own)
                for own in order
            ]
            examples.append(Example(tuple(shape), tuple(strides)))
            continue
        value = {"bool": True, "int64": size, "int32": size}.get(entry["dtype"], 0.5)
        examples += [Example(None, value=value) for _ in entry.get("elements", [None])]
    return examples


def choose_examples(graph: Graph, fd: FusionDefinition) -> tuple[list[Example], Fusion]:
    """Return recorded inputs, or synthetic ones of the first size that fits, and the fusion."""
    examples = recorded_examples(graph)
    if examples is not None:
        return examples, bind(fd, examples, graph)
    sizes = (graph["synthetic_extent"],) if graph.get("synthetic_extent") else SYNTHETIC
    failure: FusecError | None = None
    for size in sizes:
        examples = synthetic_examples(graph, size)
        try:
            return examples, bind(fd, examples, graph)
        except Unsupported:
            raise
        except FusecError as error:
            failure = failure or error
    assert failure is not None
    raise failure


def elements(fusion: Fusion) -> tuple[int, int]:
    """Return the elements of the largest tensor, and of all together."""
    counts = [product(v.shape).evaluate(fusion.hints) for v in fusion.values if v.shape is not None]
    return max(counts, default=0), sum(counts)


def fits(fusion: Fusion) -> bool:
    """Return whether the references evaluate the fusion whole in reasonable time."""
    largest, total = elements(fusion)
    return largest <= MOST_ELEMENTS and total <= MOST_TOTAL


def reduce_examples(
    graph: Graph, fd: FusionDefinition, examples: list[Example], fusion: Fusion
) -> tuple[list[Example], Fusion, dict[int, int]]:
    """Halve large unknown extents, each wherever it occurs, until the references can follow.

    An extent that the graph also holds as a constant stays as it is, and so does one whose half
    the definition does not accept.
    """
    fixed = _constants(graph)
    origin: dict[int, int] = {}
    while not fits(fusion):
        extents = {n for e in examples for n in e.shape or ()} - fixed
        halved = max((n for n in extents if n % 2 == 0 and n >= 2 * LEAST_EXTENT), default=None)
        if halved is None:
            break
        if halved // 2 in extents | fixed:
            # Two sizes must not become one.
            fixed.add(halved)
            continue
        smaller = [_with_extent(e, halved, halved // 2) for e in examples]
        try:
            fusion = bind(fd, smaller, graph)
        except FusecError:
            fixed.add(halved)
            continue
        examples = smaller
        origin[halved // 2] = origin.pop(halved, halved)
    return examples, fusion, {old: new for new, old in origin.items()}


def _constants(graph: Graph) -> set[int]:
    found: set[int] = set()

    def collect(value: Any) -> None:
        if isinstance(value, int) and not isinstance(value, bool):
            found.add(value)
        elif isinstance(value, list):
            for item in value:
                collect(item)
        elif isinstance(value, dict):
            for item in value.values():
                collect(item)

    for entry in graph["inputs"]:
        collect(entry.get("shape"))
    for entry in graph["scalars"]:
        collect(entry["value"])
    for entry in graph["ops"]:
        collect([entry["args"], entry["kwargs"]])
    return found


def _with_extent(example: Example, old: int, new: int) -> Example:
    if example.shape is None:
        same = example.value == old and isinstance(example.value, int)
        return replace(example, value=new) if same else example
    if old not in example.shape:
        return example
    shape = tuple(new if n == old else n for n in example.shape)
    strides = list(example.strides)
    before, after = 1, 1
    for axis in sorted(range(len(shape)), key=lambda a: (example.strides[a], -a)):
        stride = example.strides[axis]
        if stride == 0 or example.shape[axis] == 1:
            continue
        # A gap between rows stays in proportion.
        strides[axis] = after * (stride // before) if stride % before == 0 else stride
        before, after = stride * example.shape[axis], strides[axis] * shape[axis]
    return replace(example, shape=shape, strides=tuple(strides), values=None)
