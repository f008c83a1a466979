"""Rebuilds kernels that spill registers: with more registers, or as smaller kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fusec.dataclasses import replace
from fusec.run.build import Artifact, Source

if TYPE_CHECKING:
    from fusec.codegen.source import KernelSource
    from fusec.schedule.plan import KernelPlan

SPILL_LIMIT = 256
"""Bytes of spill stores and loads above which a kernel is rebuilt.

Smaller spills are often worth it: they allow another block per SM.
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
    """Return plans, their CUDA source and the output of `build`, after replacing those that spill.

    Of equal kernels only the first is built, and it alone has machine code in the result. A kernel
    that spills more than SPILL_LIMIT is rebuilt for one block per SM, unless that spills more. If
    that does not help, `others` yields alternative plans by a plan's number; the first one within
    the limit is selected, or else the one that spills least.
    """
    from fusec.codegen.dispatch import plan_sources

    builds = _Builds(build)
    plans, texts, built = _with_all_registers(plans, sources, builds)
    for number, plan in enumerate(plans):
        if _most(built, plan) <= SPILL_LIMIT:
            continue
        for other in others(number):
            (found,), (text,), again = _with_all_registers([other], [plan_sources(other)], builds)
            if _most(again, found) < _most(built, plans[number]):
                built |= again
                plans[number], texts[number] = found, text
            if _most(built, plans[number]) <= SPILL_LIMIT:
                break
    return tuple(plans), tuple(texts), _launched(texts, built, build)


class _Builds:
    """Kernels built so far, with their artifacts by target; no two of them are equal."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._sources: list[KernelSource] = []
        self._artifacts: list[Mapping[str, Artifact]] = []

    def of(self, sources: Sequence[KernelSource]) -> Built:
        """Return the artifacts of kernels; equal kernels share one."""
        from fusec.codegen.equal import first_equal

        every = [*self._sources, *sources]
        known = len(self._sources)
        first = first_equal(every)
        new = [place for place in range(known, len(every)) if first[place] == place]
        made = _by_name(self._build([Source.of(every[place]) for place in new]) if new else {})
        self._sources += [every[place] for place in new]
        self._artifacts += [made[every[place].name] for place in new]
        kept = {place: k for k, place in enumerate([*range(known), *new])}
        return {
            (source.name, arch): artifact
            for source, place in zip(sources, first[known:], strict=True)
            for arch, artifact in self._artifacts[kept[place]].items()
        }


def _launched(texts: Iterable[Sequence[KernelSource]], built: Built, build: Build) -> Built:
    """Return the artifacts of the launched kernels, each built under its own name."""
    from fusec.codegen.equal import kernels_launched

    every = [s for each in texts for s in each]
    launched = kernels_launched(every)
    found = _by_name(built)
    firsts = [s for s in every if launched[s.name] == s.name]
    # The kernel that was built first may belong to a plan that was replaced.
    others = [s for s in firsts if any(a.name != s.name for a in found[s.name].values())]
    if others:
        found |= _by_name(build([Source.of(s) for s in others]))
    return {(s.name, arch): a for s in firsts for arch, a in found[s.name].items()}


def _by_name(built: Mapping[tuple[str, str], Artifact]) -> dict[str, dict[str, Artifact]]:
    """Return artifacts by the name of the kernel, then by target."""
    found: dict[str, dict[str, Artifact]] = {}
    for (name, arch), artifact in built.items():
        found.setdefault(name, {})[arch] = artifact
    return found


def _with_all_registers(
    plans: Sequence[KernelPlan], sources: Sequence[Sequence[KernelSource]], builds: _Builds
) -> tuple[list[KernelPlan], list[tuple[KernelSource, ...]], Built]:
    """Build plans, and rebuild kernels that spill for one block per SM."""
    from fusec.codegen.dispatch import kernel_source
    from fusec.schedule.plan import PushedKernel

    built = builds.of([s for each in sources for s in each])
    plans, texts = list(plans), [list(each) for each in sources]
    tried: dict[str, tuple[int, int, KernelSource]] = {}
    for number, (plan, each) in enumerate(zip(plans, sources, strict=True)):
        for place, (kernel, source) in enumerate(zip(plan.kernels, each, strict=True)):
            if isinstance(kernel, PushedKernel):
                continue  # its blocks must all be resident, with the registers that they have
            if _spills(built, kernel.name) > SPILL_LIMIT:
                all_registers = kernel_source(plan, replace(kernel, all_registers=True))
                if all_registers.text != source.text:
                    tried[kernel.name] = (number, place, all_registers)
    again = builds.of([s for *_, s in tried.values()])
    for name, (number, place, source) in tried.items():
        if _spills(again, name) < _spills(built, name):
            built |= {key: artifact for key, artifact in again.items() if key[0] == name}
            kernels = list(plans[number].kernels)
            kernels[place] = replace(kernels[place], all_registers=True)
            plans[number] = replace(plans[number], kernels=tuple(kernels))
            texts[number][place] = source
    return plans, [tuple(each) for each in texts], built


def _most(built: Mapping[tuple[str, str], Artifact], plan: KernelPlan) -> int:
    """Return the spill bytes of a plan's kernels, the maximum over kernels."""
    return max((_spills(built, k.name) for k in plan.kernels), default=0)


def _spills(built: Mapping[tuple[str, str], Artifact], name: str) -> int:
    """Return the spill bytes of a kernel, the maximum over targets."""
    return max(a.spill_bytes for (kernel, _), a in built.items() if kernel == name)
