"""Ranges of results whose operands are small multiples of a power of two (`run/exact_range.py`).

A rule is arithmetic on the ranges of operands: sums, products, either of two, integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Found = Sequence[Any]


def either(found: Found) -> Any:
    """Return the range of either operand."""
    result = found[0]
    for other in found[1:]:
        result = result | other
    return result


def whole(found: Found) -> Any:
    """Return the range of the operand rounded to an integer."""
    return found[0].whole()


def truth(found: Found) -> Any:
    """Return the range of a bool."""
    return found[0].truth()


def chosen(found: Found) -> Any:
    """Return the range of either operand after a condition."""
    return found[1] | found[2]


def total(found: Found) -> Any:
    """Return the range of a sum or a difference."""
    return found[0] + found[1]


def product(found: Found) -> Any:
    """Return the range of a product."""
    return found[0] * found[1]


def sum_of_product(found: Found) -> Any:
    """Return the range of a + alpha * b * c."""
    return found[0] + found[3] * found[1] * found[2]
