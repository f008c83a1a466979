"""Builds and times rows for `benchmarks.trees`, with the fusec and the suites of one tree.

A script without imports of its own tree: it runs with PYTHONPATH set to either tree. Commands come
as lines of JSON on stdin, answers go to stdout.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack, suppress
from hashlib import sha256
from importlib import import_module
from typing import Any

ROUND_RUNS = 3
"""Runs of a round, of which the median counts."""
WARM_UP = 0.0
"""Seconds of a round: it is warm since the row was loaded."""

EXECUTED = (".text.", ".nv.constant0", ".nv.constant2", ".nv.constant3")
"""Sections of instructions, and of the constants that these read by place; others name lines of
headers, or hold the constants of a Config and their addresses, which are folded."""


class Worker:
    """The rows of a suite in one process, built by one tree."""

    def __init__(self, suite: str, only: list[str], seeds: list[int], jobs: int) -> None:
        """Draw the rows; nothing is built yet."""
        from benchmarks.run import rows_of

        self.jobs = jobs
        self.rows = {row.name: row for row in rows_of(suite, only, seeds)}
        self.works: dict[str, Any] = {}
        self.session: Any = None
        self.bound: Any = None
        self.loaded = ExitStack()

    def build(self, target: str) -> dict[str, dict[str, str]]:
        """Return the digest of each row's kernels and launches, or why there are none."""
        from benchmarks.run import build_all

        self.works = build_all(list(self.rows.values()), target, self.jobs)
        return {name: _described(work) for name, work in self.works.items()}

    def load(self, name: str) -> dict[str, Any]:
        """Put a row on the device and warm it up."""
        from fusec.bench.bound import BoundWork
        from fusec.bench.data import Inputs
        from fusec.bench.session import Session
        from fusec.bench.timer import Contender

        if self.session is None:
            self.session = Session(self.jobs)
        row, work = self.rows[name], self.works[name]
        inputs = Inputs(self.session.device, row.fusion, work.sizes, given=row.given())
        self.loaded.enter_context(inputs)
        self.bound = self.loaded.enter_context(BoundWork(self.session.device, work, inputs))
        self.session.timer.race([Contender(name, self.bound.issue)], 1)
        return {"launches": self.bound.launches}

    def round(self, name: str) -> float:
        """Return the seconds of a run, the median of a round."""
        from fusec.bench.timer import Contender

        contenders = [Contender(name, self.bound.issue)]
        (times,) = self.session.timer.race(contenders, ROUND_RUNS, WARM_UP)
        return times.seconds

    def free(self) -> None:
        """Give back what the loaded row has on the device."""
        self.loaded.close()


def _elf() -> Any:
    """Return what reads a cubin: trees before decision 257 have it in another module."""
    for module in ("fusec.run.binary.elf", "fusec.run.elf"):
        with suppress(ModuleNotFoundError):
            return import_module(module).Elf
    raise ModuleNotFoundError("fusec has no reader of cubins")


def _described(work: Any) -> dict[str, str]:
    Elf = _elf()

    if isinstance(work, str):
        return {"failed": work}
    digest = sha256()
    for launch in work.host.launches:
        elf = Elf(work.cubins[launch.kernel])
        for section in elf.sections:
            if section.name.startswith(EXECUTED):
                digest.update(elf.content(section))
        digest.update(f"{launch.grid} {launch.block} {launch.shared_bytes}".encode())
    return {"digest": digest.hexdigest()}


def main() -> None:
    """Answer commands until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints does not disturb the answers
    worker = Worker(**json.loads(sys.stdin.readline()))
    for line in sys.stdin:
        command, arguments = json.loads(line)
        try:
            answer = {"answer": getattr(worker, command)(*arguments)}
        except Exception as error:
            render = getattr(error, "render", None)
            answer = {"failed": render() if render else f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
