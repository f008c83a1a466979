"""The device of `fusec tune`: its process, what faults and hangs in it, times and results."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing import Pipe
from threading import Thread
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fake_device import FakeDevice, argument, array_at
from test_tune import (
    FACTS,
    built,
    job_of,
)

from fusec.diagnostics import InternalError
from fusec.run import measure
from fusec.tune import remote
from fusec.tune.bench import OneJob
from fusec.tune.job import Built, Failed, program_of
from fusec.tune.remote import Remote

# -- the device in a process of its own


class Fake:
    """Answers as a device would; a record named so faults, hangs or is refused."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def serve(self) -> None:
        while (request := self.connection.recv()) is not None:
            what, *given = request
            answer: Any = FACTS if what == "facts" else None
            if what == "times":
                answer = [self.time(k, b, len(given[0])) for k, b in enumerate(given[0])]
                self.connection.send(("step", len(given[0])))
                if any("late" in b.settings for b in given[0]):
                    os._exit(1)
            if what == "wrong" and "faults" in given[0].settings:
                os._exit(1)
            self.connection.send(("answer", answer))

    def time(self, number: int, built: Built, count: int) -> float:
        self.connection.send(("step", number))
        if "faults" in built.settings:
            os._exit(1)
        if "tells" in built.settings:
            self.connection.send(("error", "the GPU reports a fault"))
            os._exit(1)
        if "hangs" in built.settings:
            time.sleep(60)
        return float(built.settings["us"])


def serve_fake(connection: Any) -> None:
    Fake(connection).serve()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    import multiprocessing

    monkeypatch.setattr(remote, "serve", serve_fake)
    monkeypatch.setattr(remote, "RUN_SECONDS", 0.5)
    monkeypatch.setattr(remote, "CONTEXT", multiprocessing.get_context("fork"))
    with Remote() as bench:
        assert bench.facts() == FACTS
        bench.begin(job_of())
        yield bench


def record(us: float, *kinds: str) -> Built:
    return built({"us": us, **dict.fromkeys(kinds, True)})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("faults", "its process ended"),
        ("tells", "the GPU reports a fault"),
        ("hangs", "its kernels hang"),
        ("late", "its process ended"),
    ],
)
def test_a_record_that_ends_the_process_is_the_one_left_out(
    kind: str, reason: str, bench: Remote
) -> None:
    every = [record(1), record(2, kind), record(3)]
    assert bench.times(every, 5) == [1.0, Failed(every[1].settings, reason), 3.0]
    assert bench.times([record(4)], 5) == [4.0]


def test_a_process_that_ends_over_results_is_told(bench: Remote) -> None:
    assert bench.wrong(record(1), record(2)) is None
    assert bench.wrong(record(1, "faults"), record(2)) == "its process ended"
    assert bench.times([record(4)], 5) == [4.0]


def test_the_next_job_is_made_ready_in_another_process(bench: Remote) -> None:
    first, second = bench._current, bench._other
    following = job_of(128)
    bench.prepare(following)
    assert bench.times([record(1)], 5) == [1.0]
    bench.begin(following)
    assert (bench._current, bench._other) == (second, first)
    assert bench.times([record(2)], 5) == [2.0]
    bench.prepare(job_of(64))
    bench.begin(job_of(32))  # another one than was announced
    assert bench._current is second
    bench.prepare(job_of(16))
    bench.begin(job_of(16))
    assert bench.times([record(3)], 5) == [3.0]


# -- a device in host memory


class HostDevice(FakeDevice):
    """Runs functions for kernels, and keeps time by a clock that they move."""

    def __init__(self) -> None:
        super().__init__({"right": y_of_rows(), "default": y_of_rows()})
        self.kernels |= {"off": y_of_rows(factor=1.02), "far": y_of_rows(left_out=2)}
        self.now = 0.0
        self.facts = SimpleNamespace(**vars(FACTS))
        self.driver.cuEventDestroy = lambda event: None

    def load(self, cubin: bytes, entry: str) -> Any:
        return cubin.decode()

    def unload(self, function: Any) -> None:
        pass

    def fail(self) -> None:
        raise InternalError("the GPU reports a fault")

    def call(self, function: str, *arguments: Any, what: str = "") -> Any:
        if function == "cuEventCreate":
            return SimpleNamespace(at=0.0)
        if function == "cuEventRecord":
            arguments[0].at = self.now
        elif function == "cuEventElapsedTime":
            return arguments[1].at - arguments[0].at
        elif function != "cuEventSynchronize":
            self.now += 1 if "right" in arguments[1] else 2
            return super().call(function, *arguments, what=what)
        return None


BATCH, WIDTH = 4, 512
COUNTS = (BATCH * WIDTH, WIDTH)


