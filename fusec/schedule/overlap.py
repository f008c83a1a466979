"""Kernels that start while the one before them still runs: programmatic dependent launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fusec.schedule.plan import Kernel, KernelPlan
from fusec.target import Target

LEAST = 90
"""The compute capability from which on launches may overlap."""


def overlap_launches(plans: Sequence[KernelPlan], target: Target) -> tuple[KernelPlan, ...]:
    """Return plans whose kernels, all but the first, start beside the end of the one before.

    Each waits for that end before it touches memory, so that effects allow it of any two; what
    comes between them in the stream, as the zeroing of a workspace, parts them.
    """
    if target.capability < LEAST:
        return tuple(plans)
    made: list[list[Kernel]] = [list(plan.kernels) for plan in plans]
    last: tuple[int, int] | None = None
    for number, plan in enumerate(plans):
        if any(w.init == "zeroed per launch" for w in plan.workspaces):
            last = None
        for k, kernel in enumerate(plan.kernels):
            if last is not None:
                made[number][k] = replace(kernel, overlapped=True)
                before = made[last[0]][last[1]]
                made[last[0]][last[1]] = replace(before, followed=True)
            last = number, k
    pairs = zip(plans, made, strict=True)
    return tuple(p if tuple(k) == p.kernels else replace(p, kernels=tuple(k)) for p, k in pairs)
