"""Ranks as forked processes of a test: each runs a function with its connections."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fusec.run.distributed.links import Links
from fusec.run.distributed.monitor import Monitor
from fusec.run.distributed.ranks import LOCAL, Ranks
from fusec.run.distributed.rendezvous import meet

FORK = multiprocessing.get_context("fork")
TOKEN = "a token of tests"


def launched(rank: int, size: int, port: int, token: str = TOKEN) -> Ranks:
    """Return a rank as fusec starts it."""
    return Ranks(rank, size, rank, size, LOCAL, port, "fusec", token)


def start(
    size: int,
    work: Callable[[Links], Any],
    folder: Path,
    timeout: float = 10.0,
    before: Callable[[int], None] = lambda _: None,
    meets: Callable[[int], Links] | None = None,
) -> list[Any]:
    """Return the started processes of ranks; each writes its result or error into a folder.

    before: called with the rank in its process, before it meets the others. meets: connects a rank
    to the others; without it they are as `fusec run --ranks` starts them.
    """
    if meets is None:
        port = Monitor.on_this_host(size, TOKEN, 30.0, timeout).port
        meets = lambda rank: meet(launched(rank, size, port), timeout)  # noqa: E731

    def body(rank: int) -> None:
        try:
            before(rank)
            links = meets(rank)
            try:
                result = work(links)
            finally:
                links.close()
        except BaseException as error:
            result = error
            (folder / f"{rank}.trace").write_text(traceback.format_exc())
        (folder / f"{rank}.pickle").write_bytes(pickle.dumps(result))
        os._exit(0)

    processes = [FORK.Process(target=body, args=(rank,)) for rank in range(size)]
    for process in processes:
        process.start()
    return processes


def results(processes: list[Any], folder: Path, seconds: float = 30.0) -> list[Any]:
    """Return what each rank wrote; None of one that was killed."""
    found = list[Any]()
    for rank, process in enumerate(processes):
        process.join(seconds)
        assert not process.is_alive(), f"rank {rank} is left"
        file = folder / f"{rank}.pickle"
        found.append(pickle.loads(file.read_bytes()) if file.exists() else None)
    return found


def run(size: int, work: Callable[[Links], Any], folder: Path, timeout: float = 30.0) -> list[Any]:
    """Return what each rank's function returns; the first error is raised."""
    found = results(start(size, work, folder, timeout), folder, 2 * timeout)
    for rank, result in enumerate(found):
        if isinstance(result, BaseException):
            raise AssertionError((folder / f"{rank}.trace").read_text()) from result
    return found
