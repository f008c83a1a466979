"""The tensor maps of an attention kernel: queries, keys and values in panels of 64 features.

Maps have four dims: features, rows, and two for batches and heads.
"""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.ir.dim import Dim, ceildiv, dim
from fusec.ir.expression import Atom, Quotient, Remainder, Var
from fusec.ir.graph import Fusion
from fusec.ops.names import fresh_name
from fusec.schedule.attention.forward.choice import PANEL, AttentionParameters
from fusec.schedule.attention.forward.problem import Attention
from fusec.schedule.matmul.maps import batch_extent
from fusec.schedule.matmul.operands.access import CHUNK_BYTES, is_vector
from fusec.schedule.matmul.operands.operand import Operand
from fusec.schedule.plan import TensorMapArgument

MOST_AXES = 2
"""Axes of a map for batches and heads."""
ONE = dim(1)


@dataclass(frozen=True)
class BatchAxis:
    """A batch axis of a tensor map: its index (None if it is 0), extent, and stride if any."""

    index: Atom | None = None
    extent: Dim = ONE
    stride: Dim | None = None


def batch_axes(operand: Operand) -> tuple[BatchAxis, BatchAxis]:
    """Return the two axes of an operand's map that index batches and heads."""
    terms = operand.batch.terms
    axes = [BatchAxis(atom, batch_extent(atom), stride) for atom, stride in terms]
    inner, outer, *_ = (*axes, BatchAxis(), BatchAxis())
    return inner, outer


def is_readable(operand: Operand, facts: Facts) -> bool:
    """Return whether a tensor map can describe an operand."""
    if not is_vector(operand, facts) or operand.batch.constant != 0:
        return False
    terms, pitch = operand.batch.terms, operand.pitch
    strides = [s for _, s in terms] + ([] if pitch is None else [pitch])
    return (
        len(terms) <= MOST_AXES
        and all(s != 0 for s in strides)
        and all(_is_coordinate(atom) for atom, _ in terms)
    )


def _is_coordinate(atom: Atom) -> bool:
    """Return whether an atom is the batch index after divisions and remainders only."""
    if not isinstance(atom, (Quotient, Remainder)):
        return isinstance(atom, Var)
    inner = atom.inner
    terms = [a for a, c in inner.terms if c == 1]
    return inner.constant == 0 and len(inner.terms) == len(terms) == 1 and _is_coordinate(terms[0])


def map_names(fusion: Fusion, operands: Mapping[str, Operand]) -> list[str]:
    """Return the names of the operands' maps, in the order of their sides.

    A map is named after its buffer, followed by the side if two buffers are the same.
    """
    taken, names = fusion.names, [o.buffer.name for o in operands.values()]
    return [
        fresh_name(taken, f"{n}_{side}_map" if names.count(n) > 1 else f"{n}_map")
        for n, side in zip(names, operands, strict=True)
    ]


def tensor_maps(
    fusion: Fusion, attention: Attention, p: AttentionParameters
) -> tuple[TensorMapArgument, TensorMapArgument, TensorMapArgument]:
    """Return the maps of queries, keys and values."""
    queries, keys, values = attention.queries, attention.keys, attention.values
    names = map_names(fusion, {"queries": queries, "keys": keys, "values": values})
    features, columns = attention.features, (attention.value_features, attention.n)
    return (
        operand_map(names[0], queries, queries.row, (features, attention.m), p.rows),
        operand_map(names[1], keys, keys.row, (features, attention.n), p.tile_keys),
        operand_map(names[2], values, values.depth, columns, p.tile_keys),
    )


def operand_map(
    name: str, operand: Operand, stride: Dim | None, extents: tuple[Dim, Dim], box: int
) -> TensorMapArgument:
    """Return the map of an operand; stride: distance between rows."""
    size = operand.buffer.dtype.size
    features, rows = extents
    # A stride without further rows may be any multiple of 16 bytes.
    chunk = CHUNK_BYTES // size
    pitch = ceildiv(features, chunk) * chunk if stride is None else stride
    inner, outer = batch_axes(operand)
    return TensorMapArgument(
        name,
        operand.buffer.name,
        operand.buffer.dtype,
        (features, rows, inner.extent, outer.extent),
        tuple((d or pitch) * size for d in (pitch, inner.stride, outer.stride)),
        (PANEL, box, 1, 1),
    )
