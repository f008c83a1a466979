"""Kernels that start while the previous one still runs: programmatic dependent launch."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.dataclasses import replace
from fusec.ops.communication import PEER_VIEWS, communicates
from fusec.schedule.plan import Kernel, KernelPlan
from fusec.target import Target

LEAST = 90
"""The least compute capability for overlapping launches."""


def overlap_launches(plans: Sequence[KernelPlan], target: Target) -> tuple[KernelPlan, ...]:
    """Return plans whose kernels, except the first, overlap with the end of the previous one.

    Each waits for that end before it accesses memory, so effects allow it between any two kernels.
    Other work between them in the stream prevents it, such as zeroing a workspace, a collective, or
    the end of shared peer views.
    """
    if target.capability < LEAST:
        return tuple(plans)
    made: list[list[Kernel]] = [list(plan.kernels) for plan in plans]
    last: tuple[int, int] | None = None
    shares = (n for p in plans for n in p.fusion.nodes if n.op is PEER_VIEWS)
    theirs = {view.name for node in shares for view in node.outputs}
    for number, plan in enumerate(plans):
        if any(communicates(node) for node in plan.fusion.nodes):
            last = None
        if plan.host is not None or any(w.init == "zeroed per launch" for w in plan.workspaces):
            last = None
        for k, kernel in enumerate(plan.kernels):
            if last is not None:
                made[number][k] = replace(kernel, overlapped=True)
                before = made[last[0]][last[1]]
                made[last[0]][last[1]] = replace(before, followed=True)
            last = number, k
        if any(entry.value.name in theirs for entry in plan.fusion.inputs):
            last = None
    pairs = zip(plans, made, strict=True)
    return tuple(p if tuple(k) == p.kernels else replace(p, kernels=tuple(k)) for p, k in pairs)
