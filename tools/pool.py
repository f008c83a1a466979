"""Worker processes: what faults or hangs takes its own process with it, and nothing else."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

from tools.trial import Depth, Outcome, Trials
from tools.work import Result, Task, perform

RECYCLED = 1500
"""Tasks after which a process is replaced: libraries keep some memory of each kernel."""


def serve(connection: Connection, depth: Depth, gpu: int) -> None:
    """Do tasks until None comes, or the process is of no more use."""
    trials = Trials(depth, gpu)
    for _ in range(RECYCLED):
        task = connection.recv()
        if task is None:
            break
        result = perform(trials, task)
        connection.send(result)
        if result.fatal:
            # Nothing on the device can be given back any more.
            os._exit(1)
    trials.close()
    connection.close()


GRACE = 10.0
"""Seconds that a process without a task gets to end by itself, as tools that watch it need."""


class Worker:
    """One process with the task that it is at."""

    def __init__(self, context: Any, depth: Depth, gpu: int) -> None:
        """Start the process; it works on one GPU."""
        self.gpu = gpu
        self.connection, far = context.Pipe()
        self.process = context.Process(target=serve, args=(far, depth, gpu), daemon=True)
        self.process.start()
        far.close()
        self.task: Task | None = None
        self.began = 0.0
        self.done = 0

    def give(self, task: Task) -> None:
        """Send a task."""
        self.task, self.began = task, time.monotonic()
        self.connection.send(task)

    def dismiss(self) -> None:
        """Let the process end by itself, as soon as it has no task."""
        with suppress(OSError):
            self.connection.send(None)

    def stop(self) -> None:
        """End the process, whatever it is at; one without a task may give its device back."""
        if self.task is None:
            self.dismiss()
            self.process.join(GRACE)
        self.process.kill()
        self.process.join()
        with suppress(OSError):
            self.connection.close()


class Pool:
    """Processes that do tasks; without any (`jobs` 0) tasks are done right here."""

    def __init__(self, depth: Depth, jobs: int, limit: float = 120.0) -> None:
        """Start nothing yet; `limit` is what a task may take, in seconds."""
        self.depth, self.jobs, self.limit = depth, jobs, limit
        self._workers: list[Worker] = []
        self._trials = Trials(depth)
        # Each process does one thing at a time: threads would only be in each other's way.
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ.setdefault(name, "1")
        # The compiler takes and gives back as much memory for every kernel: it stays instead.
        for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"):
            os.environ.setdefault(name, str(1 << 30))
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tools.work"])

    def __enter__(self) -> Pool:
        """Return the pool."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop every process."""
        for worker in self._workers:
            if worker.task is None:
                worker.dismiss()
        for worker in self._workers:
            worker.stop()
        self._workers = []
        if kind is None:
            self._trials.close()

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield the result of each task as it is done; tasks are drawn when a process is free."""
        if not self.jobs:
            for task in tasks:
                result = perform(self._trials, task)
                yield result
                if result.fatal:
                    return
            return
        waiting = iter(tasks)
        try:
            while self._feed(waiting):
                yield from self._collect()
        finally:
            # Results of tasks that nobody waits for any more must not come in later.
            for worker in [w for w in self._workers if w.task is not None]:
                self._drop(worker)

    def _feed(self, waiting: Iterator[Task]) -> bool:
        """Give every free process a task; return whether any is at work."""
        while True:
            free = next((w for w in self._workers if w.task is None), None)
            if free is None and len(self._workers) >= self.jobs:
                return True
            task = next(waiting, None)
            if task is None:
                return any(w.task is not None for w in self._workers)
            if free is None:
                free = Worker(self._context, self.depth, self._least_used())
                self._workers.append(free)
            free.give(task)

    def _least_used(self) -> int:
        """Return the GPU on which the fewest processes work."""
        used = [w.gpu for w in self._workers]
        return min(range(self.depth.gpus), key=used.count)

    def _collect(self) -> Iterator[Result]:
        """Yield what has come in, or what is known of those that died or hang."""
        busy = {w.connection: w for w in self._workers if w.task is not None}
        for ready in wait(list(busy), timeout=1.0):
            worker = busy[ready]  # pyright: ignore[reportArgumentType]
            try:
                result: Result = worker.connection.recv()
            except (EOFError, OSError):
                worker.process.join()
                code = worker.process.exitcode
                self._drop(worker)
                yield _lost(worker, f"exit code {code}", "the process died")
                continue
            if not result.fatal:
                worker.task = None
            worker.done += 1
            if result.fatal or worker.done >= RECYCLED:
                self._drop(worker)
            yield result
        for worker in list(self._workers):
            if worker.task is not None and time.monotonic() - worker.began > self.limit:
                self._drop(worker)
                yield _lost(worker, "hang", f"nothing came within {self.limit:.0f} s")

    def _drop(self, worker: Worker) -> None:
        worker.stop()
        self._workers.remove(worker)


def _lost(worker: Worker, kind: str, message: str) -> Result:
    """Return a failed result for a task whose process is gone."""
    assert worker.task is not None
    case = worker.task.case
    return Result(worker.task, (Outcome("failed", "process", kind, message),), (case,))
