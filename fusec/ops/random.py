"""Random tensors: every element is a function of seed, offset and its own position.

A call without a seed uses the program's generator: it reads seed and offset from two inputs that no
caller passes, and adds its number among such calls to the offset. So every run generates new
numbers, and within one run they are the same however operations are fused or recomputed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError
from fusec.ir.dtype import F32, F64, U64, DType
from fusec.ir.graph import Const, Operand, Type
from fusec.ir.op import Block, Cost, Infer
from fusec.ops import texts
from fusec.ops.builder.inputs import check_dtype
from fusec.ops.declare import Array, Shape, composite, operation
from fusec.ops.dtypes import dtype_of
from fusec.ops.lazy import np
from fusec.ops.numerics import philox
from fusec.ops.numerics.precision import narrow, widen
from fusec.ops.shapes import described, tensor_shape, text

if TYPE_CHECKING:
    from fusec.ops.builder.build import GraphBuilder

Operands = tuple[Operand, ...]
Attributes = Mapping[str, Any]


def generator_pair(builder: GraphBuilder) -> tuple[Operand, Operand]:
    """Return the generator's seed, and an offset that no other random call of the fusion uses."""
    seed, offset, number = builder.next_draw()
    return seed, builder.apply("add", offset, number) if number else offset


def _seeded(builder: Any, slots: list[list[Operand] | None], given: Attributes) -> None:
    """Make a call without a seed use the generator."""
    if (slots[2] is None) != (slots[3] is None):
        raise FusecError("rng_seed without rng_offset, or the reverse", help="pass both or neither")
    if slots[2] is None:
        seed, offset = generator_pair(builder)
        slots[2], slots[3] = [seed], [offset]


def _canonical(operands: Operands, attributes: Attributes) -> Attributes:
    return {"dtype": attributes["dtype"] or F32}


def _computes(operands: Operands, result: DType) -> tuple[DType, ...]:
    return (result.compute, result.compute, U64, U64)


