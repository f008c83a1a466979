"""Random operations that compute: elementwise ones, casts, reductions, products, fresh tensors."""

from __future__ import annotations

from typing import Any

from fusec.ir.dim import Dim
from fusec.ir.dtype import BF16, BOOL, F16, F32, F64, I32, I64, DType
from fusec.ir.graph import Value
from fusec.ir.op import OpDef
from fusec.ops import TABLE
from fusec.ops.numerics import between
from tools.entries import draw_input
from tools.sketch import OTHER_DTYPES, Sketch, Unfit

MODULO = frozenset(
    op.name for op in TABLE.values() if op.between in (between.remainder, between.signed_remainder)
)
CONSTANTS = (0.0, 1.0, -1.0, 2.0, 0.5, -0.25, 3.0, 0, 1, 2, 3, -2)
DIVISIONS = MODULO | {"div", "truediv", "ceilDiv"}
SHIFTS = frozenset({"bitwise_left_shift", "bitwise_right_shift", "logical_right_shift"})
WHOLE = SHIFTS | {"gcd", "ceilDiv", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"}
JUMPING = MODULO | {"ceil", "floor", "round", "trunc", "frac", "ceilDiv"}
LONGEST_PRODUCT = 1024
"""Factors of a product; one of more leaves the range of f32."""
WIDE_DOMAIN = (-2.0, 2.0)


def of_family(family: str) -> list[str]:
    """Return the names of a family's operations."""
    return [name for name, op in TABLE.items() if op.family == family]


def draw_pointwise(sketch: Sketch) -> None:
    """Apply an elementwise operation to tensors that broadcast together, scalars and numbers."""
    op = TABLE[sketch.pick([n for n in of_family("pointwise") if n != "cast"])]
    first = sketch.tensor()
    if op.name in JUMPING and sketch.is_rough(first) and sketch.chance(0.95):
        raise Unfit
    if op.name in WHOLE and not first.dtype.is_integer and sketch.chance(0.8):
        # Most tensors are floats: wait for one that the operation takes.
        first = converted(sketch, first, sketch.pick([I32, I64]))
    if op.name == "where":
        sketch.keep(_where(sketch, first))
        return
    operands: list[Any] = []
    for k in range(len(op.operands)):
        operand = inside(sketch, op, first) if k == 0 else _other(sketch, op, first)
        operands.append(_divisor(sketch, op, operand) if k else operand)
    if len(operands) == 2 and sketch.chance(0.15) and op.name not in DIVISIONS | SHIFTS:
        operands.reverse()
    sketch.keep(*sketch.call(op.name, operands))


def _where(sketch: Sketch, first: Value) -> Value:
    test = sketch.apply(sketch.pick(["gt", "le", "ne"]), first, sketch.pick([0, 0.5, 1]))
    condition = first if first.dtype == BOOL else test
    op = TABLE["where"]
    return sketch.apply(
        "where", condition, _other(sketch, op, first), _other(sketch, op, first, share=0.8)
    )


def _other(sketch: Sketch, op: OpDef, first: Value, share: float = 0.65) -> Any:
    """Return an operand beside `first`: a tensor that fits it, a scalar input or a number."""
    if sketch.chance(share):
        fit = [t for t in sketch.known() if fits(t, first)]
        # Two tensors of different types are as good as two of one type, but refused by bit ops.
        return inside(sketch, op, sketch.pick(fit[-4:] if sketch.chance(0.6) else fit))
    if sketch.scalars and sketch.chance(0.4):
        return sketch.pick(sketch.scalars)
    whole = not first.dtype.is_float and sketch.chance(0.8)
    return sketch.pick([c for c in CONSTANTS if isinstance(c, int) or not whole])


def fits(tensor: Value, other: Value) -> bool:
    """Return whether two tensors broadcast together."""
    pairs = zip(reversed(tensor.shape), reversed(other.shape), strict=False)
    return all(a == b or a == 1 or b == 1 for a, b in pairs)


def inside(sketch: Sketch, op: OpDef, value: Value) -> Value:
    """Return a value that mostly lies where the operation is defined."""
    low, high = op.domain
    narrow = low > WIDE_DOMAIN[0] or high < WIDE_DOMAIN[1]
    made = not value.name[1:].isdigit()
    if narrow and made and value.dtype.is_float and sketch.chance(0.8):
        bounds = (max(low, -1e30), min(high, 1e30))
        return sketch.apply("clamp", value, *bounds)
    return value


def _divisor(sketch: Sketch, op: OpDef, operand: Any) -> Any:
    """Return an integer divisor that is not 0, and a distance that a shift takes."""
    if op.name in DIVISIONS:
        if isinstance(operand, Value) and (operand.dtype.is_integer or operand.dtype == BOOL):
            if operand.dtype == BOOL or operand.is_scalar:
                return sketch.pick([1, 2, 3, -3])
            return sketch.apply("bitwise_or", operand, 1)
        return operand or 3 if isinstance(operand, (int, float)) else operand
    if op.name == "pow" and not isinstance(operand, Value):
        return sketch.pick([0, 1, 2, 3, 2.0, 0.5])
    return operand


def draw_cast(sketch: Sketch) -> None:
    """Convert a tensor."""
    value = sketch.tensor()
    target = sketch.main if sketch.chance(0.3) else sketch.weighed(OTHER_DTYPES)
    sketch.keep(converted(sketch, value, target))


def converted(sketch: Sketch, value: Value, target: DType) -> Value:
    """Return a tensor in another type; mostly Unfit where truncation would say nothing."""
    if target.is_integer and sketch.is_rough(value) and sketch.chance(0.95):
        raise Unfit
    return sketch.apply("cast", value, dtype=target)


def draw_reduction(sketch: Sketch) -> None:
    """Reduce over some dims."""
    tensor = sketch.tensor(1)
    if sketch.chance(0.35):
        # A tensor that is neither an input's copy nor small makes the more interesting rows.
        tensor = max((sketch.tensor(1) for _ in range(3)), key=lambda t: sketch.elements(t.shape))
    sketch.keep(*reduced(sketch, tensor, sketch.pick(of_family("reduction"))))


def axes(sketch: Sketch, rank: int) -> list[int]:
    """Return dims to reduce over: inner, outer, all, or any."""
    match sketch.pick(["inner", "inner", "outer", "all", "any", "any"]):
        case "inner":
            return list(range(sketch.count(max(0, rank - 2), rank - 1), rank))
        case "outer":
            return list(range(sketch.count(1, rank)))
        case "all":
            return list(range(rank))
        case _:
            return sketch.some(range(rank), 1)


def reduced(
    sketch: Sketch, tensor: Value, op: str, dims: list[int] | None = None, keep: bool | None = None
) -> tuple[Any, ...]:
    """Return the results of a reduction."""
    reduced_dims = axes(sketch, tensor.rank) if dims is None else dims
    attributes: dict[str, Any] = {"dims": reduced_dims}
    factors = sketch.elements([tensor.shape[axis] for axis in reduced_dims])
    if op == "prod" and tensor.dtype.is_float and factors > LONGEST_PRODUCT:
        raise Unfit
    names = {p.name for p in TABLE[op].params}
    if "keepdim" in names:
        attributes["keepdim"] = sketch.chance(0.5) if keep is None else keep
    if "correction" in names:
        attributes["correction"] = sketch.pick([0, 1])
    return sketch.call(op, [inside(sketch, TABLE[op], tensor)], **attributes)


def draw_composite_reduction(sketch: Sketch) -> None:
    """Take a mean, a softmax or a norm over trailing dims."""
    tensor = sketch.tensor(1, where=lambda t: t.dtype.is_float)
    axis = sketch.count(-tensor.rank, tensor.rank - 1)
    tail = tensor.shape[sketch.count(max(0, tensor.rank - 2), tensor.rank - 1) :]
    match sketch.pick(["mean", "softmax", "log_softmax", "layer_norm", "rms_norm"]):
        case "mean":
            dims = axes(sketch, tensor.rank)
            sketch.keep(sketch.apply("mean", tensor, dims=dims, keepdim=sketch.chance(0.5)))
        case "layer_norm":
            weight, bias = (_parameter(sketch, tensor, tail) for _ in range(2))
            result = sketch.call(
                "layer_norm", [tensor, weight, None if weight is None else bias], norm_shape=tail
            )
            sketch.keep(*(result if sketch.chance(0.3) else result[:1]))
        case "rms_norm":
            weight = _parameter(sketch, tensor, tail)
            result = sketch.call("rms_norm", [tensor, weight], norm_shape=tail)
            sketch.keep(*(result if sketch.chance(0.3) else result[:1]))
        case name:
            sketch.keep(sketch.apply(name, tensor, dim=axis))


def _parameter(sketch: Sketch, tensor: Value, shape: tuple[Dim, ...]) -> Value | None:
    if sketch.chance(0.4):
        return None
    fit = [t for t in sketch.known() if t.shape == shape and t.dtype == tensor.dtype]
    return sketch.pick(fit) if fit else fresh(sketch, tensor.dtype, shape)


def fresh(sketch: Sketch, dtype: DType, shape: tuple[Dim, ...]) -> Value:
    """Return one more input."""
    name = sketch.builder.fresh_name(f"x{len(sketch.tensors)}")
    return draw_input(sketch, name, dtype, shape)


def draw_product(sketch: Sketch) -> None:
    """Multiply matrices: of what is there, or with a new input."""
    left = sketch.tensor(1, 4, where=lambda t: t.dtype.is_float and t.dtype.bits >= 16)
    if left.dtype not in (BF16, F16) and sketch.chance(0.5):
        left = sketch.apply("cast", left, dtype=sketch.pick([BF16, F16]))
    inner, columns = left.shape[-1], sketch.extent(512)
    work = sketch.elements(left.shape) * sketch.size_of(columns)
    if work > 1 << 25 or sketch.elements((*left.shape[:-1], columns)) > 4 * sketch.cap:
        raise Unfit
    if sketch.chance(0.35):
        weight = fresh(sketch, left.dtype, (columns, inner))
        bias = fresh(sketch, left.dtype, (columns,)) if sketch.chance(0.5) else None
        result = sketch.apply("linear", left, weight, bias)
    elif sketch.chance(0.5):
        right = sketch.apply("permute", fresh(sketch, left.dtype, (columns, inner)), dims=[1, 0])
        result = sketch.apply("matmul", left, right)
    else:
        batch = left.shape[:-2] if sketch.chance(0.5) else ()
        result = sketch.apply("matmul", left, fresh(sketch, left.dtype, (*batch, inner, columns)))
    sketch.keep(result)


def draw_fresh(sketch: Sketch) -> None:
    """Make a tensor of one number, of a sequence or of random numbers."""
    like = sketch.tensor(where=lambda t: t.dtype.is_float)
    match sketch.pick(["full", "iota", "uniform", "normal", "rand_like", "randn_like", "dropout"]):
        case "full":
            value = sketch.pick([*sketch.scalars, 0, 1.5])
            dtype = sketch.pick([F32, like.dtype, I32, None])
            sketch.keep(sketch.apply("full", value, shape=like.shape, dtype=dtype))
        case "iota":
            length = like.shape[-1] if like.rank else 5
            start, step = sketch.pick([0, 1, -3]), sketch.pick([1, 2, -1])
            dtype = sketch.pick([None, I32, I64, F32])
            sketch.keep(sketch.apply("iota", start, step, length=length, dtype=dtype))
        case "uniform":
            dtype = sketch.pick([F32, None, BF16, F64])
            sketch.keep(sketch.apply("uniform", -1.0, 2.0, shape=like.shape, dtype=dtype))
        case "normal":
            dtype = sketch.pick([F32, None, F16])
            sketch.keep(sketch.apply("normal", 0.5, 2.0, shape=like.shape, dtype=dtype))
        case "dropout":
            sketch.keep(*sketch.call("dropout", [like, sketch.pick([0.1, 0.5])]))
        case name:
            sketch.keep(sketch.apply(name, like))


def draw_scalar(sketch: Sketch) -> None:
    """Compute with scalars: inputs, sizes and numbers."""
    op = sketch.pick(["add", "mul", "sub", "truediv", "cast", "size"])
    left = sketch.pick([*sketch.scalars, *CONSTANTS])
    if op == "cast":
        sketch.keep(*sketch.call("cast", [left], dtype=sketch.pick([F32, F64, I64])))
    elif op == "size":
        tensor = sketch.tensor(1)
        sketch.keep(*sketch.call("size", [tensor], dim=sketch.count(0, tensor.rank - 1)))
    else:
        right = sketch.pick([*sketch.scalars, 1.0, -1.0, 2.0, 0.5, 3])
        sketch.keep(*sketch.call(op, [left, 3 if op == "truediv" else right]))
