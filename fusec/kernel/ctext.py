"""C text: types, literals, and expressions with just the parentheses that they need."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from fusec.diagnostics import InternalError
from fusec.ir.dim import Call, Dim, Symbol
from fusec.ir.dtype import DType

PRIMARY, UNARY = 16, 15
# Source: the C++ operator precedence table, counted upwards.
_BINARY = {
    "*": 13, "/": 13, "%": 13, "+": 12, "-": 12, "<<": 11, ">>": 11, "<": 9, "<=": 9, ">": 9,
    ">=": 9, "==": 8, "!=": 8, "&": 7, "^": 6, "|": 5, "&&": 4, "||": 3, "?": 2, ":": 2, ",": 0,
}  # fmt: skip
_TOKEN = re.compile(r"\{(\w+)\}|::|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>&^|?:,()!~]|[\w.]+|\s+|::")

_STORAGE = {
    "f64": "double", "f32": "float", "f16": "fusec::f16", "bf16": "fusec::bf16",
    "f8e4m3": "fusec::f8e4m3", "f8e5m2": "fusec::f8e5m2", "i64": "fusec::i64", "i32": "int",
    "i16": "fusec::i16", "i8": "fusec::i8", "u64": "fusec::u64", "u32": "fusec::u32",
    "u16": "fusec::u16", "u8": "fusec::u8", "bool": "bool",
}  # fmt: skip


@dataclass(frozen=True)
class Text:
    """C text and the precedence of its outermost operator."""

    text: str
    precedence: int = PRIMARY

    def at_least(self, precedence: int) -> str:
        """Return the text, in parentheses if it binds less tightly than `precedence`."""
        return self.text if self.precedence >= precedence else f"({self.text})"

    def __str__(self) -> str:
        return self.text


def storage_type(dtype: DType) -> str:
    """Return the C type in memory."""
    return _STORAGE[dtype.name]


def compute_type(dtype: DType) -> str:
    """Return the C type of a register variable: float for half types."""
    return _STORAGE[dtype.compute.name]


def literal(value: bool | int | float, dtype: DType) -> Text:
    """Return a constant as a person would write it: `0.5f`, `-INFINITY`, `1e-5f`."""
    kind = dtype.compute
    if kind.kind == "bool":
        return Text("true" if value else "false")
    if kind.is_integer:
        return _integer(value, kind)
    number = float(value) if kind.name != "f32" else _to_f32(float(value))
    if not math.isfinite(number):
        text = "NAN" if math.isnan(number) else "-INFINITY" if number < 0 else "INFINITY"
        if kind.name == "f64":  # those of C are floats, which templates tell from doubles
            return Text(f"double({text})")
        return Text(text, UNARY if text.startswith("-") else PRIMARY)
    text = _shortest(number, kind)
    if "e" not in text and "." not in text:
        text += ".0"
    text = re.sub(r"e([+-]?)0*(\d)", lambda m: f"e{m[1].replace('+', '')}{m[2]}", text)
    return Text(
        text + ("f" if kind.name == "f32" else ""), UNARY if text.startswith("-") else PRIMARY
    )


def _integer(value: bool | int | float, kind: DType) -> Text:
    """Return an integer constant; what the type does not hold is an InternalError."""
    if not isinstance(value, int) or value not in kind.integers:
        raise InternalError(f"the constant {value} is not a {kind} value")
    suffix = {"i64": "ll", "u64": "ull", "u32": "u"}.get(kind.name, "")
    number = int(value)
    if kind.bits < 32:
        return Text(f"{compute_type(kind)}({number})")
    if number == kind.integers.start and kind.kind == "int":  # C has no literal of its magnitude
        return Text(f"({number + 1}{suffix} - 1)")
    return Text(f"{number}{suffix}", UNARY if number < 0 else PRIMARY)


def converted(value: bool | int | float, to: DType) -> bool | int | float:
    """Return a constant converted to another type, as the reference converts it."""
    if to.kind == "bool":
        return bool(value)
    if not to.is_integer or (isinstance(value, int) and value in to.integers):
        return value
    # NumPy takes longer to load than a small fusion to plan, and few constants are converted so.
    import numpy as np

    from fusec.ir.evaluate import convert

    return convert(np.asarray(value), to).item()


def is_reciprocal(value: float, size: int, dtype: DType) -> bool:
    """Return whether a constant is 1 / size as a kernel computes it, of the rounded size.

    A quotient of two f32 is the nearest one also where it is rounded twice, by way of f64.
    """
    if dtype.compute.name == "f64":
        return value == 1.0 / size
    return dtype.compute.name == "f32" and _to_f32(value) == _to_f32(1.0 / _to_f32(size))


def _shortest(number: float, kind: DType) -> str:
    if kind.name != "f32":
        return repr(number)
    for digits in range(1, 10):
        text = f"{number:.{digits}g}"
        if _to_f32(float(text)) == number:
            return repr(float(text))
    raise AssertionError(f"nine digits tell {number} from its neighbours")


def _to_f32(number: float) -> float:
    """Return the nearest f32; NumPy would be a third of a second to load."""
    try:
        return struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)


def apply(template: str, arguments: Mapping[str, Text]) -> Text:
    """Return an op's C expression with its operands put in, in parentheses where needed."""
    tokens = [m for m in _TOKEN.finditer(template) if not m[0].isspace()]
    words = [m[0] for m in tokens]
    pieces: list[str] = []
    position, depth, lowest = 0, 0, PRIMARY
    for k, match in enumerate(tokens):
        word = words[k]
        pieces.append(template[position : match.start()])
        position = match.end()
        depth += (word == "(") - (word == ")")
        if match[1]:
            pieces.append(arguments[match[1]].at_least(_required(words, k)))
            continue
        pieces.append(word)
        if depth == 0 and word in _BINARY:
            lowest = min(lowest, UNARY if _is_unary(words, k) else _BINARY[word])
        elif depth == 0 and word in "!~":
            lowest = min(lowest, UNARY)
    pieces.append(template[position:])
    return Text("".join(pieces), lowest)


