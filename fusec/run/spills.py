"""Kernels whose registers the compiler spills: built again with more of them, or for fewer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fusec.run.build import Artifact, Source

if TYPE_CHECKING:
    from fusec.codegen.render import KernelSource
    from fusec.schedule.plan import KernelPlan

SPILL_LIMIT = 256
"""Bytes of spill stores and loads from which on a kernel is built again.

Below it they are often the price of a further block on an SM, and pay.
"""

Build = Callable[[Sequence[Source]], Mapping[tuple[str, str], Artifact]]
Others = Callable[[int], Iterable["KernelPlan"]]
Built = dict[tuple[str, str], Artifact]
Settled = tuple[tuple["KernelPlan", ...], tuple[tuple["KernelSource", ...], ...], Built]


def build_plans(
    plans: Sequence[KernelPlan],
    sources: Sequence[Sequence[KernelSource]],
    build: Build,
    others: Others = lambda number: (),
) -> Settled:
    """Return plans, their CUDA text and what `build` makes of it, of the kernels that spill less.

    A kernel that spills more than SPILL_LIMIT gets all registers of an SM, unless that spills more.
    Where that does not help, `others` gives further plans by a plan's number; the first one within
    the limit is taken, or else the one that spills least.
    """
    from fusec.codegen.dispatch import plan_sources

    plans, texts, built = _with_all_registers(plans, sources, build)
    changed = False
    for number, plan in enumerate(plans):
        if _most(built, plan) <= SPILL_LIMIT:
            continue
        for other in others(number):
            (found,), (text,), again = _with_all_registers([other], [plan_sources(other)], build)
            if _most(again, found) < _most(built, plans[number]):
                old = {k.name for k in plans[number].kernels}
                built = {key: a for key, a in built.items() if key[0] not in old} | again
                plans[number], texts[number], changed = found, text, True
            if _most(built, plans[number]) <= SPILL_LIMIT:
                break
    if changed:
        order = {s.name: k for k, s in enumerate(s for each in texts for s in each)}
        built = dict(sorted(built.items(), key=lambda item: order[item[0][0]]))
    return tuple(plans), tuple(texts), built


def _with_all_registers(
    plans: Sequence[KernelPlan], sources: Sequence[Sequence[KernelSource]], build: Build
) -> tuple[list[KernelPlan], list[tuple[KernelSource, ...]], Built]:
    """Build plans, and what spills again for one block on an SM."""
    from fusec.codegen.dispatch import kernel_source

    built = dict(build([Source.of(s) for each in sources for s in each]))
    plans, texts = list(plans), [list(each) for each in sources]
    tried: dict[str, tuple[int, int, KernelSource]] = {}
    for number, (plan, each) in enumerate(zip(plans, sources, strict=True)):
        for place, (kernel, source) in enumerate(zip(plan.kernels, each, strict=True)):
            if _spills(built, kernel.name) > SPILL_LIMIT:
                all_registers = kernel_source(plan, replace(kernel, all_registers=True))
                if all_registers.text != source.text:
                    tried[kernel.name] = (number, place, all_registers)
    again: Mapping[tuple[str, str], Artifact] = {}
    if tried:
        again = build([Source.of(s) for *_, s in tried.values()])
    for name, (number, place, source) in tried.items():
        if _spills(again, name) < _spills(built, name):
            built |= {key: artifact for key, artifact in again.items() if key[0] == name}
            kernels = list(plans[number].kernels)
            kernels[place] = replace(kernels[place], all_registers=True)
            plans[number] = replace(plans[number], kernels=tuple(kernels))
            texts[number][place] = source
    return plans, [tuple(each) for each in texts], built


def _most(built: Mapping[tuple[str, str], Artifact], plan: KernelPlan) -> int:
    """Return the bytes that a plan's kernels spill, of all of them the most."""
    return max((_spills(built, k.name) for k in plan.kernels), default=0)


def _spills(built: Mapping[tuple[str, str], Artifact], name: str) -> int:
    """Return the bytes that a kernel spills, of all targets the most."""
    return max(a.spill_bytes for (kernel, _), a in built.items() if kernel == name)
