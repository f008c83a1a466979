"""What an entry holds: the values of a program's last stages, as records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from fusec.codegen.source import KernelSource
from fusec.hostir.form import RECORDS
from fusec.hostir.program import HostProgram
from fusec.hostir.records import OMITTED
from fusec.ir.dim import Dim
from fusec.schedule.plan import Argument, Guard, Kernel
from fusec.stages import Recorded


@dataclass(frozen=True)
class KernelText:
    """A kernel's text, and what its launches have in common; headers: that it includes."""

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
"""What both records have of a kernel: all but the plan that it was taken over from."""


@dataclass(frozen=True)
class Planned:
    """A planned program: the scheduler of each segment, its kernels, and what the host does.

    launched: by the name of each kernel, that of the equal one launched for it. posts: the host
    program before segments are replaced by launches; host: after that, where it was made.
    """

    schedulers: tuple[str, ...]
    kernels: tuple[tuple[KernelText, ...], ...]
    launched: Mapping[str, str]
    posts: HostProgram
    host: HostProgram | None = field(default=None, metadata=OMITTED)


def kernels_of(sources: Sequence[Sequence[KernelSource]]) -> tuple[tuple[KernelText, ...], ...]:
    """Return the records of each segment's kernels."""
    return tuple(tuple(map(_text, each)) for each in sources)


def sources_of(kernels: Sequence[Sequence[KernelText]]) -> tuple[tuple[KernelSource, ...], ...]:
    """Return the kernels of each segment from their records."""
    return tuple(tuple(map(_source, each)) for each in kernels)


def decoded(data: Any, scalars: frozenset[str]) -> dict[str, Recorded]:
    """Return by name the values of a program's stages, each decoded when it is asked for.

    data: a `Planned` as JSON. scalars: the names of scalar inputs, whose sizes may be less than 1.
    """

    def read(kind: Any, *path: str) -> Any:
        found = data
        for name in path:
            found = found[name]
        return RECORDS.decode(kind, found, ".".join(path), scalars)

    texts = tuple[tuple[KernelText, ...], ...]
    found = {
        "schedulers": Recorded(lambda: read(tuple[str, ...], "schedulers")),
        "sources": Recorded(lambda: sources_of(read(texts, "kernels"))),
        "kernels_launched": Recorded(lambda: read(Mapping[str, str], "launched")),
        "guards": Recorded(lambda: read(tuple[Guard, ...], "posts", "guards")),
        "posts": Recorded(lambda: read(HostProgram, "posts")),
        "evaluated": Recorded(dict),
    }
    if "host" in data:
        found["host"] = Recorded(lambda: read(HostProgram, "host"))
    return found


def _text(source: KernelSource) -> KernelText:
    shared = {name: getattr(source.kernel, name) for name in _SHARED}
    return KernelText(
        text=source.text, alignments=source.alignments, headers=source.headers, **shared
    )


def _source(record: KernelText) -> KernelSource:
    kernel = Kernel(**{name: getattr(record, name) for name in _SHARED})
    return KernelSource(kernel, record.text, record.alignments, record.headers)
