"""The contents of an input: numbers in an interval, indices into a tensor, or ends of groups."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fusec.dataclasses import dataclass
from fusec.ir.evaluate import Sizes
from fusec.ir.graph import Fusion, Input, Node, Value
from fusec.run.index_inputs import index_limit, offsets_end

_PLACING = frozenset({"movement", "indexing", "scatter", "sort"})


@dataclass(frozen=True)
class Numbers:
    """Numbers from low to high; explicit: zeros are allowed; positions: they are indices."""

    low: float
    high: float
    explicit: bool
    positions: bool = False


@dataclass(frozen=True)
class Ends:
    """Increasing ends of groups, the last one `end`."""

    end: int


def contents_of(fusion: Fusion, entry: Input, sizes: Sizes) -> Numbers | Ends:
    """Return the contents of an input, from its declaration and the nodes that use it."""
    explicit = entry.low is not None or entry.high is not None
    if not entry.value.is_scalar:
        end = offsets_end(fusion, entry.value, sizes)
        if end is not None:
            return Ends(end)
        limit = None if explicit else index_limit(fusion, entry.value, sizes)
        if limit is not None:
            return Numbers(0, max(limit - 1, 0), explicit=True, positions=True)
    low, high = interval(fusion, entry)
    return Numbers(low, high, explicit)


def interval(fusion: Fusion, entry: Input) -> tuple[float, float]:
    """Return the interval of random values: declared, or the common domain of all users."""
    low, high = -np.inf, np.inf
    for a, b in _domains(fusion, entry.value):
        if max(low, a) < min(high, b):
            low, high = max(low, a), min(high, b)
    if not np.isfinite(low) or not np.isfinite(high):
        low, high = -2.0, 2.0
    declared = (entry.low, entry.high)
    if declared[0] is not None:
        low, high = declared[0], max(high, declared[0] + 1)
    if declared[1] is not None:
        low, high = (low if declared[0] is not None else min(low, declared[1] - 1)), declared[1]
    return float(low), float(high)


def _domains(fusion: Fusion, value: Value) -> Iterable[tuple[float, float]]:
    for node, _ in fusion.readers(value, _passes):
        computes = node.op.family in ("reduction", "scan", "contraction")
        if not _passes(node) and (node.op.is_elementwise or computes):
            yield node.op.domain


def _passes(node: Node) -> bool:
    return node.op.converts or node.op.family in _PLACING
