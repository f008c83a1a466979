"""Tuning segment after segment within a time, and what is kept of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol

from fusec.activity import activity
from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.tune.candidates import Candidate, first_candidates, neighbours
from fusec.tune.job import Built, Failed, Job, Settings
from fusec.tune.remote import Facts
from fusec.tune.report import rank_correlation
from fusec.tune.search import Bench, Found, Means, search
from fusec.tuned import Entry
from fusec.tuned.templates import digests


class Builds(Protocol):
    """What builds records of jobs, side by side."""

    def begin(self, job: Job, wanted: Sequence[Settings | None]) -> None:
        """Begin to build some."""
        ...

    def build(self, job: Job, wanted: Sequence[Settings | None]) -> Sequence[Built | Failed]:
        """Return the kernels of some."""
        ...

    def forget(self, job: Job) -> None:
        """Give their memory back."""
        ...


class JobBench(Bench, Protocol):
    """A bench that takes up one job after the other."""

    def begin(self, job: Job) -> None:
        """Take up a job; FusecError where it cannot run."""
        ...

    def prepare(self, job: Job) -> None:
        """Get ready for the job that comes next, beside what is measured."""
        ...


@dataclass(frozen=True)
class Tools:
    """What a session works with; most: records that are measured first; now: seconds."""

    kernels: Builds
    bench: JobBench
    facts: Facts
    most: int
    now: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Outcome:
    """What became of a job: its entry, or why there is none."""

    job: Job
    found: Found | None
    entry: Entry | None
    reason: str = ""


def tune(jobs: Sequence[Job], tools: Tools, budget: float | None = None) -> Iterator[Outcome]:
    """Yield what becomes of each job, within `budget` seconds if they are given.

    The first records of all are built from the start; a job may take an even share of the time
    that is left, and what it does not take is there for the others. A job is not begun late.
    """
    ends = None if budget is None else tools.now() + budget
    first: list[list[Candidate]] = []
    for job in jobs:
        first.append(first_candidates(job, tools.most))
        tools.kernels.begin(job, [None, *(c.settings for c in first[-1][1:])])
    for number, job in enumerate(jobs):
        now = tools.now()
        if ends is not None and now >= ends:
            yield Outcome(job, None, None, "the time budget is used up")
            continue
        share = None if ends is None else now + (ends - now) / (len(jobs) - number)
        following = jobs[number + 1 : number + 2]
        with activity(f"measuring {job.of} ({number + 1} of {len(jobs)})", immediately=True):
            outcome = _tuned(job, following, first[number], tools, share)
        yield outcome
        tools.kernels.forget(job)


def _tuned(
    job: Job,
    following: Sequence[Job],
    first: Sequence[Candidate],
    tools: Tools,
    ends: float | None,
) -> Outcome:
    """Return what becomes of a job; following: the one that comes next, if any."""
    means = Means(
        build=lambda wanted: tools.kernels.build(job, wanted),
        near=lambda settings: neighbours(job, settings, tools.most),
        bench=tools.bench,
        enough=lambda: ends is not None and tools.now() >= ends,
    )
    try:
        tools.bench.begin(job)
        for each in following:
            tools.bench.prepare(each)
        found = search(first, means)
    except FusecError as error:
        return Outcome(job, None, None, error.diagnostic.message)
    if isinstance(found, Failed):
        return Outcome(job, None, None, found.reason)
    return Outcome(job, found, entry_of(job, found, tools.facts))


def entry_of(job: Job, found: Found, facts: Facts) -> Entry:
    """Return what is kept of a search."""
    key, winner = job.key, found.winner
    pairs = [(t.predicted, t.seconds) for t in found.trials]
    return Entry(
        structure=key.structure,
        sizes=key.sizes,
        scheduler=job.scheduler,
        of=job.of,
        parameters=dict(winner.built.settings),
        us=_us(winner.seconds),
        default_us=_us(found.default.seconds),
        next_us=_us(found.next),
        predicted_us=_us(winner.predicted),
        records=len(found.trials),
        rank=round(rank_correlation(pairs), 3),
        templates=digests(winner.built.templates),
        device=facts.name,
        driver=facts.driver,
        date=datetime.now(UTC).date().isoformat(),
        summation=winner.built.summation,
    )


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)
