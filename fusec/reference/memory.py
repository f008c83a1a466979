"""Memory that an evaluation needs, memory available, and reuse of freed memory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fusec.diagnostics import EnvironmentProblem
from fusec.ir.arrays import free_bytes, on_gpu
from fusec.ir.graph import Fusion, Node, Value
from fusec.reference.evaluate import last_uses

DOUBLE = 8
PLAIN, WITH_ERRORS = 3, 8
"""Arrays of doubles per element during its computation: the value, its operands and temporaries;
with errors, also two variances of each, and values at both ends of the error."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt (malloc.h)."""
LARGEST_MMAP_THRESHOLD = 32 << 20
"""Of glibc on 64 bits; its dynamic threshold ends here once arrays this large are freed."""
KEPT = 1 << 30
"""Bytes at the end of a heap that are not trimmed while blocks are evaluated."""
SHARE = 0.8
"""Fraction of the free memory that an evaluation may use."""


def live_elements(nodes: Sequence[Node], kept: Sequence[Value], count: dict[Value, int]) -> int:
    """Return the peak number of live elements if nodes are evaluated whole and in order."""
    made = {v for n in nodes for v in n.outputs}
    held = sum(count[v] for v in {v for n in nodes for v in n.inputs} - made)
    most = held
    for node, dead in zip(nodes, last_uses(nodes, kept), strict=True):
        held += sum(count[v] for v in node.outputs)
        most = max(most, held)
        held -= sum(count[v] for v in dead)
    return most


def available() -> int:
    """Return the bytes that an evaluation may use, of the GPU that runs it or of this process.

    The latter is limited by the machine and the process' control group.
    """
    if on_gpu():
        return free_bytes()
    free = [os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                free = [int(line.split()[1]) << 10]
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text(encoding="ascii").strip()
        if limit.isdigit():
            used = int((group / "memory.current").read_text(encoding="ascii"))
            free.append(max(0, int(limit) - used))
    except (OSError, ValueError):
        pass
    return min(free)


def require(fusion: Fusion, needed: float) -> None:
    """Raise EnvironmentProblem unless `needed` bytes are free."""
    free = available()
    if needed > SHARE * free:
        raise EnvironmentProblem(
            f"the reference of `{fusion.name}` takes about {_gigabytes(needed)} at these sizes",
            notes=[f"{_gigabytes(free)} of memory is available"],
            help="use smaller sizes with --set, or run without verification",
        )


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.2g} GB"


@contextmanager
def keep_freed() -> Generator[None]:
    """Let malloc keep memory freed inside for the next arrays, and return it at the end.

    Otherwise glibc returns the memory of each array to the system and gets it back zeroed page by
    page, with contention between threads. Without glibc this does nothing.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        yield
        return
    library.mallopt(M_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD)
    library.mallopt(M_TRIM_THRESHOLD, KEPT)
    try:
        yield
    finally:
        library.mallopt(M_TRIM_THRESHOLD, 2 * LARGEST_MMAP_THRESHOLD)
        library.malloc_trim(0)
