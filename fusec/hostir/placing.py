"""Memory of the inputs and outputs of a host program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusec.dataclasses import dataclass, field
from fusec.diagnostics import InternalError, Unsupported
from fusec.hostir.instructions import Alias, Allocate, Copy, Instruction
from fusec.hostir.launch_groups import views_of
from fusec.hostir.program import Buffer
from fusec.ir.dim import Dim, dim, floordiv, shape_text
from fusec.ir.divisibility import with_exact_quotients
from fusec.ir.effects import own_strides
from fusec.ir.graph import ComplexPart, Input, Output, Value, whole_name
from fusec.schedule.plan import KernelPlan, TensorArgument
from fusec.segment.segmented import SegmentedFusion


@dataclass
class Lowering:
    """The program under construction."""

    segmented: SegmentedFusion
    plans: Sequence[KernelPlan]
    buffers: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    first: list[Instruction] = field(default_factory=list[Instruction])
    body: list[Instruction] = field(default_factory=list[Instruction])
    last: list[Instruction] = field(default_factory=list[Instruction])

    def add(self, buffer: Buffer) -> None:
        """Add a buffer."""
        self.buffers[buffer.name] = buffer


def place_input(state: Lowering, entry: Input) -> None:
    """Add the caller's memory; the parts of a complex tensor are views of it."""
    value, part = entry.value, entry.part
    if part is None:
        given = Buffer(value.name, "input", value.dtype, value.shape, entry.strides)
        state.add(given)
        return
    if part.index == 0:
        strides = _halved(state, entry.strides)
        state.add(Buffer(part.of, "input", part.dtype, value.shape, strides))
    _add_part(state, value, entry.strides, part)


def _add_part(state: Lowering, value: Value, strides: Sequence[Dim], part: ComplexPart) -> None:
    layout = tuple(strides)
    state.add(Buffer(value.name, "temporary", value.dtype, value.shape, layout))
    state.first.append(Alias(value.name, part.of, dim(part.index)))


def _halved(state: Lowering, strides: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the strides of a complex tensor, in elements, from those of its parts.

    Those of `c64[B, D // 2]` are D and 2 in parts: since D is even, the first one becomes D // 2.
    """
    multiples = {fact.name: fact.multiple_of for fact in state.segmented.fusion.dims}
    halves = tuple(with_exact_quotients(floordiv(s, 2), multiples) for s in strides)
    if any(2 * half != s for half, s in zip(halves, strides, strict=True)):
        raise InternalError(f"the parts of a complex tensor have strides {shape_text(strides)}")
    return halves


def place_outputs(state: Lowering, writer: Mapping[Value, int]) -> None:
    """Allocate outputs, or alias an input; views are added where they are created."""
    for output in state.segmented.fusion.outputs:
        value, name, index = output.value, output.value.name, writer[output.value]
        plan = state.plans[index]
        if any(view == name for view, _ in views_of(state.segmented.segments[index], plan)):
            continue
        strides = own_strides(output)
        if output.part is not None:
            _place_part(state, output, output.part, index)
            continue
        entry = state.segmented.fusion.effects.into.get(value)
        if entry is None:
            state.add(Buffer(name, "output", value.dtype, value.shape, strides))
            state.first.append(Allocate(name))
            continue
        target, layout = entry.value, entry.strides
        # Without kernels the output is empty, which the plan guards.
        if not plan.kernels or _writes(plan, target.name):
            _check_in_place(state, output, target, index)
            state.add(Buffer(name, "output", value.dtype, value.shape, layout))
            state.first.append(Alias(name, target.name, dim(0)))
            continue
        if layout != strides:
            raise Unsupported(
                f"output `{name}` is written to `{target.name}`, whose layout is not dense",
                span=output.span,
            )
        state.add(Buffer(name, "output", value.dtype, value.shape, strides))
        state.first.append(Allocate(name))
        state.last.append(Copy(target.name, name))


def _place_part(state: Lowering, output: Output, part: ComplexPart, index: int) -> None:
    """Allocate a complex output with its first part; both parts are views of it."""
    value, effects = output.value, state.segmented.fusion.effects
    given, strides = effects.into.get(value), effects.strides(value)
    if given is not None:
        if not _writes(state.plans[index], given.value.name):
            raise Unsupported(
                f"output `{part.of}` of complex numbers is not computed in place", span=output.span
            )
        _check_in_place(state, output, given.value, index)
    if part.index == 0:
        whole = Buffer(part.of, "output", part.dtype, value.shape, _halved(state, strides))
        state.add(whole)
        where = Allocate(part.of) if given is None else Alias(part.of, whole_name(given), dim(0))
        state.first.append(where)
    _add_part(state, value, strides, part)


def _writes(plan: KernelPlan, name: str) -> bool:
    """Return whether a plan writes the buffer called `name` itself; the host program can."""
    return plan.host is not None or any(
        isinstance(a, TensorArgument) and a.name == name and a.written
        for kernel in plan.kernels
        for a in kernel.arguments
    )


def _check_in_place(state: Lowering, output: Output, target: Value, index: int) -> None:
    for segment in state.segmented.segments[index + 1 :]:
        if any(i.value is target for i in segment.fusion.inputs):
            raise InternalError(
                f"segment {segment.name} reads `{target.name}` after `{output.value.name}` was "
                "written to it",
                span=output.span,
            )
