"""Nodes as nvFuser prints expressions, in its present dialect (`head`) and that of June 2024."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fusec.dumps.index_expressions import index_text
from fusec.dumps.numbering import Axis, Numbering, Tensor, constant, steps_of
from fusec.ir.dim import Dim
from fusec.ir.dtype import DType
from fusec.ir.graph import Const, Node, Operand, Value

STYLES = ("2024", "head")

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "truediv": "/", "mod": "%", "eq": "==",
    "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "logical_and": "&&",
    "logical_or": "||", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
    "bitwise_left_shift": "<<", "bitwise_right_shift": ">>",
}  # fmt: skip
PREFIX = {"neg": "-", "logical_not": "!", "bitwise_not": "~"}
SUFFIXED = frozenset(
    [
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "cos", "cosh", "erf",
        "erfc", "erfcinv", "erfinv", "exp", "exp2", "expm1", "floor", "fmod", "lgamma", "log",
        "log10", "log1p", "log2", "nextafter", "round", "rsqrt", "sin", "sinh", "sqrt", "tan",
        "tanh", "trunc",
    ]
)  # fmt: skip
"""Functions whose name takes an `f` where the result is a float."""

REDUCTIONS = {
    "sum": ("add", 0.0), "prod": ("mul", 1.0), "max": ("fmax", float("-inf")),
    "min": ("fmin", float("inf")), "mean": ("mean", 0.0), "any": ("||", False), "all": ("&&", True),
}  # fmt: skip
WELFORD = {"avg": "Avg", "mean": "Avg", "var": "Var", "var_sum": "Var", "n": "Count", "out": "Var"}
CAST_NAMES = {
    "f64": "double", "f32": "float", "f16": "half", "bf16": "bfloat", "f8e4m3": "e4m3",
    "f8e5m2": "e5m2", "f8e8m0": "e8m0", "f4e2m1": "e2m1", "i64": "int64", "i32": "int32",
    "i16": "int16", "i8": "int8", "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8",
    "bool": "bool", "c64": "complex_float", "c128": "complex_double",
}  # fmt: skip


class Printer:
    """Prints values and nodes of one fusion; `stored` values lie in global memory."""

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
        numbers = self.names.numbers(node)
        if node.op.name != "broadcast_in_dim":
            return [(numbers[0], self._text(node))]
        source, result = self.operand(node.operands[0]), self.value(node.output)
        texts: list[str] = []
        steps = steps_of(node)
        for step in steps:
            target = result
            if step != steps[-1]:
                between = self.names.between[node.output]
                target = self.tensor(between, node.output.dtype, stored=False)
            texts.append(self._step(node, step, source, target))
            source = target
        return list(zip(numbers, texts, strict=True))

    def _step(self, node: Node, step: str, source: str, target: str) -> str:
        if step == "expand":
            return self._expand(source, target, node.output)
        if step == "set":
            return f"{target}\n   = Set( {source}, cache_op=Streaming )\n"
        places: tuple[int, ...] = node.attributes["broadcast_dims"]
        mask = [k not in places for k in range(node.output.rank)]
        return f"{target}\n   = broadcast( {source}{self._flags(mask)} )\n"

    def _flags(self, mask: Collection[bool]) -> str:
        if self.style != "head":
            return ""
        return ", flags = {" + ", ".join(str(m).lower() for m in mask) + "}"

    def _expand(self, source: str, target: str, value: Value) -> str:
        sizes = ", ".join(self.names.size(e) for e in value.shape)
        extents = f", {{{sizes}}}" if self.style != "head" else ""
        return f"{target} = expand( {source}{extents} )\n"

    def _text(self, node: Node) -> str:
        family = node.op.family
        if node.op.name in ("var", "var_mean", "welford"):
            return self._welford(node)
        if family == "reduction":
            return self._reduction(node)
        if family in ("pointwise", "scalar") and all(v.is_scalar for v in node.outputs):
            return f"{self.value(node.output)} = {self._call(node, ', ', ' ')};\n"
        if family == "pointwise":
            return f"{self.value(node.output)}\n   = {self._call(node, _COMMA, _OPERATOR)};\n"
        return self._other(node)

    def _call(self, node: Node, comma: str, space: str) -> str:
        """Return an elementwise application, its operands apart by lines or blanks."""
        name, operands = node.op.name, [self.operand(o) for o in node.operands]
        if name == "cast":
            return f"{cast_name(node)}({operands[0]})"
        if name == "size":
            return f"size({operands[0]}, {node.attributes['dim']})"
        if name in PREFIX:
            return f"{PREFIX[name]}{operands[0]}"
        if name in INFIX and len(operands) == 2:
            return f"{operands[0]}{space}{INFIX[name]} {operands[1]}"
        if name in ("maximum", "minimum"):
            name = "f" * node.output.dtype.is_float + name[:3]
        elif name in SUFFIXED and node.output.dtype.name == "f32":
            name += "f"
        return f"{name}({comma.join(operands)})"

    def _reduction(self, node: Node) -> str:
        operation, start = REDUCTIONS.get(node.op.name, (node.op.name, 0.0))
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
        name, attributes, result = node.op.name, node.attributes, self.value(node.output)
        operands = [self.operand(o) for o in node.operands]
        source = operands[0] if operands else ""
        match name:
            case "set" | "permute":
                kind = "Set" if name == "set" else "Set.Permute"
                return f"{result}\n   = {kind}( {source}, cache_op=Streaming )\n"
            case "segment_set":
                return f"{result}\n   = SegmenterSet( {source} )\n"
            case "broadcast":
                flags = self._flags(attributes["is_broadcast_dim"])
                return f"{result}\n   = broadcast( {source}{flags} )\n"
            case "squeeze":
                rank = len(self.names.axes(node.operands[0]))
                flags = self._flags([k in attributes["dims"] for k in range(rank)])
                return f"{result}\n   = squeeze( {source}{flags} )\n"
            case "expand":
                return self._expand(source, result, node.output)
            case "reshape":
                return f"{result} = {'reshape' if self.style == 'head' else 'view'}( {source} )\n"
            case "slice":
                return f"{result}\n   = slice( {source}, {{ {self._ranges(node)} }} )\n"
            case "pad":
                return f"{result}\n   = pad( {source}, {self._sizes(attributes['pad_widths'])} )\n"
            case "cat":
                return f"{result}\n   = cat( {', '.join(operands)}, {attributes['dim']} )\n"
            case "full":
                return f"{result}\n   = full({self._sizes(node.output.shape)}, {source})\n"
            case "iota":
                length = self.names.size(attributes["length"])
                parts = [length, *operands, node.output.dtype.printed]
                return f"{result}\n   = iota({', '.join(parts)});\n"
            case "matmul" | "linear":
                gap = ",\n" + " " * (len(name) + 6)
                return f"{result}\n   = {name}({gap.join(operands)})\n"
            case _:
                return self._further(node, operands)

    def _further(self, node: Node, operands: list[str]) -> str:
        values = [self.value(v) for v in node.outputs]
        results = values[0] if len(values) == 1 else f"( {', '.join(values)} )"
        text = index_text(node, results, operands, self._sizes(node.output.shape))
        if text is not None:
            return text
        given = {k: v for k, v in node.attributes.items() if v is not None}
        known = [*operands, *(f"{k} = {self._plain(v)}" for k, v in given.items())]
        return f"{results}\n   = {node.op.name}( {', '.join(known)} )\n"

    def _sizes(self, sizes: Collection[Any]) -> str:
        return "{" + ", ".join(self.names.size(s) for s in sizes) + "}"

    def _ranges(self, node: Node) -> str:
        starts, ends = node.attributes["start_indices"], node.attributes["end_indices"]
        steps: tuple[int, ...] = node.attributes["strides"]
        return " ".join(map(self._sizes, zip(starts, ends, steps, strict=True)))

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