def y_of_rows(
    factor: float = 1.0, left_out: int | None = None, dtype: Any = ml_dtypes.bfloat16
) -> Callable[[int], None]:
    """Return a kernel of `rows`; its sums err by a factor, a row is left out."""

    def kernel(pointers: int) -> None:
        places = [argument(pointers, k, ctypes.c_uint64) for k in range(3)]
        x, w = (array_at(p, n, ml_dtypes.bfloat16) for p, n in zip(places, COUNTS, strict=False))
        y = array_at(places[2], BATCH * WIDTH, dtype)
        wide = x.astype(np.float32).reshape(BATCH, WIDTH)
        sums = (wide * w.astype(np.float32)).sum(axis=1, keepdims=True, dtype=np.float32)
        kept = [row for row in range(BATCH) if row != left_out]
        y.reshape(BATCH, WIDTH)[kept] = (wide / (sums * np.float32(factor)))[kept].astype(y.dtype)

    return kernel


def test_results_are_judged_against_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "FLUSH_BYTES", 1 << 10)
    monkeypatch.setattr(measure, "WARMUP_SECONDS", 0.0)
    job, device, steps = job_of(BATCH, WIDTH), HostDevice(), list[int]()
    program = program_of(job, None)
    (source,) = program.kernel_sources
    default, right, off, far = (
        Built({}, program.host, {source.name: name.encode()}, (), name)
        for name in ("default", "right", "off", "far")
    )
    bench = OneJob(device, job, steps.append)  # pyright: ignore[reportArgumentType]
    assert bench.times([default, right], 3) == [2e-3, 1e-3]
    assert steps == [0, 1, 2]
    assert bench.wrong(default, default) is None
    assert bench.wrong(right, default) is None
    assert "elements differ" in str(bench.wrong(off, default))
    assert "far from the result of the default plan" in str(bench.wrong(far, default))
    bench.close()
    assert device.blocks == {}


def test_what_serves_answers_with_what_the_device_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "FLUSH_BYTES", 1 << 10)
    monkeypatch.setattr(measure, "WARMUP_SECONDS", 0.0)
    device = HostDevice()
    monkeypatch.setattr("fusec.run.device.Device", lambda: nullcontext(device))
    job, (near, far) = job_of(BATCH, WIDTH), Pipe()
    program = program_of(job, None)
    (source,) = program.kernel_sources
    both = [
        Built({}, program.host, {source.name: name.encode()}, (), name)
        for name in ("default", "right")
    ]
    server = Thread(target=remote.serve, args=(far,))
    server.start()
    near.send(("facts",))
    assert near.recv() == ("answer", FACTS)
    for _ in range(2):  # the first one's memory is given back
        near.send(("job", job))
        assert near.recv() == ("answer", None)
        near.send(("times", both, 3))
        told = [near.recv() for _ in range(4)]
        assert told == [*(("step", k) for k in range(3)), ("answer", [2e-3, 1e-3])]
        near.send(("wrong", both[1], both[0]))
        assert near.recv() == ("answer", None)
    held = len(device.blocks)
    device.kernels["right"] = lambda pointers: device.fail()
    near.send(("times", both, 3))
    assert [near.recv() for _ in range(3)][-1] == ("error", "the GPU reports a fault")
    server.join()
    assert len(device.blocks) == held


def test_other_sums_are_right_where_the_reference_says_so() -> None:
    job, device = job_of(BATCH, WIDTH), HostDevice()
    job = replace(job, text=job.text.replace("y = cast(div_1, dtype=bf16)", "y = mul(div_1, 1.0)"))
    device.kernels["default"] = y_of_rows(dtype=np.float32)
    device.kernels["right"] = y_of_rows(factor=1 + 2e-7, dtype=np.float32)
    program = program_of(job, None)
    (source,) = program.kernel_sources
    default, right = (
        Built({}, program.host, {source.name: name.encode()}, (), name)
        for name in ("default", "right")
    )
    bench = OneJob(device, job)  # pyright: ignore[reportArgumentType]
    one, other = bench.results(default)["y"], bench.results(right)["y"]
    assert one.tobytes() != other.tobytes()
    assert bench.wrong(right, default) is None
    bench.close()


def test_a_fault_is_not_taken_for_a_refusal() -> None:
    job, device = job_of(8, 256), HostDevice()
    program = program_of(job, None)
    default = Built({}, program.host, {program.kernel_sources[0].name: b"default"}, (), "default")

    def fault(*arguments: Any, what: str = "") -> Any:
        raise InternalError("the GPU reports a fault")

    bench = OneJob(device, job)  # pyright: ignore[reportArgumentType]
    unbound = replace(default, cubins={})
    (failed,) = bench.times([unbound], 3)
    assert isinstance(failed, Failed)
    device.call = fault  # type: ignore[method-assign]
    with pytest.raises(InternalError):
        bench.times([default], 3)
