"""Segments and phases of a definition: pins and boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusec.diagnostics import FusecError, Span
from fusec.ir.annotations import Override, Pin, Setting
from fusec.ir.graph import Value
from fusec.parse.dsl.handles import Handle, Tensor
from fusec.parse.dsl.place import Place, placed
from fusec.parse.dsl.refused import refuse
from fusec.parse.dsl.steps import Steps


class Boundaries:
    """The calls of a definition that produce no value."""

    _steps: Steps
    _unknown: bool

    def pin(
        self,
        name: str,
        values: Sequence[Tensor],
        scheduler: str | None = None,
        *,
        open: bool = False,
    ) -> None:
        """Name a segment: the operations that make `values`, and optionally its scheduler.

        `open`: it may hold more; only no boundary comes between them.
        """
        with placed() as place:
            if open and scheduler is not None:
                raise FusecError("an open segment cannot have a scheduler")
            self._steps.perform(
                lambda: tuple(value_of(v).name for v in values),
                lambda names: self._steps.build.builder.pin(
                    Pin(name, names, scheduler, span_of(place), open)
                ),
                nothing,
                symbolic=self._unknown,
            )

    def schedule(self, of: Tensor | str | None = None, /, **fields: Setting) -> None:
        """Set fields of the kernels that make `of`: a value, a segment's or a scheduler's name.

        Without arguments, as nvFuser calls it, it is refused: schedules are chosen by fusec.
        """
        if of is None:
            raise refuse("schedule", "FusionDefinition")
        with placed() as place:
            for name, value in fields.items():
                if not isinstance(value, (bool, int, str)):  # pyright: ignore[reportUnnecessaryIsInstance]
                    raise FusecError(
                        f"{name} must be an integer, a string or a bool, not {value!r}"
                    )
            span = span_of(place)
            self._steps.perform(
                lambda: of if isinstance(of, str) else value_of(of).name,
                lambda of: self._steps.build.builder.schedules.extend(
                    [Override(of, name, value, span, span, span) for name, value in fields.items()]
                ),
                nothing,
                symbolic=self._unknown,
            )

    def explicit_boundaries(self) -> None:
        """Let groups of kernels end at `segment_set` alone."""
        with placed():
            self._steps.perform(lambda: "explicit", self._let_end, nothing, symbolic=self._unknown)

    def _let_end(self, boundaries: str) -> None:
        self._steps.build.builder.boundaries = boundaries

    def phase_boundary(self) -> None:
        """End a phase, the forward pass say: inputs and outputs from now on are the next one's."""
        with placed() as place:
            self._steps.perform(
                lambda: span_of(place),
                lambda span: self._steps.build.builder.phase_boundary(span),
                nothing,
                symbolic=self._unknown,
            )


def span_of(place: Place | None) -> Span | None:
    """Return the location of a call in the script."""
    return None if place is None else place.span


def nothing() -> None:
    """Do nothing, as the step of a call without results."""


def value_of(handle: Any) -> Value:
    """Return the value of a handle for a tensor of the fusion."""
    operand = handle.operand if isinstance(handle, Handle) else handle
    if not isinstance(operand, Value):
        help = "an output has the name of its variable: write `fd.add_output(y)`"
        named = help if isinstance(handle, str) else None
        raise FusecError(f"expected a tensor of the fusion, got {handle!r}", help=named)
    return operand