def _is_unary(words: list[str], k: int) -> bool:
    return words[k] in "-+*&" and (
        k == 0 or words[k - 1] in _BINARY or words[k - 1] in ("(", "!", "~")
    )


def _required(words: list[str], k: int) -> int:
    """Return the precedence that the operand at `k` needs from the operators beside it."""
    need = 0
    if k > 0 and (words[k - 1] in _BINARY or words[k - 1] in "!~"):
        left = words[k - 1]
        if left in "!~" or _is_unary(words, k - 1):
            need = PRIMARY
        elif left != ",":
            # Also + and * bind to the left: another order would round differently.
            need = _BINARY[left] + (0 if left in ("?", ":", "&&", "||", "&", "|") else 1)
    if k + 1 < len(words) and words[k + 1] in _BINARY and words[k + 1] not in (",", ">"):
        need = max(need, _BINARY[words[k + 1]] + (words[k + 1] in ("?",)))
    elif k + 1 < len(words) and words[k + 1] == ">":
        need = max(need, _BINARY[">"])
    return need


def dim_text(value: Dim, *, wide: bool = False) -> Text:
    """Return a Dim as C, its symbols kernel parameters; `wide` adds 64-bit suffixes to literals."""
    if value.is_const:
        number = value.value
        text = str(number) + ("ll" if wide and abs(number) >= 2**31 else "")
        return Text(text, UNARY if number < 0 else PRIMARY)
    parts: list[tuple[str, str]] = []
    for monomial, coefficient in value.terms:
        factors = [_atom_text(a).at_least(14 if k else 13) for k, a in enumerate(monomial)]
        if abs(coefficient) != 1 or not factors:
            factors.append(str(abs(coefficient)))
        parts.append(("-" if coefficient < 0 else "+", " * ".join(factors)))
    sign, first = parts[0]
    text = ("-" if sign == "-" else "") + first + "".join(f" {s} {p}" for s, p in parts[1:])
    if len(parts) > 1:
        return Text(text, 12)
    return Text(text, UNARY if sign == "-" else 13 if " " in first else PRIMARY)


def _atom_text(atom: Symbol | Call) -> Text:
    if isinstance(atom, Symbol):
        return Text(identifier(atom.name))
    left, right = dim_text(atom.left), dim_text(atom.right)
    if atom.function == "floordiv":
        return Text(f"{left.at_least(13)} / {right.at_least(14)}", 13)
    if atom.function == "mod":
        return Text(f"{left.at_least(13)} % {right.at_least(14)}", 13)
    if atom.function == "ceildiv":
        return Text(f"({left} + {right.at_least(13)} - 1) / {right.at_least(14)}", 13)
    order = "<" if atom.function == "min" else ">"
    return Text(f"({left} {order} {right} ? {left} : {right})")


