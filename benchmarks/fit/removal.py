"""What the cost model loses without a coefficient: decisions, and predictions of recorded times.

python -m benchmarks.fit.removal [--only GLOB,...] [--records NAME,...] [--suites NAME,...]
                                 [--files PATH ...] [--every] [--without NAME,...]

Without a coefficient is with its neutral value: 0 of what is added, 1 of a factor, and infinity of
a rate or a limit. For each that is fitted it prints by how much the geometric mean of the suites'
predicted times changes, plans being as they are; how much slower the choices among the recorded
schedules of GEMMs become, as timed; and the error of the predictions of the recorded times that
depend on it, with and without it. --without takes coefficients away for all of that, by which
removals are judged together. Of those whose change is less than LEAST it prints a program of the
suites and the files that has other schedules without them, if there is one. With --every of each
coefficient how many have, and by how much the geometric mean of all programs' times grows by that,
as predicted with the coefficient.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import islice
from math import exp, log
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.entry import end_with
from benchmarks.fit.choices import Choices
from benchmarks.fit.coefficients import Coefficient, chosen, with_value
from benchmarks.fit.descent import Fitting, error
from benchmarks.fit.measured import (
    OPTIONS,
    RECORDS,
    SUITES,
    TARGET,
    measurements,
    priced,
    rows_in,
    seconds,
)
from benchmarks.segmentation import ROOT
from fusec import driver, lowering
from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.schedule.segments import plan_segment
from fusec.target import Target, find

LEAST = 0.002
"""The part of the suites' geometric-mean time below which a coefficient is not worth its line."""
FILES = (ROOT / "examples", ROOT / "tests" / "corpus")
ADDED = (
    "seconds", "latency", "serial", "crowding", "host_call", "host_slice", "step_keys",
    "step_rows", "uneven_share", "missing_blocks_penalty", "hot_row_limit",
    "out_of_bounds_penalty", "written_back_bytes", "l2_contention", "dirty",
)  # fmt: skip
"""Ends of the names of what is added: without it nothing is."""
UNBOUNDED = ("rate", "bandwidth", "power_limit", "limit_seconds", "bytes_per_cycle")
"""Ends of the names of rates and limits."""
NOTHING, BOUNDLESS = 1e-30, 1e30


def neutral(name: str) -> float:
    """Return the value with which a coefficient has no effect."""
    named = name if not name.rpartition(".")[2].isdecimal() else name.rpartition(".")[0]
    if named.endswith(UNBOUNDED):
        return BOUNDLESS
    return NOTHING if named.endswith(ADDED) else 1


def without(target: Target, name: str) -> Target:
    """Return a target with the neutral value of a coefficient."""
    return with_value(target, name, neutral(name))


# Decisions.


@dataclass(frozen=True)
class Decided:
    """The schedules of a program, its predicted seconds, and the coefficients that were read."""

    schedules: tuple[tuple[str, str], ...]
    seconds: float
    read: frozenset[str]


def decide(fusion: Fusion, target: Target, judge: Target) -> Decided:
    """Return what is decided for a target, and how long that takes as another one predicts."""
    read: set[str] = set()
    traced = replace(target, cost=_traced(target.cost, "cost", read))
    with patch("fusec.target.find", return_value=traced):
        found = lowering.segment(lowering.optimise(fusion, OPTIONS), OPTIONS)
    plans = [plan_segment(s, traced) for s in found.segments]
    schedules = tuple((p.scheduler, repr(p.parameters)) for p in plans)
    return Decided(schedules, seconds(priced(found, plans), judge), frozenset(read))


def _traced(record: Any, prefix: str, read: set[str]) -> Any:
    """Return a record of the same values that notes which of its fields are read."""
    kind = type(record)

    def look_up(self: Any, name: str) -> Any:
        if name in known:
            read.add(f"{prefix}.{name}")
        return object.__getattribute__(self, name)

    known = {f.name for f in fields(record) if not is_dataclass(getattr(record, f.name))}
    found = object.__new__(type(kind.__name__, (kind,), {"__getattribute__": look_up}))
    for f in fields(record):
        value = getattr(record, f.name)
        if is_dataclass(value):
            value = _traced(value, f"{prefix}.{f.name}", read)
        object.__setattr__(found, f.name, value)
    return found


def programs(suites: Sequence[str], files: Sequence[Path]) -> Iterator[tuple[str, Fusion]]:
    """Yield the fusions of suites, then those of files and folders."""
    for name, _, row in rows_in(s for s in SUITES if s[1] in suites):
        yield f"{name} {row.name}", row.fusion
    for path in files:
        for file in sorted(path.rglob("*.yaml")) if path.is_dir() else [path]:
            try:
                found = driver.programs(str(file), OPTIONS)
            except FusecError:
                continue
            for number, program in enumerate(found):
                yield f"{file.stem} {number}", program.original


