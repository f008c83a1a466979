"""Values, types, sizes and names of a kernel as nodes of the kernel IR."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from string import digits as DIGITS

from fusec.dataclasses import replace
from fusec.diagnostics import InternalError
from fusec.ir.dim import Call as Function
from fusec.ir.dim import Dim, Symbol
from fusec.ir.dtype import DType
from fusec.kernel.nodes import (
    FALSE,
    I64,
    INT,
    TRUE,
    Binary,
    Call,
    Expression,
    Grouped,
    Integer,
    Name,
    Real,
    Select,
    Sum,
    Type,
    Unary,
    Word,
)

NAN, INFINITY = Word("NAN"), Word("INFINITY")
_STORAGE = {name: Type(text) for name, text in {
    "f64": "double", "f32": "float", "f16": "fusec::f16", "bf16": "fusec::bf16",
    "f8e4m3": "fusec::f8e4m3", "f8e5m2": "fusec::f8e5m2", "i64": "fusec::i64", "i32": "int",
    "i16": "fusec::i16", "i8": "fusec::i8", "u64": "fusec::u64", "u32": "fusec::u32",
    "u16": "fusec::u16", "u8": "fusec::u8", "bool": "bool",
}.items()}  # fmt: skip


def storage_type(dtype: DType) -> Type:
    """Return the C type in memory."""
    return _STORAGE[dtype.name]


def compute_type(dtype: DType) -> Type:
    """Return the C type of a register variable: float for 16-bit and narrower floats."""
    return _STORAGE[dtype.compute.name]


def index_type(*, wide: bool) -> Type:
    """Return the C type of indices."""
    return I64 if wide else INT


def literal(value: bool | int | float, dtype: DType) -> Expression:
    """Return a constant as a person would write it: `0.5f`, `-INFINITY`, `1e-5f`."""
    kind = dtype.compute
    if kind.kind == "bool":
        return TRUE if value else FALSE
    if kind.is_integer:
        return _integer(value, kind)
    number = float(value) if kind.name != "f32" else _to_f32(float(value))
    if not math.isfinite(number):
        text = NAN if math.isnan(number) else Unary("-", INFINITY) if number < 0 else INFINITY
        # C literals need a suffix, which templates use to distinguish floats from doubles.
        return Call("double", (text,)) if kind.name == "f64" else text
    return Real(_digits(_shortest(number, kind)), "f" if kind.name == "f32" else "")


def _integer(value: bool | int | float, kind: DType) -> Expression:
    """Return an integer constant; InternalError if it does not fit the type."""
    if not isinstance(value, int) or value not in kind.integers:
        raise InternalError(f"the constant {value} is not a {kind} value")
    suffix = {"i64": "ll", "u64": "ull", "u32": "u"}.get(kind.name, "")
    number = int(value)
    if kind.bits < 32:
        return Call(compute_type(kind).name, (Integer(number),))
    if number == kind.integers.start and kind.kind == "int":  # C has no literal of its magnitude
        return Grouped(Binary("-", Integer(number + 1, suffix), Integer(1)))
    return Integer(number, suffix)


def converted(value: bool | int | float, to: DType) -> bool | int | float:
    """Return a constant converted to another type, as the reference converts it."""
    if to.kind == "bool":
        return bool(value)
    if not to.is_integer or (isinstance(value, int) and value in to.integers):
        return value
    # NumPy takes longer to load than a small fusion to plan, and few constants need this
    # conversion.
    import numpy as np

    from fusec.ir.evaluate import convert

    return convert(np.asarray(value), to).item()


def is_reciprocal(value: float, size: int, dtype: DType) -> bool:
    """Return whether a constant is 1 / size as a kernel computes it, of the rounded size.

    A quotient of two f32 is correctly rounded even if it is rounded twice, via f64.
    """
    if dtype.compute.name == "f64":
        return value == 1.0 / size
    return dtype.compute.name == "f32" and _to_f32(value) == _to_f32(1.0 / _to_f32(size))


def _digits(number: float) -> str:
    """Return the digits of a number in C syntax, with a point or an exponent: `1e-5`."""
    mantissa, has_exponent, exponent = repr(number).partition("e")
    return f"{mantissa}e{int(exponent)}" if has_exponent else mantissa


def _shortest(number: float, kind: DType) -> float:
    """Return the number with the fewest digits that rounds to the same value of a type."""
    if kind.name != "f32":
        return number
    for digits in range(1, 10):
        shorter = float(f"{number:.{digits}g}")
        if _to_f32(shorter) == number:
            return shorter
    raise AssertionError(f"nine digits tell {number} from its neighbours")


def _to_f32(number: float) -> float:
    """Return the nearest f32; importing NumPy would take a third of a second."""
    try:
        return struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)


def dim_text(value: Dim, *, wide: bool = False) -> Expression:
    """Return a Dim in C, symbols as kernel parameters; `wide` adds 64-bit suffixes to literals."""
    if value.is_const:
        number = value.value
        return Integer(number, "ll" if wide and abs(number) >= 2**31 else "")
    terms: list[Expression] = []
    for monomial, coefficient in value.terms:
        factors = [_atom(a) for a in monomial]
        if abs(coefficient) != 1 or not factors:
            factors.append(Integer(abs(coefficient)))
        if coefficient < 0:
            first = factors[0]
            is_number = isinstance(first, Integer)
            factors[0] = replace(first, value=-first.value) if is_number else Unary("-", first)
        term = factors[0]
        for factor in factors[1:]:
            term = Binary("*", term, factor)
        terms.append(term)
    return terms[0] if len(terms) == 1 else Sum(tuple(terms))


def _atom(atom: Symbol | Function) -> Expression:
    if isinstance(atom, Symbol):
        return Name(identifier(atom.name))
    left, right = dim_text(atom.left), dim_text(atom.right)
    if atom.function == "floordiv":
        return Binary("/", left, right)
    if atom.function == "mod":
        return Binary("%", left, right)
    if atom.function == "ceildiv":
        return Binary("/", Binary("-", Binary("+", left, right), Integer(1)), right)
    order = "<" if atom.function == "min" else ">"
    return Grouped(Select(Binary(order, left, right), left, right))


TEMPLATE_NAMES = frozenset([
    "after", "are_whole", "at", "base", "batch", "before", "before_shared", "block", "c", "carry",
    "choices", "chunk", "chunks", "column", "column_of_thread", "column_tiles", "columns",
    "combine", "count", "counter", "counts", "d", "digit", "e", "element", "empty", "end", "entry",
    "fetch", "first", "first_column", "first_line", "first_row", "found", "from", "full", "group",
    "i", "identity", "in_tile", "inclusive", "index", "index_errors", "inside", "is_column",
    "is_first", "is_row", "is_there", "item", "kAhead", "kBarriers", "kBlocks", "kBuffer",
    "kChunks", "kCluster", "kColumns", "kColumnVecs", "kEntries", "kernel", "kExtent", "Key",
    "key", "keys", "kFan", "kFlatVec", "kGroupRows", "kGroups", "kItems", "kKeep", "kLanes",
    "kLength", "kLines",
    "kLineVecs", "kMostPitch", "kOneTile", "kOwn", "kPack", "kPart", "kPiece", "kPitch",
    "kRangeRows", "kRanges", "kReach", "kReads", "kReadStep", "kReadVec", "kResults", "kRows",
    "kRowsOfBlock", "kRowsPerThread", "kShift",
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


def identifier(name: str) -> str:
    """Return a name as a C identifier: `x.stride0` becomes `x_stride0`, and `row` `row_`.

    Distinct names stay distinct: a name that collides with another form gets an extra underscore.
    """
    text = word(name)
    plain = text == name  # a name with a dot is fusec's own
    root = text.rstrip("_")
    taken = plain and (root in TEMPLATE_NAMES or root in C_NAMES or _is_of_stride(root))
    return f"{text}_" if taken else text


def _is_of_stride(name: str) -> bool:
    """Return whether a name has the form of a stride's identifier: `x_stride0`."""
    stem = name.rstrip(DIGITS)
    return stem != name and stem.endswith("_stride")


def word(name: str) -> str:
    """Return a name with characters replaced that are invalid in C identifiers."""
    return "".join(c if c.isalnum() else "_" for c in name)


def template_of(cuda: Mapping[str, str], kind: DType) -> str:
    """Return the C expression of an operation that computes in a type."""
    for key in (kind.name, kind.kind, "int" if kind.kind in ("uint", "bool") else "", "default"):
        if key in cuda:
            return cuda[key]
    raise KeyError(f"no CUDA expression for {kind}: {sorted(cuda)}")
