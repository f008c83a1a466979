"""Random legal settings of a segment's schedule."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from fusec import driver
from fusec.ir.annotations import Override, Setting
from fusec.ir.graph import Fusion, whole_name
from fusec.options import DEFAULT_TARGET, CompileOptions
from fusec.schedule.grid_methods import METHODS, CombineOrder
from fusec.schedule.registry import find_scheduler
from fusec.schedule.space import Field
from fusec.segment.segmented import Segment, SegmentedFusion
from fusec.target import Target, find

TRIES = 12
UNORDERED = frozenset(m.name for m in METHODS if m.order is CombineOrder.ARRIVAL)
"""Values with which sums are added in arrival order."""


def with_schedule(fusion: Fusion, rng: random.Random) -> Fusion:
    """Return the fusion with settings of one segment; the fusion itself where none is found."""
    options = CompileOptions(targets=(DEFAULT_TARGET,), targets_given=True, jobs=1)
    try:
        segmented = driver.Compilation(fusion, options).segmented
    except Exception:
        return fusion  # what does not compile fails as it is
    target = find(DEFAULT_TARGET)
    names = [(s, name_of(s, segmented, fusion)) for s in segmented.segments]
    named = [
        (s, of) for s, of in names if of and find_scheduler(s.scheduler).free(s.fusion, target)
    ]
    products = [n for n in named if n[0].scheduler.startswith(("matmul", "attention"))]
    if not named:
        return fusion
    segment, of = rng.choice(products if products and rng.random() < 0.85 else named)
    settings = draw_settings(segment, target, rng)
    return replace(fusion, schedules=tuple(Override(of, n, v) for n, v in settings.items()))


def draw_settings(segment: Segment, target: Target, rng: random.Random) -> Mapping[str, Setting]:
    """Return values of one to four free fields with which a segment has a plan, if any is found."""
    scheduler = find_scheduler(segment.scheduler)
    free = scheduler.free(segment.fusion, target)
    for _ in range(TRIES):
        fields = rng.sample(free, min(len(free), rng.choice([1, 1, 2, 2, 3, 4])))
        settings = {f.name: _value(f, rng) for f in fields}
        if scheduler.refusal(segment.fusion, target, settings) is None:
            return settings
    return {}


def _value(field: Field, rng: random.Random) -> Setting:
    if isinstance(field.values, range):
        return min(field.values[-1], rng.choice([1, 2, 3, 4, 5, 7, 8, 16, 33]))
    return rng.choice(field.values)


def name_of(segment: Segment, segmented: SegmentedFusion, fusion: Fusion) -> str | None:
    """Return what a file may call a segment: its scheduler or a value of the file.

    None where it stores neither: the numbers of segments change with what is scheduled. Parts of a
    complex value may be stored by several segments, all of which its name means.
    """
    if sum(s.scheduler == segment.scheduler for s in segmented.segments) == 1:
        return segment.scheduler
    names = {v.name for n in fusion.nodes for v in n.outputs}
    others = (s for s in segmented.segments if s is not segment)
    names -= {whole_name(o) for s in others for o in s.fusion.outputs}
    stored = (whole_name(o) for o in segment.fusion.outputs)
    return next((n for n in stored if n in names), None)


def is_repeatable(fusion: Fusion) -> bool:
    """Return whether every run gives the same bits: no sum is taken in arrival order."""
    unordered = any(o.value in UNORDERED for o in fusion.schedules)
    return not unordered and all(n.attributes.get("deterministic", True) for n in fusion.nodes)
