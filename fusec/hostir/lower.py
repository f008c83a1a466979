"""From segments and their kernel plans to a host program that runs segments."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.diagnostics import InternalError
from fusec.hostir.checks import index_checks
from fusec.hostir.guards import distinct_elements, guards_of
from fusec.hostir.instructions import Alias, Allocate, Free, Post
from fusec.hostir.placing import Lowering, place_input, place_outputs
from fusec.hostir.program import Buffer, HostProgram, Scalar, dense_strides
from fusec.ir.dim import shape_text
from fusec.ir.graph import Fusion, Input, whole_name
from fusec.schedule.approximated import approximated
from fusec.schedule.original_orders import orders_of
from fusec.schedule.plan import KernelPlan
from fusec.segment.segmented import Segment, SegmentedFusion


def lower(
    segmented: SegmentedFusion, plans: Sequence[KernelPlan], original: Fusion | None = None
) -> HostProgram:
    """Return the host program that runs the segments, each with its plan, in order.

    It says of a segment only that it runs, and on which buffers: `expand` says how. original: the
    fusion as it was given, by whose names the program tells the orders of sums.
    """
    fusion = segmented.fusion
    state = Lowering(segmented, plans)
    for entry in fusion.inputs:
        if not entry.value.is_scalar:
            place_input(state, entry)
    writer = {o.value: k for k, s in enumerate(segmented.segments) for o in s.fusion.outputs}
    place_outputs(state, writer)
    last_read = _last_reads(state)
    for index, (segment, plan) in enumerate(zip(segmented.segments, plans, strict=True)):
        _lower_segment(state, segment, plan)
        state.body += [Free(name) for name, k in last_read.items() if k == index]
    _check_layouts(state)
    own, inside = approximated(original or fusion, fusion)
    return HostProgram(
        name=fusion.name,
        buffers=tuple(state.buffers),
        scalars=tuple(_scalar(i) for i in fusion.inputs if i.value.is_scalar),
        instructions=(*state.first, *state.body, *state.last),
        outputs=tuple(dict.fromkeys(whole_name(o) for o in fusion.outputs)),
        guards=(*guards_of(plans), *distinct_elements(fusion)),
        aliases=tuple(
            dict.fromkeys(
                (whole_name(o), whole_name(fusion.effects.into[o.value]))
                for o in fusion.effects.in_place
            )
        ),
        checks=tuple(index_checks(fusion)),
        orders=orders_of(original or fusion, fusion, plans),
        approximated=own,
        inside=inside,
    )


def _scalar(entry: Input) -> Scalar:
    value, part = entry.value, entry.part
    assert not isinstance(entry.default, complex)
    if part is None:
        return Scalar(value.name, value.dtype, entry.default)
    return Scalar(value.name, value.dtype, entry.default, part.of, ("real", "imag")[part.index])


def _last_reads(state: Lowering) -> dict[str, int]:
    """Return the last segment that reads each tensor that only crosses between segments.

    A view keeps what it is a view of; what an output is a view of stays to the end.
    """
    final = {o.value.name for o in state.segmented.fusion.outputs}
    given = {i.value.name for i in state.segmented.fusion.inputs}
    end = len(state.plans)
    reads: dict[str, int] = {}
    for index, (segment, plan) in enumerate(
        zip(state.segmented.segments, state.plans, strict=True)
    ):
        for entry in segment.fusion.inputs:
            if not entry.value.is_scalar:
                reads[entry.value.name] = index
        for view in plan.views:
            reads[view.base] = index
    for plan in reversed(state.plans):
        for view in plan.views:
            last = end if view.name in final else reads.get(view.name, 0)
            reads[view.base] = max(reads[view.base], last)
    crossing = (name for name in reads if name not in final and name not in given)
    return {name: reads[name] for name in crossing if reads[name] < end}


def _check_layouts(state: Lowering) -> None:
    """Raise InternalError where a segment expects a tensor in another layout than it has."""
    strides = {b.name: b.strides for b in state.buffers}
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


def _lower_segment(state: Lowering, segment: Segment, plan: KernelPlan) -> None:
    final = {o.value for o in state.segmented.fusion.outputs}
    views = {v.name: v for v in plan.views}
    for output in segment.fusion.outputs:
        value = output.value
        if value.name in views:
            view, role = views[value.name], "output" if value in final else "temporary"
            buffer = Buffer(value.name, role, value.dtype, view.shape, view.strides)
            state.buffers.append(buffer)
            state.body.append(Alias(value.name, view.base, view.offset))
        elif value not in final:
            strides = dense_strides(value.shape)
            state.buffers.append(Buffer(value.name, "temporary", value.dtype, value.shape, strides))
            state.body.append(Allocate(value.name))
    if plan.kernels:
        inputs = tuple(i.value.name for i in segment.fusion.inputs)
        made = (o.value.name for o in segment.fusion.outputs)
        state.body.append(Post(segment.name, inputs, tuple(n for n in made if n not in views)))
