"""From segments and their kernel plans to a host program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod

from fusec.codegen.render import KernelSource
from fusec.diagnostics import FusecError, InternalError, Unsupported
from fusec.hostir.alignment import aligned
from fusec.hostir.checks import index_checks
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Copy,
    EncodeTensorMap,
    Free,
    Instruction,
    Launch,
    Memset,
)
from fusec.hostir.program import Buffer, HostProgram, Scalar, check_program, dense_strides
from fusec.ir.dim import Dim, dim, shape_text, symbol
from fusec.ir.dtype import U64
from fusec.ir.effects import own_strides
from fusec.ir.graph import ComplexPart, Fusion, Input, Output, Value, whole_name
from fusec.ops.checks import INDEX_ERRORS
from fusec.schedule.approximated import approximated
from fusec.schedule.original_orders import orders_of
from fusec.schedule.plan import (
    Argument,
    Guard,
    KernelPlan,
    TensorArgument,
    TensorMapArgument,
    WorkspaceArgument,
)
from fusec.segment.segmented import Segment, SegmentedFusion


@dataclass
class _Lowering:
    """The program under construction."""

    segmented: SegmentedFusion
    plans: Sequence[KernelPlan]
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    first: list[Instruction] = field(default_factory=list[Instruction])
    body: list[Instruction] = field(default_factory=list[Instruction])
    last: list[Instruction] = field(default_factory=list[Instruction])


def lower(
    segmented: SegmentedFusion,
    plans: Sequence[KernelPlan],
    original: Fusion | None = None,
    sources: Sequence[Sequence[KernelSource]] | None = None,
) -> HostProgram:
    """Return the host program that runs `plans`, one for each segment, in order.

    original: the fusion as it was given, by whose names the program tells the orders of sums.
    sources: the plans' texts, which say what alignment their accesses ask; the most without them.
    """
    fusion = segmented.fusion
    state = _Lowering(segmented, plans)
    for entry in fusion.inputs:
        if not entry.value.is_scalar:
            _place_input(state, entry)
    writer = {o.value: k for k, s in enumerate(segmented.segments) for o in s.fusion.outputs}
    _place_outputs(state, writer)
    last_read = _last_reads(state)
    for index, (segment, plan) in enumerate(zip(segmented.segments, plans, strict=True)):
        _lower_segment(state, segment, plan)
        state.body += [Free(name) for name, k in last_read.items() if k == index]
    _check_layouts(state)
    checks = tuple(index_checks(fusion))
    if any(c.index is None for c in checks):
        shape = (dim(2),)
        state.buffers.append(Buffer(INDEX_ERRORS, "workspace", U64, shape, dense_strides(shape)))
        state.first += [Allocate(INDEX_ERRORS), Memset(INDEX_ERRORS)]
    buffers, instructions = tuple(state.buffers), (*state.first, *state.body, *state.last)
    own, inside = approximated(original or fusion, fusion)
    program = HostProgram(
        name=fusion.name,
        buffers=buffers if sources is None else aligned(buffers, instructions, plans, sources),
        scalars=tuple(_scalar(i) for i in fusion.inputs if i.value.is_scalar),
        instructions=instructions,
        outputs=tuple(dict.fromkeys(whole_name(o) for o in fusion.outputs)),
        guards=(*_guards(plans), *_distinct_elements(fusion)),
        aliases=tuple(
            dict.fromkeys(
                (whole_name(o), whole_name(fusion.effects.into[o.value]))
                for o in fusion.effects.in_place
            )
        ),
        checks=checks,
        orders=orders_of(original or fusion, fusion, plans),
        approximated=own,
        inside=inside,
    )
    check_program(program)
    return program


def _place_input(state: _Lowering, entry: Input) -> None:
    """Name the caller's memory; the parts of a complex tensor are views of it."""
    value, part = entry.value, entry.part
    if part is None:
        given = Buffer(value.name, "input", value.dtype, value.shape, entry.strides)
        state.buffers.append(given)
        return
    if part.index == 0:
        strides = _halved(entry.strides)
        state.buffers.append(Buffer(part.of, "input", part.dtype, value.shape, strides))
    _add_part(state, value, entry.strides, part)


def _add_part(state: _Lowering, value: Value, strides: Sequence[Dim], part: ComplexPart) -> None:
    layout = tuple(strides)
    state.buffers.append(Buffer(value.name, "temporary", value.dtype, value.shape, layout))
    state.first.append(Alias(value.name, part.of, dim(part.index)))


