"""Options for tensor cores: fewer mantissa bits of f32 operands."""

from __future__ import annotations

from fusec.ir.op import Cost
from fusec.ops.declare import Array, pointwise
from fusec.ops.dtypes import SINGLE
from fusec.ops.lazy import np

TF32_BITS = 10
"""Mantissa bits of an f32 that tensor cores use (PTX ISA, `.tf32`)."""

LEAST_EXPONENT = -126
"""Of a normal f32: smaller numbers have fewer significant bits."""


def _ties(x: Array, rounded: Array) -> Array:
    """Return the numbers halfway between two floats of 10 mantissa bits, 0 for others.

    Bulk copies round them to even, cvt.rna away from 0.
    """
    scaled = _in_units(x)[0]
    return np.where(np.abs(scaled - np.trunc(scaled)) == 0.5, x, 0.0)


def _in_units(x: Array) -> tuple[Array, Array]:
    """Return numbers in units of their 10th mantissa bit, and the exponents of these units."""
    _, exponents = np.frexp(x)
    exponents = np.maximum(exponents - 1, LEAST_EXPONENT) - TF32_BITS
    return np.ldexp(x, -exponents), exponents


@pointwise(
    cuda={"f32": "fusec::round_to_tf32({x})"},
    dtype=SINGLE,
    cost=Cost(1),
    discontinuous=True,
    accuracy=2.0 ** (24 - TF32_BITS),
    terms=_ties,
)
def tf32(x: Array) -> Array:
    """Return x rounded to TF32 (10 mantissa bits, to nearest), for tensor cores.

    An f32 GEMM with both operands in TF32 runs on tensor cores, with a relative error of 2^-11 per
    operand.
    """
    with np.errstate(all="ignore"):
        scaled, exponents = _in_units(x)
        return np.ldexp(np.rint(scaled), exponents)
