"""`run --html` and `bench --html`: the page of a fusion, with measured times beside predicted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cli_tools import EXAMPLES, Result, fusec, small
from played_gpu import play_gpu
from safetensors.numpy import save_file

from fusec.bench import bound, data, session
from fusec.bench.figures import Figures
from fusec.bench.streaming import Limit
from fusec.bench.timer import Times
from fusec.options import CompileOptions
from fusec.run.measure import KernelTime, Timing

Capture = pytest.CaptureFixture[str]
TWO = """\
fusion: two
inputs: {x: "f32[64, 32]"}
ops:
  - y = exp(x)
  - z = neg(y)
outputs: [y, z]
segments: {first: [y], second: [z]}
"""


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusec.run.device.device_available", lambda: "none today")


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return play_gpu(monkeypatch)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "page.html"


def run(capsys: Capture, path: Path, *options: object) -> Result:
    return fusec(capsys, "run", path, "--target", "sm_90a", *options)


def measured(page: Path) -> list[str]:
    """Return the measured times that a page has: of fusions, then of segments."""
    text = page.read_text(encoding="utf-8")
    whole = re.findall(r"<dt>measured</dt><dd>(.*?) <small>(?=median)", text)
    assert ("filled: measured, outlined: predicted" in text) == bool(whole)
    assert ('aria-label="measured time of each segment' in text) <= bool(whole)
    return whole + re.findall(r"<dt>measured</dt><dd>([\d.]+ us), predicted [\d.]+ us \(", text)


def test_a_run_shows_measured_times(
    tmp_path: Path, page: Path, capsys: Capture, on_gpu: Any
) -> None:
    done = run(capsys, small(tmp_path, TWO), "--html", page, "--repeat", 7)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == f"{page}: two"
    assert measured(page) == ["3 us", "2 us", "2 us"]
    text = page.read_text(encoding="utf-8")
    assert "median of 7 runs with a cold L2, on a played GPU" in text
    assert "registers/thread" in text
    (row,) = re.findall(r"<tr data-stands=\"f0-s0\">.*?</tr>", text)
    assert re.search(r'<td class="n">[\d.]+ us</td><td class="n">2 us</td>', row)


@pytest.mark.nightly
def test_each_phase_is_on_the_page(page: Path, capsys: Capture, on_gpu: Any) -> None:
    joint = EXAMPLES / "joint" / "norm_dropout_residual.yaml"
    assert run(capsys, joint, "--set", "B=16", "--html", page, "--no-verify").code == 0
    assert measured(page)[:2] == ["3 us", "3 us"]
    assert page.read_text(encoding="utf-8").count("<article") == 2


@pytest.mark.parametrize("options", [(), ("--device", "reference")])
def test_a_run_without_a_gpu_predicts(
    options: tuple[str, ...], tmp_path: Path, page: Path, capsys: Capture
) -> None:
    done = run(capsys, small(tmp_path), "--html", page, *options)
    assert done.code == 0
    assert f"{page}: small\n" in done.out
    assert "<dt>predicted</dt>" in page.read_text(encoding="utf-8")
    assert measured(page) == []


def test_times_at_other_sizes_are_left_out(
    tmp_path: Path, page: Path, capsys: Capture, on_gpu: Any
) -> None:
    folder, inputs = tmp_path / "small.fusec", tmp_path / "inputs.safetensors"
    assert fusec(capsys, "compile", small(tmp_path), "-o", folder).code == 0
    arrays = {"x": np.ones((5, 16), ml_dtypes.bfloat16), "w": np.ones(16, np.float32)}
    save_file(arrays, str(inputs))
    assert run(capsys, folder, "--inputs", inputs, "--html", page).code == 0
    assert measured(page) == []
    assert run(capsys, folder, "--html", page).code == 0
    assert measured(page) == ["3 us", "2 us"]
    refused = run(capsys, folder, "--html", page, "--device", "reference")
    refused.says(2, "--html of a compiled folder")


@pytest.mark.parametrize(
    ("name", "said"), [("", "--html is empty"), ("no/folder.html", "cannot be written there")]
)
def test_a_page_that_cannot_be_written_is_an_error_before_the_run(
    name: str, said: str, tmp_path: Path, capsys: Capture, on_gpu: Any
) -> None:
    run(capsys, small(tmp_path), "--html", name).says(2, said)
    assert not on_gpu["runs"]


def test_a_page_of_several_ranks_is_refused(page: Path, capsys: Capture) -> None:
    file = EXAMPLES / "parallel" / "tensor_parallel_mlp.yaml"
    run(capsys, file, "--ranks", 2, "--html", page).says(3, "--html of a run on several ranks")


class Session:
    """A session whose device is played: a fusion takes 8 us, the limit 6 us."""

    def __init__(self, jobs: int | None = None) -> None:
        """Have options and a device with a name."""
        facts = SimpleNamespace(text=lambda: "a played GPU")
        self.options, self.device = CompileOptions(), SimpleNamespace(facts=facts)

    def __enter__(self) -> Session:
        """Return the session."""
        return self

    def __exit__(self, *error: object) -> None:
        """Have nothing to give back."""

    def figures(self, work: Any, bound: Any, repeats: int) -> Figures:
        """Return the made up times."""
        return Figures(work, 1, Limit(6e-6, "256x4"), (Times("fusec", (8e-6,) * repeats, 1e-6),))


class Played:
    """Inputs or bound work that nothing is done with."""

    def __init__(self, *given: Any) -> None:
        """Keep the work."""
        self.work = given[1]

    def __enter__(self) -> Played:
        """Return it."""
        return self

    def __exit__(self, *error: object) -> None:
        """Have nothing to give back."""

    def fill(self) -> None:
        """Have nothing to fill."""


def test_a_benchmark_shows_measured_times_and_the_limit(
    tmp_path: Path, page: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def times(bound: Any, repeats: int) -> Timing:
        kernels = [KernelTime(k.kernel, k.segment, 3e-6) for k in bound.work.host.launches]
        return Timing(9e-6, tuple(kernels), repeats)

    monkeypatch.setattr("fusec.run.device.device_available", lambda: None)
    monkeypatch.setattr(session, "Session", Session)
    monkeypatch.setattr(session, "launch_times", times)
    monkeypatch.setattr(data, "Inputs", Played)
    monkeypatch.setattr(bound, "BoundWork", Played)
    bench = ("bench", "--no-verify", "--repeat", 5, "--html", page)
    done = fusec(capsys, *bench, small(tmp_path, TWO), "--json")
    assert done.code == 0
    assert json.loads(done.out)["bench"]["rows"][0]["ms"] == 0.008
    assert measured(page) == ["8 us", "3 us", "3 us"]
    text = page.read_text(encoding="utf-8")
    assert "<dt>limit</dt><dd>6 us <small>for kernels that only move the compulsory traffic" in text
    assert "median of 5 runs with a cold L2, on a played GPU" in text
    # One launch is the whole run.
    assert fusec(capsys, *bench, small(tmp_path)).code == 0
    assert measured(page) == ["8 us", "8 us"]
    refused = fusec(capsys, *bench, "--counters", small(tmp_path))
    refused.says(2, "--html shows times, --counters measures none")
