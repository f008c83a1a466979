"""Where results lie whose operands are small multiples of a power of two (`run/exact_range.py`).

A rule is arithmetic on where operands lie: sums, products, either of two, whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Found = Sequence[Any]


def either(found: Found) -> Any:
    """Return where one of the operands lies."""
    result = found[0]
    for other in found[1:]:
        result = result | other
    return result


def whole(found: Found) -> Any:
    """Return where the operand lies rounded to an integer."""
    return found[0].whole()


def truth(found: Found) -> Any:
    """Return where a bool lies."""
    return found[0].truth()


def chosen(found: Found) -> Any:
    """Return the interval of either operand after a condition."""
    return found[1] | found[2]


def total(found: Found) -> Any:
    """Return where a sum or a difference lies."""
    return found[0] + found[1]


def product(found: Found) -> Any:
    """Return where a product lies."""
    return found[0] * found[1]


def sum_of_product(found: Found) -> Any:
    """Return where a + alpha * b * c lies."""
    return found[0] + found[3] * found[1] * found[2]
