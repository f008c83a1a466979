"""`fusec tune`: which records are tried, which wins, what becomes of faults; without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from cli_tools import EXAMPLES
from test_tuned import rows

from fusec.diagnostics import FusecError
from fusec.options import CompileOptions
from fusec.tune.candidates import Candidate, diverse, first_candidates, neighbours
from fusec.tune.job import Built, Failed, Job, Settings, jobs_of, program_of
from fusec.tune.kernels import Kernels
from fusec.tune.remote import Facts
from fusec.tune.search import FEW, Found, Means, search
from fusec.tune.session import Tools, tune

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
    assert "threads_x cannot be 7" in illegal.reason


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
    assert found[-1].reason == "the time budget is used up"
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
