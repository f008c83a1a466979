"""Kernels whose registers the compiler spills: built once more with all that an SM has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
Settled = tuple[
    tuple["KernelPlan", ...],
    tuple[tuple["KernelSource", ...], ...],
    dict[tuple[str, str], Artifact],
]


def build_plans(
    plans: Sequence[KernelPlan], sources: Sequence[Sequence[KernelSource]], build: Build
) -> Settled:
    """Return plans, their CUDA text and what `build` makes of it, of the kernels that spill less.

    A kernel that spills more than SPILL_LIMIT gets all registers of an SM, unless that spills more.
    """
    from fusec.codegen.dispatch import kernel_source

    built = dict(build([Source(s.name, s.text) for each in sources for s in each]))
    plans, texts = list(plans), [list(each) for each in sources]
    tried: dict[str, tuple[int, int, KernelSource]] = {}
    for number, (plan, each) in enumerate(zip(plans, sources, strict=True)):
        for place, (kernel, source) in enumerate(zip(plan.kernels, each, strict=True)):
            if _spills(built, kernel.name) > SPILL_LIMIT:
                roomy = kernel_source(plan, replace(kernel, roomy=True))
                if roomy.text != source.text:
                    tried[kernel.name] = (number, place, roomy)
    if not tried:
        return tuple(plans), tuple(tuple(each) for each in texts), built
    again = build([Source(s.name, s.text) for *_, s in tried.values()])
    for name, (number, place, source) in tried.items():
        if _spills(again, name) < _spills(built, name):
            built |= {key: artifact for key, artifact in again.items() if key[0] == name}
            kernels = list(plans[number].kernels)
            kernels[place] = replace(kernels[place], roomy=True)
            plans[number] = replace(plans[number], kernels=tuple(kernels))
            texts[number][place] = source
    return tuple(plans), tuple(tuple(each) for each in texts), built


def _spills(built: Mapping[tuple[str, str], Artifact], name: str) -> int:
    """Return the bytes that a kernel spills, of all targets the most."""
    return max(a.spill_bytes for (kernel, _), a in built.items() if kernel == name)
