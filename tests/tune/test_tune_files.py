"""The commands of `fusec tune`: what they write, merge and report."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_tools import EXAMPLES, fusec
from documented import documented
from test_tune import (
    FACTS,
    FakeBench,
    FakeKernels,
    build_settings,
    built,
    fast_when_wide,
    job_of,
)
from test_tuned import entry_of, rows

from fusec.tune.job import Failed, build
from fusec.tune.remote import Facts
from fusec.tune.report import rank_correlation, report_lines
from fusec.tune.search import Found, Trial
from fusec.tune.session import entry_of as kept_of
from fusec.tuned.store import merged, store_of, write

Capture = pytest.CaptureFixture[str]


# -- commands


def test_without_a_gpu_tuning_is_refused_by_name(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusec.run.device.device_available", lambda: "no CUDA GPU is visible")
    done = fusec(capsys, "tune", EXAMPLES / "layernorm.yaml")
    done.says(4, "tuning measures kernels on a GPU: no CUDA GPU is visible", "without a GPU")


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
    done = fusec(capsys, "tune", *files[:1], "--top", "12", "-o", tmp_path / "j.toml", "--json")
    told = documented(done.out)
    assert [t["entry"] for t in told["tuned"]] == [
        {k: v for k, v in s.items() if k != "current"} for s in told["schedules"]
    ]
    assert told["tuned"][0]["left_out"] == []
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
    fusec(capsys, "tune", "--merge", tmp_path / "no.toml", "-o", out).says(2, "no such file")
    write(two, [entry_of(rows(2), templates={"inner_persistent": "old"})])
    done = fusec(capsys, "tune", "--merge", two, "-o", out)
    assert "1 with outdated templates" in done.out


def test_bad_usage(capsys: Capture) -> None:
    fusec(capsys, "tune").says(2, "no FILES given")
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
    lines = [*report_lines(entries)]
    assert lines[1].split()[:5] == ["1.250", "20.00", "0.93", "0.50", "16"]
    assert lines[2].split()[0] == "1.000"
    assert lines[-1].startswith("all: default plan vs. the fastest measured: 1.118 geom")
    assert "1.250 maximum" in lines[-1]
    write(tmp_path / "all.toml", entries)
    assert fusec(capsys, "tune", "--report", tmp_path / "all.toml").out.splitlines() == lines
    assert len([*report_lines([])]) == 1
    told = documented(fusec(capsys, "tune", "--report", tmp_path / "all.toml", "--json").out)
    assert [p["segments"] for p in told["predictions"]] == [2, 2]
    assert told["predictions"][-1]["most"] == 1.25
    assert [s["us"] for s in told["schedules"]] == [e.us for e in merged(entries)]


def test_kept_entries_are_rounded_to_nanoseconds() -> None:
    trial = Trial(built(build_settings(job_of())), 12.3456789e-6, 1e-6)
    found = Found(trial, trial, trial.seconds, (trial,), ())
    assert kept_of(job_of(), found, FACTS).us == 12.346


def test_building_fails_by_name() -> None:
    failed = build(job_of(), {"threads": 1})
    assert isinstance(failed, Failed)
    assert "threads" in failed.reason
