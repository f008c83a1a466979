"""The axes of a segment that reduces over rows: the column axes, and the reduced sets."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from fusec.index.domain import Domain, Refusal, find_domain
from fusec.ir.expression import Var
from fusec.ir.graph import Fusion
from fusec.ir.identity_cache import IdentityCache
from fusec.passes.squeeze_unit_reductions import squeeze_unit_reductions
from fusec.schedule.common import specialise
from fusec.schedule.rows.two_pass import two_pass

Chosen = frozenset[Var]
ColumnAxes = tuple[Fusion, Domain, tuple[Var, ...], tuple[Chosen, ...]]
"""A segment with sizes specialized, variances and unit reductions expanded, and its domain; the
column axes, and the reduced sets of row axes from the smallest to the largest."""
_CACHE: IdentityCache[ColumnAxes | Refusal] = IdentityCache()


def column_axes(segment: Fusion) -> ColumnAxes | Refusal:
    """Return the axes of a segment, or why it has no reductions over rows only."""
    return _CACHE.of(segment, None, lambda: _found(segment))


def _found(segment: Fusion) -> ColumnAxes | Refusal:
    fusion = squeeze_unit_reductions(two_pass(specialise(segment)[0]))
    domain = find_domain(fusion)
    if isinstance(domain, Refusal):
        return domain
    axes = _axes(domain)
    return axes if isinstance(axes, Refusal) else (fusion, domain, *axes)


def _axes(domain: Domain) -> tuple[tuple[Var, ...], tuple[Chosen, ...]] | Refusal:
    """Return the column axes, and the column sets from the smallest to the largest."""
    axes = [a for a in domain.axes if a.extent != 1]
    for node in domain.reduced:
        if node.op.combine is None or not node.op.combine.keeps_one:
            return Refusal("reduction", f"`{node.op.name}` has no partial results to combine")
    sets = {s for s in domain.reduced.values() if s}
    along = {s for s in sets if axes and axes[-1] in s}
    chain = tuple(sorted(sets - along, key=len))
    if not chain:
        return Refusal("no column sums", "no reduction is over rows only")
    if len(along) > 1:
        return Refusal("reduction_axes", "the reductions along rows reduce different axes")
    for small, large in pairwise(chain):
        if not small < large:
            return Refusal(
                "reduction_axes",
                f"{_text(small)} and {_text(large)} are independent column reductions",
            )
    if along:
        columns = along.pop()
        if columns & chain[-1]:
            shared = _text(columns & chain[-1])
            return Refusal("reduction_axes", f"{shared} is reduced along both rows and columns")
        return tuple(a for a in axes if a in columns), chain
    first = max(k for k, axis in enumerate(axes) if axis in chain[-1])
    return tuple(axes[first + 1 :]), chain


def _text(chosen: Iterable[Var]) -> str:
    return "{" + ", ".join(sorted(a.name for a in chosen)) + "}"
