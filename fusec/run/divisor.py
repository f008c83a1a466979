"""The host's half of fast_divide.cuh: a divisor as a multiplier and a shift."""

from __future__ import annotations

from fusec.diagnostics import FusecError

LARGEST_DIVISOR = 2**31 - 1


def fast_divisor(divisor: int) -> tuple[int, int, int]:
    """Return (divisor, multiplier, shift), the fields of `fusec::FastDivisor`.

    The quotient of n is (high half of n * multiplier + n) >> shift, with shift = ceil(log2 divisor)
    and multiplier = floor(2^32 (2^shift - divisor) / divisor) + 1: figure 4.1 of Granlund and
    Montgomery, "Division by Invariant Integers using Multiplication" (PLDI 1994). The kernel's sum
    stays within 32 bits for n below 2^31.
    """
    if not 1 <= divisor <= LARGEST_DIVISOR:
        raise FusecError(f"divisor {divisor} is not between 1 and {LARGEST_DIVISOR}")
    shift = (divisor - 1).bit_length()
    multiplier = ((1 << 32) * ((1 << shift) - divisor)) // divisor + 1
    return divisor, multiplier, shift
