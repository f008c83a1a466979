"""Random attention: forward, decode and backward, as one operation and written from its parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fusec.ir.dim import Dim, dim
from fusec.ir.dtype import BF16, F16, F32, DType
from fusec.ir.graph import Value
from tools.epilogues import draw_results, epilogue, prologue
from tools.gemms import multiply
from tools.masks import Scores, biased, masked, visible
from tools.operands import SMALL, draw_operand, mostly_aligned, named
from tools.sketch import Sketch, Unfit

DTYPES = {BF16: 65, F16: 30, F32: 5}
FEATURES = {64: 62, 128: 14, 96: 6, 256: 4, 32: 4, 80: 3, 40: 2, 72: 2, 16: 2, 8: 1}
"""Extents of a row of queries, mostly those that the attention kernels take."""
QUERIES = (16, 17, 31, 33, 63, 64, 65, 96, 100, 127, 128, 129)
KEYS = (*QUERIES, 160, 192, 200, 255, 257)
MOST_WORK = 1 << 22
DENSE = 0.85
"""Share of queries, keys and values that are dense: the kernels read them by bulk copies."""


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values of some heads, and the shape of their scores."""

    q: Value
    k: Value
    v: Value
    scores: Scores

    @property
    def dtype(self) -> DType:
        """Return the type of all three."""
        return self.q.dtype


def attention(sketch: Sketch) -> None:
    """Draw a forward pass."""
    queries = sketch.pick(SMALL) if sketch.chance(0.2) else sketch.pick(QUERIES)
    keys = queries if sketch.chance(0.4) else sketch.pick(KEYS)
    _finish(sketch, _heads(sketch, queries, keys))


def attention_decode(sketch: Sketch) -> None:
    """Draw attention of few queries over a cache of keys."""
    queries = 1 if sketch.chance(0.6) else sketch.count(2, 16)
    _finish(sketch, _heads(sketch, queries, sketch.pick([1, 7, 60, *KEYS, 384, 500])))


def attention_backward(sketch: Sketch) -> None:
    """Draw gradients of query, key and value, behind the forward pass or alone."""
    queries = sketch.pick(SMALL) if sketch.chance(0.15) else sketch.pick(QUERIES)
    keys = queries if sketch.chance(0.5) else sketch.pick(KEYS)
    heads = _heads(sketch, queries, keys, backward=True)
    shape = (*heads.scores.lead, heads.scores.queries, heads.q.shape[-1])
    grad = _rows(sketch, heads.dtype, shape, "g")
    form = sketch.pick(["op", "op", "both", "parts", "parts"])
    gradients = _parts_backward(sketch, heads, grad) if form == "parts" else None
    if gradients is None:
        gradients = _op_backward(sketch, heads, grad, forward=form == "both")
    kept = gradients if sketch.chance(0.85) else sketch.some(gradients, 1)
    sketch.keep(*kept)
    if sketch.chance(0.2):
        draw_results(sketch, epilogue(sketch, sketch.pick(kept), 1))


def _heads(sketch: Sketch, queries: int, keys: int, *, backward: bool = False) -> Heads:
    """Return queries, keys and values in one of the layouts that models have."""
    dtype, features = sketch.weighed(DTYPES), sketch.weighed(FEATURES)
    batch, group = sketch.pick([1, 1, 2, 3]), sketch.pick([1, 1, 1, 2, 4])
    shared = sketch.pick([1, 2, 3])
    if batch * group * shared * queries * keys * features > MOST_WORK:
        batch, group, shared = 1, 1, 1
    if queries * keys * features > MOST_WORK:
        raise Unfit
    s = named(sketch, "S", queries)
    t = s if keys == queries and sketch.chance(0.7) else named(sketch, "T", keys)
    lead: tuple[Dim, ...] = (dim(batch), dim(shared * group))
    if batch == 1 and group == 1 and sketch.chance(0.15):
        lead = lead[1:] if sketch.chance(0.7) else ()
    own = lead if group == 1 else (dim(batch), dim(shared))
    q = _rows(sketch, dtype, (*lead, s, dim(features)), "q")
    k = _rows(sketch, dtype, (*own, t, dim(features)), "k")
    v = k if sketch.chance(0.04) else _rows(sketch, dtype, (*own, t, dim(features)), "v")
    if sketch.chance(0.1):
        q, k = (_unit_rows(sketch, x) for x in (q, k))
    elif sketch.chance(0.15) and not backward:
        q = prologue(sketch, q)
    if group > 1:
        k, v = (_expanded(sketch, x, shared, group) for x in (k, v))
    return Heads(q, k, v, Scores(lead, s, t))