def _inferred(name: str) -> Infer:
    def infer(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
        shape, dtype = attributes["shape"], attributes["dtype"]
        check_dtype(dtype)
        if not dtype.is_float:
            raise FusecError(f"`{name}` of {dtype}: random numbers are floats")
        if any(e.is_const and e.value < 0 for e in shape):
            raise FusecError(f"`{name}` of shape {text(shape)}: extents are at least 0")
        for operand in operands[:2]:
            if operand.type.shape is not None or not (
                dtype_of(operand).is_float or dtype_of(operand).is_integer
            ):
                raise FusecError(f"`{name}` needs scalars", notes=[described([operand])])
        for operand in operands[2:]:
            if operand.shape or not dtype_of(operand).is_integer:
                raise FusecError(
                    f"seed and offset of `{name}` must be integer scalars",
                    notes=[described([operand])],
                )
        return (Type(dtype, shape),)

    return infer


def _numbers(draw: Any, shape: Shape, seed: Array, offset: Array, dtype: DType | None) -> Array:
    """Return the numbers of a tensor, or of a Block of it, whose elements are in runs."""
    first, count, step, runs = 0, math.prod(shape), 0, 1
    if isinstance(shape, Block):
        inner, runs = math.prod(shape[shape.axis + 1 :]), math.prod(shape[: shape.axis])
        first, count, step = shape.low * inner, shape[shape.axis] * inner, shape.whole * inner
    flat = [
        draw(int(seed), int(offset), count, first=first + k * step, double=dtype == F64)
        for k in range(runs)
    ]
    joined = flat[0] if runs == 1 else np.concatenate(flat or [np.empty(0)])
    return np.reshape(joined, tuple(shape))


_GENERATOR = ("rng_seed", "rng_offset")
_CALL = "({0}, {1}, {{rng_seed}}, {{rng_offset}}, {{index}})"
_VECTOR = "({0}, {1}, {{words}}, {{lane}})"
"""The words of a vector's elements."""
_UNIFORM = _CALL.format("{minval}", "{maxval}")
_NORMAL = _CALL.format("{mean}", "{std}")


@operation(
    "random", infer=_inferred("uniform"), compute=_computes, canonical=_canonical, prepare=_seeded,
    cuda={
        "f32": "fusec::uniform_f32" + _UNIFORM, "f64": "fusec::uniform_f64" + _UNIFORM,
        "f32 words": "fusec::uniform_f32" + _VECTOR.format("{minval}", "{maxval}"),
        "bounded": "fusec::round_below<{type}>({number}, {minval}, {maxval})",
    },
    cost=Cost(17), accuracy=2.0, extents="shape", generator=_GENERATOR,
    text=texts.random_text("rng_uniform_range"),
)  # fmt: skip
def uniform(
    minval: Array,
    maxval: Array,
    shape: Shape,
    rng_seed: Array | None = None,
    rng_offset: Array | None = None,
    dtype: DType | None = None,
) -> Array:
    """Return uniform random numbers in [minval, maxval); default dtype f32.

    A value that would round up to maxval becomes the largest value below it.
    Without rng_seed and rng_offset, every run generates new numbers from the program's generator.
    """
    assert rng_seed is not None
    assert rng_offset is not None
    random_text = _numbers(philox.uniforms, shape, rng_seed, rng_offset, dtype)
    numbers = minval + random_text * (maxval - minval)
    if dtype is None or not dtype.is_half:
        return numbers
    return _below(numbers, minval, maxval, dtype)


def _below(numbers: Array, low: Array, high: Array, dtype: DType) -> Array:
    """Return numbers that all round to less than `high`, if `low` is below it."""
    from fusec.ir.arrays import on_host
    from fusec.ir.evaluate import round_to

    rounded = round_to(numbers, dtype)
    above = (rounded >= high) & np.less(low, high)
    if not np.any(above):
        return numbers
    numbers = np.array(numbers)
    numbers[above] = on_host("numbers at a limit", _next_below, rounded[above], dtype=dtype)
    return numbers


def _next_below(numbers: Array, *, dtype: DType) -> Array:
    from fusec.ir.evaluate import round_to

    lowest = round_to(np.asarray(-np.inf), dtype).astype(dtype.numpy)  # finite in f8e4m3
    return np.nextafter(numbers.astype(dtype.numpy), lowest).astype(np.float64)


@operation(
    "random", infer=_inferred("normal"), compute=_computes, canonical=_canonical, prepare=_seeded,
    cuda={
        "f32": "fusec::normal_f32" + _NORMAL, "f64": "fusec::normal_f64" + _NORMAL,
        "f32 words": "fusec::normal_f32" + _VECTOR.format("{mean}", "{std}"),
    },
    cost=Cost(77, 1), accuracy=4.0, extents="shape", generator=_GENERATOR,
    text=texts.random_text("rng_normal_general"),
)  # fmt: skip
def normal(
    mean: Array,
    std: Array,
    shape: Shape,
    rng_seed: Array | None = None,
    rng_offset: Array | None = None,
    dtype: DType | None = None,
) -> Array:
    """Return normally distributed random numbers; default dtype f32.

    Without rng_seed and rng_offset, every run generates new numbers from the program's generator.
    """
    assert rng_seed is not None
    assert rng_offset is not None
    random_text = _numbers(philox.normals, shape, rng_seed, rng_offset, dtype)
    return mean + random_text * std


def _like(name: str, draw: str) -> Any:
    def expand(
        builder: GraphBuilder, arg: Operand, seed: Operand | None, offset: Operand | None
    ) -> Operand:
        shape, dtype = tensor_shape(name, arg), dtype_of(arg)
        if not dtype.is_float:
            raise FusecError(f"`{name}` of {dtype}: random numbers are floats")
        return builder.apply(draw, 0.0, 1.0, shape, seed, offset, dtype=dtype)

    return expand


@composite(expand=_like("rand_like", "uniform"))
def rand_like(arg: Array, rng_seed: Array | None = None, rng_offset: Array | None = None) -> Array:
    """Return uniform random numbers in [0, 1) with the shape and dtype of `arg`.

    Without rng_seed and rng_offset, every run generates new numbers from the program's generator.
    """
    return _numbers(philox.uniforms, np.shape(arg), rng_seed or 0, rng_offset or 0, None)


@composite(expand=_like("randn_like", "normal"))
def randn_like(arg: Array, rng_seed: Array | None = None, rng_offset: Array | None = None) -> Array:
    """Return standard normal random numbers with the shape and dtype of `arg`.

    Without rng_seed and rng_offset, every run generates new numbers from the program's generator.
    """
    return _numbers(philox.normals, np.shape(arg), rng_seed or 0, rng_offset or 0, None)


def _keep(builder: GraphBuilder, p: Operand) -> Operand | float:
    """Return the probability that an element is kept."""
    if not isinstance(p, Const):
        return builder.apply("sub", 1.0, p)
    if not 0 <= p.value.real <= 1:
        raise FusecError(f"`dropout`: the probability {p.value} is not between 0 and 1")
    return 1.0 - float(p.value.real)


def kept_elements(
    builder: GraphBuilder, x: Operand, p: Operand, seed: Operand | None, offset: Operand | None
) -> tuple[Operand, Operand | float]:
    """Return (which elements a dropout keeps, 1 / the probability that it keeps one)."""
    keep = _keep(builder, p)
    shape = tensor_shape("dropout", x)
    random_text = builder.apply("uniform", 0.0, 1.0, shape, seed, offset, dtype=F32)
    if isinstance(keep, float):
        scale: Operand | float = 1.0 / keep if keep else 0.0
    else:
        scale = builder.apply("reciprocal", keep)
    return builder.apply("lt", random_text, keep), scale


def _expand_dropout(
    builder: GraphBuilder, arg: Operand, p: Operand, scale: Operand | None,
    seed: Operand | None, offset: Operand | None,
) -> tuple[Operand, Operand]:  # fmt: skip
    mask, usual = kept_elements(builder, arg, p, seed, offset)
    scaled = builder.apply("mul", widen(builder, arg), usual if scale is None else scale)
    return narrow(builder, builder.apply("where", mask, scaled, 0.0), arg), mask


@composite(expand=_expand_dropout, results=("out", "mask"))
def dropout(
    arg: Array,
    p: Array,
    scale: Array | None = None,
    rng_seed: Array | None = None,
    rng_offset: Array | None = None,
) -> Array:
    """Return (arg with each element zeroed with probability p, the others scaled; the mask).

    The default scale is 1 / (1 - p). Without rng_seed and rng_offset, every run generates new
    numbers from the program's generator.
    """
    random_text = _numbers(philox.uniforms, np.shape(arg), rng_seed or 0, rng_offset or 0, None)
    mask = random_text < 1 - p
    return np.where(mask, arg * (1 / (1 - p) if scale is None else scale), 0.0), mask
