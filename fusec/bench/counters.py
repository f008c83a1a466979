"""Memory traffic measured by the profiler, compared with the plans' predictions."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import cycle

from fusec.bench.work import Segment, Work
from fusec.dataclasses import dataclass
from fusec.diagnostics import Unsupported

READ, WRITTEN, STORED = (
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_sectors_srcunit_tex_op_write.sum",
)
"""DRAM bytes read and written while a kernel runs; sectors that SMs write into L2.

The latter reach DRAM during the kernel or later.
"""
SECTOR = 32
FINDING = 0.05
"""Relative difference from the predicted bytes above which it is reported as a finding."""
SMALL = 1 << 20
"""Differences below this many bytes are ignored: constants, code and parameters are read, too."""
UNITS = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "sector": SECTOR}


@dataclass(frozen=True)
class Counted:
    """The bytes of a kernel: read from DRAM, written to DRAM while it ran, written into L2."""

    read: int
    written: int
    stored: int


@dataclass(frozen=True)
class CountedSegment:
    """A segment's bytes, measured and predicted; kernels: its number of launches."""

    segment: Segment
    counted: Counted
    kernels: int

    @property
    def difference(self) -> float:
        """Return the relative excess of measured over predicted bytes; writes counted in L2."""
        predicted = self.segment.read_bytes + self.segment.written_bytes
        return (self.counted.read + self.counted.stored - predicted) / max(predicted, 1)

    @property
    def is_finding(self) -> bool:
        """Return whether measured and predicted bytes differ by more than the tolerance."""
        predicted = self.segment.read_bytes + self.segment.written_bytes
        return abs(self.difference) > FINDING and abs(self.difference) * predicted > SMALL


def profile(arguments: Sequence[str]) -> list[tuple[str, Counted]]:
    """Run `fusec` with some arguments under Nsight Compute; return (kernel, bytes) by launch.

    Each kernel starts with cold caches. Unsupported where the profiler is missing or not permitted.
    """
    metrics = ",".join((READ, WRITTEN, STORED))
    options = ["--csv", "--print-units", "base", "--cache-control", "all", "--metrics", metrics]
    inner = [sys.executable, "-m", "fusec", *arguments]
    command = [find_profiler(), *options, "--target-processes", "application-only", *inner]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    _check(done.stdout + done.stderr, done.returncode)
    return read_csv(done.stdout)


def find_profiler() -> str:
    """Return the path of Nsight Compute's command line; Unsupported where it is missing."""
    tool = shutil.which("ncu")
    if tool is None:
        raise Unsupported(
            "memory counters need Nsight Compute, and `ncu` is not on PATH",
            help="install it (nsight-compute in the CUDA toolkit), or drop --counters",
        )
    return tool


def _check(said: str, code: int) -> None:
    """Raise Unsupported with the reason where the profiler reported no counters."""
    if "ERR_NVGPUCTRPERM" in said:
        raise Unsupported(
            "the driver does not permit this user to read performance counters (ERR_NVGPUCTRPERM)",
            help="run as root, or load nvidia with NVreg_RestrictProfilingToAdminUsers=0",
        )
    errors = [line for line in said.splitlines() if line.startswith("==ERROR==")]
    if errors or code:
        reasons = errors or said.splitlines()[-3:]
        notes = tuple(line.removeprefix("==ERROR==").strip() for line in reasons)
        raise Unsupported("the profiler reported no counters", notes=notes)


def read_csv(text: str) -> list[tuple[str, Counted]]:
    """Return the kernels of the profiler's table in launch order, each with its bytes."""
    lines = text.splitlines()
    start = next((k for k, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    kernels: dict[str, str] = {}
    values: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(lines[start:]):
        number, name = row["ID"], row["Metric Name"]
        if name in (READ, WRITTEN, STORED):
            kernels[number] = row["Kernel Name"].partition("(")[0]
            unit = UNITS.get(row["Metric Unit"], SECTOR if name == STORED else 1)
            amount = float(row["Metric Value"].replace(",", "")) * unit
            values.setdefault(number, {})[name] = amount
    return [
        (kernels[n], Counted(*(round(found.get(m, 0.0)) for m in (READ, WRITTEN, STORED))))
        for n, found in values.items()
    ]


def compare_traffic(work: Work, launches: Sequence[tuple[str, Counted]]) -> list[CountedSegment]:
    """Return each segment with the measured bytes of its kernels.

    launches: of whole runs of the program, in order; the launches of a kernel shared by several
    segments are assigned to them in that order.
    """
    owners = defaultdict[str, list[str]](list)
    for launch in work.host.launches:
        owners[launch.kernel].append(launch.segment)
    turns = {kernel: cycle(segments) for kernel, segments in owners.items()}
    counts = defaultdict[str, list[Counted]](list)
    for kernel, counted in launches:
        if kernel in turns:
            counts[next(turns[kernel])].append(counted)
    found: list[CountedSegment] = []
    for segment in work.segments:
        own = counts[segment.name]
        if own:
            total = Counted(
                sum(c.read for c in own), sum(c.written for c in own), sum(c.stored for c in own)
            )
            found.append(CountedSegment(segment, total, len(own)))
    return found
