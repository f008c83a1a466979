"""Converts the graph of a `torch.export` archive (JSON, schema 8) to a ModelGraph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fusec.diagnostics import FusecError, Unsupported
from fusec.foreign import decoding, not_a
from fusec.ir.dim import Dim, dim
from fusec.ir.dtype import DTYPES, DType
from fusec.ir.graph import Type
from fusec.models.archive import WHAT, Archive
from fusec.models.graph import (
    Argument,
    Constant,
    ModelGraph,
    ModelInput,
    ModelNode,
    ModelOutput,
    Ref,
    Result,
    node_error,
    type_of,
)
from fusec.models.sizes import size_of, symbol_of

SCHEMA = 8
"""The supported major version of torch.export's schema."""
Json = Mapping[str, Any]

SCALAR_TYPES: Mapping[int, str] = {
    1: "u8", 2: "i8", 3: "i16", 4: "i32", 5: "i64", 6: "f16", 7: "f32", 8: "f64", 10: "c64",
    11: "c128", 12: "bool", 13: "bf16", 28: "u16", 29: "f8e4m3", 30: "f8e5m2",
}  # fmt: skip
"""The numbers of `torch._export.serde.schema.ScalarType`."""
DEFAULT_SIZE = 16
"""Default of a dynamic size whose export has no hint."""


def exported_graph(archive: Archive, name: str) -> ModelGraph:
    """Return the graph of an archive; `name` is its name.

    Unsupported for another schema and for graphs that fusions cannot express; FusecError for
    damaged bytes.
    """
    model = archive.json_of("models/model.json")
    with decoding(not_a(archive.path, WHAT)):
        _check_schema(archive.path, model["schema_version"])
        return _Reader(archive.path, model).graph(name)


def _check_schema(path: str, version: Json) -> None:
    major, minor = int(version["major"]), int(version["minor"])
    if major != SCHEMA:
        raise Unsupported(
            f"`{path}` has version {major}.{minor} of torch.export's schema; {SCHEMA}.x is read",
            help="export the model again with PyTorch 2.7 to 2.14",
        )


