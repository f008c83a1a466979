"""The frozen view that the template of attention's backward reads."""

from __future__ import annotations

from dataclasses import dataclass

from fusec.codegen.attention_view import FusedView, GraphView
from fusec.codegen.matmul_view import OperandView
from fusec.kernel.nodes import Expression, Statement


@dataclass(frozen=True)
class ElementView:
    """What becomes of one element: lines, and the value that they end in."""

    lines: tuple[Statement, ...]
    value: Expression


@dataclass(frozen=True)
class ResultView:
    """A result: the rows that it is of, its sums, the constant of their features, their graph."""

    name: str
    sums: str
    features: str
    output: GraphView


@dataclass(frozen=True, kw_only=True)
class WalkView(FusedView):
    """A walk of attention's backward.

    of_keys: whether it owns keys, else queries. own, others: the operands of both sides. own_rows,
    own_count: what is owned and how many there are; other_rows, other_count: what passes by.
    bounds: for the rows from `first` to `last`. lines: what all elements have in common;
    value_lines: that compute the values of a query. share: what makes a share of the first product;
    inside: the test for what passes by; kept: that, and those of masks on query `m` and key `n`, if
    there are any; pull: what makes a pull of `share` and the second product; reads: whether they
    read memory for each key. results: what becomes of the sums;
    unsummed: those that this walk does not have.
    """

    of_keys: bool
    own: tuple[OperandView, OperandView]
    others: tuple[OperandView, OperandView]
    own_rows: str
    own_count: str
    other_rows: str
    other_count: str
    lines: tuple[Statement, ...]
    value_lines: tuple[Statement, ...]
    share: ElementView
    inside: Expression
    kept: Expression | None
    pull: ElementView
    reads: bool
    results: tuple[ResultView, ...]
    unsummed: str
    has_batches: bool
