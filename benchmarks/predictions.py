"""Times fusions that no suite contains beside the times predicted for them.

python -m benchmarks.predictions PATH ... [--count N] [--jobs N] [--target TARGET] [--list]
                                 [--out FILE]

PATH: a fusion file, or a folder of recorded graphs, of which for each scheduler those N are taken
in which it is predicted to take longest, or `patterns`: the fusions of benchmarks/patterns.py. The
ratio is measured over predicted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus_graph import read_graph
from benchmarks.corpus_inputs import draw_inputs, elements, prepare
from benchmarks.entry import end_with
from benchmarks.patterns import patterns
from benchmarks.run import target_at_hand
from fusec import driver
from fusec.bench.work import Work, build
from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.run.device import device_available
from fusec.target import find

COUNT = 3
PATTERNS = Path("patterns")
MAIN = 0.6
"""Part of the predicted time that a scheduler takes in fusions that speak for it."""
MOST_ELEMENTS = 1 << 29
"""Of all values of a graph: its inputs are drawn on the host."""


def read(path: Path) -> tuple[Fusion, dict[str, Any]]:
    """Return a fusion, and those of its inputs that are drawn in a way of their own."""
    if path.parent == PATTERNS:
        return read_text(patterns()[path.name]), {}
    if path.suffix == ".json":
        prepared = prepare(read_graph(path), path.stem)
        drawn = draw_inputs(prepared, 0)
        return prepared.fusion, {n: a for n, a in drawn.items() if _is_index(a)}
    return driver.load(str(path)), {}


def _is_index(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind in "iu"


def predicted(path: Path, target: str) -> dict[str, float]:
    """Return the predicted seconds by scheduler; empty where there is no program of such a size."""
    try:
        fusion = prepare(read_graph(path), "graph").fusion
        if elements(fusion)[1] > MOST_ELEMENTS:
            return {}
        program = driver.Compilation(fusion, CompileOptions(targets=(target,)))
        found: dict[str, float] = defaultdict(float)
        for segment in program.segmented.segments:
            if segment.estimate is not None:
                found[segment.scheduler] += segment.estimate.seconds(find(target))
        return dict(found)
    except FusecError:
        return {}


def chosen(folder: Path, target: str, count: int, pool: ProcessPoolExecutor) -> Iterator[Path]:
    """Yield of a folder the graphs to time."""
    paths = sorted(folder.glob("*.json"))
    every = list(zip(paths, pool.map(partial(predicted, target=target), paths), strict=True))
    for scheduler in sorted({name for _, found in every for name in found}):
        of = {path: found[scheduler] for path, found in every if _speaks(found, scheduler)}
        yield from sorted(of, key=lambda path: -of[path])[:count]


def _meant(path: Path, target: str, count: int, pool: ProcessPoolExecutor) -> Iterable[Path]:
    if path == PATTERNS:
        return [PATTERNS / name for name in patterns()]
    return chosen(path, target, count, pool) if path.is_dir() else [path]


def _speaks(found: Mapping[str, float], scheduler: str) -> bool:
    return scheduler in found and found[scheduler] >= MAIN * sum(found.values())


def built(path: Path, target: str) -> Work | str:
    """Return a fusion built, or why it cannot be; runs in a process of its own."""
    try:
        return build(read(path)[0], CompileOptions(targets=(target,), targets_given=True, jobs=1))
    except FusecError as error:
        return error.render()


def measure(session: Any, path: Path, work: Work) -> dict[str, Any]:
    """Return a fusion's measured and predicted time."""
    from fusec.bench.bound import BoundWork
    from fusec.bench.data import Inputs
    from fusec.bench.timer import Contender

    fusion, given = read(path)
    with ExitStack() as stack:
        inputs = Inputs(session.device, fusion, work.sizes, given=given)
        bound = stack.enter_context(BoundWork(session.device, work, stack.enter_context(inputs)))
        (times,) = session.timer.race([Contender(work.name, bound.issue)])
    us = times.seconds * 1e6
    by = {s.name: [s.scheduler, round(s.seconds * 1e6, 2)] for s in work.segments}
    total = sum(s.seconds for s in work.segments) * 1e6
    ratio = round(us / total, 3) if total else None
    return {
        "us": round(us, 2), "predicted_us": round(total, 2), "ratio": ratio,
        "segments": by, "compulsory_bytes": work.compulsory_bytes,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Choose, build and time; the exit code is 1 where something fails."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.predictions", description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )  # fmt: skip
    parser.add_argument("paths", type=Path, nargs="+", metavar="PATH")
    parser.add_argument("--count", type=int, default=COUNT, help="graphs of a scheduler")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--target", help="to build for (default: the GPU at hand)")
    parser.add_argument("--list", action="store_true", help="only choose, which needs no GPU")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    reason = device_available()
    if reason is not None and not given.list:
        raise FusecError(reason, help="--list chooses without a GPU")
    target = given.target or target_at_hand(reason)
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        paths = [
            path for each in given.paths
            for path in _meant(each, target, given.count, pool)
        ]  # fmt: skip
        if given.list:
            print("\n".join(map(str, paths)))
            return 0
        works = list(pool.map(partial(built, target=target), paths))
    return _time(paths, works, given)


def _time(paths: Sequence[Path], works: Sequence[Work | str], given: argparse.Namespace) -> int:
    from fusec.bench.session import Session

    rows: dict[str, Any] = {}
    with Session(given.jobs) as session:
        for path, work in zip(paths, works, strict=True):
            try:
                made = {"failed": work} if isinstance(work, str) else measure(session, path, work)
            except FusecError as error:
                made = {"failed": error.render()}
            rows[path.stem] = made
            print(f"{path.stem[:60]}: {json.dumps(made)}", flush=True)
        device = session.device.facts.name
    ratios = {name: row["ratio"] for name, row in rows.items() if row.get("ratio") is not None}
    failed = [name for name, row in rows.items() if "failed" in row]
    record = {
        "device": device, "fusec_tree": os.environ.get("FUSEC_TREE", ""),
        "beyond_2": sorted(n for n, r in ratios.items() if not 0.5 <= r <= 2), "rows": rows,
    }  # fmt: skip
    if given.out is not None:
        given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({"beyond_2": record["beyond_2"]}), file=sys.stdout)
    return int(bool(failed))


if __name__ == "__main__":
    end_with(main)
