"""What `ptxas -v` and NVRTC say, as data: registers, spills, stack, shared memory, warnings."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SHARED = re.compile(r"(\d+) bytes smem")
_WARNING = re.compile(r"\bwarning\b|Potential Performance Loss|Advisory", re.IGNORECASE)
_ERROR = re.compile(
    r"^(?P<file>[^\s(]+)\((?P<line>\d+)\): (?:catastrophic )?error: (?P<what>.*)$", re.MULTILINE
)


@dataclass(frozen=True)
class KernelStats:
    """What the assembler says about one kernel; bytes a thread, shared memory a block."""

    name: str
    registers: int = 0
    stack_bytes: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared_bytes: int = 0
    barriers: int = 0


def parse_kernel_stats(log: str) -> tuple[KernelStats, ...]:
    """Return the statistics of each kernel in the log, sorted by name.

    Functions that were not inlined are reported after their kernel; their frames count to it.
    """
    kernels: list[KernelStats] = []
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            kernels.append(KernelStats(entry.group(1)))
        elif not kernels:
            continue
        elif frame := _FRAME.search(line):
            stack, stores, loads = (int(group) for group in frame.groups())
            last = kernels[-1]
            kernels[-1] = replace(
                last,
                stack_bytes=max(last.stack_bytes, stack),
                spill_stores=last.spill_stores + stores,
                spill_loads=last.spill_loads + loads,
            )
        elif used := _USED.search(line):
            kernels[-1] = replace(
                kernels[-1],
                registers=int(used.group(1)),
                barriers=_number(_BARRIERS, line),
                shared_bytes=_number(_SHARED, line),
            )
    return tuple(sorted(kernels, key=lambda kernel: kernel.name))


def parse_warnings(log: str) -> tuple[str, ...]:
    """Return the lines of the log that warn of something."""
    return tuple(line for line in log.splitlines() if _WARNING.search(line))


def first_error(log: str, file: str) -> tuple[str, int]:
    """Return the first error's text, and its line where it lies in `file`, else 0."""
    errors = list(_ERROR.finditer(log))
    for error in errors:
        if error.group("file") == file:
            return error.group("what"), int(error.group("line"))
    if errors:
        return f"{errors[0].group('file')}: {errors[0].group('what')}", 0
    return (log.splitlines() or ["no log"])[0], 0


def _number(pattern: re.Pattern[str], line: str) -> int:
    """Return the pattern's number in `line`, or 0."""
    match = pattern.search(line)
    return int(match.group(1)) if match else 0
