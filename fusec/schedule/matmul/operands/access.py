"""How the operands of a GEMM may be copied, given their strides and alignment."""

from __future__ import annotations

from fusec.index.access import Facts
from fusec.ir.expression import Atom, Loaded, Var
from fusec.schedule.matmul.operands.operand import Operand
from fusec.schedule.matmul.problem import Product

CHUNK_BYTES = 16
"""Bytes per bulk copy chunk and per cp.async; rows must be aligned to it."""


def is_vector(operand: Operand, facts: Facts) -> bool:
    """Return whether every contiguous run is aligned to 16 bytes."""
    if operand.cut or not operand.is_dense:
        return False
    by = CHUNK_BYTES // operand.buffer.dtype.size
    return (operand.pitch is None or facts.multiple(operand.pitch, by)) and facts.index_multiple(
        operand.batch, by
    )


def is_chunked(problem: Product, operand: Operand, facts: Facts) -> bool:
    """Return whether contiguous runs are whole chunks, as cp.async copies them.

    It can copy less than a chunk, but memory checkers still count the whole chunk.
    """
    by = CHUNK_BYTES // operand.buffer.dtype.size
    return is_vector(operand, facts) and facts.multiple(problem.run(operand), by)


def has_tensor_map(operand: Operand, facts: Facts) -> bool:
    """Return whether a three-dimensional tensor map describes the operand."""
    if not is_vector(operand, facts) or operand.batch.constant != 0:
        return False
    strides = [d for d in (operand.pitch, *(c for _, c in operand.batch.terms)) if d is not None]
    if len(operand.batch.terms) > 1 or any(d == 0 for d in strides):
        return False
    return all(_is_coordinate(atom) for atom, _ in operand.batch.terms)


def _is_coordinate(atom: Atom) -> bool:
    """Return whether an atom is the batch index after divisions and remainders only."""
    if isinstance(atom, (Var, Loaded)):
        return isinstance(atom, Var)
    inner = atom.inner
    return (
        inner.constant == 0
        and len(inner.terms) == 1
        and inner.terms[0][1] == 1
        and _is_coordinate(inner.terms[0][0])
    )