TEMPLATE_NAMES = frozenset([
    "after", "are_whole", "at", "base", "batch", "before", "before_shared", "block", "c", "carry",
    "choices", "chunk", "chunks", "column", "column_of_thread", "column_tiles", "columns",
    "combine", "count", "counter", "counts", "d", "digit", "e", "element", "empty", "end", "entry",
    "fetch", "first", "first_column", "first_line", "first_row", "found", "from", "full", "group",
    "i", "identity", "in_tile", "inclusive", "index", "index_errors", "inside", "is_column",
    "is_first", "is_row", "is_there", "item", "kAhead", "kBarriers", "kBlocks", "kChunks",
    "kCluster", "kColumns", "kColumnVecs", "kEntries", "kernel", "kExtent", "Key", "key", "keys",
    "kFan", "kFlatVec", "kGroupRows", "kGroups", "kItems", "kKeep", "kLanes", "kLength", "kLines",
    "kLineVecs", "kMostPitch", "kOwn", "kPack", "kPart", "kPiece", "kPitch", "kRangeRows",
    "kRanges", "kReach", "kReads", "kReadStep", "kReadVec", "kResults", "kRows",
    "kRowsPerThread", "kShift",
    "kSide", "kSpan", "kSplits", "kStages", "kStep", "kThreads", "kThreadsX", "kThreadsY", "kTile",
    "kTileColumns", "kTileLines", "kTileRows", "kTiles", "kTotals", "kTurns", "kUnroll", "kVec",
    "kWarps", "kWhole", "kWorkers", "kWrites", "kWriteStep", "kWriteVec", "lane", "last", "left",
    "line", "line_tiles", "lines", "lower", "next_slot", "Op", "own", "own_row", "parity", "part",
    "piece", "place", "places", "position", "r", "range", "rank", "row", "row_ahead", "row_entries",
    "row_of_thread", "row_start", "rows", "run", "s", "Selection", "selection", "shared_memory",
    "size", "slot", "smallest", "sorted", "source", "source_of", "split", "start", "step", "Sum",
    "sum", "sums", "target", "target_of", "targets", "thread", "ticket", "Tile", "tile",
    "tile_column", "tile_columns", "tile_line", "tile_lines", "tile_of_row", "tile_rows",
    "tile_start", "tile_total", "Total", "total", "turn", "turn_parity", "u", "v", "warp", "width",
])  # fmt: skip
"""Names that templates of memory-bound kernels give to their own variables."""

C_NAMES = frozenset([
    "CUDART_VERSION", "INFINITY", "NAN", "NULL", "acosf", "acoshf", "asinf", "asinhf", "assert",
    "atan2f", "atanf", "atanhf", "ceilf", "cosf", "coshf", "erfcf", "erfcinvf", "erff", "erfinvf",
    "exp2f", "expf", "expm1f", "fabsf", "floorf", "lgammaf", "log10f", "log1pf", "log2f", "logf",
    "make_float4", "max", "min", "rintf", "rsqrtf", "sinf", "sinhf", "sqrtf", "tanf", "tanhf",
    "truncf",
])  # fmt: skip
"""Macros, and the functions that kernels call without a namespace."""

_STRIDE = re.compile(r"_stride\d+_*$")


def identifier(name: str) -> str:
    """Return a name as a C identifier: `x.stride0` becomes `x_stride0`, and `row` `row_`.

    Two names never become one: what could be meant for another name gets an underscore more.
    """
    text = word(name)
    plain = text == name  # a name with a dot is fusec's own
    root = text.rstrip("_")
    taken = plain and (root in TEMPLATE_NAMES or root in C_NAMES or _STRIDE.search(text))
    return f"{text}_" if taken else text


def word(name: str) -> str:
    """Return a name with what no C identifier may contain replaced."""
    return re.sub(r"\W", "_", name)


def template_of(cuda: Mapping[str, str], kind: DType) -> str:
    """Return the C expression of an operation that computes in a type."""
    for key in (kind.name, kind.kind, "int" if kind.kind in ("uint", "bool") else "", "default"):
        if key in cuda:
            return cuda[key]
    raise KeyError(f"no CUDA expression for {kind}: {sorted(cuda)}")
