"""Searches the fastest record of a segment; building and measuring are injected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fusec.dataclasses import dataclass, replace
from fusec.tune.candidates import Candidate
from fusec.tune.job import Built, Failed, Settings

FEW, MANY = 9, 41
"""Timed runs of every record, and of the finalists."""
FINALISTS = 4
"""Records that are timed again together with the default."""
ROUNDS = 3
"""Maximum number of rounds that measure the neighbours of the fastest record."""
NOISE = 0.01
"""Minimum relative improvement over the default to replace it."""


Key = tuple[tuple[str, Any], ...]


class Bench(Protocol):
    """Times kernels on a device, and checks their results."""

    def times(self, built: Sequence[Built], repeats: int) -> Sequence[float | Failed]:
        """Return the median seconds of each, run round-robin, or why one cannot run."""
        ...

    def wrong(self, built: Built, default: Built) -> str | None:
        """Return what is wrong with the results of a record, compared with the default's."""
        ...


@dataclass(frozen=True)
class Trial:
    """A record that was measured: its seconds, and the predicted ones."""

    built: Built
    seconds: float
    predicted: float


@dataclass(frozen=True)
class Means:
    """The tools of a search; enough: whether its time is over."""

    build: Callable[[Sequence[Settings | None]], Sequence[Built | Failed]]
    near: Callable[[Settings], Sequence[Candidate]]
    bench: Bench
    enough: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class Found:
    """The result of a search; default: the plan that the cost model selects, as built.

    winner: the fastest one with correct results; next: the seconds of the fastest other one.
    trials: all that were measured, once; failed: those that were not, or whose results are wrong.
    """

    default: Trial
    winner: Trial
    next: float
    trials: tuple[Trial, ...]
    failed: tuple[Failed, ...]


def search(first: Sequence[Candidate], means: Means) -> Found | Failed:
    """Return the fastest of some records and, in rounds, of the neighbours of the fastest.

    first: the cost model's choice, then others. Failed if not even the default runs.
    """
    return _Search(means).run(first)


class _Search:
    """The state of a search."""

    def __init__(self, means: Means) -> None:
        self.means = means
        self.tried: set[Key] = set()
        self.forms: set[str] = set()
        self.trials: list[Trial] = []
        self.failed: list[Failed] = []

    def run(self, first: Sequence[Candidate]) -> Found | Failed:
        default = self.means.build([None])[0]
        if isinstance(default, Failed):
            return default
        self.forms.add(default.form)
        self.tried.update((_key(default.settings), _key(first[0].settings)))
        self.measure([(default, first[0].predicted), *self.built(first)])
        if not self.trials or self.trials[0].built is not default:
            return next(f for f in self.failed if f.settings == default.settings)
        for _ in range(ROUNDS):
            best = self.best
            if not self.means.enough():
                self.measure(self.built(self.means.near(best.built.settings)))
            if self.best is best:
                break
        return self.decided(self.trials[0])

    @property
    def best(self) -> Trial:
        """Return the fastest record so far; the first one wins ties."""
        return min(self.trials, key=lambda t: t.seconds)

    def built(self, candidates: Sequence[Candidate]) -> list[tuple[Built, float]]:
        """Return the kernels of records not tried before, and their predicted times."""
        new = {_key(c.settings): c for c in candidates}
        left = [c for key, c in new.items() if key not in self.tried]
        self.tried.update(new)
        fresh: list[tuple[Built, float]] = []
        made = self.means.build([c.settings for c in left])
        for candidate, built in zip(left, made, strict=True):
            if isinstance(built, Failed):
                self.failed.append(built)
            elif built.form not in self.forms:
                self.forms.add(built.form)
                fresh.append((built, candidate.predicted))
        return fresh

    def measure(self, fresh: Sequence[tuple[Built, float]]) -> None:
        """Time records, a few runs each."""
        if fresh:
            self.trials += self.timed([Trial(b, 0.0, predicted) for b, predicted in fresh], FEW)

    def timed(self, trials: Sequence[Trial], repeats: int) -> list[Trial]:
        """Return the trials that run, with their times."""
        times = self.means.bench.times([t.built for t in trials], repeats)
        found: list[Trial] = []
        for trial, seconds in zip(trials, times, strict=True):
            if isinstance(seconds, Failed):
                self.failed.append(seconds)
            else:
                found.append(replace(trial, seconds=seconds))
        return found

    def decided(self, default: Trial) -> Found:
        """Time the fastest records again with the default; the first with correct results wins."""
        order = sorted(self.trials[1:], key=lambda t: t.seconds)[:FINALISTS]
        again = self.timed([default, *order], MANY) or [default]
        if again[0].built is not default.built:
            again = [default]
        winner = default = again[0]
        for trial in sorted(again[1:], key=lambda t: t.seconds):
            if trial.seconds > (1 - NOISE) * default.seconds:
                break
            reason = self.means.bench.wrong(trial.built, default.built)
            if reason is None:
                winner = trial
                break
            self.failed.append(Failed(trial.built.settings, f"wrong results: {reason}"))
            again.remove(trial)
            self.trials = [t for t in self.trials if t.built is not trial.built]
        others = (t.seconds for t in again if t is not winner)
        next_ = min(others, default=winner.seconds)
        return Found(default, winner, next_, tuple(self.trials), tuple(self.failed))


def _key(settings: Settings) -> Key:
    return tuple(sorted(settings.items()))