class _Reader:
    """Reads one program; Python errors that it raises mean damaged data."""

    def __init__(self, path: str, model: Json) -> None:
        self.path = path
        self.module: Json = model["graph_module"]
        self.body: Json = self.module["graph"]
        self.symbols: dict[str, int] = {}
        self.ranges = dict(self._ranges(model["range_constraints"]))
        self._find_hints(self.body)
        for text, (low, _) in self.ranges.items():
            if _is_symbol(text):
                self.symbols.setdefault(text, max(low or 0, DEFAULT_SIZE))
        if self.body.get("custom_obj_values"):
            names = ", ".join(sorted(self.body["custom_obj_values"]))
            raise Unsupported(f"`{path}` has custom objects ({names}), which are not tensors")
        self.types = {n: self._type(meta) for n, meta in self.body["tensor_values"].items()}

    def graph(self, name: str) -> ModelGraph:
        """Return the whole graph."""
        signature: Json = self.module["signature"]
        inputs = tuple(i for spec in signature["input_specs"] for i in self._input(spec))
        constants = tuple(self._constants(signature["input_specs"]))
        buffers = {i.key: i.name for i in inputs}
        outputs = tuple(self._output(spec, buffers) for spec in signature["output_specs"])
        nodes = tuple(self._node(node) for node in self.body["nodes"])
        ranges = {n: r for n, r in self.ranges.items() if n in self.symbols}
        return ModelGraph(name, self.path, inputs, nodes, outputs, self.symbols, ranges, constants)

    @staticmethod
    def _ranges(constraints: Json) -> Iterator[tuple[str, tuple[int | None, int | None]]]:
        for name, limits in constraints.items():
            low, high = limits.get("min_val"), limits.get("max_val")
            yield name, (None if low is None else int(low), None if high is None else int(high))

    def _find_hints(self, data: Any) -> None:
        """Record the default sizes of symbols that occur alone somewhere in the graph."""
        waiting: list[Any] = [data]
        while waiting:
            part: Any = waiting.pop()
            if isinstance(part, list):
                waiting += part
            elif isinstance(part, dict):
                size: dict[str, Any] = part  # pyright: ignore[reportUnknownVariableType]
                waiting += size.values()
                text = size.get("expr_str")
                name = symbol_of(text) if isinstance(text, str) else None
                if name is not None and _is_symbol(name):
                    hint: dict[str, Any] = size.get("hint") or {}
                    known = hint.get("as_int")
                    if type(known) is int:
                        self.symbols[name] = known

    # -- sizes and types

    def _size(self, data: Json) -> Dim:
        if "as_int" in data:
            return dim(int(data["as_int"]))
        return size_of(str(data["as_expr"]["expr_str"]), self.symbols)

    def _dtype(self, number: int) -> DType:
        found = SCALAR_TYPES.get(number)
        if found is None:
            raise Unsupported(f"`{self.path}`: number {number} of the types of PyTorch")
        return DTYPES[found]

    def _type(self, meta: Json) -> Type | FusecError:
        """Return the type of a tensor, or the error to raise where it is used."""
        try:
            return type_of(self._dtype(int(meta["dtype"])), [self._size(s) for s in meta["sizes"]])
        except FusecError as error:
            return error

    def _known_type(self, name: str) -> Type:
        found = self.types[name]
        if isinstance(found, FusecError):
            raise found
        return found

    # -- inputs and outputs

    def _input(self, spec: Json) -> Iterator[ModelInput]:
        ((kind, data),) = spec.items()
        if kind == "user_input":
            argument = data["arg"]
            if "as_tensor" not in argument:
                self._check_number(argument)
                return
            name = str(argument["as_tensor"]["name"])
            yield ModelInput(name, self._known_type(name), "input", name)
            return
        keys = {
            "parameter": "parameter_name", "buffer": "buffer_name",
            "tensor_constant": "tensor_constant_name",
        }  # fmt: skip
        if kind == "constant_input":
            return  # handled by `_constants`
        if kind not in keys:
            raise Unsupported(f"`{self.path}`: an input of the model is a {kind}")
        name = str(data["arg"]["name"])
        use = "buffer" if kind == "buffer" else "weight"
        yield ModelInput(name, self._known_type(name), use, str(data[keys[kind]]))

    def _check_number(self, argument: Json) -> None:
        """Raise Unsupported for an argument whose value the graph does not have."""
        ((kind, value),) = argument.items()
        if kind in _CONSTANTS:
            return
        content: Any = value if kind == "as_sym_int" else {}
        name = content.get("as_name")
        word = _KINDS.get(kind, kind.removeprefix("as_"))
        raise Unsupported(
            f"`{self.path}`: input{f' `{name}`' if name else ''} of the model is {word}, "
            "not a tensor",
            help="export the model with the number as a constant, or with a tensor in its place: "
            "sizes of tensors may be dynamic",
        )

    @staticmethod
    def _constants(specs: Sequence[Json]) -> Iterator[Constant]:
        """Yield the user's non-tensor arguments, with their values."""
        place = 0
        for spec in specs:
            ((kind, data),) = spec.items()
            if kind not in ("user_input", "constant_input"):
                continue
            value = data["value"] if kind == "constant_input" else data["arg"]
            ((word, content),) = value.items()
            if word in _CONSTANTS:
                name = str(data.get("name", f"argument_{place}"))
                yield Constant(name, place, _CONSTANTS[word](content))
            place += 1

    def _output(self, spec: Json, buffers: Mapping[str, str]) -> ModelOutput:
        ((kind, data),) = spec.items()
        if kind in ("user_output", "loss_output"):
            argument = data["arg"]
            tensor = argument.get("as_tensor", argument if kind == "loss_output" else None)
            if tensor is not None:
                return ModelOutput(str(tensor["name"]))
            ((word, content),) = argument.items()
            if word not in _CONSTANTS:
                raise Unsupported(
                    f"`{self.path}`: an output of the model is {_KINDS.get(word, word)}, not a "
                    "tensor",
                    help="return tensors; their shapes say their sizes",
                )
            return ModelOutput(None, constant=_CONSTANTS[word](content))
        value = str(data["arg"]["name"])
        if kind == "buffer_mutation":
            return ModelOutput(value, buffers[str(data["buffer_name"])])
        if kind == "parameter_mutation":
            return ModelOutput(value, buffers[str(data["parameter_name"])])
        if kind == "user_input_mutation":
            return ModelOutput(value, str(data["user_input_name"]))
        raise Unsupported(f"`{self.path}`: an output of the model is a {kind}")

    # -- nodes

    def _node(self, data: Json) -> ModelNode:
        target = str(data["target"]).removeprefix("torch.ops.")
        metadata: Json = data.get("metadata") or {}
        outputs: Sequence[Json] = data["outputs"]
        names = [name for output in outputs for name in _names(output)]
        name = str(data.get("name") or (names[0] if names else target))
        node = ModelNode(
            name, target, (), {}, (), _module(metadata.get("nn_module_stack", "")),
            _source(metadata.get("stack_trace", "")),
        )  # fmt: skip
        try:
            _check_target(target)
            named = {str(i["name"]): self._argument(i["arg"]) for i in data["inputs"]}
            results = tuple(Result(n, self._result_type(n)) for n in names)
        except FusecError as error:
            told = error.diagnostic
            raise node_error(
                self.path, node, told.message, told.help, kind=type(error), notes=told.notes
            ) from None
        module, source = node.module, node.source
        return ModelNode(name, target, (), named, results, module, source)

    def _result_type(self, name: str) -> Type | None:
        return self._known_type(name) if name in self.types else None

    def _argument(self, data: Json) -> Argument:
        ((kind, value),) = data.items()
        match kind:
            case "as_none":
                return None
            case "as_tensor":
                return Ref(str(value["name"]))
            case "as_tensors":
                return [Ref(str(v["name"])) for v in value]
            case "as_optional_tensors":
                return [None if "as_none" in v else Ref(str(v["as_tensor"]["name"])) for v in value]
            case "as_int" | "as_bool" | "as_string":
                return {"as_int": int, "as_bool": bool, "as_string": str}[kind](value)
            case "as_float":
                return float(value)
            case "as_floats":
                return [float(v) for v in value]
            case "as_ints" | "as_bools" | "as_strings":
                return list(value)
            case "as_sym_int":
                return self._symbol(value)
            case "as_sym_ints":
                return [self._symbol(v) for v in value]
            case "as_scalar_type":
                return self._dtype(int(value))
            case "as_device" | "as_layout" | "as_memory_format":
                return None  # no effect in a fusion
            case "as_sym_float" | "as_sym_floats" | "as_sym_bool" | "as_sym_bools":
                raise Unsupported(
                    "an argument is a number that depends on data",
                    help="keep it a tensor: `x.sum()` in place of `x.sum().item()`",
                )
            case _:
                raise Unsupported(
                    f"an argument is {_KINDS.get(kind, kind.removeprefix('as_'))}, which op lines "
                    "do not have"
                )

    def _symbol(self, value: Json) -> Argument:
        if "as_int" in value:
            return int(value["as_int"])
        known = self.body["sym_int_values"][str(value["as_name"])]
        return self._size(known)


