"""The frozen views that the attention template reads."""

from __future__ import annotations

from dataclasses import dataclass

from fusec.codegen.matmul_view import EpilogueView, OperandView
from fusec.codegen.views import KernelView
from fusec.kernel.nodes import Statement


@dataclass(frozen=True, kw_only=True)
class AttentionView(KernelView):
    """An attention kernel.

    config: the members of its `Config`. constants: declarations of M, N and batches. bounds: lines
    that narrow `seen` for the queries from `first` to `last`. score_lines: what scores have in
    common; scale: what they are to be multiplied by; score, seen: their graph, in place, and the
    same where no mask says otherwise; has_masks: whether the two differ; score_reads: whether they
    read memory. row_lines: what a query has besides, from `top` and `total`; row_stores: what of
    that is stored, where row_test holds; row_factor: what its sums are multiplied by; row_first,
    row_second: the batch and the number of a thread's two queries; row_reads: whether memory is
    read for a query, which is not done past the last one. output: the graph of the second product.
    """

    config: tuple[Statement, ...]
    constants: tuple[Statement, ...]
    index_type: str
    queries: OperandView
    keys: OperandView
    values: OperandView
    bounds: tuple[Statement, ...]
    score_lines: tuple[Statement, ...]
    scale: str
    score: EpilogueView
    seen: EpilogueView
    has_masks: bool
    score_reads: bool
    row_parameters: str
    row_lines: tuple[Statement, ...]
    row_stores: tuple[Statement, ...]
    row_factor: str
    row_test: str
    row_reads: bool
    row_first: str
    row_second: str
    output: EpilogueView
    has_batches: bool
