"""`fusec tune`: which records are tried, which wins, what becomes of faults; without a GPU."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cli_tools import EXAMPLES, fusec
from fake_device import FakeDevice, argument, array_at
from test_tuned import entry_of, rows

from fusec.diagnostics import FusecError, InternalError
from fusec.options import CompileOptions
from fusec.run import measure
from fusec.tune import remote
from fusec.tune.bench import OneJob
from fusec.tune.candidates import Candidate, diverse, first_candidates, neighbours
from fusec.tune.job import Built, Failed, Job, Settings, build, jobs_of, program_of
from fusec.tune.kernels import Kernels
from fusec.tune.remote import Facts, Remote
from fusec.tune.report import rank_correlation, report
from fusec.tune.search import FEW, Found, Means, Trial, search
from fusec.tune.session import Tools, tune
from fusec.tune.session import entry_of as kept_of
from fusec.tuned.store import merged, store_of, write

Capture = pytest.CaptureFixture[str]
OPTIONS = CompileOptions(targets=("sm_90a",), targets_given=True)
FACTS = Facts("a GPU", "CUDA 13.0", 90)


# -- the search


def built(settings: Settings, form: str = "") -> Built:
    """Return kernels without code."""
    host: Any = None
    return Built(dict(settings), host, {}, ("pointwise",), form or repr(sorted(settings.items())))


def candidate(threads: int, unroll: int = 1) -> Candidate:
    return Candidate({"threads": threads, "unroll": unroll}, 1e-5)


@dataclass
class FakeBench:
    """Kernels take what a function of their settings says, in microseconds; 0 is a fault."""

    us: Callable[[Settings], float]
    bad: Callable[[Settings], str | None] = lambda settings: None
    began: list[str] = field(default_factory=list)
    asked: list[tuple[int, list[Settings]]] = field(default_factory=list)

    def begin(self, job: Job) -> None:
        self.began.append(job.of)

    def prepare(self, job: Job) -> None:
        assert job.of not in self.began

    def times(self, built: Sequence[Built], repeats: int) -> list[float | Failed]:
        self.asked.append((repeats, [b.settings for b in built]))
        found = [self.us(b.settings) for b in built]
        return [
            us * 1e-6 if us else Failed(b.settings, "it faults")
            for b, us in zip(built, found, strict=True)
        ]

    def wrong(self, built: Built, default: Built) -> str | None:
        return self.bad(built.settings)


DEFAULT = candidate(128)


def searched(
    bench: FakeBench,
    first: Sequence[Candidate] = (DEFAULT,),
    near: Callable[[Settings], Sequence[Candidate]] = lambda settings: [],
    make: Callable[[Settings], Built | Failed] = built,
    enough: Callable[[], bool] = lambda: False,
) -> Found:
    found = search(
        first,
        Means(
            lambda wanted: [make(DEFAULT.settings if s is None else s) for s in wanted],
            near,
            bench,
            enough,
        ),
    )
    assert isinstance(found, Found), found
    return found


def beside(settings: Settings) -> list[Candidate]:
    """Return the neighbours of a record: half and twice as many threads."""
    threads = int(settings["threads"])
    return [candidate(threads * 2), candidate(threads // 2)]


def test_the_fastest_of_what_is_tried_wins() -> None:
    first = [candidate(128), candidate(64), candidate(256)]
    found = searched(FakeBench(lambda s: 20 - int(s["threads"]) / 32), first)
    assert found.winner.built.settings["threads"] == 256
    assert found.default.built.settings["threads"] == 128
    assert found.winner.seconds < found.next <= found.default.seconds
    assert len(found.trials) == 3


def test_neighbours_are_followed_while_they_are_faster() -> None:
    bench = FakeBench(lambda s: 20 + abs(int(s["threads"]) - 512) / 10)
    assert searched(bench, near=beside).winner.built.settings["threads"] == 512
    assert searched(bench).winner.built.settings["threads"] == 128
    assert searched(bench, near=beside, enough=lambda: True).winner.built.settings["threads"] == 128


def test_what_was_tried_is_not_tried_again() -> None:
    bench = FakeBench(lambda s: 20 + abs(int(s["threads"]) - 512) / 10)
    searched(bench, near=beside)
    tried = [str(s) for repeats, all_ in bench.asked if repeats == FEW for s in all_]
    assert len(tried) == len({*tried})


def test_records_of_one_text_are_measured_once() -> None:
    bench = FakeBench(lambda s: 10.0)
    first = [candidate(128), candidate(64, 2), candidate(64, 4)]
    found = searched(bench, first, make=lambda s: built(s, form=str(s["threads"])))
    assert len(found.trials) == 2


def test_a_record_that_is_hardly_faster_does_not_win() -> None:
    bench = FakeBench(lambda s: 10.0 if s["threads"] == 128 else 9.95)
    assert searched(bench, [DEFAULT, candidate(64)]).winner.built.settings["threads"] == 128


def test_wrong_results_never_win() -> None:
    bench = FakeBench(
        lambda s: float(s["threads"]) / 10, lambda s: "all of it" if s["threads"] == 32 else None
    )
    found = searched(bench, [DEFAULT, candidate(32), candidate(64)])
    assert found.winner.built.settings["threads"] == 64
    assert [f.reason for f in found.failed] == ["wrong results: all of it"]
    assert 32 not in {t.built.settings["threads"] for t in found.trials}
    assert found.next == found.default.seconds
    always = FakeBench(lambda s: float(s["threads"]), lambda s: "wrong")
    assert searched(always, [DEFAULT, candidate(64)]).winner.built.settings["threads"] == 128


def test_what_faults_or_is_not_built_is_left_out() -> None:
    def make(settings: Settings) -> Built | Failed:
        return Failed(settings, "no such") if settings["threads"] == 32 else built(settings)

    bench = FakeBench(lambda s: 0 if s["threads"] == 64 else float(s["threads"]))
    found = searched(bench, [DEFAULT, candidate(32), candidate(64), candidate(96)], make=make)
    assert found.winner.built.settings["threads"] == 96
    assert {f.reason for f in found.failed} == {"no such", "it faults"}


def test_without_a_default_that_runs_there_is_no_winner() -> None:
    bench = FakeBench(lambda s: 0 if s["threads"] == 128 else 5.0)
    means = Means(lambda all_: [built(s or DEFAULT.settings) for s in all_], beside, bench)
    found = search([DEFAULT, candidate(64)], means)
    assert isinstance(found, Failed)
    assert found.reason == "it faults"


# -- candidates


def job_of(batch: int = 64, width: int = 256) -> Job:
    from fusec.ir.text import to_text

    return Job("rows s0 (y)", to_text(rows(batch, width)), "inner_persistent", "sm_90a")


def test_candidates_begin_with_what_is_built_and_are_unlike() -> None:
    job = job_of(4096, 4096)
    found = first_candidates(job, 16)
    default = build_settings(job)
    assert found[0].settings == default
    assert len(found) == len({tuple(c.settings.items()) for c in found}) == 16
    assert {c.settings["storage"] for c in found} >= {"registers", "shared"}
    assert len({c.settings["vector_width"] for c in found}) > 1
    assert len({c.settings["threads_x"] for c in found}) > 3
    lowest = min(c.predicted for c in found)
    assert all(c.predicted <= 2.5 * lowest for c in found)


def build_settings(job: Job) -> Settings:
    (plan,) = program_of(job, None).plans
    parameters: Any = plan.parameters
    return parameters.settings


def test_neighbours_differ_in_one_field() -> None:
    job = job_of(4096, 4096)
    own = build_settings(job)
    found = neighbours(job, own, 16)
    assert found
    for each in found:
        assert sum(each.settings[n] != own[n] for n in own) == 1
    assert len({n for c in found for n in own if c.settings[n] != own[n]}) > 2


def test_what_is_dear_is_left_out() -> None:
    cheap = [Candidate({"n": k}, 1.0) for k in (1, 2, 4)]
    dear = Candidate({"n": 999}, 9.0)
    assert dear not in diverse([*cheap[1:], dear], 8, cheap[:1])


# -- jobs, and processes that build


def test_jobs_are_of_segments_with_a_choice(tmp_path: Path) -> None:
    (job,) = jobs_of(str(EXAMPLES / "layernorm.yaml"), OPTIONS)
    assert job.of == "layernorm s0 (y)"
    assert job.key.sizes.endswith("-> 4096x8192")
    assert (
        jobs_of(str(EXAMPLES / "cross_entropy.yaml"), OPTIONS, ["s1"])[0].scheduler == "reduction"
    )
    with pytest.raises(FusecError, match="no segment s7"):
        jobs_of(str(EXAMPLES / "layernorm.yaml"), OPTIONS, ["s7"])
    own = tmp_path / "own.yaml"
    text = (EXAMPLES / "layernorm.yaml").read_text()
    own.write_text(text + "schedules: {y: {threads_x: 256}}\n")
    assert jobs_of(str(own), OPTIONS) == []


def test_a_job_is_the_segment_that_is_looked_up() -> None:
    from fusec import driver
    from fusec.tuned import key_of

    for name in ("cross_entropy", "rope"):
        path = str(EXAMPLES / f"{name}.yaml")
        (program,) = driver.programs(path, OPTIONS)
        keys = [key_of(s.fusion) for s in program.segmented.segments]
        assert [job.key for job in jobs_of(path, OPTIONS)] == keys


def test_processes_build_what_the_records_say() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    job = job_of()
    wanted = [None, {"threads_x": 64}, {"threads_x": 7}]
    with Kernels(1) as kernels:
        default, other, illegal = kernels.build(job, wanted)
    assert isinstance(default, Built)
    assert isinstance(other, Built)
    assert default.templates == other.templates == ("inner_persistent",)
    assert default.form != other.form
    assert default.settings == build_settings(job)
    assert isinstance(illegal, Failed)
    assert "threads_x is never 7" in illegal.reason


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
    assert "far from what the default plan makes" in str(bench.wrong(far, default))
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


# -- a session


@dataclass
class FakeKernels:
    """Builds nothing, at once."""

    begun: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    def begin(self, job: Job, wanted: Sequence[Settings | None]) -> None:
        self.begun.append(job.of)

    def build(self, job: Job, wanted: Sequence[Settings | None]) -> list[Built | Failed]:
        return [built(build_settings(job) if s is None else s) for s in wanted]

    def forget(self, job: Job) -> None:
        self.forgotten.append(job.of)


def fast_when_wide(settings: Settings) -> float:
    return 100 - int(settings["threads_x"]) / 16


def tools(bench: Any, kernels: Any = None, **more: Any) -> Tools:
    return Tools(kernels or FakeKernels(), bench, FACTS, 8, **more)


def test_an_entry_says_what_was_measured() -> None:
    job = job_of(4096, 4096)
    (outcome,) = tune([job], tools(FakeBench(fast_when_wide)))
    entry = outcome.entry
    assert entry is not None
    assert (entry.structure, entry.sizes) == (job.key.structure, job.key.sizes)
    assert entry.us < entry.default_us
    assert entry.us <= entry.next_us
    assert entry.records == len(outcome.found.trials)  # type: ignore[union-attr]
    assert int(entry.parameters["threads_x"]) > int(build_settings(job)["threads_x"])
    assert (entry.device, entry.driver) == (FACTS.name, FACTS.driver)
    (same,) = tune([job], tools(FakeBench(fast_when_wide)))
    assert same.entry == entry


def test_all_is_begun_before_anything_is_measured_and_time_is_shared() -> None:
    jobs = [replace(job_of(8 << k, 256), of=f"job {k}") for k in range(4)]
    kernels = FakeKernels()
    now = {"at": 0.0}

    class Slow(FakeBench):
        def times(self, built: Sequence[Built], repeats: int) -> list[float | Failed]:
            assert len(kernels.begun) == 4
            now["at"] += 10
            return super().times(built, repeats)

    found = [*tune(jobs, tools(Slow(fast_when_wide), kernels, now=lambda: now["at"]), 55)]
    assert [o.entry is not None for o in found] == [True, True, True, False]
    assert found[-1].reason == "the time is over"
    assert kernels.forgotten == [o.job.of for o in found[:3]]


def test_a_job_that_cannot_run_leaves_the_others() -> None:
    class Refusing(FakeBench):
        def begin(self, job: Job) -> None:
            if job.of == "job 0":
                raise FusecError("out of memory")

    jobs = [replace(job_of(8 << k, 256), of=f"job {k}") for k in range(2)]
    first, second = tune(jobs, tools(Refusing(fast_when_wide)))
    assert (first.entry, first.reason) == (None, "out of memory")
    assert second.entry is not None


# -- commands


def test_without_a_gpu_tuning_is_refused_by_name(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusec.run.device.device_available", lambda: "no CUDA GPU is visible")
    done = fusec(capsys, "tune", EXAMPLES / "layernorm.yaml")
    done.says(4, "tuning measures kernels on a GPU: no CUDA GPU is visible", "without one")


def test_tune_writes_after_each_segment_and_adds_to_what_is_there(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bench(FakeBench):
        def __enter__(self) -> Bench:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def facts(self) -> Facts:
            return FACTS

    class Builder(FakeKernels):
        def __init__(self, processes: int | None = None) -> None:
            super().__init__()

        def __enter__(self) -> Builder:
            return self

        def __exit__(self, *error: object) -> None:
            pass

    path = tmp_path / "deep" / "all.toml"
    before = entry_of(rows(8))
    write(path, [before])
    us = lambda s: 0 if s.get("threads_x") == 1024 else fast_when_wide(s)  # noqa: E731
    monkeypatch.setattr("fusec.run.device.device_available", lambda: None)
    monkeypatch.setattr("fusec.tune.remote.Remote", lambda: Bench(us))
    monkeypatch.setattr("fusec.tune.kernels.Kernels", Builder)
    files = [EXAMPLES / "layernorm.yaml", EXAMPLES / "softmax.yaml", EXAMPLES / "layernorm.yaml"]
    done = fusec(capsys, "tune", *files, "--top", "12", "-o", path)
    assert done.code == 0, done.err
    assert "layernorm s0 (y): " in done.out
    assert f"{path}: 3 schedules\n" in done.out
    entries = store_of(path).entries()
    assert before in entries
    assert {e.of for e in entries} == {"rows y", "layernorm s0 (y)", "softmax s0 (y)"}
    assert all(e.device == FACTS.name for e in entries if e != before)
    monkeypatch.setenv("FUSEC_TUNED", str(tmp_path / "use"))
    write(tmp_path / "use" / "sm_90a.toml", entries)
    done = fusec(capsys, "dump", EXAMPLES / "softmax.yaml", "--scheduler-params")
    assert "s0: inner_persistent, tuned" in done.out


def test_files_are_merged(tmp_path: Path, capsys: Capture) -> None:
    one, two, out = (tmp_path / f"{n}.toml" for n in ("one", "two", "out"))
    slow, fast, other = entry_of(rows(), us=30.0), entry_of(rows()), entry_of(rows(8))
    write(one, [slow, other])
    write(two, [fast])
    done = fusec(capsys, "tune", "--merge", one, two, "-o", out)
    assert done.out == f"{out}: 2 schedules of 3\n"
    assert store_of(out).entries() == merged([fast, other])
    two.write_text(two.read_text().replace("records = 16", "records = many"))
    line = two.read_text().split("records = many")[0].count("\n") + 1
    done = fusec(capsys, "tune", "--merge", one, two, "-o", out)
    done.says(2, "tuned schedules", f"{two}:{line}:")
    assert store_of(out).entries() == merged([fast, other])
    fusec(capsys, "tune", "--merge", one, two).says(2, "--merge writes a file")
    fusec(capsys, "tune", "--merge", tmp_path / "no.toml", "-o", out).says(2, "there is no file")
    write(two, [entry_of(rows(2), templates={"inner_persistent": "old"})])
    done = fusec(capsys, "tune", "--merge", two, "-o", out)
    assert "1 of other templates than fusec has now" in done.out


def test_bad_usage(capsys: Capture) -> None:
    fusec(capsys, "tune").says(2, "no FILES are named")
    fusec(capsys, "tune", "a", "--merge", "--report").says(2, "exclude each other")


# -- what price gets wrong


def test_ranks() -> None:
    assert rank_correlation([(1, 10), (2, 20), (3, 30)]) == 1
    assert rank_correlation([(1, 30), (2, 20), (3, 10)]) == -1
    assert rank_correlation([(1, 10), (1, 20), (1, 30)]) == 0
    assert rank_correlation([(1, 1), (1, 2), (2, 3)]) == pytest.approx(0.8660254)
    assert rank_correlation([]) == 0


def test_the_report_says_what_the_default_loses(tmp_path: Path, capsys: Capture) -> None:
    entries = [entry_of(rows()), entry_of(rows(8), default_us=20.0)]
    lines = [*report(entries)]
    assert lines[1].split()[:5] == ["1.250", "20.00", "0.93", "0.50", "16"]
    assert lines[2].split()[0] == "1.000"
    assert lines[-1].startswith("all: default plan over the best of its measured space 1.118 in")
    assert "1.250 at most" in lines[-1]
    write(tmp_path / "all.toml", entries)
    assert fusec(capsys, "tune", "--report", tmp_path / "all.toml").out.splitlines() == lines
    assert len([*report([])]) == 1


def test_kept_entries_are_rounded_to_nanoseconds() -> None:
    trial = Trial(built(build_settings(job_of())), 12.3456789e-6, 1e-6)
    found = Found(trial, trial, trial.seconds, (trial,), ())
    assert kept_of(job_of(), found, FACTS).us == 12.346


def test_building_fails_by_name() -> None:
    failed = build(job_of(), {"threads": 1})
    assert isinstance(failed, Failed)
    assert "threads" in failed.reason
