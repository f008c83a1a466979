"""Reports about kernels that add their rows over ranks."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.schedule.host.pushed_rows import pairs_of, rows_time
from fusec.schedule.plan import KernelPlan, PushedKernel
from fusec.segment.segmented import Decision, SegmentedFusion
from fusec.target import Target


def rows_decisions(
    segmented: SegmentedFusion, plans: Sequence[KernelPlan], target: Target
) -> tuple[Decision, ...]:
    """Return a decision per kernel that adds its rows, with its time fused and separate."""
    found = list[Decision]()
    for before, number in pairs_of(segmented):
        pushed = [k for k in plans[number].kernels if isinstance(k, PushedKernel)]
        times = [rows_time(segmented, before, number, kernel, target) for kernel in pushed]
        found += [
            Decision(
                "rows over ranks",
                (kernel.target,),
                f"the kernel that reads it adds its rows where GPUs push to one another: "
                f"{1e6 * each.pushed:.2f} us rather than {1e6 * each.separate:.2f} us",
            )
            for kernel, each in zip(pushed, times, strict=True)
            if each is not None
        ]
    return tuple(found)
