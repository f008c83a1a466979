"""Which 8-bit and 4-bit weights kernels can convert to 16-bit floats, and why not others."""

from __future__ import annotations

from fusec.index.access import Facts
from fusec.schedule.matmul.problem import Product

STAGE = 128
"""Elements of K per stage of bulk copies, and per chunk of a streaming warp."""
FRAGMENT = 16
"""Elements of K of a tensor core instruction, which share a scale."""
LANE = 16
"""Bytes that a lane loads at once of a K-major column."""
ACROSS = 8
"""Elements of K that a lane loads at once of N-major weights."""


def no_conversion(problem: Product, facts: Facts) -> str:
    """Return why bulk copies cannot load weights for conversion, or an empty string."""
    if not problem.a.k_major:
        return f"the other operand must be contiguous along K, and `{problem.a.buffer.name}` is not"
    if problem.b.packed == "row" and problem.b.k_major:
        return (
            f"`{problem.b.buffer.name}` is contiguous along K, but packs two adjacent columns per "
            "byte"
        )
    group = problem.b.group
    if group % FRAGMENT or (group and STAGE % group and group % STAGE):
        return f"scale blocks of {group} elements of K do not match a stage of {STAGE}"
    if group and group < STAGE and not facts.multiple(problem.k, STAGE):
        return f"{problem.k} elements of K are not a multiple of a stage of {STAGE}"
    return ""


def no_stream(problem: Product, facts: Facts) -> str:
    """Return why a streaming kernel cannot convert the weights, or an empty string."""
    if not problem.has_converted_weights:
        return ""
    b = problem.b
    if not b.k_major:
        columns = LANE * (2 if b.packed == "row" else 1)
        if not facts.multiple(problem.n, columns):
            return f"{problem.n} columns are not a multiple of chunks of {LANE} bytes"
        own = ACROSS
    elif b.packed == "row":
        return f"`{b.buffer.name}` is contiguous along K, but packs two adjacent columns per byte"
    else:
        own = LANE * (2 if b.packed else 1)
    if b.group % own:
        return f"scale blocks of {b.group} elements of K do not match the {own} elements per lane"
    if not facts.multiple(problem.k, own):
        return f"{problem.k} elements of K are not a multiple of the {own} elements per lane"
    return ""
