"""Compiles what torch.compile makes for many rows at once, before they are timed, within a time.

Several processes compile, and their results come back out of Inductor's caches. While one of them
times a candidate no other does.
"""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.measure import forget
from benchmarks.rows import Row

AT_ONCE = 16
"""What is compiled at once, at most: a row for one of the peers."""


def prepare(
    rows: Sequence[Row], names: Sequence[str], seconds: float, jobs: int
) -> dict[tuple[str, str], str]:
    """Return by row and peer why there is nothing; empty where the caches have what it runs.

    Every row is compiled for the first of the peers before any is for the next.
    """
    end, context = time.monotonic() + seconds, get_context("spawn")
    wanted = [(replace(row), name) for name in names for row in rows]  # fusions stay here
    count = max(1, min(AT_ONCE, jobs, len(wanted)))
    found = {
        (row.name, name): f"not compiled within {seconds:g} s" for row in rows for name in names
    }
    asked, said = context.Queue(), context.SimpleQueue()
    asked.cancel_join_thread()  # who is stopped leaves rows behind
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder) / "timing"
        given = (asked, said, lock, max(1, jobs // count))
        workers = [context.Process(target=_work, args=given) for _ in range(count)]
        for worker in workers:
            worker.start()
        for each in [*wanted, *([None] * count)]:
            asked.put(each)
        while time.monotonic() < end and any(w.is_alive() for w in workers):
            time.sleep(0.05)
            _take(said, found)
        _take(said, found)
        for worker in workers:
            assert worker.pid is not None
            with suppress(ProcessLookupError):  # it has not begun, or is done with all it started
                os.killpg(worker.pid, signal.SIGKILL)
            worker.kill()
            worker.join()
    return found


def _take(said: Any, found: dict[tuple[str, str], str]) -> None:
    while not said.empty():
        row, name, why = said.get()
        found[row, name] = why


def _work(asked: Any, said: Any, lock: Path, threads: int) -> None:
    """Compile one row for one peer after the other; runs in a process of its own, with others."""
    os.setpgrp()  # with what it starts
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(threads))
    _time_alone(lock)
    while (wanted := asked.get()) is not None:
        row, name = wanted
        offer = peers.Offer(row, row.torch_function(), _arguments(row))
        issue, why = peers.found(name, offer)
        said.put((row.name, name, "" if issue is not None else why))
        del issue, offer  # and what they hold on the GPU
        forget()


def _arguments(row: Row) -> list[Any]:
    """Return inputs of a row, drawn in some way: what is compiled does not depend on them."""
    import torch

    from benchmarks.torch_side import dtype_of

    sizes, made = row.fusion.hints, []
    for given in row.fusion.inputs:
        shape = [d.evaluate(sizes) for d in given.value.shape]
        made.append(torch.randn(shape, device="cuda").to(dtype_of(given.value.dtype.name)))
    return made


def _time_alone(lock: Path) -> None:
    """Have Inductor time a candidate only while no other process times one."""
    from torch._inductor.runtime.benchmarking import benchmarker

    timed: Callable[..., Any] = benchmarker.benchmark_gpu

    def alone(*given: Any, **named: Mapping[str, Any]) -> Any:
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return timed(*given, **named)

    benchmarker.benchmark_gpu = alone
