"""Programs that are called: on arrays of a framework and a GPU that lie in host memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from called import CallDevice, Framework, GpuArray, framework, on_gpu

import fusec
from fusec import FusecError
from fusec.call import program as module
from fusec.call.program import Program

NORM = """
fusion: norm
dims:
  B: 4
  H: 64
inputs:
  x: f32[B, H]
  w: f32[H]
  eps: f32 = 1e-5
ops:
  - m = mean(mul(x, x), dims=[1], keepdim=true)
  - y = mul(mul(x, rsqrt(add(m, eps))), w)
outputs: [y]
"""

Call = tuple[Callable[..., Program], CallDevice, Framework]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Return a compile that builds for the device, the device, and the framework."""
    device, known = framework(monkeypatch, tmp_path)
    return lambda text, **o: fusec.compile(text, target="sm_90a", **o), device, known


def rows(b: int, h: int, seed: int = 0) -> tuple[Any, Any]:
    """Return random inputs of the norm."""
    draw = np.random.default_rng(seed)
    return (draw.standard_normal((b, h), np.float32), draw.standard_normal(h, np.float32))


def norm(x: Any, w: Any, eps: float = 1e-5) -> Any:
    """Return what the norm is, in fp64."""
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(1, keepdims=True) + eps) * w


EQUAL = """
fusion: equal
dims: {B: 12, N: 9, H: 64}
inputs: {x: "f32[B, H]", z: "f32[N, H]"}
ops:
  - first = softmax(x, 1)
  - second = softmax(z, 1)
segments: {s0: [first], s1: [second]}
outputs: [first, second]
"""


