"""The common factor of all scores, which is merged with the one of the exponential."""

from __future__ import annotations

from math import isfinite

from fusec.dataclasses import replace
from fusec.index.instances import Instance
from fusec.ir.dtype import F32
from fusec.ops.acts import Act
from fusec.schedule.attention.masks import does, is_masked


def without_scale(scores: Instance) -> tuple[Instance, Instance | None]:
    """Return scores without a positive factor that is the same for all; None if it is 1.

    Masked scores are minus infinity, with any such factor.
    """
    if is_masked(scores):
        test, given, lowest = scores.operands
        inside, factor = without_scale(given)
        if factor is None:
            return scores, None
        return replace(scores, operands=(test, inside, lowest)), factor
    if not does(scores, Act.MULTIPLY):
        return scores, None
    left, right = scores.operands
    for given, factor in ((left, right), (right, left)):
        value = _value(factor)
        if given.dtype == F32 and value is not None and isfinite(value) and value > 0:
            return given, factor
    return scores, None


def _value(instance: Instance) -> float | None:
    """Return a number that is known at compile time, None if it is not."""
    if instance.kind == "constant":
        known = instance.constant
        return None if isinstance(known, complex) or known is None else float(known)
    if instance.kind == "dim" and instance.dim is not None:
        return float(instance.dim.value) if instance.dim.is_const else None
    if instance.kind != "op" or instance.node is None or instance.variables:
        return None
    values = [_value(o) for o in instance.operands]
    if None in values or instance.node.op.family not in ("pointwise", "scalar"):
        return None
    return float(instance.node.op.reference(*values)) if not instance.node.attributes else None
