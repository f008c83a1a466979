"""Which values of the original fusion are not computed the way their operations define them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fusec.ir.graph import Fusion, Node, Value
from fusec.schedule.original_orders import expressions, names_of
from fusec.schedule.plan import KernelPlan

MOST_STEPS = 6
"""Most operations between a GEMM that a form replaces and the operation inside it."""


def approximated(original: Fusion, fusion: Fusion) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names in `original` of values with larger errors than their operations declare.

    The first are computed by forms that replace their own operation, the others inside forms that
    replace a GEMM.

    fusion: what `original` was rewritten to. A form keeps the name of the operation that it
    replaces, or of the GEMM around it, or else the name of its user.
    """
    forms = [n for n in fusion.nodes if n.op.is_form]
    if not forms:
        return (), ()
    makers = _makers(original)
    found = {v for form in forms for v in _consumers(form, fusion, original, makers)}
    numbers = expressions(original)
    own = {numbers[v] for v, is_own in found if is_own}
    inside = {numbers[v] for v, is_own in found if not is_own} - own
    values = [n.output for n in original.nodes if n.op.approx or n.op.inside]
    return (
        tuple(v.name for v in values if numbers[v] in own),
        tuple(v.name for v in values if numbers[v] in inside),
    )


def rounded_early(original: Fusion, plans: Iterable[KernelPlan]) -> dict[str, int]:
    """Return the values that are rounded to a 16-bit float before scaling, by name in `original`.

    Each with the number of terms of a row that are scaled by the largest of them.
    """
    wanted = {
        known: terms
        for plan in plans
        for name, terms in plan.rounded_early.items()
        for known in _names_in_original(plan, name)
    }
    return {
        n.output.name: wanted[name]
        for n in (original.nodes if wanted else ())
        if n.op.converts and n.output.dtype.is_half
        for name in names_of(original, n)
        if name in wanted
    }


def unrounded(original: Fusion, plans: Iterable[KernelPlan]) -> tuple[str, ...]:
    """Return the names in `original` of 16-bit float values that are not rounded."""
    wanted = {
        known
        for plan in plans
        for name in plan.unrounded
        for known in _names_in_original(plan, name)
    }
    return tuple(
        n.output.name
        for n in (original.nodes if wanted else ())
        if n.output.dtype.is_half and wanted & {*names_of(original, n)}
    )


def _names_in_original(plan: KernelPlan, name: str) -> set[str]:
    """Return the names that a plan's value may have in the original: its own and its origin's."""
    return {name, *(n.origin for n in plan.fusion.nodes if n.output.name == name and n.origin)}


def _makers(fusion: Fusion) -> dict[str, list[Node]]:
    """Return candidate producers by name, those that the fusion itself calls by the name last."""
    found: dict[str, list[Node]] = {}
    for node in fusion.nodes:
        for name in names_of(fusion, node):
            found.setdefault(name, []).append(node)
    return found


def _consumers(
    form: Node, fusion: Fusion, original: Fusion, makers: dict[str, list[Node]]
) -> Iterator[tuple[Value, bool]]:
    """Yield the operation that a form replaces (true), or those in the GEMM around it (false)."""
    names = [name for name in (form.output.name, form.origin) if name]
    own = [n for name in names for n in makers.get(name, ()) if n.op.approx is form.op]
    if own:
        yield from ((n.output, True) for n in own)
        return
    users = [form, *fusion.users.get(form.output, ())]
    named = (name for u in users for name in (u.output.name, u.origin) if name in makers)
    known = next(named, None)
    level = [] if known is None else makers[known][-1:]
    for _ in range(MOST_STEPS):
        yield from ((n.output, False) for n in level if n.op.inside is not None)
        level = [
            original.producer[v]
            for n in level
            if n.op.inside is None and n.op.is_elementwise
            for v in n.inputs
            if v in original.producer
        ]
