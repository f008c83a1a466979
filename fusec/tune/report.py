"""Errors of the cost model, from entries: default over best time, and rank correlation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import exp, log
from statistics import mean

from fusec.dataclasses import dataclass
from fusec.tuned import Entry


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Return Spearman's rank correlation of pairs, 0 where either side has only one value.

    Equal values have the mean of their ranks.
    """
    left, right = (_ranks([pair[k] for pair in pairs]) for k in (0, 1))
    middle = (len(pairs) - 1) / 2
    x, y = [r - middle for r in left], [r - middle for r in right]
    spread = sum(a * a for a in x) * sum(b * b for b in y)
    return sum(a * b for a, b in zip(x, y, strict=True)) / spread**0.5 if spread else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    first = {v: k for k, v in reversed(list(enumerate(ordered)))}
    last = {v: k for k, v in enumerate(ordered)}
    return [(first[v] + last[v]) / 2 for v in values]


def report_lines(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield a line for each entry, the worst default first, and one for each scheduler."""
    found = sorted(entries, key=lambda e: -_lost(e))
    rows = [("default/best", "best us", "predicted", "rank", "records", "segment")]
    rows += [
        (
            f"{_lost(e):.3f}",
            f"{e.us:.2f}",
            f"{e.predicted_us / e.us:.2f}",
            f"{e.rank:.2f}",
            str(e.records),
            f"{e.scheduler}: {e.of}, {e.sizes}",
        )
        for e in found
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [c.rjust(w) for c, w in zip(row[:-1], widths, strict=False)]
        yield "  ".join([*cells, row[-1]])
    yield from (m.text() for m in mistakes_of(found))


@dataclass(frozen=True)
class Mispredicted:
    """The error of the cost model for the segments of a scheduler, or of all of them.

    lost: the geometric mean of the default's time over that of the fastest record; most: the
    largest one. rank: the rank correlation of predicted and measured times, from 1 to -1.
    """

    scheduler: str
    lost: float
    most: float
    rank: float
    segments: int

    def text(self) -> str:
        """Return one line."""
        return (
            f"{self.scheduler}: default plan vs. the fastest measured: {self.lost:.3f} geometric "
            f"mean, {self.most:.3f} maximum; rank correlation of the cost model {self.rank:.2f} "
            f"({self.segments} segments)"
        )


def mistakes_of(entries: Iterable[Entry]) -> list[Mispredicted]:
    """Return the cost model's errors for each scheduler, then for all; empty without entries."""
    found = list(entries)
    groups = {
        s: [e for e in found if e.scheduler == s] for s in sorted({e.scheduler for e in found})
    }
    if found:
        groups["all"] = found
    return [_mispredicted(name, group) for name, group in groups.items()]


def _mispredicted(name: str, entries: Sequence[Entry]) -> Mispredicted:
    lost = [_lost(e) for e in entries]
    rank = mean(e.rank for e in entries)
    return Mispredicted(name, exp(mean(map(log, lost))), max(lost), rank, len(entries))


def _lost(entry: Entry) -> float:
    return entry.default_us / entry.us
