"""Commands that measure, on a device in host memory whose kernels do nothing but take time."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from documented import documented
from fake_device import FakeDevice
from paths import ROOT

from benchmarks import measure as measuring
from benchmarks import products
from benchmarks import run as running
from fusec.bench import session as sessions
from fusec.bench import timer
from fusec.cli import run_main
from fusec.diagnostics import InternalError
from fusec.run.device import DeviceFacts

ROW = "silu_mul_1x8192"


class Gpu(FakeDevice):
    """A device on which every call of the driver is known, and each launch takes a microsecond."""

    def __init__(self) -> None:
        """Start the clock."""
        super().__init__({})
        self.now, self.handles = 0.0, count(1)
        self.capturing: int | None = None
        self.graphs: dict[int, float] = {}
        self.facts = DeviceFacts("NVIDIA H200", 90, 132, 50 << 20, 1 << 37, 227 << 10, 4.8e12, "13")
        self.driver.CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)

    def __enter__(self) -> Gpu:
        """Return the device."""
        return self

    def __exit__(self, *error: object) -> None:
        """All memory must have been given back."""
        if error[0] is None:
            assert not self.blocks

    def unload(self, function: Any) -> None:
        """Forget a kernel."""

    def call(self, function: str, *arguments: Any, what: str = "") -> Any:
        """Answer as the driver does."""
        match function:
            case "cuEventCreate":
                return SimpleNamespace(at=0.0)
            case "cuEventRecord":
                arguments[0].at = self.now
            case "cuEventElapsedTime":
                return arguments[1].at - arguments[0].at
            case "cuMemAllocAsync":
                return self.allocate(arguments[0], "arena")
            case "cuMemFreeAsync":
                self.free(arguments[0])
            case "cuMemsetD8Async":
                self.fill(arguments[0], arguments[1], arguments[2])
            case "cuStreamBeginCapture":
                self.capturing, self.before = next(self.handles), self.now
            case "cuStreamEndCapture":
                graph = self.capturing
                assert graph is not None
                self.graphs[graph], self.now = self.now - self.before, self.before
                return graph
            case "cuGraphInstantiate":
                return arguments[0]
            case "cuGraphLaunch":
                self.now += self.graphs[arguments[0]]
            case "cuLaunchKernel" | "cuLaunchKernelEx":
                self.now += 0.001 + 0.001 * (function == "cuLaunchKernelEx")
            case "cuEventSynchronize" | "cuEventDestroy" | "cuStreamSynchronize":
                pass
            case _:
                raise AssertionError(function)
        return None


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    device = Gpu()
    monkeypatch.setattr(timer, "FLUSH_BYTES", 1 << 10)
    monkeypatch.setattr(timer, "WARM_UP", 0.0)
    monkeypatch.setattr(sessions, "Device", lambda: device)
    monkeypatch.setattr(running, "Device", lambda: device)
    monkeypatch.setattr(running, "device_available", lambda: None)
    monkeypatch.setattr("fusec.run.device.device_available", lambda: None)
    here = {
        "build_all": lambda rows, target, jobs: {r.name: running.build_row(r, target) for r in rows}
    }
    monkeypatch.setattr(running, "build_all", here["build_all"])
    return device


def test_a_fusion_is_timed(gpu: Gpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    file = str(ROOT / "examples" / "softmax.yaml")
    given = ["--set", "B=4", "--set", "H=64", "--repeat", "3", "--out", str(out)]
    assert run_main(["bench", file, *given]) == 0
    said = capsys.readouterr().out
    assert said.startswith("workload")
    assert "medians of 3 runs with a cold L2, on NVIDIA H200" in said
    record = json.loads(out.read_text())
    (row,) = record["rows"]
    assert row["ms"] == 0.002
    assert row["limit_ms"] == 0.001
    assert row["share"] == 0.5
    assert row["error"]["norm"] > 0.5  # its kernel did nothing
    assert run_main(["bench", file, *given, "--json"]) == 0
    told = documented(capsys.readouterr().out)["bench"]
    assert told.keys() == record.keys()
    assert told["rows"][0].keys() == row.keys()
    assert record["method"]["flush_bytes"] == 1 << 10


def test_a_suite_is_timed_and_recorded(gpu: Gpu, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    given = ["--suite", "small", "--only", ROW, "--peers", "quack", "--repeat", "3"]
    assert running.main([*given, "--out", str(out)]) == 0
    record = json.loads(out.read_text())
    (row,) = record["rows"]
    assert row["name"] == ROW
    assert row["replay"] == {
        "alone_ms": {"fusec": 0.002}, "producer_ms": 0.001, "behind_ms": {"fusec": 0.002}
    }  # fmt: skip
    assert "quack" in row["missing"]
    assert record["summary"]["share"] == 0.5
    assert record["failed"] == record["not_measured"] == {}
    page = (ROOT / "docs" / "bench.md").read_text(encoding="utf-8")
    assert [k for k in record if f"`{k}`" not in page] == []


def test_products_are_timed_beside_cublas(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "LARGE", ((24, 40, 63),))
    for name in ("SKINNY", "FEW_ROWS"):
        monkeypatch.setattr(products, name, ())
    monkeypatch.setattr(products, "WARM_UP", 0.0)
    out = tmp_path / "out.json"
    given = ["--suite", "products", "--only", "large*", "--repeat", "3", "--seed", "5"]
    assert running.main([*given, "--out", str(out)]) == 0
    record = json.loads(out.read_text())
    assert [r["name"] for r in record["rows"]] == [
        f"large_24x40x63{e}" for e in ("", "_gelu", "_silu_mul")
    ]
    row = record["rows"][0]
    assert row["shape"] == [24, 40, 63]
    assert row["ms"] == 0.002
    assert row["tflops"] == round(2 * 24 * 40 * 63 / 2e-6 / 1e12, 1)
    assert row["segments"][0]["schedule"]["kernel"] == "mma"
    assert set(row["missing"]) == set(products.DEFAULT_PEERS)
    assert record["seed"] == 5
    assert record["summary"] == {}  # without peers there are no ratios


def test_what_is_left_when_the_time_is_over_is_listed(gpu: Gpu, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert (
        running.main(["--suite", "small", "--only", ROW, "--seconds", "0", "--out", str(out)]) == 0
    )
    assert json.loads(out.read_text())["not_measured"] == {ROW: "0 s were over"}


def test_after_a_fault_nothing_is_measured(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: object, **__: object) -> None:
        raise InternalError("the GPU reports CUDA_ERROR_ILLEGAL_ADDRESS")

    monkeypatch.setattr(measuring, "measure", fault)
    out = tmp_path / "out.json"
    given = ["--suite", "small", "--only", "silu_mul_1x*,silu_mul_64x*", "--out", str(out)]
    assert running.main(given) == 1
    record = json.loads(out.read_text())
    assert "ILLEGAL_ADDRESS" in record["failed"][ROW]
    assert record["not_measured"] == {"silu_mul_64x8192": f"{ROW} faulted"}
