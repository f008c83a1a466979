"""The frozen views that the template of decoding attention reads."""

from __future__ import annotations

from dataclasses import dataclass

from fusec.codegen.attention_view import FusedView, GraphView, RowView, ScoresView
from fusec.kernel.nodes import Pointer, Statement


@dataclass(frozen=True)
class RowsView:
    """Where rows of an operand begin: lines before the pointer, and the pointer."""

    lines: tuple[Statement, ...]
    pointer: Pointer


@dataclass(frozen=True, kw_only=True)
class AttentionDecodeView(FusedView):
    """A kernel of a decoding attention.

    queries: rows of a query `m` of a head `g`; keys, values: those of key `n`. row: the end of a
    query. output: the graph of the second product. partials, arrived: the parts of blocks that
    share queries, and how many have left theirs; empty where none do.
    """

    queries: RowsView
    keys: RowsView
    values: RowsView
    scores: ScoresView
    row: RowView
    output: GraphView
    partials: str
    arrived: str
