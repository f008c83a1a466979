"""The benchmark of methods of grid_reduce, on a device whose kernels do nothing but take time."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from test_bench_run import Gpu, gpu

from benchmarks import grid_reduce
from fusec.bench.data import Inputs
from fusec.parse import read_text
from fusec.run.inputs import choose_sizes
from fusec.schedule.grid_methods import REDUCTION_METHODS

__all__ = ["gpu"]
NIGHTLY = pytest.mark.nightly


@pytest.fixture
def small(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Return the device, with shapes that it can hold."""
    shapes = {"rows": ((2, 65536), 1), "columns": ((4096, 32), 0)}
    monkeypatch.setattr(grid_reduce, "SHAPES", shapes)
    monkeypatch.setattr(grid_reduce, "NORM", (2, 1 << 20))
    monkeypatch.setattr(grid_reduce, "device_available", lambda: None)
    monkeypatch.setattr(grid_reduce, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1))
    return gpu


@pytest.mark.parametrize("only", ["columns/moments", pytest.param("*", marks=NIGHTLY)])
def test_every_method_is_timed_beside_the_default(small: Gpu, only: str, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    given = ["--only", only, "--rounds", "3", "--runs", "4", "--out", str(out)]
    assert grid_reduce.main(given) == 1  # the kernel in fp64 did nothing, as all others
    record = json.loads(out.read_text())
    assert {*record["rows"]} == {c.name for c in grid_reduce.cases() if only in ("*", c.name)}
    for name, row in record["rows"].items():
        methods, refused = row["methods"], row["refused"]
        known = {"default", *REDUCTION_METHODS}
        assert known <= {*methods, *refused}
        has_states = name.endswith(("moments", "welford"))
        assert ("serial_tma" in refused) == has_states
        assert all(found["ratio"] == [1.0, 1.0, 1.0] for found in methods.values())
        if "serial" in refused:
            assert refused["serial"] == "the default has no `reduction`, but inner_persistent"
            continue
        assert (methods["serial"]["runs"], methods["serial"]["distinct"]) == (4, 1)
        assert f"{name}, fp64: error 1" in record["wrong"]
        for method, found in methods.items():
            if method in REDUCTION_METHODS:
                assert {s["grid_reduce"] for s in found["schedule"].values()} == {method}


@NIGHTLY
def test_both_layer_norms_are_built(small: Gpu, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    given = ["--build", "--only", "layernorm*", "--out", str(out)]
    assert grid_reduce.main(given) == 0
    rows = json.loads(out.read_text())["rows"]
    assert {len(r["schedules"]["serial"]) for r in rows.values()} == {1, 2}


@pytest.mark.parametrize(("shape", "axis"), [((3, 1 << 19), 1), ((1 << 16, 24), 0)])
def test_the_kernel_in_fp64_is_checked_by_numpy(shape: tuple[int, int], axis: int) -> None:
    """Of inputs that repeat a block which does not end with their rows."""
    case = grid_reduce.Case("sums", "f32", shape, axis, ["y = sum({x}, dims=[{axis}])"], "y")
    fusion = read_text(case.text())
    with Inputs(Gpu(), fusion, choose_sizes(fusion)) as inputs:  # pyright: ignore[reportArgumentType]
        y = inputs.arrays()["x"].array.astype(np.float64).sum(axis)
        assert grid_reduce.sampled_error(case, inputs, {"y": y}) < 1e-12
        assert grid_reduce.sampled_error(case, inputs, {"y": np.roll(y, 1)}) > 0.1


def test_results_that_vary_in_a_fixed_order_are_wrong() -> None:
    found = {"error": 0.0, "order": "fixed", "distinct": 2, "runs": 1000}
    arrives = {**found, "order": "arrival"}
    row = {"methods": {"serial": found, "parallel": arrives, "tree": {**found, "error": 1.0}}}
    assert [line.split(":")[0] for line in grid_reduce.wrong_in("r", row)] == [
        "r, serial", "r, tree", "r, tree",
    ]  # fmt: skip


@pytest.mark.nightly
def test_what_is_left_when_the_time_is_over_is_listed(small: Gpu, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    given = ["--only", "rows/sum", "--seconds", "0", "--out", str(out)]
    assert grid_reduce.main(given) == 0
    assert json.loads(out.read_text())["rows"] == {"rows/sum": {"not_timed": "after 0 s"}}
