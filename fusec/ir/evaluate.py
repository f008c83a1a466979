"""The meaning of a node: evaluation with its operation's NumPy reference in double precision.

Floats are held as float64, complex numbers as complex128, integers and bools in their own type.
Values of 16-bit and narrower floats are rounded where they are defined; f32 values are not rounded,
except that they overflow to infinity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, cast

from numpy.typing import NDArray

from fusec.diagnostics import FusecError, InternalError
from fusec.ir.arrays import computed_by, np, on_gpu, on_host
from fusec.ir.dim import Dim
from fusec.ir.dtype import DType
from fusec.ir.graph import Const, Node, Operand, Type, Value
from fusec.ir.integers import to_integers
from fusec.ir.op import OpDef

Array = NDArray[Any]
Sizes = Mapping[str, int]

HALF_FORMATS = {
    "bf16": (7, -126, 2.0**128 - 2.0**120),
    "f16": (10, -14, 65504.0),
    "f8e4m3": (3, -6, 448.0),
    "f8e5m2": (2, -14, 57344.0),
}
"""Mantissa bits, exponent of the smallest normal number and largest finite number."""
WIDENED_BATCH = 1 << 15
"""Number of bf16 elements that the CPU converts at once."""
SINGLE = (23, -126, 2.0**128 - 2.0**104)
"""The same for f32."""
F32_OVERFLOW = float(2.0**128 - 2.0**103)
"""The least double that rounds to infinity in f32."""


def storage(dtype: DType) -> Any:
    """Return the NumPy dtype in which the reference stores values of `dtype`."""
    if dtype.is_float:
        return np.dtype(np.float64)
    return np.dtype(np.complex128) if dtype.is_complex else dtype.numpy


def widen(array: Any, dtype: DType) -> Array:
    """Return stored values of `dtype` in the reference's representation."""
    if not dtype.is_numpys and array.dtype == dtype.numpy:
        if dtype.name == "bf16":
            return _from_bf16(np.asarray(array.view(np.uint16)))
        if on_gpu():
            return np.asarray(_values_of(dtype))[np.asarray(array.view(np.uint8))]
    return np.asarray(array).astype(storage(dtype), copy=False)


def _from_bf16(bits: Array) -> Array:
    """Return the values of bf16 bit patterns.

    Shifting into f32 is several times faster than the general conversion; large arrays are
    converted in chunks whose copies stay in the caches.
    """
    if on_gpu() or bits.size <= WIDENED_BATCH or not bits.flags.c_contiguous:
        wide: Array = (bits.astype(np.uint32) << 16).view(np.float32)
        return wide.astype(np.float64)
    found: Array = np.empty(bits.shape, np.float64)
    source, target = bits.reshape(-1), found.reshape(-1)
    for low in range(0, bits.size, WIDENED_BATCH):
        part = slice(low, low + WIDENED_BATCH)
        target[part] = (source[part].astype(np.uint32) << 16).view(np.float32)
    return found


@cache
def _values_of(dtype: DType) -> Array:
    """Return the values of all bytes of an 8-bit type, on the CPU."""
    with computed_by(None):
        return np.arange(256).astype(np.uint8).view(dtype.numpy).astype(np.float64)


def round_to(array: Array, dtype: DType) -> Array:
    """Return doubles rounded to the nearest values of a float or complex type (to even)."""
    if dtype.part.name == "f64":
        return array
    if dtype.name == "f8e4m3":
        # Casts saturate, infinities too (PTX cvt.satfinite); NaN stays NaN.
        largest = HALF_FORMATS[dtype.name][2]
        array = np.clip(array, -largest, largest)
    with np.errstate(all="ignore"):
        wide = np.asarray(array)
        if dtype.name in HALF_FORMATS:
            return _rounded_bits(wide.astype(np.float64, copy=False), *HALF_FORMATS[dtype.name])
        if on_gpu() and dtype.part.name == "f32":
            # CuPy's conversions flush denormal numbers to zero.
            parts = np.ascontiguousarray(wide.astype(storage(dtype), copy=False)).view(np.float64)
            return _rounded_bits(parts, *SINGLE).view(storage(dtype)).reshape(wide.shape)
        if not dtype.is_numpys:
            return on_host(f"round to {dtype}", _rounded_there, wide, dtype=dtype)
        return widen(wide.astype(dtype.numpy), dtype)


def _rounded_there(array: Array, *, dtype: DType) -> Array:
    return widen(array.astype(dtype.numpy), dtype)


def _rounded_bits(array: Array, mantissa: int, exponent: int, largest: float) -> Array:
    """Return doubles rounded to so many mantissa bits, to even, as doubles.

    exponent: of the smallest normal number; largest: the largest finite number. Integer additions
    take a fifth of the time of conversions via f32, which also round twice.
    """
    dropped = 52 - mantissa
    bits = array.view(np.uint64)
    kept = bits >> np.uint64(dropped)
    kept &= np.uint64(1)
    kept += np.uint64((1 << (dropped - 1)) - 1)
    kept += bits
    kept &= np.uint64((1 << 64) - (1 << dropped))
    found: Array = np.asarray(kept).view(np.float64)
    size = np.abs(array)
    small = size < 2.0**exponent
    if small.any():
        step = 2.0 ** (exponent - mantissa)
        found = np.where(small, np.rint(array / step) * step, found)
    if not np.max(size, initial=0.0) <= largest:
        found = np.where(np.abs(found) > largest, np.copysign(np.inf, array), found)
        found = np.where(np.isnan(array), array, found)
    return found


