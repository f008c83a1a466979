"""The tensor maps of a Hopper GEMM: three dims, the innermost contiguous."""

from __future__ import annotations

from fusec.ir.dim import Dim, ceildiv, dim
from fusec.ir.dtype import F32
from fusec.ir.expression import Atom, Quotient, Remainder, Var
from fusec.ir.graph import Fusion
from fusec.ops.names import fresh_name
from fusec.schedule.matmul.choice import MatmulParameters
from fusec.schedule.matmul.operands.access import CHUNK_BYTES
from fusec.schedule.matmul.operands.operand import Operand
from fusec.schedule.matmul.problem import Product
from fusec.schedule.matmul.shared import STAGE_BYTES
from fusec.schedule.plan import TensorMapArgument


def _names(problem: Product) -> tuple[str, ...]:
    """Return the names of all maps: their buffers', followed by the side if two are the same.

    A computed operand has no map.
    """
    a, *others = (o.buffer.name for o in problem.operands)
    if problem.computed is not None:
        return tuple(f"{name}_map" for name in others)
    if len({a, *others}) == 1 + len(others):
        return tuple(f"{name}_map" for name in (a, *others))
    more = [f"{name}_second_map" for name in others[1:]]
    return (f"{a}_rows_map", f"{others[0]}_columns_map", *more)


def tensor_maps(
    fusion: Fusion, problem: Product, parameters: MatmulParameters
) -> tuple[TensorMapArgument, ...]:
    """Return the maps of A and B, and of the second B of a dual GEMM."""
    p, taken = parameters, fusion.names
    names = [fresh_name(taken, name) for name in _names(problem)]
    a, *columns = problem.operands
    rows: tuple[TensorMapArgument, ...] = ()
    if problem.computed is None:
        rows = (_map(names[0], a, problem.m, problem.k, p.tile_m, p.tile_k, p.cluster_n),)
    return (
        *rows,
        *(
            _map(each, b, problem.n, problem.k, p.columns, p.tile_k, p.cluster_m)
            for each, b in zip(names[len(rows) :], columns, strict=True)
        ),
    )


def _map(
    name: str, operand: Operand, rows: Dim, depth: Dim, tile_rows: int, tile_k: int, parts: int
) -> TensorMapArgument:
    """Return the map of an operand; each of `parts` CTAs loads its part of a tile."""
    size = operand.buffer.dtype.size
    swizzled = STAGE_BYTES // size
    columns, deep = swizzled, min(swizzled, tile_k)
    # wgmma truncates f32 to TF32: the copies round instead.
    rounds = {"data_type": "TFLOAT32"} if operand.buffer.dtype == F32 else {}
    if operand.packed == "depth":
        depth, deep = depth // 2, deep // 2
    elif operand.packed == "row":
        rows, columns = rows // 2, swizzled // 2
    inner, outer = (depth, rows) if operand.k_major else (rows, depth)
    box = (deep, tile_rows // parts) if operand.k_major else (columns, deep // parts)
    # A stride without further rows may be any multiple of 16 bytes.
    pitch = operand.pitch or ceildiv(inner, CHUNK_BYTES // size) * (CHUNK_BYTES // size)
    terms = operand.batch.terms
    batches, stride = (batch_extent(terms[0][0]), terms[0][1]) if terms else (dim(1), pitch * outer)
    return TensorMapArgument(
        name,
        operand.buffer.name,
        operand.buffer.dtype,
        (inner, outer, batches),
        (pitch * size, stride * size),
        (*box, 1),
        swizzle=f"{box[0] * size}B",
        **rounds,
    )


def batch_extent(atom: Atom) -> Dim:
    """Return the number of values of the coordinate along the batch."""
    if isinstance(atom, Var):
        return atom.extent
    if isinstance(atom, Quotient):
        _, highest = atom.inner.bounds
        assert highest is not None
        return highest // atom.divisor + 1
    assert isinstance(atom, Remainder)
    return atom.divisor