@pytest.mark.parametrize("loaded", [False, True])
def test_launches_of_one_kernel_are_ranges_of_segments(
    loaded: bool, calls: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nvtx is loaded; else nothing looks for it, and launches are issued as they are."""
    ranges: list[str] = []
    nvtx: Any = ModuleType("nvtx")
    nvtx.__spec__ = ModuleSpec("nvtx", None)
    nvtx.push_range, nvtx.pop_range = ranges.append, lambda: ranges.append("end")
    if loaded:
        monkeypatch.setitem(sys.modules, "nvtx", nvtx)
    else:
        monkeypatch.delitem(sys.modules, "nvtx", raising=False)
        monkeypatch.setattr("fusec.run.trace._nvtx", None)
    compile, device, _ = calls
    program = compile(EQUAL)
    x, z = rows(12, 64)[0], rows(9, 64)[0]
    first, second = program(on_gpu(x), on_gpu(z))
    for given, found in ((x, first), (z, second)):
        powers = np.exp(given.astype(np.float64))
        np.testing.assert_allclose(found.array, powers / powers.sum(1, keepdims=True), rtol=1e-5)
    assert device.asked.count("load") == 1
    assert ranges == (["s0", "end", "s1", "end"] if loaded else [])


def test_a_call_gives_what_the_fusion_says(calls: Call) -> None:
    """The output is of the caller's kind, and right."""
    compile, device, known = calls
    program = compile(NORM)
    x, w = rows(4, 64)
    y = program(on_gpu(x), on_gpu(w))
    assert type(y) is GpuArray
    np.testing.assert_allclose(y.array, norm(x, w), rtol=1e-5)
    np.testing.assert_allclose(program(on_gpu(x), on_gpu(w), 0.5).array, norm(x, w, 0.5), rtol=1e-5)
    np.testing.assert_allclose(
        program(w=on_gpu(w), x=on_gpu(x), eps=2.0).array, norm(x, w, 2.0), rtol=1e-5
    )
    assert known.allocated == 3
    assert device.asked.count("load") == 1


def test_other_rows_take_the_same_build(calls: Call) -> None:
    """B is any: nothing is built or loaded for another; H is another build, said once."""
    compile, device, _ = calls
    program = compile(NORM)
    for b in (4, 1, 9, 4, 1):
        x, w = rows(b, 64, b)
        np.testing.assert_allclose(program(on_gpu(x), on_gpu(w)).array, norm(x, w), rtol=1e-5)
    assert device.asked.count("load") == 1


def test_uncovered_sizes_build_once_or_are_refused(
    calls: Call, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that no build covers builds and says so; with build=False it is an error."""
    compile, device, _ = calls
    program = compile(NORM)
    x, w = rows(4, 128)
    for _ in range(2):
        np.testing.assert_allclose(program(on_gpu(x), on_gpu(w)).array, norm(x, w), rtol=1e-5)
    assert capsys.readouterr().err.count("` for B = 4, H = 128") == 1
    assert len(program.variants) == 2
    fixed = compile(NORM, build=False)
    launches = device.asked.count("cuLaunchKernelEx")
    with pytest.raises(FusecError, match=r"not compiled for B = 4, H = 128"):
        fixed(on_gpu(x), on_gpu(w))
    assert device.asked.count("cuLaunchKernelEx") == launches
    assert "H = 64" in program.plan(B=77)
    program.variants[-1].captured = True
    monkeypatch.setattr(module, "MOST_VARIANTS", 1)
    x, w = rows(4, 32)
    np.testing.assert_allclose(program(on_gpu(x), on_gpu(w)).array, norm(x, w), rtol=1e-5)
    assert [v.covers.split()[5] for v in program.variants] == ["32", "64"]
    assert device.asked.count("unload") == 1
    assert "not compiled for these shapes" in fixed.plan(H=8)


def test_calls_of_a_loop_on_streams(calls: Call) -> None:
    """Whose build covers other rows; streams and events are made once."""
    compile, device, _ = calls
    loop = NORM.replace("outputs: [y]", "outputs:\n  - y: {stream: {0: 4}}").replace("B: 4", "B: 8")
    program, made = compile(loop), ("cuStreamCreate", "cuEventCreate", "load")
    counts: list[list[int]] = []
    for b in (8, 16, 8):
        x, w = rows(b, 64, b)
        np.testing.assert_allclose(program(on_gpu(x), on_gpu(w)).array, norm(x, w), rtol=1e-5)
        counts.append([device.asked.count(name) for name in made])
    assert counts[0] == counts[1] == counts[2]
    assert counts[0][0] == 4
    assert device.asked.count("cuStreamWaitEvent") == 3 * 8
    assert device.asked.count("cuLaunchKernelEx") == 3 * 5  # the mean is of all rows


def test_arrays_of_numpy_also_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    """Where there is none the reference answers, which is said; in place is in place."""
    program = fusec.compile(NORM)
    x, w = rows(4, 64)
    np.testing.assert_allclose(program(x, w), norm(x, w), rtol=1e-5)
    np.testing.assert_allclose(program(x, w, eps=2.0), norm(x, w, 2.0), rtol=1e-5)
    add = fusec.compile(NORM.replace("outputs: [y]", "outputs:\n  - y: {alias: x}"))
    wanted = norm(x, w)
    assert add(x, w) is x
    np.testing.assert_allclose(x, wanted, rtol=1e-5)
    with pytest.raises(FusecError, match=r"`w` is f32\[4, 64\], expected f32\[H\]"):
        program(x, x)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (3, {}, "compile\\(\\) takes a path, text"),
        ("missing.yaml", {}, "missing.yaml"),
        (NORM, {"sizes": {"K": 3}}, "no dim `K`"),
        (NORM, {"part": "forward"}, "unknown fusion `forward`"),
        (NORM, {"target": "sm_1"}, "sm_1"),
    ],
)
def test_wrong_sources_are_named(source: Any, options: dict[str, Any], message: str) -> None:
    """What cannot be compiled is told before anything is called."""
    with pytest.raises(FusecError, match=message):
        fusec.compile(source, **options)


def test_what_is_no_compiled_folder_is_refused(tmp_path: Path) -> None:
    """An empty folder, and a damaged one."""
    with pytest.raises(FusecError, match="manifest"):
        fusec.load(tmp_path)