def convert(array: Array, dtype: DType, *, exact: bool = False) -> Array:
    """Return values converted to the type that an operation computes in; `exact` rounds floats."""
    with np.errstate(all="ignore"):
        if dtype.is_integer and np.asarray(array).dtype.kind == "f":
            return to_integers(array, dtype)
        converted = np.asarray(array).astype(storage(dtype), copy=False)
        return round_to(converted, dtype) if exact and dtype.is_rounded else converted


def convert_operand(operand: Operand, array: Array, dtype: DType) -> Array:
    """Return an operand as passed to its operation: a scalar is rounded to the compute type."""
    source = operand.type.dtype
    if source == dtype and not operand.is_scalar:
        return array
    return convert(array, dtype, exact=operand.is_scalar)


def evaluate_attributes(attributes: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """Return attributes with every Dim replaced by its value."""
    return {name: evaluate_attribute(value, sizes) for name, value in attributes.items()}


def evaluate_attribute(value: Any, sizes: Sizes) -> Any:
    """Return an attribute with every Dim replaced by its value."""
    if isinstance(value, Dim):
        return value.evaluate(sizes)
    if isinstance(value, tuple):
        return tuple(evaluate_attribute(item, sizes) for item in cast(tuple[Any, ...], value))
    return value


def apply_reference(
    op: OpDef, operands: Sequence[Any], attributes: Mapping[str, Any]
) -> tuple[Array, ...]:
    """Return the results of an operation's reference as arrays."""
    with np.errstate(all="ignore"):
        if on_gpu() and op.family == "scatter":
            # Elements combine in the order of the source; a GPU would write them concurrently.
            results = on_host(op.name, op.reference, *operands, **attributes)
        else:
            results = op.reference(*operands, **attributes)
    several = isinstance(results, (tuple, list))
    return tuple(np.asarray(r) for r in (cast(Sequence[Any], results) if several else (results,)))


def is_rounded(node: Node) -> bool:
    """Return whether 16-bit results are rounded: movement and selection only copy values."""
    return node.op.family not in ("movement", "indexing", "sort", "factory", "scalar")


def settle(node: Node, value: Value, array: Array) -> Array:
    """Return a raw result as stored: rounded if a 16-bit float, f32 overflow made infinite."""
    dtype = value.dtype
    with np.errstate(all="ignore"):
        held = np.asarray(array).astype(storage(dtype), copy=False)
    if dtype.is_half and is_rounded(node):
        return round_to(held, dtype)
    if dtype.is_rounded and not is_rounded(node) and node.op.family == "factory":
        return round_to(held, dtype)
    if dtype.name == "c64":
        return by_parts(held, overflow)
    return overflow(held) if dtype.name == "f32" else held


def real_and_imaginary(array: Array) -> tuple[Array, Array]:
    """Return the real and the imaginary parts of complex numbers, as views."""
    return np.real(array), np.imag(array)


def by_parts(array: Array, change: Callable[[Array], Array]) -> Array:
    """Return complex numbers with both parts changed; the array itself if neither is."""
    real, imag = real_and_imaginary(array)
    new_real, new_imag = change(real), change(imag)
    if new_real is real and new_imag is imag:
        return array
    changed: Any = np.empty(array.shape, array.dtype)
    changed.real, changed.imag = new_real, new_imag
    return changed


def overflow(array: Array) -> Array:
    """Return doubles with those beyond the range of f32 made infinite."""
    if array.size == 0:
        return array
    with np.errstate(all="ignore"):
        low, high = np.min(array), np.max(array)
        if low > -F32_OVERFLOW and high < F32_OVERFLOW:
            return array
        infinite = np.where(array >= F32_OVERFLOW, np.inf, array)
        return np.where(infinite <= -F32_OVERFLOW, -np.inf, infinite)


def known_scalar(value: Value, sizes: Sizes) -> Array | None:
    """Return an integer scalar that is computed from sizes, or None."""
    if value.is_scalar and value.dim is not None and value.dtype.is_integer:
        return np.asarray(value.dtype.wrap(value.dim.evaluate(sizes)), dtype=storage(value.dtype))
    return None


def constant(operand: Const) -> Array:
    """Return a literal as an array."""
    return np.asarray(operand.value, dtype=storage(operand.dtype))


def extents(type: Type, sizes: Sizes) -> tuple[int, ...]:
    """Return the shape at `sizes`; () for a scalar."""
    return tuple(d.evaluate(sizes) for d in type.shape or ())


def evaluate_node(
    node: Node, environment: Mapping[Value, Array], sizes: Sizes
) -> tuple[Array, ...]:
    """Return the results of one node, settled and of the declared shapes."""
    known = [known_scalar(v, sizes) for v in node.outputs]
    if all(k is not None for k in known):
        return tuple(k for k in known if k is not None)
    operands = [
        convert_operand(o, constant(o) if isinstance(o, Const) else environment[o], dtype)
        for o, dtype in zip(node.operands, node.compute_dtypes, strict=True)
    ]
    try:
        results = apply_reference(node.op, operands, evaluate_attributes(node.attributes, sizes))
    except FusecError as error:
        raise error.at(node.span) from None
    return tuple(
        check_shape(node, v, settle(node, v, r), extents(v.type, sizes))
        for v, r in zip(node.outputs, results, strict=True)
    )


def check_shape(node: Node, value: Value, array: Array, expected: tuple[int, ...]) -> Array:
    """Return `array` broadcast to its declared shape; InternalError if that is impossible."""
    if array.shape == expected:
        return array
    try:
        return np.broadcast_to(array, expected)
    except ValueError:
        raise InternalError(
            f"the reference of `{node.op.name}` returned shape {list(array.shape)} for "
            f"`{value.name}`, declared {list(expected)}",
            span=node.span,
        ) from None