def _rows(sketch: Sketch, dtype: DType, shape: tuple[Dim, ...], name: str) -> Value:
    """Return a tensor [..., rows, features]: dense, turned from rows before heads, or a slice."""
    form = sketch.weighed({"dense": 65, "turned": 28, "slice": 7})
    if form == "turned" and len(shape) == 4:
        stored = (shape[0], shape[2], shape[1], shape[3])
        rows = draw_operand(sketch, dtype, stored, name, dense=DENSE)
        return sketch.apply("permute", rows, dims=[0, 2, 1, 3])
    if form == "slice" and shape[-2].is_const:
        first = sketch.pick([0, 3, 8])
        longer = (*shape[:-2], shape[-2] + first + sketch.pick([0, 5]), shape[-1])
        whole = draw_operand(sketch, dtype, longer, name, dense=DENSE)
        starts, ends = [0] * len(shape), list(shape)
        starts[-2], ends[-2] = first, shape[-2] + first
        return sketch.apply("slice", whole, start_indices=starts, end_indices=ends)
    return draw_operand(sketch, dtype, shape, name, dense=DENSE)


def _unit_rows(sketch: Sketch, x: Value) -> Value:
    """Return queries or keys after an RMS norm of their features, as some models have."""
    weight = draw_operand(sketch, x.dtype, x.shape[-1:], "w", dense=DENSE)
    wide = sketch.apply("rms_norm", sketch.apply("cast", x, dtype=F32), norm_shape=x.shape[-1:])
    return sketch.apply("mul", sketch.apply("cast", wide, dtype=x.dtype), weight)


def _expanded(sketch: Sketch, x: Value, shared: int, group: int) -> Value:
    """Return keys or values, repeated for the heads of each group."""
    batch, _, rows, features = x.shape
    flags = [False, False, True, False, False]
    apart = sketch.apply("broadcast", x, is_broadcast_dim=flags)
    wide = sketch.apply("expand", apart, shape=[batch, dim(shared), dim(group), rows, features])
    return sketch.apply("reshape", wide, new_shape=[batch, dim(shared * group), rows, features])


def _turn(sketch: Sketch, x: Value) -> Value:
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    return sketch.apply("permute", x, dims=order)


def _scale(sketch: Sketch) -> Any:
    """Return what scores are multiplied by: a number, or one in memory."""
    if sketch.chance(0.8):
        return sketch.pick([0.125, 0.125, 0.25, 1.0, -0.5, 0.0])
    name = sketch.builder.fresh_name("scale")
    return sketch.builder.input(name, F32, (dim(1),) if sketch.chance(0.5) else None)


def _scores(sketch: Sketch, heads: Heads, *, masks: bool = True) -> Value:
    """Return scaled, biased and masked scores."""
    s = sketch.apply("matmul", heads.q, _turn(sketch, heads.k))
    if s.dtype != F32 and sketch.chance(0.9):
        s = sketch.apply("cast", s, dtype=F32)
    if sketch.chance(0.9):
        s = sketch.apply("mul", s, _scale(sketch) if s.dtype == F32 else 0.125)
    if sketch.chance(0.1):
        s = sketch.apply("mul", sketch.apply("tanh", sketch.apply("mul", s, 0.1)), 10.0)
    if s.dtype == F32 and sketch.chance(0.06):
        # The temperature of a query, the same for all heads, and an output besides.
        rows = draw_operand(sketch, F32, (heads.scores.queries, dim(1)), "t")
        rows = sketch.apply("tanh", rows)
        sketch.keep(rows)
        s = sketch.apply("mul", s, rows)
    if sketch.chance(0.25):
        s = biased(sketch, heads.scores, s)
    return masked(sketch, heads.scores, s) if masks and sketch.chance(0.75) else s


def _finish(sketch: Sketch, heads: Heads) -> None:
    """Keep what attention gives, and what is computed of it."""
    o, lse = _op(sketch, heads) if sketch.chance(0.35) else _parts(sketch, heads)
    if lse is not None and sketch.chance(0.25):
        sketch.keep(lse)
    y = o
    if o.rank == 4 and sketch.chance(0.25):
        batch, h, rows, features = o.shape
        y = sketch.apply("permute", o, dims=[0, 2, 1, 3])
        y = sketch.apply("reshape", y, new_shape=[batch, rows, h * features])
        if sketch.chance(0.4):
            y = multiply(sketch, y, dim(mostly_aligned(sketch, 0.7)))
    if sketch.chance(0.4):
        y = epilogue(sketch, y, 2)
    if sketch.chance(0.5):
        sketch.keep(y)
    else:
        draw_results(sketch, y, o)