def _halved(strides: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the strides of a complex tensor, in elements, from those of its parts."""
    halves = tuple(h for s in strides if (h := s.divide(dim(2))) is not None)
    if len(halves) != len(strides):
        raise InternalError(f"the parts of a complex tensor have strides {shape_text(strides)}")
    return halves


def _scalar(entry: Input) -> Scalar:
    value, part = entry.value, entry.part
    assert not isinstance(entry.default, complex)
    if part is None:
        return Scalar(value.name, value.dtype, entry.default)
    return Scalar(value.name, value.dtype, entry.default, part.of, ("real", "imag")[part.index])


def _guards(plans: Sequence[KernelPlan]) -> tuple[Guard, ...]:
    """Return the guards of all plans, those of the sizes that are built in first."""
    built_in = {name: size for plan in plans for name, size in plan.specialised.items()}
    fixed = [
        Guard(symbol(name), "==", size, f"`{name}` is built into the kernels")
        for name, size in sorted(built_in.items())
    ]
    given = [g for plan in plans for g in plan.guards]
    return tuple({str(g): g for g in (*fixed, *given)}.values())


def _distinct_elements(fusion: Fusion) -> Iterable[Guard]:
    """Yield what keeps the elements of inputs that are written into from lying on one another.

    In the order of their strides, each dim steps over all that the one before it spans. Where there
    are no elements, none lie on one another.
    """
    for output in fusion.effects.in_place:
        entry = fusion.effects.into[output.value]
        target = entry.value.name
        sizes = fusion.hints
        dims = [d for d in zip(entry.value.shape, entry.strides, strict=True) if d[0] != 1]
        # An extent of 1 has any stride: it comes first among equals.
        dims.sort(key=lambda d: (d[1].evaluate(sizes), d[0].evaluate(sizes)))
        elements = prod((extent for extent, _ in dims if not extent.is_const), start=dim(1))
        if any(extent == 0 for extent, _ in dims):
            continue
        for (inner, step), (extent, stride) in pairwise([(dim(1), dim(1)), *dims]):
            over = (extent - 1) * (inner * step - stride) * elements
            if over.evaluate(sizes) > 0:
                raise FusecError(
                    f"output `{output.value.name}` is written into `{target}`, "
                    "whose elements overlap",
                    span=output.span,
                    help="give the input strides that keep its elements apart, or an output its "
                    "own memory",
                )
            if not over.is_const:
                yield Guard(over, "<=", 0, f"the elements of `{target}` lie apart")


def _place_outputs(state: _Lowering, writer: Mapping[Value, int]) -> None:
    """Give outputs memory, their own or that of an input; views get theirs where they are made."""
    for output in state.segmented.fusion.outputs:
        value, name, index = output.value, output.value.name, writer[output.value]
        plan = state.plans[index]
        if any(v.name == name for v in plan.views):
            continue
        strides = own_strides(output)
        if output.part is not None:
            _place_part(state, output, output.part, index)
            continue
        entry = state.segmented.fusion.effects.into.get(value)
        if entry is None:
            state.buffers.append(Buffer(name, "output", value.dtype, value.shape, strides))
            state.first.append(Allocate(name))
            continue
        target, layout = entry.value, entry.strides
        # Without kernels the output is empty, which the plan guards.
        if not plan.kernels or _writes(plan, target.name):
            _check_in_place(state, output, target, index)
            state.buffers.append(Buffer(name, "output", value.dtype, value.shape, layout))
            state.first.append(Alias(name, target.name, dim(0)))
            continue
        if layout != strides:
            raise Unsupported(
                f"output `{name}` is written into `{target.name}`, whose layout is not dense",
                span=output.span,
            )
        state.buffers.append(Buffer(name, "output", value.dtype, value.shape, strides))
        state.first.append(Allocate(name))
        state.last.append(Copy(target.name, name))


def _place_part(state: _Lowering, output: Output, part: ComplexPart, index: int) -> None:
    """Give a complex output memory with its first part; both are views of it."""
    value, effects = output.value, state.segmented.fusion.effects
    given, strides = effects.into.get(value), effects.strides(value)
    if given is not None:
        if not _writes(state.plans[index], given.value.name):
            raise Unsupported(
                f"output `{part.of}` of complex numbers is not computed in place", span=output.span
            )
        _check_in_place(state, output, given.value, index)
    if part.index == 0:
        whole = Buffer(part.of, "output", part.dtype, value.shape, _halved(strides))
        state.buffers.append(whole)
        where = Allocate(part.of) if given is None else Alias(part.of, whole_name(given), dim(0))
        state.first.append(where)
    _add_part(state, value, strides, part)


def _writes(plan: KernelPlan, name: str) -> bool:
    """Return whether a kernel of the plan writes the buffer called `name`."""
    return any(
        isinstance(a, TensorArgument) and a.name == name and a.written
        for kernel in plan.kernels
        for a in kernel.arguments
    )


def _check_in_place(state: _Lowering, output: Output, target: Value, index: int) -> None:
    for segment in state.segmented.segments[index + 1 :]:
        if any(i.value is target for i in segment.fusion.inputs):
            raise InternalError(
                f"segment {segment.name} reads `{target.name}` after `{output.value.name}` was "
                "written into it",
                span=output.span,
            )


def _last_reads(state: _Lowering) -> dict[str, int]:
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


def _check_layouts(state: _Lowering) -> None:
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


def _lower_segment(state: _Lowering, segment: Segment, plan: KernelPlan) -> None:
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
    for workspace in plan.workspaces:
        name = f"{segment.name}.{workspace.name}"
        shape = (workspace.size,)
        state.buffers.append(
            Buffer(name, "workspace", workspace.dtype, shape, dense_strides(shape))
        )
        state.first.append(Allocate(name))
        if workspace.init == "zeroed once":
            state.first.append(Memset(name, once=True))
        elif workspace.init == "zeroed per launch":
            state.body.append(Memset(name))
    own = {w.name for w in plan.workspaces}
    for kernel in plan.kernels:
        arguments = tuple(_resolve(a, segment.name, kernel.name, own) for a in kernel.arguments)
        state.body += [
            EncodeTensorMap(a.name, a) for a in arguments if isinstance(a, TensorMapArgument)
        ]
        state.body.append(
            Launch(
                kernel.name,
                segment.name,
                kernel.grid,
                kernel.block,
                arguments,
                kernel.shared_bytes,
                kernel.cluster,
                kernel.overlapped,
            )
        )


def _resolve(argument: Argument, segment: str, kernel: str, workspaces: set[str]) -> Argument:
    """Return an argument by the program's names: workspaces and maps are a segment's own."""
    if isinstance(argument, WorkspaceArgument) and argument.name != INDEX_ERRORS:
        return replace(argument, name=f"{segment}.{argument.name}")
    if isinstance(argument, TensorMapArgument):
        inside = argument.buffer in workspaces
        buffer = f"{segment}.{argument.buffer}" if inside else argument.buffer
        return replace(argument, name=f"{kernel}.{argument.name}", buffer=buffer)
    return argument
