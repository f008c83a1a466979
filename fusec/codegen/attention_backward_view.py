"""The frozen view that the template of attention's backward reads."""

from __future__ import annotations

from dataclasses import dataclass

from fusec.codegen.matmul_view import EpilogueView, OperandView
from fusec.codegen.views import KernelView
from fusec.kernel.nodes import Statement


@dataclass(frozen=True)
class ElementView:
    """What becomes of one element: lines, and the value that they end in."""

    lines: tuple[Statement, ...]
    value: str


@dataclass(frozen=True, kw_only=True)
class WalkView(KernelView):
    """A walk of attention's backward.

    of_keys: whether it owns keys, else queries. config: the members of its `Config`. constants:
    declarations of M, N and batches. own, others: the operands of both sides. own_rows, own_count:
    what is owned and how many there are; other_rows, other_count: what passes by. bounds: lines
    that narrow `seen` for the rows from `first` to `last`. lines: what all elements have in common.
    parameters_of_query, parameters_of_element: what they are told by; value_lines: that compute
    the values of a query. share: what makes a share of the first product; masks: what query `m` and
    key `n` must fulfil besides; pull: what makes a pull of `share` and the second product; reads:
    whether they read memory for each key. results: the graphs on the sums, and what these are
    called; unsummed: the sums that this walk does not have.
    """

    of_keys: bool
    config: tuple[Statement, ...]
    constants: tuple[Statement, ...]
    index_type: str
    own: tuple[OperandView, OperandView]
    others: tuple[OperandView, OperandView]
    own_rows: str
    own_count: str
    other_rows: str
    other_count: str
    bounds: tuple[Statement, ...]
    lines: tuple[Statement, ...]
    parameters_of_query: str
    parameters_of_element: str
    value_lines: tuple[Statement, ...]
    share: ElementView
    masks: tuple[str, ...]
    pull: ElementView
    reads: bool
    results: tuple[tuple[str, str, EpilogueView], ...]
    unsummed: str
    has_batches: bool
