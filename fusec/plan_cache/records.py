"""The contents of an entry: the results of a program's last stages, as records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusec.codegen.source import KernelSource
from fusec.dataclasses import dataclass, field, fields
from fusec.hostir.form import RECORDS
from fusec.hostir.program import HostProgram
from fusec.hostir.records import OMITTED
from fusec.ir.dim import Dim
from fusec.schedule.plan import Argument, Kernel


@dataclass(frozen=True)
class KernelText:
    """A kernel's source, and the common parameters of its launches; headers: its includes."""

    name: str
    template: str
    grid: tuple[Dim, Dim, Dim]
    block: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    text: str
    alignments: Mapping[str, int]
    headers: tuple[str, ...]
    shared_bytes: int = field(default=0, metadata=OMITTED)
    cluster: tuple[int, int, int] = field(default=(1, 1, 1), metadata=OMITTED)
    all_registers: bool = field(default=False, metadata=OMITTED)
    least_blocks: int = field(default=0, metadata=OMITTED)
    overlapped: bool = field(default=False, metadata=OMITTED)
    followed: bool = field(default=False, metadata=OMITTED)


_SHARED = [f.name for f in fields(Kernel) if f.name != "of"]
"""The fields that both records share: all except the plan that a kernel was taken over from."""


@dataclass(frozen=True)
class Stages:
    """The results of a program's last stages: its kernels by segment, and the host program.

    launched: by the name of each kernel, the equal kernel that is launched for it. posts: the host
    program before segments are replaced by launches; host: after that.
    """

    kernels: tuple[tuple[KernelText, ...], ...]
    launched: Mapping[str, str]
    posts: HostProgram
    host: HostProgram


@dataclass(frozen=True)
class Planned:
    """A planned program: the scheduler of each segment; covers: the supported sizes, as text.

    stages: all of them, or none if its host program was not made.
    """

    schedulers: tuple[str, ...]
    covers: str
    stages: Stages | None = field(default=None, metadata=OMITTED)


def kernels_of(sources: Sequence[Sequence[KernelSource]]) -> tuple[tuple[KernelText, ...], ...]:
    """Return the records of each segment's kernels."""
    return tuple(tuple(map(_text, each)) for each in sources)


def sources_of(data: Any, scalars: frozenset[str]) -> tuple[tuple[KernelSource, ...], ...]:
    """Return the kernels of each segment from their records as JSON.

    scalars: the names of scalar inputs, whose sizes may be less than 1.
    """
    kind = tuple[tuple[KernelText, ...], ...]
    kernels = RECORDS.decode(kind, data, "kernels", scalars)
    return tuple(tuple(map(_source, each)) for each in kernels)


def program_of(data: Any, scalars: frozenset[str]) -> HostProgram:
    """Return a host program from its record as JSON; scalars: as for `sources_of`."""
    return RECORDS.decode(HostProgram, data, "program", scalars)


def _text(source: KernelSource) -> KernelText:
    shared = {name: getattr(source.kernel, name) for name in _SHARED}
    return KernelText(
        text=source.text, alignments=source.alignments, headers=source.headers, **shared
    )


def _source(record: KernelText) -> KernelSource:
    kernel = Kernel(**{name: getattr(record, name) for name in _SHARED})
    return KernelSource(kernel, record.text, record.alignments, record.headers)
