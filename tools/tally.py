"""Counts over many fusions: what was drawn, what became of it, and where the time went."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fusec.ops import TABLE
from tools.work import Result


class Tally:
    """Adds up results."""

    def __init__(self) -> None:
        """Start at nothing."""
        self.fusions = self.kernels = self.resized = self.spilling = self.spills = 0
        self.statuses: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.counts: dict[str, Counter[str]] = {}
        self.seconds: Counter[str] = Counter()

    def add(self, result: Result) -> None:
        """Add one fusion with its runs."""
        self.fusions += 1
        for kind, counts in result.counts.items():
            self.counts.setdefault(kind, Counter()).update(counts)
        for outcome in result.outcomes:
            self.statuses[outcome.status] += 1
            self.kernels += len(outcome.kernels)
            self.counts.setdefault("kernels_by_kind", Counter()).update(outcome.kernels)
            self.resized += outcome.resized
            self.spilling += outcome.spills > 0
            self.spills = max(self.spills, outcome.spills)
            self.counts.setdefault("schedulers", Counter()).update(outcome.schedulers)
            segments = Counter([_segments(len(outcome.schedulers))])
            self.counts.setdefault("segments", Counter()).update(segments)
            self.seconds.update(outcome.seconds)
            if outcome.status == "refused":
                self.refusals[outcome.kind.partition(" (")[0]] += 1
            elif outcome.status != "ok":
                self.failures[f"{outcome.status} {outcome.signature}"] += 1

    def line(self, seconds: float) -> str:
        """Return one line for a terminal."""
        parts = ", ".join(f"{self.statuses[s]} {s}" for s in STATUSES if self.statuses[s])
        return f"{self.fusions} fusions, {self.fusions / max(seconds, 1e-9):.1f}/s: {parts}"

    def summary(self, seconds: float) -> str:
        """Return the result of everything."""
        lines = [self.line(seconds), f"{self.kernels} kernels, {self.resized} runs resized"]
        if self.spilling:
            lines.append(f"{self.spilling} runs with spills, of {self.spills} bytes at most")
        for title, counter in (("refused", self.refusals), ("failures", self.failures)):
            if counter:
                lines.append(f"{title}:")
                lines += [f"  {n:6}  {what}" for what, n in counter.most_common(40)]
        return "\n".join(lines)

    def data(self, seconds: float) -> dict[str, Any]:
        """Return the counts as JSON has them: of outcomes, failures, refusals and kernels."""
        return {
            "seconds": round(seconds, 1),
            "fusions": self.fusions,
            "runs": dict(self.statuses),
            "failures": dict(self.failures),
            "refusals": dict(self.refusals),
            "resized": self.resized,
            "kernels": self.kernels,
            **{name: dict(self.counts.get(name, {})) for name in ("kernels_by_kind", "schedulers")},
        }

    def table(self) -> str:
        """Return how often everything was drawn, and the time of each stage."""
        lines: list[str] = []
        for kind, counter in self.counts.items():
            lines.append(f"{kind}:")
            found = [f"{name} {n}" for name, n in counter.most_common()]
            lines += _wrapped(found)
        drawn = self.counts.get("operations", Counter[str]())
        missing = [n for n, op in TABLE.items() if op.family != "composite" and n not in drawn]
        lines += ["never drawn:", *_wrapped(missing)] if missing else []
        lines.append("seconds:")
        lines += _wrapped([f"{stage} {s:.1f}" for stage, s in self.seconds.most_common()])
        return "\n".join(lines)


STATUSES = ("ok", "refused", "undecided", "failed")


def _segments(count: int) -> str:
    return str(count) if count < 8 else "8 or more"


def _wrapped(items: list[str]) -> list[str]:
    from textwrap import wrap

    return wrap(", ".join(items), 98, initial_indent="  ", subsequent_indent="  ")
