"""Errors of complex arithmetic: of the modulus of the difference, relative to moduli.

A kernel computes the parts with the formulas of `fusec.ops.complex_formulas`; below, u is the unit
in the last place of a part's type and z the exact result.

- Products: 1.2 u |z|, though a part may cancel: |ac| + |bd| <= |a + bi| |c + di|.
- Quotients, by Smith's formula: 10 u |z|. The ratio of the divisor's parts is off by 2.5 u, the
  scaled divisor, a sum of one sign, by 2 u, both parts of the dividend by 3 u of its modulus.
- Logarithms: 4 u (|z| + 1); near 1 the logarithm of the modulus cancels.
- Powers: the error of b log a is absolute in the exponent.
- Others: as the real functions that they are composed of, whose terms do not cancel.

If an operand is not finite or the result is near overflow, formulas have different results: those
elements are not judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

from numpy.typing import NDArray

from fusec.diagnostics import Unsupported
from fusec.ir.arrays import np
from fusec.ir.graph import Node

Array = NDArray[Any]

_LEAST_NORMAL = {"f32": 2.0**-126, "f64": 2.0**-1022}
_NEAR_OVERFLOW = {"f32": 2.0**126, "f64": 2.0**1022}


def complex_error(node: Node, values: Sequence[Array], raw: Array) -> tuple[float, Array] | None:
    """Return (ulps, terms they are relative to) of an operation on complex numbers, else None."""
    if not any(d.is_complex for d in node.compute_dtypes) and not node.output.dtype.is_complex:
        return None
    declared = node.op.complex_error
    if not node.output.dtype.is_rounded or (declared is not None and not declared.ulps):
        return 0.0, np.abs(raw)
    if declared is None:
        message = f"no error model for `{node.op.name}` of complex numbers"
        raise Unsupported(message, span=node.span)
    least = _LEAST_NORMAL[node.output.dtype.part.name]
    with np.errstate(all="ignore"):
        size = np.abs(raw)
        terms = size if declared.terms is None else declared.terms(raw, *values, least)
    return declared.ulps, np.where(np.isfinite(terms), terms, np.abs(raw))


def unjudged(
    node: Node, values: Sequence[Array], raw: Array, variance: Array | None
) -> Array | None:
    """Return a variance, infinite where an operand is not finite or the result nearly overflows."""
    with np.errstate(all="ignore"):
        lost = ~(np.abs(raw) < _NEAR_OVERFLOW[node.output.dtype.part.name])
        for value in values:
            lost = lost | ~np.isfinite(value)
    return np.where(lost, np.inf, 0.0 if variance is None else variance) if lost.any() else variance


def directions(operand: Array) -> tuple[complex, ...]:
    """Return the directions in which an operand is moved by its bound."""
    return (1, -1, 1j, -1j) if operand.dtype.kind == "c" else (1, -1)


def steepness(result: Array) -> float:
    """Return the largest steepness of a function relative to those four, which are not analytic."""
    return 1.0 if result.dtype.kind == "c" else sqrt(2)
