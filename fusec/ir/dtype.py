"""Element types and PyTorch's promotion rules."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from fusec.codes.names import UNKNOWN_DTYPE
from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.spelling import edits


@dataclass(frozen=True)
class DType:
    """An element type: its short name, kind, size in bits and the names other projects use.

    `kind` is one of bool, uint, int, float, complex. `long` is the NumPy / ml_dtypes name,
    `nvfuser` the name in nvFuser's DataType, `printed` the name in nvFuser's dumps.
    """

    name: str
    kind: str
    bits: int
    long: str
    nvfuser: str
    printed: str

    @property
    def size(self) -> int:
        """Return the size in bytes (1 for sub-byte types)."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        """Return whether values are real floating-point numbers."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """Return whether values are integers (bool excluded)."""
        return self.kind in ("int", "uint")

    @property
    def is_complex(self) -> bool:
        """Return whether values are complex numbers."""
        return self.kind == "complex"

    @property
    def is_rounded(self) -> bool:
        """Return whether results of arithmetic are rounded: floats and complex numbers."""
        return self.kind in ("float", "complex")

    @property
    def part(self) -> DType:
        """Return the type of the real and imaginary parts; a real type itself."""
        return {"c64": F32, "c128": F64}.get(self.name, self)

    @property
    def largest(self) -> float:
        """Return the largest finite number of a type of floats."""
        import ml_dtypes

        facts: Any = ml_dtypes.finfo
        return float(facts(self.numpy).max)

    @property
    def is_half(self) -> bool:
        """Return whether values are stored in 16 bits or fewer and computed in f32."""
        return self.kind == "float" and self.bits <= 16

    @property
    def compute(self) -> DType:
        """Return the type of computations on this type: f32 for floats of 16 bits or fewer."""
        return F32 if self.is_half else self

    @property
    def numpy(self) -> Any:
        """Return the NumPy dtype (ml_dtypes' for the types NumPy lacks)."""
        return _numpy_dtype(self.long)

    @property
    def is_numpys(self) -> bool:
        """Return whether NumPy itself provides the type."""
        return bool(self.numpy.isbuiltin == 1)

    @property
    def integers(self) -> range:
        """Return the integers of an integer type, from the lowest to the highest."""
        low = -(2 ** (self.bits - 1)) if self.kind == "int" else 0
        return range(low, low + 2**self.bits)

    def wrap(self, value: int) -> int:
        """Return the integer of this type that equals `value` modulo 2**bits."""
        low = self.integers.start
        return (value - low) % 2**self.bits + low

    @property
    def epsilon(self) -> float:
        """Return the unit roundoff of a float type: half the distance from 1 to the next value."""
        return _UNIT_ROUNDOFF.get(self.part.name, 0.0)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


F64 = DType("f64", "float", 64, "float64", "Double", "double")
F32 = DType("f32", "float", 32, "float32", "Float", "float")
F16 = DType("f16", "float", 16, "float16", "Half", "__half")
BF16 = DType("bf16", "float", 16, "bfloat16", "BFloat16", "__bfloat")
F8E4M3 = DType("f8e4m3", "float", 8, "float8_e4m3fn", "Float8_e4m3fn", "__e4m3")
F8E5M2 = DType("f8e5m2", "float", 8, "float8_e5m2", "Float8_e5m2", "__e5m2")
F8E8M0 = DType("f8e8m0", "float", 8, "float8_e8m0fnu", "Float8_e8m0fnu", "__e8m0")
F4E2M1 = DType("f4e2m1", "float", 4, "float4_e2m1fn", "Float4_e2m1fn", "__e2m1")
I64 = DType("i64", "int", 64, "int64", "Int", "int64_t")
I32 = DType("i32", "int", 32, "int32", "Int32", "int")
I16 = DType("i16", "int", 16, "int16", "Short", "int16_t")
I8 = DType("i8", "int", 8, "int8", "Char", "int8_t")
U64 = DType("u64", "uint", 64, "uint64", "UInt64", "uint64_t")
U32 = DType("u32", "uint", 32, "uint32", "UInt32", "uint32_t")
U16 = DType("u16", "uint", 16, "uint16", "UInt16", "uint16_t")
U8 = DType("u8", "uint", 8, "uint8", "Byte", "uint8_t")
BOOL = DType("bool", "bool", 8, "bool", "Bool", "bool")
C64 = DType("c64", "complex", 64, "complex64", "ComplexFloat", "std::complex<float>")
C128 = DType("c128", "complex", 128, "complex128", "ComplexDouble", "std::complex<double>")

ALL = (
    F64, F32, F16, BF16, F8E4M3, F8E5M2, F8E8M0, F4E2M1,
    I64, I32, I16, I8, U64, U32, U16, U8, BOOL, C64, C128,
)  # fmt: skip
DTYPES: dict[str, DType] = {d.name: d for d in ALL}

_ALIASES: dict[str, DType] = {
    "float64": F64, "double": F64, "float32": F32, "float": F32, "float16": F16, "half": F16,
    "bfloat16": BF16, "int64": I64, "long": I64, "int32": I32, "int16": I16, "int8": I8,
    "uint64": U64, "uint32": U32, "uint16": U16, "uint8": U8, "float8_e4m3fn": F8E4M3,
    "float8_e5m2": F8E5M2, "float8_e8m0fnu": F8E8M0, "float4_e2m1fn": F4E2M1,
    "complex64": C64, "complex128": C128, "fp64": F64, "fp32": F32, "fp16": F16,
}  # fmt: skip

_UNIT_ROUNDOFF = {
    "f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8,
    "f8e4m3": 2.0**-4, "f8e5m2": 2.0**-3, "f4e2m1": 2.0**-2, "f8e8m0": 0.5,
}  # fmt: skip


@cache
def _numpy_dtype(long: str) -> Any:
    import numpy as np

    if hasattr(np, long) or long == "bool":
        return np.dtype(long)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, long))


