"""The frozen views that the template of decoding attention reads."""

from __future__ import annotations

from dataclasses import dataclass

from fusec.codegen.matmul_view import EpilogueView
from fusec.codegen.views import KernelView
from fusec.kernel.nodes import Statement


@dataclass(frozen=True)
class RowsView:
    """Where rows of an operand begin: lines before the pointer, and the pointer."""

    lines: tuple[Statement, ...]
    pointer: str


@dataclass(frozen=True, kw_only=True)
class AttentionDecodeView(KernelView):
    """A kernel of a decoding attention.

    config: the members of its `Config`. constants: declarations of N. queries: rows of a query `m`
    of a head `g`; keys, values: those of key `n`. bounds: lines that narrow the keys `seen`.
    score_lines: what scores have in common; scale: what they are to be multiplied by; score: their
    graph, in place. row_lines: what a query has besides, from `top` and `total`; row_stores: what
    of that is stored, where row_test holds; row_factor: what its sums are multiplied by. output:
    the graph of the second product. partials, arrived: the parts of blocks that share queries, and
    how many have left theirs; empty where none do.
    """

    config: tuple[Statement, ...]
    constants: tuple[Statement, ...]
    index_type: str
    queries: RowsView
    keys: RowsView
    values: RowsView
    bounds: tuple[Statement, ...]
    score_lines: tuple[Statement, ...]
    scale: str
    score: EpilogueView
    row_parameters: str
    row_lines: tuple[Statement, ...]
    row_stores: tuple[Statement, ...]
    row_factor: str
    row_test: str
    output: EpilogueView
    partials: str
    arrived: str
