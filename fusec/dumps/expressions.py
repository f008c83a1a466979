"""Nodes as nvFuser prints expressions, in its present dialect (`head`) and that of June 2024."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from fusec.dataclasses import dataclass
from fusec.dumps.numbering import Axis, Numbering, Tensor, constant, steps_of
from fusec.ir.dim import Dim
from fusec.ir.dtype import DType
from fusec.ir.graph import Const, Node, Operand, Value
from fusec.ir.roles import Combine

STYLES = ("2024", "head")

WELFORD = {"avg": "Avg", "mean": "Avg", "var": "Var", "var_sum": "Var", "n": "Count", "out": "Var"}
CAST_NAMES = {
    "f64": "double", "f32": "float", "f16": "half", "bf16": "bfloat", "f8e4m3": "e4m3",
    "f8e5m2": "e5m2", "f8e8m0": "e8m0", "f4e2m1": "e2m1", "i64": "int64", "i32": "int32",
    "i16": "int16", "i8": "int8", "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8",
    "bool": "bool", "c64": "complex_float", "c128": "complex_double",
}  # fmt: skip


@dataclass(frozen=True)
class _Line:
    """A node for printing: its results and operands as text, and the format of sizes."""

    printer: Printer
    node: Node
    result: str
    operands: Sequence[str]

    @property
    def style(self) -> str:
        """Return the dialect."""
        return self.printer.style

    def size(self, extent: Dim | int) -> str:
        """Return a size."""
        return self.printer.names.size(extent)

    def sizes(self, extents: Iterable[Dim | int]) -> str:
        """Return sizes in braces."""
        return "{" + ", ".join(self.size(e) for e in extents) + "}"

    def flags(self, mask: Sequence[bool]) -> str:
        """Return which dims are selected, in the dialects that print it."""
        if self.style != "head":
            return ""
        return ", flags = {" + ", ".join(str(m).lower() for m in mask) + "}"


class Printer:
    """Prints values and nodes of one fusion; `stored` values are in global memory."""

    def __init__(self, names: Numbering, stored: Collection[Value], style: str) -> None:
        """Take the numbers and the dialect."""
        self.names = names
        self.stored = frozenset(stored)
        self.style = style

    def tensor(self, tensor: Tensor, dtype: DType, stored: bool) -> str:
        """Return `T3_g[ iS5{i0}, rS6{1024} ]`."""
        ids = ", ".join(
            f"{axis.kind}S{tensor.first_id + k}{{{self._extent(axis)}}}"
            for k, axis in enumerate(tensor.axes)
        )
        name = f"T{tensor.number}_{'g' if stored else 'l'}"
        if self.style == "head":
            return f"{name}_{dtype.printed}[{ids}]"
        return f"{name}[ {ids} ]" if ids else f"{name}[ ]"

    def _extent(self, axis: Axis) -> str:
        size = self.names.size(axis.extent)
        return f"1 ex {size}" if axis.repeats else size

    def value(self, value: Value) -> str:
        """Return a tensor or a scalar."""
        if value.is_scalar:
            return self.names.scalars[value]
        return self.tensor(self.names.tensors[value], value.dtype, value in self.stored)

    def operand(self, operand: Operand) -> str:
        """Return a value or a literal."""
        return constant(operand) if isinstance(operand, Const) else self.value(operand)

    def typed(self, value: Value) -> str:
        """Return a value with its element type, as inputs and outputs are listed."""
        return f"{self.value(value)} {value.dtype.printed}"

    def expressions(self, node: Node) -> list[tuple[int, str]]:
        """Return a node's expressions with their numbers; every text ends its line."""
        numbers, steps = self.names.numbers(node), steps_of(node)
        if not steps:
            return [(numbers[0], self._text(node))]
        source, result = self.operand(node.operands[0]), self.value(node.output)
        texts: list[str] = []
        for step in steps:
            target = result
            if len(texts) + 1 < len(steps):
                between = self.names.between[node.output]
                target = self.tensor(between, node.output.dtype, stored=False)
            texts.append(step(_Line(self, node, target, [source])))
            source = target
        return list(zip(numbers, texts, strict=True))

    def _text(self, node: Node) -> str:
        family = node.op.family
        if node.op.combine is Combine.MOMENTS:
            return self._welford(node)
        if family == "reduction":
            return self._reduction(node)
        if family in ("pointwise", "scalar") and all(v.is_scalar for v in node.outputs):
            return f"{self.value(node.output)} = {self._call(node, ', ', ' ')};\n"
        if family == "pointwise":
            return f"{self.value(node.output)}\n   = {self._call(node, _COMMA, _OPERATOR)};\n"
        return self._other(node)

    def _call(self, node: Node, comma: str, space: str) -> str:
        """Return an elementwise application, its operands separated by lines or spaces."""
        operands, text = [self.operand(o) for o in node.operands], node.op.text
        if node.op.converts:
            return f"{cast_name(node)}({operands[0]})"
        if isinstance(text.layout, str) and text.layout:
            return self._filled(node, text.layout, "")
        if text.prefix:
            return f"{text.prefix}{operands[0]}"
        if text.infix and len(operands) == 2:
            return f"{operands[0]}{space}{text.infix} {operands[1]}"
        dtype = node.output.dtype
        letters = {"single": "f" * (dtype.name == "f32"), "real": "f" * dtype.is_float}
        name = text.function.format_map(letters) or node.op.name
        return f"{name}({comma.join(operands)})"

    def _reduction(self, node: Node) -> str:
        operation, start = node.op.text.reduction or (node.op.name, 0.0)
        dtype = node.output.dtype
        if dtype.is_integer and start in (0.0, 1.0):
            start = int(start)
        initial = constant(Const(start, dtype))
        source = self.operand(node.operands[0])
        return (
            f"{self.value(node.output)}\n   = reduction( {source}, op = {operation}, "
            f"initial value = {initial}, allreduce = false )\n"
        )

    def _welford(self, node: Node) -> str:
        pairs = zip(node.outputs, node.op.results, strict=True)
        results = ",\n".join(f"{self.value(v)}({WELFORD.get(r, r)})" for v, r in pairs)
        source = self.operand(node.operands[0])
        return f"{results}\n = Welford ( {source}(Avg), \n  allreduce = false )\n"

    def _other(self, node: Node) -> str:
        values = [self.value(v) for v in node.outputs]
        results = values[0] if len(values) == 1 else f"( {', '.join(values)} )"
        operands, layout = [self.operand(o) for o in node.operands], node.op.text.layout
        if isinstance(layout, str):
            if layout:
                return self._filled(node, layout, results)
            given = {k: v for k, v in node.attributes.items() if v is not None}
            known = [*operands, *(f"{k} = {self._plain(v)}" for k, v in given.items())]
            return f"{results}\n   = {node.op.name}( {', '.join(known)} )\n"
        return layout(_Line(self, node, results, operands))

    def _filled(self, node: Node, layout: str, results: str) -> str:
        """Return a layout filled with the node's results, operands and attributes."""
        operands = [self.operand(o) for o in node.operands]
        named = dict.fromkeys((p.name for p in node.op.operands), "none")
        named |= dict(zip(named, operands, strict=False))
        return layout.format(*operands, **{**named, **node.attributes, "out": results})

    def _plain(self, value: Any) -> str:
        if isinstance(value, (DType, Dim)):
            return value.printed if isinstance(value, DType) else self.names.size(value)
        if not isinstance(value, tuple):
            return str(value)
        items: tuple[Any, ...] = value  # pyright: ignore[reportUnknownVariableType]
        return "{" + ", ".join(self._plain(v) for v in items) + "}"


_OPERATOR = "\n   "
_COMMA = "\n  , "


def cast_name(node: Node) -> str:
    """Return nvFuser's function for a cast: `__bfloat2float`, `__to_int64`."""
    source, target = node.operands[0].type.dtype, node.output.dtype
    if source.is_half or target.is_half:
        return f"__{CAST_NAMES[source.name]}2{CAST_NAMES[target.name]}"
    return f"__to_{CAST_NAMES[target.name]}"
