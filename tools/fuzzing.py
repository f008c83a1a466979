"""Random fusions through every stage, failures shrunk and kept: what `tools.fuzz` runs."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusec.diagnostics import FusecError
from tools.draw import ALL, GENERAL, PRODUCTS
from tools.pool import Pool
from tools.reducing import depth_for, file_text, reduce_case
from tools.tally import Tally
from tools.trial import Outcome
from tools.work import Case, Result, Task

KEPT_OF_A_KIND = 5
"""Files that are written of failures with one signature."""
GROUPS = {"general": (*GENERAL, "reshapes", "repeats"), "contractions": tuple(PRODUCTS)}
"""Names of several themes."""
SHOWN_EVERY = 2.0
"""Seconds between lines on a terminal."""


@dataclass(frozen=True)
class FuzzOptions:
    """What is drawn, how far it goes, and where failures are kept.

    jobs: processes, 0 for none beside this one; seconds: when drawing stops, None for never;
    shrink: seconds for shrinking what failed, all together; themes: what fusions are about;
    summary: a file for the counts as JSON.
    """

    seed: int = 0
    count: int = 1000
    first: int = 0
    device: str = "auto"
    builds: bool = True
    jobs: int = 1
    keep: str = "fuzz-failures"
    seconds: float | None = None
    shrink: float = 120.0
    stats: bool = False
    themes: tuple[str, ...] = ALL
    summary: str | None = None


@dataclass(frozen=True)
class Failure:
    """A case that did not come through, with its file."""

    case: Case
    outcome: Outcome
    path: Path


def themes_of(names: Sequence[str]) -> tuple[str, ...]:
    """Return the themes of some names, of which `general` and `contractions` stand for several."""
    found = dict.fromkeys(t for n in names for t in GROUPS.get(n, (n,)))
    unknown = [t for t in found if t not in ALL]
    if unknown:
        known = ", ".join([*GROUPS, *ALL])
        raise FusecError(f"no theme is called `{unknown[0]}`", help=f"one of {known}")
    return tuple(found) or ALL


def theme_options(themes: tuple[str, ...]) -> str:
    """Return the options of a command line that name some themes; nothing for all of them."""
    if themes == ALL:
        return ""
    names = next(([n] for n, group in GROUPS.items() if group == themes), themes)
    return "".join(f" --theme {name}" for name in names)


def fuzz(options: FuzzOptions) -> int:
    """Draw and try fusions; return 1 if any failed."""
    began = time.monotonic()
    depth = depth_for(options.device, builds=options.builds)
    tally, failures = Tally(), dict[str, list[Failure]]()
    with Pool(depth, options.jobs) as pool:
        shown = began
        for result in pool.run(_tasks(options, began)):
            tally.add(result)
            _keep(result, options, failures)
            now = time.monotonic()
            if sys.stderr.isatty() and now - shown > SHOWN_EVERY:
                shown = now
                print(f"\r\033[K{tally.line(now - began)}", end="", file=sys.stderr, flush=True)
        spent = time.monotonic() - began
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        files = _shrunk(pool, failures, options)
    where = "on the GPU" if depth.on_gpu else "without a GPU" if depth.builds else "not built"
    print(f"seed {options.seed}, {where}, {spent:.0f} s")
    print(tally.summary(spent))
    if options.stats:
        print(tally.table())
    if options.summary is not None:
        about = {"seed": options.seed, "themes": options.themes, "where": where}
        text = json.dumps({**about, **tally.data(spent)}, indent=1)
        Path(options.summary).write_text(f"{text}\n")
    for line in files:
        print(line)
    return 1 if tally.statuses["failed"] else 0


def _tasks(options: FuzzOptions, began: float) -> Iterator[Task]:
    for number in range(options.first, options.first + options.count):
        if options.seconds is not None and time.monotonic() - began > options.seconds:
            return
        yield Task(options.seed, number, themes=options.themes)


def _keep(result: Result, options: FuzzOptions, failures: dict[str, list[Failure]]) -> None:
    """Write the cases that failed, a few of each kind."""
    for position, outcome in enumerate(result.outcomes):
        if outcome.status not in ("failed", "undecided"):
            continue
        kind = f"{outcome.status} {outcome.signature}"
        found = failures.setdefault(kind, [])
        case = result.cases[position] if position < len(result.cases) else None
        if len(found) >= KEPT_OF_A_KIND:
            continue
        letter = "ab"[position]
        path = Path(options.keep) / f"{options.seed}-{result.task.number}{letter}.yaml"
        if case is None:
            case = _sampled_again(result.task, position)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".txt").write_text(f"{kind}\n{outcome.message}\n")
        if case is not None:
            path.write_text(_command(result.task, options) + file_text(case, outcome, path.name))
            found.append(Failure(case, outcome, path))


def _command(task: Task, options: FuzzOptions) -> str:
    """Return a comment with the command that takes the same fusion through the stages again."""
    themes = theme_options(task.themes)
    number = f"--seed {task.seed} --first {task.number} --count 1"
    return f"# python -m tools.fuzz {number}{themes} --device {options.device}\n"


def _sampled_again(task: Task, position: int) -> Case | None:
    """Return the case of a task whose process was lost; None where drawing itself fails."""
    from fusec.ir.text import to_text
    from tools.draw import draw_runs

    try:
        run = draw_runs(task.seed, task.number, task.themes)[position]
        return Case(to_text(run.fusion), run.without)
    except Exception:
        return None


def _shrunk(pool: Pool, failures: dict[str, list[Failure]], options: FuzzOptions) -> list[str]:
    """Shrink one failure of each kind; return a line for each file."""
    lines: list[str] = []
    kinds = [k for k in failures if failures[k]]
    deadline = time.monotonic() + options.shrink
    for number, kind in enumerate(kinds):
        smallest = min(failures[kind], key=lambda f: len(f.case.text))
        others = Counter(f.path.name for f in failures[kind])
        lines.append(f"{kind}: {', '.join(sorted(others))} in {options.keep}")
        left = deadline - time.monotonic()
        if left <= 0 or (not pool.jobs and pool.depth.on_gpu):
            continue
        share = time.monotonic() + left / (len(kinds) - number)
        found = reduce_case(pool, smallest.case, smallest.outcome, share)
        path = smallest.path.with_suffix(".min.yaml")
        path.write_text(file_text(found.case, found.outcome, path.name))
        lines.append(f"  {path}: {found.tried} smaller ones tried; python -m tools.reduce {path}")
    return lines
