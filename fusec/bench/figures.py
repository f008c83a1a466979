"""Metrics of a benchmark: fraction of the roofline, speedup over peers, error of the results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fusec.bench.streaming import Limit
from fusec.bench.timer import Times
from fusec.bench.work import Work
from fusec.dataclasses import asdict, dataclass, field
from fusec.ir.evaluate import Array


@dataclass(frozen=True)
class Error:
    """The error of results against fp64 on the same inputs, rounded to the same types.

    norm: of the difference, relative to the norm of the expected results; worst: the largest error
    of an element, relative to the largest expected element. The maximum over outputs.
    """

    norm: float
    worst: float


def error_of(found: Mapping[str, Array], expected: Mapping[str, Array]) -> Error:
    """Return the error of outputs; infinite if NaNs or infinities differ."""
    pairs = [_error(np.asarray(found[n]), np.asarray(expected[n])) for n in expected]
    return Error(max((n for n, _ in pairs), default=0.0), max((w for _, w in pairs), default=0.0))


def _error(found: Array, expected: Array) -> tuple[float, float]:
    kind = np.complex128 if expected.dtype.kind == "c" else np.float64
    a, b = found.astype(kind).reshape(-1), expected.astype(kind).reshape(-1)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf"), float("inf")
    a, b = a[finite], b[finite]
    difference = np.abs(a - b)
    whole, largest = float(np.linalg.norm(b)), float(np.abs(b).max(initial=0.0))
    norm, worst = float(np.linalg.norm(difference)), float(difference.max(initial=0.0))
    return (norm / whole if whole else norm), (worst / largest if largest else worst)


@dataclass(frozen=True)
class Figures:
    """A row of the results: a workload, the roofline, and every contender, timed in one run.

    times: of each contender, `fusec` first. missing: contenders that could not run, and why. error:
    None where nothing was compared; not_compared then gives the reason.
    """

    work: Work
    launches: int
    limit: Limit
    times: tuple[Times, ...]
    missing: Mapping[str, str] = field(default_factory=dict[str, str])
    error: Error | None = None
    not_compared: str = ""
    peer_errors: Mapping[str, Error] = field(default_factory=dict[str, Error])

    @property
    def seconds(self) -> float:
        """Return fusec's median."""
        return self.times[0].seconds

    @property
    def share(self) -> float:
        """Return the roofline's time as a fraction of fusec's time."""
        return self.limit.seconds / self.seconds

    @property
    def ratios(self) -> dict[str, float]:
        """Return each peer's time over fusec's: above 1 where fusec is faster."""
        return {t.name: t.seconds / self.seconds for t in self.times[1:]}

    def as_dict(self, name: str) -> dict[str, Any]:
        """Return the row as plain data, as docs/bench.md describes it."""
        work = self.work
        return {
            "name": name,
            "sizes": {n: s for n, s in work.sizes.items() if "." not in n},
            "read_bytes": work.read_bytes,
            "written_bytes": work.written_bytes,
            "compulsory_bytes": work.compulsory_bytes,
            "ms": _ms(self.seconds),
            "limit_ms": _ms(self.limit.seconds),
            "limit_kernel": self.limit.variant,
            "share": round(self.share, 4),
            "contenders": {t.name: runs_of(t) for t in self.times},
            "ratios": {n: round(r, 4) for n, r in self.ratios.items()},
            "missing": dict(self.missing),
            "launches": self.launches,
            **kernels_of(work),
            "error": None if self.error is None else asdict(self.error),
            "not_compared": self.not_compared,
            "peer_errors": {n: asdict(e) for n, e in self.peer_errors.items()},
        }


def kernels_of(work: Work) -> dict[str, Any]:
    """Return the kernels and segments of some work as plain data."""
    return {
        "kernels": [asdict(k) for k in work.kernels],
        "segments": [asdict(s) for s in work.segments],
    }


def runs_of(times: Times) -> dict[str, Any]:
    """Return the times of a contender as plain data, as docs/bench.md describes them."""
    return {
        "ms": _ms(times.seconds),
        "least_ms": _ms(min(times.runs)),
        "most_ms": _ms(max(times.runs)),
        "runs": len(times.runs),
        "issue_us": round(times.issue * 1e6, 2),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 6)


HEADINGS = ("workload", "fewest MB", "ms", "limit ms", "share", "launches", "registers",
            "occupancy", "error", "peers")  # fmt: skip


def line_of(name: str, figures: Figures) -> tuple[str, ...]:
    """Return a row of the printed table."""
    kernels, error = figures.work.kernels, figures.error
    return (
        name,
        f"{figures.work.compulsory_bytes / 1e6:.1f}",
        f"{figures.seconds * 1e3:.4f}",
        f"{figures.limit.seconds * 1e3:.4f}",
        f"{figures.share:.3f}",
        str(figures.launches),
        ",".join(str(k.registers) for k in kernels) or "-",
        ",".join(f"{k.occupancy:.2f}" for k in kernels) or "-",
        "-" if error is None else f"{error.norm:.1e} {error.worst:.1e}",
        " ".join(f"{n} {r:.2f}" for n, r in figures.ratios.items()),
    )
