"""Loops over streams on a GPU: run, called, captured, timed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpu_check import check_on_gpu
from test_gpu_calls import close, drawn
from test_run_steps import STREAMED, checked

import fusec
from fusec.cli import run_main
from fusec.parse import read_text

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

LARGE = STREAMED.replace("B: 16, H: 32", "B: 4096, H: 512")


@pytest.mark.parametrize("parts", [2, 4, 16])
def test_loops_are_right_again_and_again(parts: int) -> None:
    """With more iterations than streams too; every run gives the same bits."""
    text = LARGE.replace("{0: 4}", f"{{0: {parts}}}")
    check_on_gpu(read_text(text, "streamed.yaml"), repeats=20)


def wanted(x: Any, w: Any) -> tuple[Any, Any]:
    """Return what LARGE is, in fp64."""
    z = 2 * torch.relu(x.double() @ w.double())
    return z, z.sum(1)


def test_calls_on_any_stream() -> None:
    """The caller's stream waits for what the call began, and is waited for."""
    program = fusec.compile(LARGE)
    w, beside = drawn(512, 512, seed=1), torch.cuda.Stream()
    for rows in (4096, 64, 4096):
        x = drawn(rows, 512, seed=rows)
        for stream in (torch.cuda.current_stream(), beside):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                moved = x + 1
                z, s = program(moved, w)
                after = z * 1
            torch.cuda.current_stream().wait_stream(stream)
            for found, right in zip((after, s), wanted(x + 1, w), strict=True):
                close(found, right, 2e-2)


def test_graphs_fork_and_join() -> None:
    """Captured by the program, replayed with other arguments; and captured by the caller."""
    program = fusec.compile(LARGE)
    x, w = drawn(4096, 512), drawn(512, 512, seed=1)
    graph = program.graph(x, w)
    for given in (x, drawn(4096, 512, seed=2), x):
        for found, right in zip(graph(given, w), wanted(given, w), strict=True):
            close(found, right, 2e-2)
    program(x, w)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        z, s = program(x, w)
    for seed in (3, 4):
        x.copy_(drawn(4096, 512, seed=seed))
        captured.replay()
        for found, right in zip((z, s), wanted(x, w), strict=True):
            close(found, right, 2e-2)
        program(drawn(4096, 512, seed=9), w)


def test_a_trace_of_a_run(tmp_path: Path) -> None:
    """Kernels on their streams, as events have timed them."""
    file, trace = tmp_path / "streamed.yaml", tmp_path / "trace.json"
    file.write_text(LARGE)
    assert run_main(["run", str(file), "--trace", str(trace), "--repeat", "3"]) == 0
    slices = checked(trace.read_text())
    assert {s["cat"] for s in slices} == {"kernel"}
    assert {s["tid"] for s in slices} >= {1, 2, 3, 4}
    assert all(s["dur"] > 0 for s in slices)
    assert json.loads(trace.read_text())["traceEvents"]
