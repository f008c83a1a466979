"""Annotations of a fusion file in addition to its operations: segments, schedules, phases."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import Span


@dataclass(frozen=True)
class Pin:
    """A segment named in the file: its nodes' results by name, and optionally a scheduler.

    open: no boundary may separate them, but the segment may contain more nodes.
    """

    name: str
    values: tuple[str, ...]
    scheduler: str | None = None
    span: Span | None = None
    open: bool = False

    def renamed(self, names: Mapping[str, str]) -> Pin:
        """Return the same pin for renamed values."""
        return replace(self, values=tuple(names.get(v, v) for v in self.values))


Setting = bool | int | str
"""A value of a schedule field."""


@dataclass(frozen=True)
class Override:
    """A field of a segment's schedule that the user sets, by name.

    of: the segment: the name of its pin or of a value that it computes, `s0`, or a scheduler's
    name. written: the setting as the file has it, if that is a former name or value.
    """

    of: str
    name: str
    value: Setting
    span: Span | None = None
    name_span: Span | None = None
    of_span: Span | None = None
    written: str = ""

    def renamed(self, names: Mapping[str, str]) -> Override:
        """Return the same override for renamed values."""
        return replace(self, of=names.get(self.of, self.of))


@dataclass(frozen=True)
class Phase:
    """A part of a joint graph that runs separately, such as the forward or the backward pass.

    inputs: the inputs that only this phase and later ones receive; outputs: its required outputs.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    span: Span | None = None
