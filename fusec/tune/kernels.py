"""Builds the kernels of many records in parallel processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from fusec.processors import usable_processors
from fusec.tune.job import Built, Failed, Job, Settings, build
from fusec.tune.remote import CONTEXT

Key = tuple[Job, tuple[tuple[str, object], ...] | None]


class Kernels:
    """Processes that build kernels; each record is built only once."""

    def __init__(self, processes: int | None = None) -> None:
        """Start them; by default one core stays free for measuring."""
        CONTEXT.set_forkserver_preload(["fusec.tune.job", "fusec.tune.remote"])
        self._pool = ProcessPoolExecutor(processes or max(1, usable_processors() - 1), CONTEXT)
        self._futures: dict[Key, Future[Built | Failed]] = {}

    def __enter__(self) -> Kernels:
        """Return the builder."""
        return self

    def __exit__(self, *error: object) -> None:
        """Cancel all pending builds."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def begin(self, job: Job, wanted: Iterable[Settings | None]) -> None:
        """Start building records of a job; None is the cost model's choice."""
        for settings in wanted:
            key = _key(job, settings)
            if key not in self._futures:
                self._futures[key] = self._pool.submit(build, job, settings)

    def build(self, job: Job, wanted: Sequence[Settings | None]) -> list[Built | Failed]:
        """Return the kernels of records of a job, in their order."""
        self.begin(job, wanted)
        found: list[Built | Failed] = []
        for settings in wanted:
            future = self._futures[_key(job, settings)]
            try:
                found.append(future.result())
            except BrokenProcessPool:
                found.append(Failed(settings or {}, "the compiler ended its process"))
        return found

    def forget(self, job: Job) -> None:
        """Release the kernels of a job; builds that have not started are cancelled."""
        for key in [k for k in self._futures if k[0] == job]:
            self._futures.pop(key).cancel()


def _key(job: Job, settings: Settings | None) -> Key:
    return job, None if settings is None else tuple(sorted(settings.items()))
