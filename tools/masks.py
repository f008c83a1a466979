"""Random masks of attention scores: by positions of many types, by inputs, by lengths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fusec.ir.dim import Dim, dim
from fusec.ir.dtype import BF16, BOOL, F16, F32, I8, I16, I32, I64, U8, U16, U32, U64, DType
from fusec.ir.graph import Value
from tools.operands import draw_operand
from tools.sketch import Sketch, Unfit

INFINITY = float("inf")
FILLS = {
    F16: (-INFINITY, -65504.0, -1e4),
    BF16: (-INFINITY, -INFINITY, -65504.0, -1e9, -3.3895314e38),
    F32: (
        *(-INFINITY, -INFINITY, -INFINITY, -65504.0, -1e4, -1e9, -1e12, -1e20, -3e20),
        *(-3.3895314e38, -3.4028234e38, -3.4028234e38),
    ),
}
"""What hidden scores become, up to the lowest value of their type."""


@dataclass(frozen=True)
class Scores:
    """The shape of scores: dims in front, queries and keys."""

    lead: tuple[Dim, ...]
    queries: Dim
    keys: Dim

    @property
    def rank(self) -> int:
        """Return the number of dims."""
        return len(self.lead) + 2

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Return all extents."""
        return (*self.lead, self.queries, self.keys)


def visible(sketch: Sketch, scores: Scores) -> Value:
    """Return a bool tensor that broadcasts to the scores: true where a query sees a key."""
    mask = sketch.weighed(MASKS)(sketch, scores)
    if sketch.chance(0.12):
        other = sketch.weighed(MASKS)(sketch, scores)
        mask = sketch.apply(sketch.pick(["logical_and", "logical_and", "logical_or"]), mask, other)
    if sketch.chance(0.06):
        mask = sketch.apply("logical_not", sketch.apply("logical_not", mask))
    return mask


def masked(sketch: Sketch, scores: Scores, values: Value) -> Value:
    """Return scores of which a part is hidden by a fill."""
    mask, fill = visible(sketch, scores), sketch.pick(FILLS[values.dtype])
    match sketch.weighed({"where": 55, "not": 15, "added": 20, "product": 10}):
        case "where":
            return sketch.apply("where", mask, values, fill)
        case "not":
            return sketch.apply("where", sketch.apply("logical_not", mask), fill, values)
        case "product" if fill != -INFINITY:
            hidden = sketch.apply("cast", sketch.apply("logical_not", mask), dtype=F32)
            return sketch.apply("add", values, sketch.apply("mul", hidden, fill))
        case _:
            return sketch.apply("add", values, sketch.apply("where", mask, 0.0, fill))


def biased(sketch: Sketch, scores: Scores, values: Value) -> Value:
    """Return scores plus a bias that broadcasts to them."""
    dtype = sketch.pick([F32, F32, BF16, F16]) if values.dtype == F32 else values.dtype
    bias = draw_operand(sketch, dtype, _broadcast_shape(sketch, scores), "bias")
    if dtype != values.dtype:
        bias = sketch.apply("cast", bias, dtype=values.dtype)
    return sketch.apply("add", values, bias)


def _broadcast_shape(sketch: Sketch, scores: Scores) -> tuple[Dim, ...]:
    """Return a shape that broadcasts to the scores, some of its dims 1 or left out in front."""
    shape = [e if sketch.chance(0.6) else dim(1) for e in scores.shape]
    first = sketch.pick([0, 0, 0, sketch.count(0, scores.rank - 1)])
    return tuple(shape[first:])


def _position(sketch: Sketch, scores: Scores, axis: int, dtype: DType | None) -> Value:
    """Return the positions along an axis of the scores, counted from its end for -1 and -2."""
    place = axis % scores.rank
    positions = sketch.apply("iota", 0, 1, length=scores.shape[place], dtype=dtype)
    flags = [k != place for k in range(scores.rank)]
    return sketch.apply("broadcast", positions, is_broadcast_dim=flags)


def _pair(sketch: Sketch, scores: Scores, *types: DType | None) -> tuple[Value, Value]:
    """Return the positions of queries and keys, in one of some types."""
    dtype = sketch.pick(types or (None, None, I32, I64))
    return _position(sketch, scores, -2, dtype), _position(sketch, scores, -1, dtype)


def _shift(sketch: Sketch, scores: Scores) -> int:
    """Return by how much queries are ahead: none, aligned at the end, or anything."""
    aligned = sketch.size_of(scores.keys) - sketch.size_of(scores.queries)
    return sketch.pick([0, 0, aligned, aligned, sketch.pick([-30, -3, -1, 1, 2, 20, 60])])


def _causal(sketch: Sketch, scores: Scores) -> Value:
    query, key = _pair(sketch, scores)
    shift = _shift(sketch, scores)
    ahead = sketch.apply("add", query, shift) if shift else query
    match sketch.pick(["le", "ge", "lt", "sub"]):
        case "le":
            return sketch.apply("le", key, ahead)
        case "ge":
            return sketch.apply("ge", ahead, key)
        case "lt":
            return sketch.apply("lt", key, sketch.apply("add", ahead, 1))
        case _:
            return sketch.apply("ge", sketch.apply("sub", ahead, key), 0)


