"""Graphs passed to a backend of `torch.compile`, recorded as JSON without weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fusec.diagnostics import FusecError, Unsupported
from fusec.foreign import Name, decoding, not_a, read_json
from fusec.ir.dim import Dim, dim, symbol
from fusec.ir.dtype import DTYPES, DType
from fusec.ir.graph import Type
from fusec.models.graph import (
    Argument,
    ModelGraph,
    ModelInput,
    ModelNode,
    ModelOutput,
    Ref,
    Result,
    node_error,
    type_of,
)
from fusec.models.sizes import size_of

WHAT = "a recording of ATen graphs"
DEFAULT_SIZE = 256
"""Default of symbolic sizes in a recording, which has no hints."""

LONG_NAMES: Mapping[str, str] = {
    "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "float16": "f16",
    "float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128", "bool": "bool",
    "bfloat16": "bf16", "uint16": "u16", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
}  # fmt: skip


def recorded_graphs(path: Name) -> list[ModelGraph]:
    """Return the graphs of a recording, named after the model, their kind and their number."""
    data = read_json(path, WHAT)
    with decoding(not_a(path, WHAT)):
        graphs: Sequence[Mapping[str, Any]] = data["graphs"]
        names = [f"{data['model']}_{g['kind']}" for g in graphs]
        numbered = [
            name if names.count(name) == 1 else f"{name}_{names[:k].count(name)}"
            for k, name in enumerate(names)
        ]
        return [_Reader(str(path), g).graph(n) for g, n in zip(graphs, numbered, strict=True)]


class _Reader:
    """Reads one graph; Python errors that it raises mean damaged data."""

    def __init__(self, path: str, data: Mapping[str, Any]) -> None:
        self.path, self.data = path, data
        sizes = (e for i in data["inputs"] if i[3] != "symbol" for e in i[2])
        order = dict.fromkeys(e for e in sizes if isinstance(e, str) and e.isidentifier())
        self.symbols = dict.fromkeys(order, DEFAULT_SIZE)
        numbers = (str(i[0]) for i in data["inputs"] if i[3] == "symbol")
        # Dynamo lists the symbols of sizes first, in the order in which shapes need them.
        self.sizes: dict[str, Dim] = {
            n: symbol(s) for n, s in zip(numbers, self.symbols, strict=False)
        }
        self.results: dict[str, list[Result]] = {}

    def graph(self, name: str) -> ModelGraph:
        """Return the whole graph."""
        inputs = tuple(
            ModelInput(str(i[0]), self._type(i[1], i[2]), "input", str(i[0]))
            for i in self.data["inputs"]
            if i[3] != "symbol"
        )
        constants = tuple(
            ModelInput(str(n[0]), self._type(n[4][0], n[4][1]), "input", str(n[0]))
            for n in self.data["nodes"]
            if n[1] == "get_attr"
        )  # a recording does not have their values
        listed = (n for n in self.data["nodes"] if n[1] != "get_attr")
        nodes = tuple(n for data in listed for n in self._node(*data))
        outputs = tuple(
            ModelOutput(None if o is None else self._renamed(str(o))) for o in self.data["outputs"]
        )
        return ModelGraph(name, self.path, inputs + constants, nodes, outputs, self.symbols)

    def _type(self, dtype: str, shape: Sequence[int | str]) -> Type:
        if dtype not in LONG_NAMES:
            raise Unsupported(f"`{self.path}`: tensors of type {dtype}")
        return type_of(DTYPES[LONG_NAMES[dtype]], [self._size(e) for e in shape])

    def _size(self, extent: int | str) -> Dim:
        return dim(extent) if isinstance(extent, int) else size_of(extent, self.symbols)

    def _renamed(self, name: str) -> str:
        """Return the first result of a node that has several."""
        known = self.results.get(name)
        return name if known is None else known[0].name

    def _node(
        self,
        name: str,
        target: str,
        positional: Sequence[Any],
        named: Mapping[str, Any],
        result: Any,
        module: str,
    ) -> Iterator[ModelNode]:
        if target == "getitem":
            parent, place = positional[0]["n"], positional[1]
            self.results[name] = [self.results[parent][place]]
            return
        if result is not None and result[0] == "scalar":
            self.sizes[name] = size_of(result[1], self.symbols)
            return
        node = ModelNode(name, target, (), {}, (), _path(module))
        try:
            arguments = tuple(self._argument(a) for a in positional)
            keywords = {str(k): self._argument(a) for k, a in named.items()}
            yield ModelNode(
                name, target, arguments, keywords, self._results(name, result), _path(module)
            )
        except FusecError as error:
            raise node_error(
                self.path, node, error.diagnostic.message, error.diagnostic.help, kind=type(error)
            ) from None

    def _results(self, name: str, result: Any) -> tuple[Result, ...]:
        if result is None:
            return ()
        if isinstance(result[0], str):
            return (Result(name, self._type(result[0], result[1])),)
        found = [
            Result(f"{name}#{k}", None if r is None else self._type(r[0], r[1]))
            for k, r in enumerate(result)
        ]
        self.results[name] = found
        return tuple(found)

    def _argument(self, data: Any) -> Argument:
        if isinstance(data, list):
            return [self._argument(a) for a in data]  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(data, dict):
            return data
        pairs: dict[str, Any] = data  # pyright: ignore[reportUnknownVariableType]
        ((kind, value),) = pairs.items()
        if kind == "n":
            return self.sizes.get(value) or Ref(self._renamed(value))
        if kind == "dtype":
            return _dtype(str(value))
        if kind == "float":
            return float(value)
        raise Unsupported(f"an argument is `{value}`, which has no words")


def _dtype(name: str) -> DType:
    if name not in LONG_NAMES:
        raise Unsupported(f"tensors of type {name}")
    return DTYPES[LONG_NAMES[name]]


def _path(module: str) -> str:
    """Return Dynamo's path as a module path: `model.norm` of `L['args[0].model.norm`."""
    return module.rpartition("].")[2] if "[" in module else module