def known(name: str) -> DType | None:
    """Return the dtype called `name` (short, NumPy or nvFuser name), if there is one."""
    if name in DTYPES:
        return DTYPES[name]
    if name in _ALIASES:
        return _ALIASES[name]
    return next((dtype for dtype in ALL if dtype.nvfuser == name), None)


def find(name: str) -> DType:
    """Return the dtype called `name` (short, NumPy or nvFuser name), or raise FusecError."""
    if (dtype := known(name)) is not None:
        return dtype
    near = _near(name)
    help = f"did you mean {near}?" if near else "one of " + ", ".join(DTYPES)
    if name in ("fp8", "f8", "float8"):
        help = "floats of 8 bits are `f8e4m3`, with more precision, and `f8e5m2`, with more range"
    if name.endswith("dtype"):
        help = "write the type, as in `x.to(bf16)`, or that of a tensor, as in `x.to(h.dtype)`"
    raise FusecError(f"unknown dtype `{name}`", help=help, code=UNKNOWN_DTYPE)


def _near(name: str) -> str:
    """Return the dtypes that a name may refer to, those with the same beginning first."""
    import difflib

    names = [*DTYPES, *_ALIASES]
    begun = [n for n in names if n.startswith(name) and len(name) > 2]
    slips = {n: edits(name.lower(), n) for n in names}
    least = min(slips.values())
    # Two edits of a 3-letter name match anything.
    slipped = [n for n in names if slips[n] == least and least <= (1 if len(name) < 5 else 2)]
    slipped.sort(key=lambda n: n[0] != name[0].lower())
    close = begun[:1] or slipped or difflib.get_close_matches(name, names, n=1)
    return " or ".join(f"`{n}`" for n in dict.fromkeys(find(n).name for n in close))


def of_numpy(dtype: Any) -> DType:
    """Return the dtype of a NumPy dtype; FusecError if fusec has none."""
    if getattr(dtype, "isnative", True):
        return find(str(dtype))
    help = f"pass a copy of this machine's: `.astype('{dtype.newbyteorder('=')}')`"
    raise FusecError(f"{dtype} has another byte order", help=help)


_CATEGORY = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}


def category(dtype: DType) -> int:
    """Return PyTorch's promotion category: 0 bool, 1 integer, 2 float, 3 complex."""
    return _CATEGORY[dtype.kind]


def promote(a: DType, b: DType) -> DType:
    """Return the smallest type that holds both, as torch.promote_types.

    Source: the table of torch.promote_types; unsigned with signed of the same size or smaller
    goes to the next larger signed type.
    """
    if a == b:
        return a
    if category(a) != category(b):
        low, high = sorted((a, b), key=category)
        return promote(high, complex_of(low)) if low.is_float and high.is_complex else high
    if a.kind == "float":
        if a.bits == b.bits:
            return F32
        return a if a.bits > b.bits else b
    if a.kind == "complex":
        return C128
    if a.kind == b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return {8: I16, 16: I32, 32: I64, 64: I64}[unsigned.bits]


def complex_of(dtype: DType) -> DType:
    """Return the complex type of numbers whose parts are of a type: c128 for f64, else c64."""
    return dtype if dtype.is_complex else C128 if dtype == F64 else C64


def result_type(
    tensors: Iterable[DType], zero_dim: Iterable[DType], scalars: Iterable[DType]
) -> DType:
    """Return the result type of an operation on operands by category, as torch.result_type.

    A zero-dim tensor or a scalar takes part only if its category is above that of the dimensioned
    operands. A Python scalar (here f64, i64, c128 or bool) then stands for the default type f32 /
    c64. Together with a dimensioned float, a complex number takes the float's precision.
    """
    best: DType | None = None
    for group, weak in ((tensors, False), (zero_dim, False), (scalars, True)):
        group_type: DType | None = None
        for dtype in group:
            group_type = dtype if group_type is None else promote(group_type, dtype)
        if group_type is None:
            continue
        if best is None:
            best = group_type
        elif category(group_type) > category(best):
            weaker = _default(group_type) if weak else group_type
            best = complex_of(best) if weaker.is_complex and best.is_float else weaker
    assert best is not None
    return best


def _default(dtype: DType) -> DType:
    return {"float": F32, "complex": C64}.get(dtype.kind, dtype)