def _window(sketch: Sketch, scores: Scores) -> Value:
    query, key = _pair(sketch, scores)
    shift = _shift(sketch, scores)
    ahead = sketch.apply("add", query, shift) if shift else query
    width = sketch.pick([1, 2, 16, 40, 70])
    near = sketch.apply("lt", sketch.apply("sub", ahead, key), width)
    if sketch.chance(0.2):
        return near
    return sketch.apply("logical_and", sketch.apply("le", key, ahead), near)


def _wrapping(sketch: Sketch, scores: Scores) -> Value:
    """Compare a difference of unsigned or narrow positions, which wraps."""
    query, key = _pair(sketch, scores, U8, U16, U32, U32, U64, I8, I16, I32)
    match sketch.pick(["lt", "ge", "add"]):
        case "lt":
            return sketch.apply("lt", sketch.apply("sub", query, key), sketch.pick([1, 16, 100]))
        case "ge":
            return sketch.apply("ge", sketch.apply("sub", query, key), sketch.pick([0, 1]))
        case _:
            return sketch.apply("le", key, sketch.apply("add", query, sketch.pick([1, 60, 120])))


def _computed(sketch: Sketch, scores: Scores) -> Value:
    """Compare positions behind other arithmetic: strided, in chunks, clamped."""
    query, key = _pair(sketch, scores)
    match sketch.pick(["stride", "chunk", "shift", "maximum", "remainder", "clamp", "abs"]):
        case "stride":
            return sketch.apply("le", sketch.apply("mul", key, 2), query)
        case "chunk":
            size = sketch.pick([3, 16, 64])
            sides = [sketch.apply("div", x, size) for x in (query, key)]
            return sketch.apply(sketch.pick(["eq", "ge"]), *sides)
        case "shift":
            sides = [sketch.apply("bitwise_right_shift", x, 4) for x in (query, key)]
            return sketch.apply(sketch.pick(["eq", "ge"]), *sides)
        case "maximum":
            return sketch.apply("ge", sketch.apply("maximum", query, 20), key)
        case "remainder":
            return sketch.apply(
                "eq", sketch.apply("remainder", sketch.apply("sub", query, key), 3), 0
            )
        case "clamp":
            return sketch.apply("le", key, sketch.apply("clamp", query, 5, 40))
        case _:
            distance = sketch.apply("abs", sketch.apply("sub", query, key))
            return sketch.apply("le", distance, sketch.pick([0, 9, 40]))


def _columns(sketch: Sketch, scores: Scores) -> Value:
    """Show the first or the last keys, or those of one number."""
    _, key = _pair(sketch, scores)
    count = sketch.pick([1, 5, 60, sketch.size_of(scores.keys)])
    return sketch.apply(sketch.pick(["lt", "lt", "ge", "ne"]), key, count)


def _by_head(sketch: Sketch, scores: Scores) -> Value:
    """Show a number of keys that depends on the head."""
    if scores.rank < 3:
        raise Unfit
    dtype = sketch.pick([None, I32])
    head, key = (_position(sketch, scores, axis, dtype) for axis in (-3, -1))
    return sketch.apply("lt", key, sketch.apply("add", sketch.apply("mul", head, 20), 7))


def _lengths(sketch: Sketch, scores: Scores) -> Value:
    """Show as many keys as an input says: of each batch, or of all."""
    dtype = sketch.pick([I32, I32, I64])
    count = scores.lead[0] if scores.lead and sketch.chance(0.8) else dim(1)
    name, least = sketch.builder.fresh_name("n"), sketch.pick([0, 1])
    most = sketch.size_of(scores.keys)
    lengths = sketch.builder.input(name, dtype, (count,), low=min(least, most), high=most)
    flags = [k != 0 for k in range(scores.rank)]
    key = _position(sketch, scores, -1, dtype)
    return sketch.apply("lt", key, sketch.apply("broadcast", lengths, is_broadcast_dim=flags))


def _documents(sketch: Sketch, scores: Scores) -> Value:
    """Show keys of the query's own document."""
    front = scores.lead[:1] if sketch.chance(0.5) else tuple(dim(1) for _ in scores.lead[:1])
    ones = tuple(dim(1) for _ in scores.lead[1:])
    sides: list[Value] = []
    for shape in ((scores.queries, dim(1)), (dim(1), scores.keys)):
        name = sketch.builder.fresh_name("document")
        sides.append(sketch.builder.input(name, I32, (*front, *ones, *shape), low=0, high=2))
    same = sketch.apply("eq", *sides)
    return (
        sketch.apply("logical_and", same, _causal(sketch, scores)) if sketch.chance(0.4) else same
    )


def _given(sketch: Sketch, scores: Scores) -> Value:
    """Show what a bool input says."""
    name = sketch.builder.fresh_name("mask")
    return sketch.builder.input(name, BOOL, _broadcast_shape(sketch, scores))


def _by_number(sketch: Sketch, scores: Scores) -> Value:
    """Show what lies below a threshold in an input of another type."""
    dtype = sketch.pick([F32, I32, BF16])
    other = draw_operand(sketch, dtype, _broadcast_shape(sketch, scores), "order")
    return sketch.apply("gt", other, 0)


Mask = Callable[[Sketch, Scores], Value]
MASKS: dict[Mask, int] = {
    _causal: 26, _window: 12, _wrapping: 8, _computed: 10, _columns: 10, _by_head: 4,
    _lengths: 12, _documents: 5, _given: 10, _by_number: 3,
}  # fmt: skip
