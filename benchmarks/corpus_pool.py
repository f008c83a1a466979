"""Worker processes that survive any failure: a crash or a hang costs one graph and one process."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from benchmarks.corpus_stages import Record, Settings, run_graph
from fusec.processors import usable_processors

STARTUP = 120.0
"""Seconds that a worker may take to start, on top of a graph's own limit."""


def work(connection: Connection, settings: Settings, processors: Collection[int]) -> None:
    """Take names of graphs from the connection and answer with stages and records.

    processors: what the process may use; what a verification evaluates follows from their number.
    """
    os.sched_setaffinity(0, processors)
    device = None
    if settings.cuda:
        from fusec.run.device import Device

        device = Device()
    connection.send(("ready", None))
    while True:
        try:
            name = connection.recv()
        except EOFError:
            return
        record = run_graph(name, settings, device, lambda s: connection.send(("stage", s)))
        connection.send(("done", record))
        if settings.cuda and record.exit and record.stage in ("run", "verify"):
            return  # a CUDA error stays with the process: the next graph gets a fresh one


@dataclass
class _Worker:
    process: Any
    connection: Connection
    number: int
    graph: str | None = None
    stage: str = "parse"
    deadline: float = 0.0
    began: float = 0.0
    ready: bool = False


class Pool:
    """Runs graphs on `jobs` processes, each graph for at most `limit` seconds."""

    def __init__(self, settings: Settings, jobs: int, limit: float) -> None:
        """Start nothing yet."""
        self.settings, self.jobs, self.limit = settings, jobs, limit
        self.context = multiprocessing.get_context("spawn")
        self.workers: list[_Worker] = []

    def run(self, names: Sequence[str], report: Callable[[Record], None]) -> None:
        """Run every graph and report each record as it comes."""
        self.report = report
        self.waiting = list(reversed(names))
        try:
            while self.waiting or any(w.graph for w in self.workers):
                while self.waiting and len(self.workers) < self.jobs:
                    self._start()
                for worker in list(self.workers):
                    self._give(worker)
                self._listen()
        finally:
            for worker in self.workers:
                worker.process.kill()
                worker.process.join()

    def _start(self) -> None:
        ours, theirs = self.context.Pipe()
        number = min(set(range(self.jobs)) - {w.number for w in self.workers})
        arguments = (theirs, self.settings, processors_of(number, self.jobs))
        process = self.context.Process(target=work, args=arguments, daemon=True)
        process.start()
        theirs.close()
        worker = _Worker(process, ours, number)
        self._assign(worker)
        self.workers.append(worker)

    def _assign(self, worker: _Worker) -> None:
        worker.graph = self.waiting.pop() if self.waiting else None
        worker.stage, worker.began = "parse", time.monotonic()
        worker.deadline = worker.began + self.limit + (0 if worker.ready else STARTUP)
        if worker.graph is not None:
            worker.connection.send(worker.graph)

    def _give(self, worker: _Worker) -> None:
        if worker.graph is None and self.waiting:
            self._assign(worker)

    def _listen(self) -> None:
        busy = [w for w in self.workers if w.graph is not None]
        timeout = max(0.0, min(w.deadline for w in busy) - time.monotonic())
        heard = wait([w.connection for w in busy], timeout)
        for worker in busy:
            if worker.connection in heard:
                self._hear(worker)
            elif time.monotonic() > worker.deadline:
                self._lose(worker, f"over the limit of {self.limit:.0f} s in {worker.stage}")

    def _hear(self, worker: _Worker) -> None:
        try:
            kind, value = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            worker.process.join(5)
            code = worker.process.exitcode
            how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
            self._lose(worker, f"the process ended in {worker.stage}: {how}")
            return
        if kind == "ready":
            worker.ready = True
            worker.began = time.monotonic()
            worker.deadline = worker.began + self.limit
        elif kind == "stage":
            worker.stage = value
        else:
            worker.graph = None
            self.report(value)
            if self.settings.cuda and value.exit and value.stage in ("run", "verify"):
                self._end(worker)

    def _lose(self, worker: _Worker, why: str) -> None:
        assert worker.graph is not None
        spent = {worker.stage: time.monotonic() - worker.began}
        self.report(Record(worker.graph, worker.stage, 70, spent, {}, why))
        self._end(worker)

    def _end(self, worker: _Worker) -> None:
        worker.process.kill()
        worker.process.join()
        worker.connection.close()
        self.workers.remove(worker)


def processors_of(number: int, jobs: int) -> list[int]:
    """Return the processors of one of several jobs: those of this process in equal shares.

    Of more jobs than processors several have one together.
    """
    usable = sorted(os.sched_getaffinity(0))
    if jobs >= len(usable):
        return [usable[number % len(usable)]]
    return usable[number * len(usable) // jobs : (number + 1) * len(usable) // jobs]


def default_jobs() -> int:
    """Return one job for each processor this process may use."""
    return usable_processors()
