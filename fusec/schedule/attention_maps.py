"""The tensor maps of an attention kernel: queries, keys and values in panels of 64 features."""

from __future__ import annotations

from fusec.ir.dim import Dim, ceildiv, dim
from fusec.schedule.attention_choice import PANEL, AttentionParameters
from fusec.schedule.attention_problem import Attention
from fusec.schedule.matmul_choice import CHUNK_BYTES
from fusec.schedule.matmul_maps import batch_extent
from fusec.schedule.matmul_problem import Operand
from fusec.schedule.plan import TensorMapArgument


def map_names(attention: Attention) -> tuple[str, str, str]:
    """Return the names of the maps: their buffers', with the side where two are the same."""
    sides = ("queries", "keys", "values")
    operands = (attention.queries, attention.keys, attention.values)
    names = [o.buffer.name for o in operands]
    return tuple(  # pyright: ignore[reportReturnType]
        f"{n}_{side}_map" if names.count(n) > 1 else f"{n}_map"
        for n, side in zip(names, sides, strict=True)
    )


def tensor_maps(
    attention: Attention, p: AttentionParameters
) -> tuple[TensorMapArgument, TensorMapArgument, TensorMapArgument]:
    """Return the maps of queries, keys and values."""
    names = map_names(attention)
    features, values = attention.features, attention.value_features
    queries, keys = attention.queries, attention.keys
    return (
        _map(names[0], queries, queries.row, (features, attention.m), p.rows),
        _map(names[1], keys, keys.row, (features, attention.n), p.tile_keys),
        _map(
            names[2], attention.values, attention.values.depth, (values, attention.n), p.tile_keys
        ),
    )


def _map(
    name: str, operand: Operand, stride: Dim | None, extents: tuple[Dim, Dim], box: int
) -> TensorMapArgument:
    """Return the map of an operand; stride: from one row to the next."""
    size = operand.buffer.dtype.size
    features, rows = extents
    # A stride that nothing follows may be any multiple of 16 bytes.
    chunk = CHUNK_BYTES // size
    pitch = ceildiv(features, chunk) * chunk if stride is None else stride
    terms = operand.batch.terms
    batches, step = (batch_extent(terms[0][0]), terms[0][1]) if terms else (dim(1), pitch * rows)
    return TensorMapArgument(
        name,
        operand.buffer.name,
        operand.buffer.dtype,
        (features, rows, batches),
        (pitch * size, step * size),
        (PANEL, box, 1),
    )