def _op(sketch: Sketch, heads: Heads) -> tuple[Value, Value]:
    """Return attention as one operation, and its log-sum-exp."""
    bias = mask = None
    scores = heads.scores
    match sketch.weighed({"none": 40, "mask": 30, "bias": 20, "both": 10}):
        case "none":
            pass
        case kind:
            if kind != "bias":
                mask = visible(sketch, scores)
            if kind != "mask":
                bias = draw_operand(sketch, F32, scores.shape, "bias")
    scale = sketch.pick([None, 0.125, 0.25, -0.5])
    dropout = 0.25 if sketch.chance(0.03) else None
    causal = sketch.chance(0.4)
    operands = [heads.q, heads.k, heads.v, bias, mask, dropout, causal, scale]
    return sketch.call("sdpfa_fwd", operands)[:2]


def _parts(sketch: Sketch, heads: Heads) -> tuple[Value, Value | None]:
    """Return attention written from its parts, and its log-sum-exp where one is computed."""
    s = _scores(sketch, heads)
    last, lse = s.rank - 1, None
    form = sketch.weighed({"softmax": 55, "powers": 25, "late": 10, "safe": 10})
    if form == "softmax":
        p = sketch.apply("softmax", s, dim=last)
    else:
        top = sketch.apply("max", s, dims=[last], keepdim=True)
        if form == "safe":
            nothing = sketch.apply("eq", top, float("-inf"))
            top = sketch.apply("where", nothing, 0.0, top)
        powers = sketch.apply("exp", sketch.apply("sub", s, top))
        total = sketch.apply("sum", powers, dims=[last], keepdim=True)
        lse = sketch.apply("add", top, sketch.apply("log", total))
        if form == "late":
            y = sketch.apply("matmul", _narrow(sketch, powers, heads), heads.v)
            wide = sketch.apply("cast", y, dtype=s.dtype) if y.dtype != s.dtype else y
            return sketch.apply("div", wide, total), lse
        p = sketch.apply("div", powers, total)
    if sketch.chance(0.02):
        p = sketch.call("dropout", [p, 0.25])[0]
    return sketch.apply("matmul", _narrow(sketch, p, heads), heads.v), lse


def _narrow(sketch: Sketch, x: Value, heads: Heads) -> Value:
    return sketch.apply("cast", x, dtype=heads.dtype) if x.dtype != heads.dtype else x


def _sums(sketch: Sketch, scores: Scores) -> Value:
    """Return an input such as the log-sum-exp of rows."""
    shape = (*scores.lead, scores.queries)
    return sketch.builder.input("lse", F32, shape, low=4, high=5)


def _op_backward(sketch: Sketch, heads: Heads, grad: Value, *, forward: bool) -> list[Value]:
    causal, scale = sketch.chance(0.5), sketch.pick([None, 0.125])
    if forward:
        given = [heads.q, heads.k, heads.v, None, None, None, causal, scale]
        o, lse, *_ = sketch.call("sdpfa_fwd", given)
        if sketch.chance(0.3):
            sketch.keep(o)
    else:
        o = _rows(sketch, heads.dtype, grad.shape, "o")
        lse = _sums(sketch, heads.scores)
    operands = [grad, heads.q, heads.k, heads.v, o, lse, None, causal, None, None, scale]
    return list(sketch.call("sdpfa_bwd", operands))


def _parts_backward(sketch: Sketch, heads: Heads, grad: Value) -> list[Value]:
    """Return the gradients written from their parts, of given log-sum-exps."""
    wide_grad = sketch.apply("cast", grad, dtype=F32)
    o = _rows(sketch, heads.dtype, grad.shape, "o")
    product = sketch.apply("mul", wide_grad, sketch.apply("cast", o, dtype=F32))
    share = sketch.apply("sum", product, dims=[grad.rank - 1], keepdim=True)
    s = _scores(sketch, heads)
    if s.dtype != F32:
        raise Unfit
    flags = [k == s.rank - 1 for k in range(s.rank)]
    sums = sketch.apply("broadcast", _sums(sketch, heads.scores), is_broadcast_dim=flags)
    p = sketch.apply("exp", sketch.apply("sub", s, sums))
    moved = sketch.apply("cast", sketch.apply("matmul", grad, _turn(sketch, heads.v)), dtype=F32)
    pull = sketch.apply("mul", p, sketch.apply("sub", moved, share))
    pull = _narrow(sketch, sketch.apply("mul", pull, 0.125), heads)
    return [
        sketch.apply("matmul", pull, heads.k),
        sketch.apply("matmul", _turn(sketch, pull), heads.q),
        sketch.apply("matmul", _turn(sketch, _narrow(sketch, p, heads)), grad),
    ]
