"""Lowers segments and their kernel plans to a host program that runs segments."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.diagnostics import InternalError
from fusec.hostir.checks import index_checks
from fusec.hostir.guards import (
    distinct_elements,
    elements_there,
    guards_in_all,
    guards_of,
    specialized_extents,
)
from fusec.hostir.instructions import Allocate, Free, Instruction
from fusec.hostir.launch_groups import LaunchGroup, launch_groups_of, views_of
from fusec.hostir.loops import Lowered
from fusec.hostir.placing import Lowering, place_input, place_outputs
from fusec.hostir.program import HostProgram, Scalar
from fusec.ir.dim import shape_text
from fusec.ir.graph import Fusion, Input, whole_name
from fusec.schedule.approximated import approximated, rounded_early, unrounded
from fusec.schedule.original_orders import orders_of
from fusec.schedule.plan import KernelPlan
from fusec.schedule.summation import summation_trees
from fusec.segment.segmented import SegmentedFusion


def lower(
    segmented: SegmentedFusion,
    plans: Sequence[KernelPlan],
    original: Fusion | None = None,
    streams: int = 4,
    *,
    as_written: bool = False,
) -> HostProgram:
    """Return the host program that runs the segments, each with its plan, in order.

    A segment is a single instruction with its buffers: `expand` replaces it by launches. original:
    the fusion before passes, whose names the program uses for the orders of sums. streams: on which
    the iterations of loops run round-robin. as_written: whether outputs are allocated where they
    are first written, and temporaries are kept to the end.
    """
    fusion = segmented.fusion
    state = Lowering(segmented, plans)
    for entry in fusion.inputs:
        if not entry.value.is_scalar:
            place_input(state, entry)
    writer = {o.value: k for k, s in enumerate(segmented.segments) for o in s.fusion.outputs}
    place_outputs(state, writer)
    groups = launch_groups_of(segmented)
    lowered = Lowered(state, streams)
    last_read = _last_reads(state, groups)
    for index, group in enumerate(groups):
        made = lowered.group(group)
        if as_written:
            made = _allocated_late(state, group, made)
        state.body += made
        state.body += lowered.unshared(last_read, index)
        freed = (n for n, k in last_read.items() if k == index and not as_written)
        state.body += [Free(own) for name in freed if (own := lowered.memory(name)) is not None]
    _check_layouts(state)
    own, inside = approximated(original or fusion, fusion)
    orders = orders_of(original or fusion, fusion, plans)
    return HostProgram(
        name=fusion.name,
        buffers=tuple(state.buffers.values()),
        scalars=tuple(_scalar(i) for i in fusion.inputs if i.value.is_scalar),
        instructions=(*state.first, *state.body, *state.last),
        outputs=tuple(dict.fromkeys(whole_name(o) for o in fusion.outputs)),
        guards=guards_in_all(
            guards_of(plans),
            specialized_extents(original or fusion, fusion),
            elements_there(original or fusion),
            distinct_elements(fusion),
        ),
        aliases=tuple(
            dict.fromkeys(
                (whole_name(o), whole_name(fusion.effects.into[o.value]))
                for o in fusion.effects.in_place
            )
        ),
        checks=tuple(index_checks(fusion)),
        orders=orders,
        summation=summation_trees(original or fusion, orders),
        approximated=own,
        inside=inside,
        rounded_early=rounded_early(original or fusion, plans),
        unrounded=unrounded(original or fusion, plans),
    )


def _allocated_late(
    state: Lowering, group: LaunchGroup, made: Sequence[Instruction]
) -> list[Instruction]:
    """Return the instructions of a group, after the allocations of the outputs that it writes."""
    nodes = [n for k in group.segments for n in state.segmented.segments[k].nodes]
    names = {v.name for node in nodes for v in node.outputs}
    moved = [i for i in state.first if isinstance(i, Allocate) and i.buffer in names]
    state.first = [i for i in state.first if i not in moved]
    ahead = next((k for k, i in enumerate(made) if not isinstance(i, Allocate)), len(made))
    return [*made[:ahead], *moved, *made[ahead:]]


def _scalar(entry: Input) -> Scalar:
    value, part = entry.value, entry.part
    assert not isinstance(entry.default, complex)
    if part is None:
        return Scalar(value.name, value.dtype, entry.default)
    return Scalar(value.name, value.dtype, entry.default, part.of, ("real", "imag")[part.index])


def _last_reads(state: Lowering, groups: Sequence[LaunchGroup]) -> dict[str, int]:
    """Return the last group that reads each tensor passed between segments.

    A view keeps its base tensor alive; the base of an output is kept to the end.
    """
    final = {o.value.name for o in state.segmented.fusion.outputs}
    given = {i.value.name for i in state.segmented.fusion.inputs}
    end = len(groups)
    reads: dict[str, int] = {}
    views: list[tuple[str, str]] = []
    for index, group in enumerate(groups):
        for number in group.segments:
            segment = state.segmented.segments[number]
            for entry in segment.fusion.inputs:
                if not entry.value.is_scalar:
                    reads[entry.value.name] = index
            into = segment.fusion.effects.into.items()
            lying = ((v.name, i.value.name) for v, i in into if v.name not in final)
            for name, base in (*views_of(segment, state.plans[number]), *lying):
                reads[base] = index
                views.append((name, base))
    for name, base in reversed(views):
        reads[base] = max(reads[base], end if name in final else reads.get(name, 0))
    crossing = (name for name in reads if name not in final and name not in given)
    return {name: reads[name] for name in crossing if reads[name] < end}


def _check_layouts(state: Lowering) -> None:
    """Raise InternalError where a segment expects a tensor in another layout than it has."""
    strides = {b.name: b.strides for b in state.buffers.values()}
    for segment in state.segmented.segments:
        for entry in segment.fusion.inputs:
            value = entry.value
            if value.is_scalar:
                continue
            pairs = zip(value.shape, entry.strides, strides[value.name], strict=True)
            if any(extent != 1 and expected != found for extent, expected, found in pairs):
                raise InternalError(
                    f"segment {segment.name} reads `{value.name}` with strides "
                    f"{shape_text(entry.strides)}, it has {shape_text(strides[value.name])}",
                )
