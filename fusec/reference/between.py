"""Jumps and poles within reach of an operand's bound, which the results at its ends do not show."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, pi

import numpy as np

from fusec.ir.evaluate import Array
from fusec.ir.graph import Node

MODULO = frozenset({"mod", "fmod", "remainder"})
QUOTIENTS = frozenset({"div", "truediv"})


def between(
    node: Node, values: Sequence[Array], bound: Array, index: int
) -> tuple[Array | None, Array | float]:
    """Return where the results between both ends may differ more than at these, and by how much.

    Of waves half a period says nothing; a jump or a pole counts where the bound reaches it.
    """
    name, value = node.op.name, values[index]
    if not node.output.dtype.is_float or value.dtype.kind == "c":
        return None, 0.0
    with np.errstate(all="ignore"):
        if name in ("sin", "cos"):
            return bound >= pi, 2.0
        if name == "tan":
            return _meets(value / pi - 0.5, bound / pi), inf
        if name == "frac":
            return _meets(value, bound, but_zero=True), 2.0
        if name == "reciprocal" or (name in QUOTIENTS and index == 1):
            return (np.abs(value) <= bound) & (bound > 0), inf
        if name == "lgamma":
            return _meets(value, bound) & (value - bound <= 0), inf
        if name in MODULO:
            divisor = np.abs(values[1])
            turns = bound / divisor
            if index == 1:
                turns = turns * np.abs(values[0]) / divisor
            # Like the fraction, fmod has the sign of what it divides.
            return _meets(values[0] / divisor, turns, but_zero=name == "fmod"), 2 * divisor
    return None, 0.0


def _meets(value: Array, bound: Array, *, but_zero: bool = False) -> Array:
    """Return where an inexact value may be a whole number; a 0 may be no jump."""
    near = np.round(value)
    met = (np.abs(value - near) <= bound) & (bound > 0)
    return met & ((near != 0) | (2 * bound >= 1)) if but_zero else met