class Decisions:
    """What is decided for all programs, as it is and without a coefficient."""

    def __init__(self, target: Target, suites: Sequence[str], files: Sequence[Path]) -> None:
        """Decide for all programs; one that no scheduler supports is left out."""
        self.target = target
        self.fusions: dict[str, Fusion] = {}
        self.known: dict[str, Decided] = {}
        for name, fusion in programs(suites, files):
            try:
                self.known[name] = decide(fusion, target, target)
            except FusecError:
                continue
            self.fusions[name] = fusion

    def without(self, name: str) -> Iterator[tuple[str, float]]:
        """Yield the programs that are decided otherwise without a coefficient.

        With each the factor by which its predicted time grows.
        """
        for program, known in self.known.items():
            if any(name == r or name.startswith(f"{r}.") for r in known.read):
                now = decide(self.fusions[program], without(self.target, name), self.target)
                if now.schedules != known.schedules:
                    yield program, now.seconds / known.seconds


# Predictions.


@dataclass(frozen=True)
class Removed:
    """Predictions of recorded times with a coefficient and without it."""

    coefficient: Coefficient
    times: int
    change: float
    """Of the geometric mean of the suites' predicted times."""
    loss: float
    """Of the choices among recorded schedules, in the geometric mean of their times."""
    error: float
    error_without: float


def removed(fitting: Fitting, choices: Choices, coefficient: Coefficient) -> Removed:
    """Return what a coefficient is to the recorded times."""
    target = without(fitting.target, coefficient.name)
    found = fitting.dependent(coefficient.name)
    suites = [t for t in fitting.times if t.record in dict(SUITES).values()]
    of = {*suites}.intersection(found)
    moved = sum(log(t.predict(target) / fitting.predicted[t]) for t in of)
    errors = (error(found, fitting.target), error(found, target)) if found else (0.0, 0.0)
    change = exp(moved / max(1, len(suites))) - 1
    loss = (1 + choices.loss(target)) / (1 + choices.loss(fitting.target)) - 1
    return Removed(coefficient, len(found), change, loss, *errors)


def line(found: Removed) -> str:
    """Return what is known of predictions as a line of the table."""
    return (
        f"{found.coefficient.name:<46} {found.coefficient.value:>10.4g} {found.times:>5} "
        f"{found.change:>+9.3%} {found.loss:>+9.3%} {found.error:>8.4f} {found.error_without:>8.4f}"
    )


def outcome(changed: Mapping[str, float], count: int, grown: float, *, every: bool) -> str:
    """Return which programs are decided otherwise, of so many."""
    if not changed:
        return f"none of {count} programs is decided otherwise"
    first = next(iter(changed))
    if not every:
        return f"{first} is decided otherwise"
    return f"{len(changed)} of {count} programs are decided otherwise ({first}, ...): {grown:+.3%}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what each coefficient is to predictions, and those little of it to decisions."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.fit.removal", description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )  # fmt: skip
    listed = {"type": lambda text: [t for t in text.split(",") if t], "default": []}
    parser.add_argument("--only", **listed, help="patterns of coefficients, such as cost.rows.*")
    parser.add_argument("--records", **listed, help=f"of {', '.join(RECORDS)}")
    parser.add_argument("--files", type=Path, nargs="+", default=FILES)
    parser.add_argument("--suites", **{**listed, "default": [n for _, n in SUITES]})
    parser.add_argument("--every", action="store_true", help="program, without each coefficient")
    parser.add_argument("--without", **listed, help="coefficients taken away beforehand")
    given = parser.parse_args(arguments)
    target = find(TARGET)
    for name in given.without:
        target = without(target, name)
    fitting = Fitting(measurements(given.records or RECORDS), target)
    choices = Choices(target)
    print(f"choices among recorded schedules lose {choices.loss(target):.2%}")
    print(f"{'coefficient':<46}      value times   change   choices    error  without")
    found = [removed(fitting, choices, c) for c in chosen(target, given.only)]
    print("\n".join(map(line, found)), flush=True)
    tried = [r.coefficient.name for r in found if abs(r.change) < LEAST or given.every]
    decisions = Decisions(target, given.suites, given.files)
    count = len(decisions.known)
    for name in tried:
        changed = dict(islice(decisions.without(name), count if given.every else 1))
        grown = exp(sum(map(log, changed.values())) / count) - 1
        print(f"{name:<46} {outcome(changed, count, grown, every=given.every)}", flush=True)
    return 0


if __name__ == "__main__":
    end_with(main)
