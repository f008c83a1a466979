"""Facts for passes over host programs, in addition to the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from fusec.dataclasses import dataclass, field
from fusec.hostir.arena import aligned
from fusec.schedule.plan import KernelPlan
from fusec.segment.segmented import SegmentedFusion
from fusec.target import Target


@dataclass(frozen=True)
class Known:
    """Facts for passes, in addition to the program.

    sizes: that it is planned for, by name. streams: how many there are in addition to the caller's.
    By segment: seconds: the predicted time, where there is one; filled: the fraction of the GPU
    that its kernels fill, 1 if unknown; scratch: bytes of its workspaces. event: seconds that one
    stream takes to wait for another.
    """

    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    streams: int = 4
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    filled: Mapping[str, float] = field(default_factory=dict[str, float])
    scratch: Mapping[str, int] = field(default_factory=dict[str, int])
    event: float = 0.0


def known_of(
    segmented: SegmentedFusion, plans: Sequence[KernelPlan], target: Target, streams: int
) -> Known:
    """Return the facts about segments and their plans at hint sizes.

    An event is assumed to take as long as a launch: targets have no measured time of an event.
    """
    sizes, parts = segmented.fusion.hints, segmented.segments
    timed = zip(parts, segmented.times(target), strict=True)
    return Known(
        sizes,
        streams,
        seconds={s.name: t for s, t in timed},
        filled={
            s.name: min(1.0, _blocks(p, sizes) / target.sms)
            for s, p in zip(parts, plans, strict=True)
        },
        scratch={s.name: _scratch(p, sizes) for s, p in zip(parts, plans, strict=True)},
        event=target.launch,
    )


def _scratch(plan: KernelPlan, sizes: Mapping[str, int]) -> int:
    """Return the bytes of a plan's workspaces, except those that outlive its kernels."""
    passing = (w for w in plan.workspaces if w.init != "zeroed once")
    return sum(aligned(max(1, w.size.evaluate(sizes) * w.dtype.size)) for w in passing)


def _blocks(plan: KernelPlan, sizes: Mapping[str, int]) -> int:
    """Return the blocks of a plan's largest launch."""
    grids = ([extent.evaluate(sizes) for extent in k.grid] for k in plan.kernels)
    return max(map(prod, grids), default=0)
