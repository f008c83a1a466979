"""Periodic operations: an operand that may be off by a period says nothing of the result."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, pi

import numpy as np

from fusec.ir.evaluate import Array
from fusec.ir.graph import Node

PERIODS = {"sin": 2 * pi, "cos": 2 * pi, "tan": pi, "frac": 1.0}
MODULO = frozenset({"mod", "fmod", "remainder"})


def wrapping(
    node: Node, values: Sequence[Array], bound: Array, index: int
) -> tuple[Array | None, Array | float]:
    """Return where an operand's bound reaches over half a period, and the largest change there.

    The results at both ends of such a stretch say nothing of those between.
    """
    name = node.op.name
    if name in PERIODS and node.output.dtype.is_float:
        return 2 * bound >= PERIODS[name], inf if name == "tan" else 2.0
    if name not in MODULO or not node.output.dtype.is_float:
        return None, 0.0
    divisor = np.abs(values[1])
    with np.errstate(all="ignore"):
        turns = bound / divisor if index == 0 else bound * np.abs(values[0]) / divisor**2
    return 2 * turns >= 1, 2 * divisor
