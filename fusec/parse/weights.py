"""Calls of `linear` in files: the weight has two dims, as in PyTorch, or one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusec.codes.shapes import RANK
from fusec.diagnostics import FusecError, Instead
from fusec.ir.graph import Value
from fusec.ir.op import OpDef


def check_weight(op: OpDef, operands: Sequence[Any]) -> None:
    """Raise FusecError for a `linear` with a batch of weights, suggesting the matmul.

    In nvFuser's scripts the leading dims of such a weight come first in the result (decision 153);
    in a file its meaning would silently differ from that of a batched matmul.
    """
    if op.name != "linear":
        return
    x, weight, bias = (o if isinstance(o, Value) else None for o in operands)
    if x is None or weight is None or weight.rank < 3:
        return
    product = "{x} @ transpose({weight}, -2, -1)"
    if bias is not None:
        product += " + unsqueeze({bias}, -2)"
    raise FusecError(
        f"the weight of `linear` has {weight.rank} dims, expected [out, in]",
        notes=[f"{v.name} is {v.type}" for v in (x, weight)],
        help="`matmul` multiplies a batch of matrices",
        code=RANK,
        operation=op.name,
        instead=Instead(product, why="`matmul` multiplies a batch of matrices"),
    )
