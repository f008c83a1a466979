"""Times the programs of two trees of fusec in alternating rounds of one run.

python -m benchmarks.trees OLD --suite NAME ... [--only GLOB,...] [--seed N,...] [--rounds N]
                           [--seconds S] [--target TARGET] [--build] [--out FILE.json]

OLD: a checkout of the other tree (`git worktree add /tmp/old COMMIT`). Each tree builds and times
its own programs in a process of its own, of the same rows; only rows whose kernels or launches
differ are timed. A round is the median of three runs of one tree, then of the other. The exit code
is 1 where the 95 % interval of the ratio new / old lies wholly above 1.02, or a row fails in the
new tree alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.entry import end_with
from benchmarks.paired import medians, ratio
from benchmarks.run import SUITES, geometric_mean, target_at_hand
from benchmarks.segmentation import ROOT
from fusec.diagnostics import FusecError
from fusec.run.device import device_available

WORKER = Path(__file__).with_name("trees_worker.py")
SLOWER = 1.02
"""A row is slower where the whole interval of its ratio lies above."""
ROUNDS, PLACEMENTS = 5, 3
"""Rounds in the same memory, and how often memory is allocated anew: where it lies changes times of
the same kernel by up to 4 % between processes."""


class Tree:
    """A tree's process; commands are those of `trees_worker.Worker`."""

    def __init__(self, root: Path, asked: dict[str, Any]) -> None:
        """Start the process."""
        self.root = root
        paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER)], cwd=root, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )  # fmt: skip
        self._say(asked)

    def _say(self, said: Any) -> None:
        assert self._process.stdin is not None
        print(json.dumps(said), file=self._process.stdin, flush=True)

    def ask(self, command: str, *arguments: Any) -> Any:
        """Return the answer to a command; FusecError where the process fails or has ended."""
        assert self._process.stdout is not None
        try:
            self._say([command, arguments])
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer = json.loads(line) if line else {"failed": "its process has ended"}
        if "failed" in answer:
            raise FusecError(f"{command} in {self.root}: {answer['failed']}")
        return answer["answer"]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def compared(new: Tree, old: Tree, name: str, rounds: int) -> dict[str, Any]:
    """Return a row's times in microseconds, and [median, low, high] of new / old."""
    trees = {"new": new, "old": old}
    found: dict[str, list[float]] = {each: [] for each in trees}
    launches: dict[str, int] = {}
    for _ in range(PLACEMENTS):
        try:
            launches = {each: tree.ask("load", name)["launches"] for each, tree in trees.items()}
            for number in range(rounds):
                for each in list(trees) if number % 2 == 0 else reversed(trees):
                    found[each].append(trees[each].ask("round", name) * 1e6)
        finally:
            for tree in trees.values():
                tree.ask("free")
    return {"us": medians(found), "launches": launches, "ratio": ratio(found, "new", "old")}


def summary(rows: dict[str, Any]) -> dict[str, Any]:
    """Return what became of all rows."""
    timed = {name: row for name, row in rows.items() if "ratio" in row}
    return {
        "rows": len(rows),
        "same": sum("same" in row for row in rows.values()),
        "timed": len(timed),
        "mean": geometric_mean([row["ratio"][0] for row in timed.values()]),
        "slower": [name for name, row in timed.items() if row["ratio"][1] > SLOWER],
        "quicker": [name for name, row in timed.items() if row["ratio"][2] < 1 / SLOWER],
        "failed": [name for name, row in rows.items() if "failed" in row],
    }


def suite_rows(
    suite: str, trees: tuple[Tree, Tree], given: argparse.Namespace, end: float
) -> dict[str, Any]:
    """Build and time the rows of a suite; a row that only the new tree has is left out."""
    target = given.target or target_at_hand(device_available())
    with ThreadPoolExecutor(len(trees)) as pool:
        built = list(pool.map(lambda tree: tree.ask("build", target), trees))
    rows: dict[str, Any] = {}
    for name, made in built[0].items():
        before = built[1].get(name)
        key = f"{suite}/{name}"
        if before is None or ("failed" in made and "failed" in before):
            continue
        if "failed" in made or "failed" in before:
            side, why = ("new", made) if "failed" in made else ("old", before)
            rows[key] = {"failed" if side == "new" else "new_alone": why["failed"]}
        elif made == before:
            rows[key] = {"same": True}
        elif given.build or time.monotonic() > end:
            rows[key] = {"not_timed": True}
        else:
            try:
                rows[key] = compared(*trees, name, given.rounds)
            except FusecError as error:
                rows[key] = {"failed": error.render()}
        if "same" not in rows[key]:
            print(f"{key}: {json.dumps(rows[key])}", flush=True)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the trees in all suites, and return whether the new one is slower."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.trees", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    listed = {"type": lambda text: [t for t in text.split(",") if t], "default": []}
    parser.add_argument("old", type=Path, metavar="OLD")
    parser.add_argument("--suite", choices=SUITES, nargs="+", required=True)
    parser.add_argument("--only", **listed, help="patterns of names")
    parser.add_argument("--seed", **listed, help="seeds of what is drawn")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="in the same memory")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time no row later")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--target", help="to build for (default: the GPU at hand)")
    parser.add_argument("--build", action="store_true", help="only build, which needs no GPU")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    if not (given.old / "fusec").is_dir():
        parser.error(f"{given.old} is no checkout of fusec")
    reason = device_available()
    if reason is not None and not given.build:
        raise FusecError(reason, help="--build builds without a GPU")
    end, rows = time.monotonic() + given.seconds, dict[str, Any]()
    jobs = max(1, given.jobs // 2)
    for suite in given.suite:
        seeds = [int(seed) for seed in given.seed] or [0]
        asked = {"suite": suite, "only": given.only, "seeds": seeds, "jobs": jobs}
        trees = Tree(ROOT, asked), Tree(given.old.resolve(), asked)
        try:
            rows |= suite_rows(suite, trees, given, end)
        finally:
            for tree in trees:
                tree.close()
        record = {"new": os.environ.get("FUSEC_TREE", ""), "summary": summary(rows), "rows": rows}
        if given.out is not None:
            given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    found = summary(rows)
    print(json.dumps(found, indent=1))
    return int(bool(found["slower"] or found["failed"]))


if __name__ == "__main__":
    end_with(main)
