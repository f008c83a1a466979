"""The sizes for which a host program is valid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod

from fusec.diagnostics import FusecError
from fusec.ir.dim import dim, symbol
from fusec.ir.graph import Fusion
from fusec.ops.limits import needed_sizes
from fusec.schedule.plan import Guard, KernelPlan


def guards_of(plans: Sequence[KernelPlan]) -> tuple[Guard, ...]:
    """Return the guards of all plans, those of specialized sizes first."""
    built_in = {name: size for plan in plans for name, size in plan.specialised.items()}
    fixed = [
        Guard(symbol(name), "==", size, f"the kernels are specialized for `{name}`")
        for name, size in sorted(built_in.items())
    ]
    return guards_in_all(fixed, (g for plan in plans for g in plan.guards))


def guards_in_all(*guards: Iterable[Guard]) -> tuple[Guard, ...]:
    """Return the union of several groups of guards, without duplicates."""
    return tuple({str(g): g for each in guards for g in each}.values())


def specialized_extents(original: Fusion, fusion: Fusion) -> Iterable[Guard]:
    """Yield guards that fix inputs to the extents for which passes replaced symbols."""
    shapes = {entry.value.name: entry.value.shape for entry in fusion.inputs}
    for entry in original.inputs:
        name = entry.value.name
        for given, found in zip(entry.value.shape, shapes.get(name, ()), strict=False):
            if found.is_const and not given.is_const:
                yield Guard(
                    given,
                    "==",
                    found.value,
                    f"the kernels are specialized for an extent of `{name}`",
                )


def elements_there(fusion: Fusion) -> Iterable[Guard]:
    """Yield guards that keep operations from reading elements out of bounds."""
    for difference, relation, reason in needed_sizes(fusion):
        yield Guard(difference, relation, 0, reason)


def distinct_elements(fusion: Fusion) -> Iterable[Guard]:
    """Yield guards that inputs written in place have no two elements at the same address.

    In the order of their strides, each dim steps over the whole span of the previous ones. Without
    elements there is no overlap.
    """
    for output in fusion.effects.in_place:
        entry = fusion.effects.into[output.value]
        target = entry.value.name
        sizes = fusion.hints
        dims = [d for d in zip(entry.value.shape, entry.strides, strict=True) if d[0] != 1]
        # An extent of 1 can have any stride: it is first among equal strides.
        dims.sort(key=lambda d: (d[1].evaluate(sizes), d[0].evaluate(sizes)))
        elements = prod((extent for extent, _ in dims if not extent.is_const), start=dim(1))
        if any(extent == 0 for extent, _ in dims):
            continue
        for (inner, step), (extent, stride) in pairwise([(dim(1), dim(1)), *dims]):
            over = (extent - 1) * (inner * step - stride) * elements
            if over.evaluate(sizes) > 0:
                raise FusecError(
                    f"output `{output.value.name}` is written to `{target}`, whose elements "
                    "overlap",
                    span=output.span,
                    help=(
                        "pass an input whose elements do not overlap, or give the output its own "
                        "memory"
                    ),
                )
            if not over.is_const:
                yield Guard(over, "<=", 0, f"the elements of `{target}` do not overlap")
