"""How far the schedules that price chooses are from the fastest that are measured.

python -m benchmarks.tuning --suite memory|small|generated [--only GLOB,...] [--seed N]
                            [--part K/N] [--budget S] [--top K] [--out FILE.json] [--entries TOML]

Each segment of the rows is tuned as `fusec tune` does; equal segments once. --part takes every Nth
row beginning with the Kth (from 0), so that N processes may share a suite, each with a GPU. The
file has all records with their times and prices; --entries keeps the fastest as measured schedules.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks.entry import end_with
from benchmarks.run import SUITES, rows_of
from fusec.ir.text import to_text
from fusec.options import CompileOptions
from fusec.tune.job import Job, jobs_of
from fusec.tune.kernels import Kernels
from fusec.tune.remote import Remote
from fusec.tune.search import Trial
from fusec.tune.session import Outcome, Tools, tune
from fusec.tuned.store import merged, store_of, write

SCHEMA = 1
MANY = 24
"""Records of which the fastest counts as the best of a space."""


def jobs_by_row(given: argparse.Namespace, target: str) -> dict[Job, list[str]]:
    """Return the segments that are tuned, each with the rows that have it."""
    part, parts = map(int, given.part.split("/"))
    only = [o for o in given.only.split(",") if o]
    options = CompileOptions(targets=(target,), targets_given=True)
    found: dict[tuple[str, str, str], tuple[Job, list[str]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for row in rows_of(given.suite, only, [given.seed])[part::parts]:
            path = Path(folder) / f"{row.name}.yaml"
            path.write_text(to_text(row.fusion), encoding="utf-8")
            for job in jobs_of(str(path), options):
                key = (job.scheduler, job.key.structure, job.key.sizes)
                found.setdefault(key, (job, []))[1].append(row.name)
    return dict(found.values())


def record_of(outcome: Outcome, rows: Sequence[str]) -> dict[str, Any]:
    """Return what is kept of a segment: the default's time, the best one's, and all records."""
    head = {"of": outcome.job.of, "scheduler": outcome.job.scheduler, "rows": [*rows]}
    found = outcome.found
    if found is None:
        return {**head, "reason": outcome.reason}
    return {
        **head,
        "default_us": found.default.seconds * 1e6,
        "best_us": found.winner.seconds * 1e6,
        "over_best": found.default.seconds / found.winner.seconds,
        "best": _settings(found.winner.built.settings),
        "failed": [f"{_settings(f.settings)}: {f.reason}" for f in found.failed],
        "records": [_trial(t) for t in sorted(found.trials, key=lambda t: t.seconds)],
    }


def _trial(trial: Trial) -> dict[str, Any]:
    us, predicted = trial.seconds * 1e6, trial.predicted * 1e6
    return {"us": us, "predicted_us": predicted, "settings": _settings(trial.built.settings)}


def _settings(settings: Mapping[str, Any]) -> str:
    return " ".join(f"{k}={v}" for k, v in settings.items())


def summary(segments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the geometric mean of default over best, where enough records were measured."""
    every = [s["over_best"] for s in segments if "over_best" in s]
    enough = [s["over_best"] for s in segments if len(s.get("records", ())) >= MANY]
    return {
        "segments": len(every),
        "over_best": _mean(every),
        "of_many": len(enough),
        "many": _mean(enough),
    }


def _mean(ratios: Sequence[float]) -> float | None:
    """Return the geometric mean, None of none."""
    return exp(sum(map(log, ratios)) / len(ratios)) if ratios else None


def main(arguments: Sequence[str]) -> int:
    """Tune, and write what was found after each segment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", choices=SUITES, required=True)
    parser.add_argument("--only", default="", help="patterns of names, with *, ? and [...]")
    parser.add_argument("--seed", type=int, default=0, help="of the suite `generated`")
    parser.add_argument("--part", default="0/1", help="K/N: every Nth row from the Kth")
    parser.add_argument("--budget", type=float, help="seconds")
    parser.add_argument("--top", type=int, default=MANY, help="records measured first")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--entries", type=Path, help="file of measured schedules to add to")
    given = parser.parse_args(arguments)
    jobs = jobs_by_row(given, given.target)
    segments: list[dict[str, Any]] = []
    kept = [] if given.entries is None else store_of(given.entries).entries()
    with Remote() as bench, Kernels(given.jobs) as kernels:
        facts = bench.facts()
        head = {"schema": SCHEMA, "suite": given.suite, "seed": given.seed, "device": facts.name}
        head |= {"fusec_tree": os.environ.get("FUSEC_TREE", "")}
        for outcome in tune([*jobs], Tools(kernels, bench, facts, given.top), given.budget):
            segments.append(record_of(outcome, jobs[outcome.job]))
            last = segments[-1]
            print(f"{last['of']}: {last.get('over_best', last.get('reason'))}", flush=True)
            if outcome.entry is not None and given.entries is not None:
                others = [e for e in kept if e.place != outcome.entry.place]
                kept = merged([*others, outcome.entry])
                write(given.entries, kept)
            if given.out is not None:
                found = {**head, "summary": summary(segments), "segments": segments}
                given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summary(segments)))
    return 1 if any(_failed(s) for s in segments) else 0


def _failed(segment: Mapping[str, Any]) -> bool:
    return segment.get("reason", "the time budget is used up") != "the time budget is used up"


if __name__ == "__main__":
    end_with(lambda: main(sys.argv[1:]))
