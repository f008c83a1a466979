"""The tensor maps of a Hopper matrix product: three dims, the innermost contiguous."""

from __future__ import annotations

from fusec.ir.dim import Dim, ceildiv, dim
from fusec.ir.expression import Atom, Quotient, Remainder, Var
from fusec.schedule.matmul_choice import CHUNK_BYTES, MatmulParameters
from fusec.schedule.matmul_problem import Operand, Product
from fusec.schedule.matmul_shared import STAGE_BYTES
from fusec.schedule.plan import TensorMapArgument


def map_names(problem: Product) -> tuple[str, str]:
    """Return the names of both maps: their buffers', with the side where the two are the same."""
    a, b = problem.a.buffer.name, problem.b.buffer.name
    return (f"{a}_rows_map", f"{b}_columns_map") if a == b else (f"{a}_map", f"{b}_map")


def tensor_maps(
    problem: Product, parameters: MatmulParameters
) -> tuple[TensorMapArgument, TensorMapArgument]:
    """Return the maps of A and B."""
    names = map_names(problem)
    return (
        _map(names[0], problem.a, problem.m, problem.k, parameters.tile_m, parameters.pair_columns),
        _map(names[1], problem.b, problem.n, problem.k, parameters.tile_n, parameters.pair_rows),
    )


def _map(
    name: str, operand: Operand, rows: Dim, depth: Dim, tile_rows: int, parts: int
) -> TensorMapArgument:
    """Return the map of an operand, of which each of `parts` CTAs loads its part of a tile."""
    size = operand.buffer.dtype.size
    swizzled = STAGE_BYTES // size
    inner, outer = (depth, rows) if operand.k_major else (rows, depth)
    # A stride that nothing follows may be any multiple of 16 bytes.
    pitch = operand.pitch or ceildiv(inner, CHUNK_BYTES // size) * (CHUNK_BYTES // size)
    terms = operand.batch.terms
    batches, stride = (batch_extent(terms[0][0]), terms[0][1]) if terms else (dim(1), pitch * outer)
    return TensorMapArgument(
        name,
        operand.buffer.name,
        operand.buffer.dtype,
        (inner, outer, batches),
        (pitch * size, stride * size),
        (swizzled, (tile_rows if operand.k_major else swizzled) // parts, 1),
    )


def batch_extent(atom: Atom) -> Dim:
    """Return how many values the coordinate along the batch has."""
    if isinstance(atom, Var):
        return atom.extent
    if isinstance(atom, Quotient):
        _, highest = atom.inner.bounds
        assert highest is not None
        return highest // atom.divisor + 1
    assert isinstance(atom, Remainder)
    return atom.divisor
