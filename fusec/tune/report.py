"""What price gets wrong, from entries: the default over the best of each space, and the order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import exp, log
from statistics import mean

from fusec.tuned import Entry


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Return Spearman's rank correlation of pairs, 0 where either side has one value alone.

    Equal values share the mean of their ranks.
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


def report(entries: Iterable[Entry]) -> Iterator[str]:
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
    for scheduler in sorted({e.scheduler for e in found}):
        yield _line(scheduler, [e for e in found if e.scheduler == scheduler])
    if found:
        yield _line("all", found)


def _line(name: str, entries: Sequence[Entry]) -> str:
    lost = [_lost(e) for e in entries]
    middle = exp(mean(map(log, lost)))
    rank = mean(e.rank for e in entries)
    return (
        f"{name}: default plan over the best of its measured space {middle:.3f} in geometric mean, "
        f"{max(lost):.3f} at most; price orders records by {rank:.2f} ({len(entries)} segments)"
    )


def _lost(entry: Entry) -> float:
    return entry.default_us / entry.us
