"""The device in a separate process, which confines faults and hangs."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from fusec.dataclasses import dataclass
from fusec.diagnostics import EnvironmentProblem, FusecError
from fusec.tune.job import Built, Failed, Job

RUN_SECONDS = 60.0
"""Time limit for a record's first run, or for timing all."""
LONG_SECONDS = 600.0
"""Time limit for generating inputs or for verification."""
CONTEXT = multiprocessing.get_context("forkserver")


class Died(Exception):
    """The process is unusable; number: of the record that it was running, or None."""

    def __init__(self, reason: str, number: int | None) -> None:
        """Store both."""
        super().__init__(reason)
        self.reason, self.number = reason, number


@dataclass(frozen=True)
class Facts:
    """Properties of a device that entries record; capability: as a number, 90 for sm_90a."""

    name: str
    driver: str
    capability: int


def serve(connection: Connection) -> None:
    """Open the device and answer requests until there are no more."""
    try:
        _serve(connection)
    except FusecError as error:
        with suppress(OSError):
            connection.send(("error", error.diagnostic.message))


def _serve(connection: Connection) -> None:
    from fusec.run.device import Device
    from fusec.tune.bench import OneJob

    current: OneJob | None = None
    with Device() as device:
        while (request := connection.recv()) is not None:
            what, *given = request
            answer: Any = None
            if what == "facts":
                facts = device.facts
                answer = Facts(facts.name, facts.driver, facts.capability)
            elif what == "job":
                if current is not None:
                    current.close()
                current = OneJob(device, given[0], lambda k: connection.send(("step", k)))
            elif current is not None:
                answer = getattr(current, what)(*given)
            connection.send(("answer", answer))


class Process:
    """A process with the device, started by the first request."""

    def __init__(self) -> None:
        """Start no process yet."""
        self._process: Any = None
        self._connection: Any = None

    def send(self, *request: Any) -> None:
        """Send a request; errors are reported with the answer."""
        if self._process is None:
            self._connection, far = CONTEXT.Pipe()
            self._process = CONTEXT.Process(target=serve, args=(far,), daemon=True)
            self._process.start()
            far.close()
        with suppress(OSError):
            self._connection.send(request)

    def answer(self, seconds: float) -> Any:
        """Return the answer to the last request; Died where a step takes more than `seconds`."""
        number: int | None = None
        reason = "its kernels hang"
        try:
            while self._connection.poll(seconds):
                kind, told = self._connection.recv()
                if kind == "answer":
                    return told
                if kind == "error":
                    reason = str(told)
                    break
                number = int(told)
        except (EOFError, OSError):
            reason = "its process ended"
        self.stop()
        raise Died(reason, number)

    def ask(self, *request: Any, seconds: float) -> Any:
        """Send a request and return its answer."""
        self.send(*request)
        return self.answer(seconds)

    def stop(self) -> None:
        """Terminate the process, even if it is busy."""
        if self._process is None:
            return
        with suppress(OSError):
            self._connection.send(None)
        self._process.join(0.5)
        self._process.kill()
        self._process.join()
        self._connection.close()
        self._process = None


class Remote:
    """The bench of a job in another process, which is restarted if a record crashes it.

    While one process measures, another one, which has no kernels to run, generates the inputs of
    the next job.
    """

    def __init__(self) -> None:
        """Start no process yet."""
        self._current, self._other = Process(), Process()
        self._job: Job | None = None
        self._ahead: Job | None = None

    def __enter__(self) -> Remote:
        """Return the bench."""
        return self

    def __exit__(self, *error: object) -> None:
        """Terminate both processes."""
        self._current.stop()
        self._other.stop()

    def facts(self) -> Facts:
        """Return the properties of the device; EnvironmentProblem where there is none."""
        try:
            return self._current.ask("facts", seconds=LONG_SECONDS)
        except Died as died:
            raise EnvironmentProblem(died.reason, help="tuning needs a GPU") from None

    def prepare(self, job: Job) -> None:
        """Let the other process generate the inputs of the next job."""
        self._ahead = job
        self._other.send("job", job)

    def begin(self, job: Job) -> None:
        """Start a job; FusecError where its inputs cannot be generated."""
        self._job, ahead, self._ahead = job, self._ahead, None
        if ahead is not None and ahead != job:
            self._other.stop()
        try:
            if ahead == job:
                self._current, self._other = self._other, self._current
                self._current.answer(LONG_SECONDS)
            else:
                self._current.ask("job", job, seconds=LONG_SECONDS)
        except Died as died:
            raise FusecError(f"{job.of}: {died.reason}") from None

    def times(self, built: Sequence[Built], repeats: int) -> list[float | Failed]:
        """Return the median seconds of each, run round-robin, or why one cannot run."""
        found: list[float | Failed] = [Failed(b.settings, "not run") for b in built]
        left = [*range(len(built))]
        while left:
            request = ("times", [built[k] for k in left], repeats)
            try:
                times = self._current.ask(*request, seconds=RUN_SECONDS)
            except Died as died:
                self._again()
                number = 0 if len(left) == 1 else died.number
                if number is None or number >= len(left):  # unknown which: each separately
                    return [self.times([each], repeats)[0] for each in built]
                at = left.pop(number)
                found[at] = Failed(built[at].settings, died.reason)
                continue
            for at, seconds in zip(left, times, strict=True):
                found[at] = seconds
            break
        return found

    def wrong(self, built: Built, default: Built) -> str | None:
        """Return what is wrong with the results of a record, compared with the default's."""
        try:
            return self._current.ask("wrong", built, default, seconds=LONG_SECONDS)
        except Died as died:
            self._again()
            return died.reason

    def _again(self) -> None:
        """Restart the process of the job; FusecError where that does not help."""
        if self._job is None:
            return
        try:
            self._current.ask("job", self._job, seconds=LONG_SECONDS)
        except Died as died:
            raise FusecError(f"{self._job.of}: {died.reason}") from None
