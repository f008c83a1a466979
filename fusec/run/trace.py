"""Traces of a run for Chrome's tracing and Perfetto, and NVTX ranges."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.hostir.instructions import (
    Collective,
    Copy,
    Instruction,
    Launch,
    Memset,
    Post,
    Receive,
    Send,
    Share,
    Unshare,
    Wait,
)


@dataclass(frozen=True)
class Slice:
    """One step of a run, with its start and duration.

    begin: in seconds of a clock shared by all ranks. kind: `segment`, `kernel`, `exchange` or
    `memory`. text: the instruction.
    """

    name: str
    kind: str
    rank: int
    stream: int
    begin: float
    seconds: float
    text: str


def slice_of(
    instruction: Instruction, stream: int, begin: float, end: float, rank: int = 0
) -> Slice | None:
    """Return the slice of an instruction; None for one without work on the device."""
    label = label_of(instruction)
    if label is None:
        return None
    return Slice(*label, rank, stream, begin, max(end - begin, 0.0), str(instruction))


def label_of(instruction: Instruction) -> tuple[str, str] | None:
    """Return the name and the kind of an instruction's slice."""
    match instruction:
        case Post(segment):
            return segment, "segment"
        case Launch(_, segment):
            return segment, "kernel"
        case Collective(kind, target):
            return f"{kind} {target}", "exchange"
        case Send(source):
            return f"send {source}", "exchange"
        case Receive(target):
            return f"receive {target}", "exchange"
        case Share(source):
            return f"share {source}", "exchange"
        case Unshare(source):
            return f"unshare {source}", "exchange"
        case Wait(buffer):
            return f"wait {buffer}", "exchange"
        case Memset(buffer):
            return f"memset {buffer}", "memory"
        case Copy(target):
            return f"copy {target}", "memory"
        case _:
            return None


def trace_text(name: str, slices: Sequence[Slice]) -> str:
    """Return slices as JSON in Chrome's trace event format: ranks are processes, streams threads.

    Times are in microseconds since the first slice.
    """
    start = min((s.begin for s in slices), default=0.0)
    events = [*_names(name, slices), *(_event(s, start) for s in slices)]
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events}, indent=1) + "\n"


def _event(part: Slice, start: float) -> dict[str, Any]:
    return {
        "name": part.name, "cat": part.kind, "ph": "X", "pid": part.rank, "tid": part.stream,
        "ts": round((part.begin - start) * 1e6, 3), "dur": round(part.seconds * 1e6, 3),
        "args": {"instruction": part.text},
    }  # fmt: skip


def _names(name: str, slices: Iterable[Slice]) -> Iterator[dict[str, Any]]:
    """Yield the names of the rows of a trace."""
    rows = sorted({(s.rank, s.stream) for s in slices})
    for rank in sorted({rank for rank, _ in rows}):
        args = {"name": f"{name}, rank {rank}"}
        yield {"name": "process_name", "ph": "M", "pid": rank, "tid": 0, "args": args}
    for rank, stream in rows:
        args = {"name": f"stream {stream}" if stream else "stream 0 (the caller's)"}
        yield {"name": "thread_name", "ph": "M", "pid": rank, "tid": stream, "args": args}


def write_trace(path: str | Path, name: str, slices: Sequence[Slice]) -> None:
    """Write a trace atomically (temporary file, then rename); FusecError where that fails."""
    import tempfile

    file = Path(path)
    aside = ""
    try:
        handle, aside = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(trace_text(name, slices))
        os.chmod(aside, 0o644)
        os.replace(aside, file)
    except OSError as error:
        if aside:
            Path(aside).unlink(missing_ok=True)
        raise FusecError(f"cannot write `{file}`: {error.strerror or error}") from None


@contextmanager
def nvtx_range(name: str) -> Generator[None]:
    """Mark host work for a profiler, where NVIDIA's package nvtx is installed."""
    nvtx = _nvtx()
    if nvtx is None:
        yield
        return
    nvtx.push_range(name)
    try:
        yield
    finally:
        nvtx.pop_range()


def is_marking() -> bool:
    """Return whether the process has loaded NVIDIA's package nvtx: launches are marked then."""
    return "nvtx" in sys.modules


def marked(name: str, issue: Callable[[], None]) -> Callable[[], None]:
    """Return a function that issues a launch inside an NVTX range, if nvtx is loaded."""
    if not is_marking():
        return issue

    def issue_marked() -> None:
        with nvtx_range(name):
            issue()

    return issue_marked


def _nvtx() -> Any:
    return importlib.import_module("nvtx") if find_spec("nvtx") is not None else None
