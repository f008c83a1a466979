"""Types and layouts of results where nvFuser's rules differ from fusec's.

Tables follow nvFuser's csrc/ops/arith.cpp, csrc/type_promotion.cpp and
csrc/preseg_passes/allocation_order_inference.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusec.ir.dtype import F32
from fusec.ir.graph import Operand, Value
from fusec.ir.op import OpDef
from fusec.ops.builder.arguments import OperandArgument
from fusec.ops.builder.build import GraphBuilder
from fusec.ops.dtypes import common_type

_PROMOTED = """
    acos acosh asin asinh atan atanh cos cosh exp exp2 expm1 erf erfc erfinv erfcinv lgamma
    log log10 log1p log2 neg reciprocal rsqrt sigmoid sin sinh sqrt tan tanh
    add atan2 div fmod maximum minimum mod mul nextafter pow remainder sub truediv
    addcmul lerp var
"""
PROMOTED_TO_FLOAT = frozenset(_PROMOTED.split())
"""Operations that return f32 if their operands' common type has 16 bits or fewer.

The others keep that type: abs, ceil, clamp, `floor`, frac, relu, round, sign, silu, threshold,
trunc, where, reductions, products.
"""

LAID_OUT_AS: Mapping[str, tuple[str, ...]] = {
    "sdpfa_fwd": ("query",),
    "sdpfa_bwd": ("query", "key", "value"),
}
"""The operand whose layout each of the first results has, as with PyTorch's `empty_like`."""

Slots = list[OperandArgument]


def promote_operands(builder: GraphBuilder, op: OpDef, operands: Slots) -> Slots:
    """Return operands with those of 16 bits or fewer as f32 if nvFuser promotes to it."""
    if op.name not in PROMOTED_TO_FLOAT:
        return operands
    given = [o for o in operands if isinstance(o, Operand)]
    if not given or not common_type(op.name, given).is_half:
        return operands
    return [
        builder.apply("cast", o, dtype=F32) if isinstance(o, Value) and o.type.dtype.is_half else o
        for o in operands
    ]


def order_results(
    builder: GraphBuilder, op: OpDef, operands: Slots, results: Sequence[Operand]
) -> None:
    """Give results that become outputs the memory layout of the operands that nvFuser copies."""
    places = {p.name: k for k, p in enumerate(op.operands)}
    for name, result in zip(LAID_OUT_AS.get(op.name, ()), results, strict=False):
        like = operands[places[name]]
        order = builder.preferred_order(like) if isinstance(like, Value) else None
        if order is not None and isinstance(result, Value) and len(order) == result.rank:
            builder.prefer_order(result, order)