def _check_target(target: str) -> None:
    """Raise Unsupported for a higher-order operation, whose arguments are not plain operands."""
    if not target.startswith("higher_order."):
        return
    if "auto_functionalized" in target:
        raise Unsupported(
            "it calls a custom operation that writes into its operands",
            help="let the operation return new tensors",
        )
    raise Unsupported(
        "it calls a subgraph",
        help="export the model without control flow on data (`cond`, `while_loop`)",
    )


def _is_symbol(text: str) -> bool:
    """Return whether a text is a symbol of a size that does not depend on data: `s77`."""
    return text.startswith("s") and text.isalnum() and text.isascii()


_CONSTANTS: Mapping[str, Callable[[Any], bool | int | float | str | None]] = {
    "as_none": lambda _: None, "as_bool": bool, "as_int": int, "as_float": float,
    "as_string": str,
}  # fmt: skip
"""Kinds of arguments whose value is in the graph."""
_KINDS = {
    "as_sym_int": "a dynamic integer", "as_sym_float": "a dynamic number",
    "as_sym_bool": "a dynamic bool", "as_custom_obj": "a custom object",
    "as_operator": "an operation", "as_complex": "a complex number",
}  # fmt: skip


def _names(output: Json) -> Iterator[str]:
    ((kind, value),) = output.items()
    if kind == "as_tensor":
        yield str(value["name"])
    elif kind == "as_tensors":
        yield from (str(v["name"]) for v in value)
    elif kind == "as_optional_tensors":
        yield from ("" if "as_none" in v else str(v["as_tensor"]["name"]) for v in value)


def _module(stack: str) -> str:
    """Return the path of the innermost module: `m.layers.0` of `key,path,class;...`."""
    last = str(stack).rpartition(";")[2]
    return last.split(",")[1] if last.count(",") >= 2 else ""


def _source(trace: str) -> str:
    """Return the innermost line of a stack trace, as `model.py:25 in forward`.

    Lines of generated code, as of `<eval_with_key>.5`, are skipped.
    """
    lines = [line.strip() for line in str(trace).splitlines()]
    lines = [line for line in lines if line.startswith("File ") and not line.startswith('File "<')]
    if not lines:
        return ""
    file, _, rest = lines[-1].removeprefix("File ").partition(", line ")
    number, _, function = rest.partition(", in ")
    short = file.strip('"').rpartition("/")[2]
    return f"{short}:{number}" + (f" in {function}" if function else "")
