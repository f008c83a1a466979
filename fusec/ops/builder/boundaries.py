"""Segments and phases of a graph that is built step by step."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError, Span
from fusec.ir.annotations import Phase, Pin
from fusec.ir.graph import Input, Output
from fusec.ops.names import check_name


@dataclass(frozen=True)
class Boundary:
    """The end of a phase: the numbers of inputs and outputs so far."""

    inputs: int
    outputs: int
    span: Span | None = None


def check_pin(pin: Pin, others: Sequence[Pin]) -> None:
    """Raise FusecError if a segment's name is invalid or taken, or its scheduler's is invalid."""
    check_name(pin.name, "segment", pin.span)
    if pin.scheduler is not None:
        check_name(pin.scheduler, "scheduler", pin.span)
    if any(other.name == pin.name for other in others):
        raise FusecError(f"two segments are called `{pin.name}`", span=pin.span)


def phases_between(
    boundaries: Sequence[Boundary], inputs: Sequence[Input], outputs: Sequence[Output]
) -> tuple[Phase, ...]:
    """Return the phases; two are called forward and backward, others phase_0, phase_1, ..."""
    if not boundaries:
        return ()
    starts = (Boundary(0, 0), *boundaries)
    ends = (*boundaries, Boundary(len(inputs), len(outputs)))
    phases: list[Phase] = []
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        name = ("forward", "backward")[k] if len(starts) == 2 else f"phase_{k}"
        own = inputs[start.inputs : end.inputs] if k else ()
        given = tuple(i.value.name for i in own if not i.generator)
        made = tuple(o.value.name for o in outputs[start.outputs : end.outputs])
        if not made:
            raise FusecError(
                f"phase `{name}` has no outputs",
                span=start.span or end.span,
                help="call fd.phase_boundary() between the outputs of two phases",
            )
        phases.append(Phase(name, given, made, start.span))
    return tuple(phases)
