"""Tunes segments one after the other within a time budget, and makes their entries."""

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
    """Builds records of jobs in parallel."""

    def begin(self, job: Job, wanted: Sequence[Settings | None]) -> None:
        """Start building records."""
        ...

    def build(self, job: Job, wanted: Sequence[Settings | None]) -> Sequence[Built | Failed]:
        """Return the kernels of records."""
        ...

    def forget(self, job: Job) -> None:
        """Release the kernels of a job."""
        ...


class JobBench(Bench, Protocol):
    """A bench that runs one job after the other."""

    def begin(self, job: Job) -> None:
        """Start a job; FusecError where it cannot run."""
        ...

    def prepare(self, job: Job) -> None:
        """Prepare the next job while the current one is measured."""
        ...


@dataclass(frozen=True)
class Tools:
    """The tools of a session; most: records to measure first; now: returns seconds."""

    kernels: Builds
    bench: JobBench
    facts: Facts
    most: int
    now: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Outcome:
    """The result of a job: its entry, or the reason why there is none."""

    job: Job
    found: Found | None
    entry: Entry | None
    reason: str = ""


def tune(jobs: Sequence[Job], tools: Tools, budget: float | None = None) -> Iterator[Outcome]:
    """Yield the result of each job, within `budget` seconds if given.

    The first records of all jobs are built from the start. A job may use an equal share of the
    remaining time; what it does not use is left to the others. No job starts after the time is
    over.
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
    """Return the result of a job; following: the next one, if any."""
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
    """Return the entry of a search's result."""
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
