"""What calls promise holds with arrays on a GPU and on the CPU alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from called import GpuArray, framework, on_gpu

import fusec
from fusec import FusecError
from fusec.call.arrays import View
from fusec.call.program import Program

ROWS = """
fusion: rows
dims: {B: 4, H: 64}
inputs: {x: "f32[B, H]"}
ops:
  - y = exp(x)
  - s = sum(x, [1])
outputs: [y, s]
"""
VIEWS = """
fusion: views
dims: {B: 4, H: 64}
inputs: {x: "f32[B, H]", z: "f32[B, H]"}
ops:
  - t = permute(x, [1, 0])
  - y = exp(x)
  - z2 = add(z, x)
outputs:
  - t
  - y: {stride_order: [0, 1]}
  - z2: {alias: z}
"""


class Capsule:
    """An array that speaks DLPack alone."""

    def __init__(self, array: np.ndarray) -> None:
        """Hold it."""
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


@dataclass
class Place:
    """Where the arrays of a test lie."""

    compile: Callable[..., Program]
    put: Callable[[np.ndarray], Any]

    def read(self, array: Any) -> np.ndarray:
        """Return an array's elements."""
        return array.array if isinstance(array, GpuArray) else array


@pytest.fixture(params=["gpu", "cpu"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Place:
    """Return a compile, and what puts arrays where it runs."""
    if request.param == "cpu":
        return Place(lambda text, **o: fusec.compile(text, target="sm_90a", **o), np.copy)
    framework(monkeypatch, tmp_path)
    return Place(lambda text, **o: fusec.compile(text, target="sm_90a", **o), on_gpu)


def x_of(h: int = 64) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((4, h), np.float32)


def test_out_is_written_and_returned(place: Place) -> None:
    program, x = place.compile(ROWS), x_of()
    y, s = place.put(np.zeros((4, 64), np.float32)), place.put(np.zeros(4, np.float32))
    found = program(place.put(x), out=(y, s))
    assert found[0] is y
    assert found[1] is s
    np.testing.assert_allclose(place.read(y), np.exp(x), rtol=1e-5)
    np.testing.assert_allclose(place.read(s), x.sum(1), rtol=1e-4)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(4, 64)], "out: got 1 arrays, expected one for each output with its own memory: y, s"),
        ([(3, 3), (4,)], r"out: `y` is f32\[3, 3\] with strides .*, expected f32\[4, 64\]"),
        ([(4, 64), (4, 1)], r"out: `s` is f32\[4, 1\] .*, expected f32\[4\]"),
    ],
)
def test_an_out_that_does_not_fit_is_named(
    shapes: list[tuple[int, ...]], message: str, place: Place
) -> None:
    program = place.compile(ROWS)
    out = [place.put(np.zeros(shape, np.float32)) for shape in shapes]
    with pytest.raises(FusecError, match=message):
        program(place.put(x_of()), out=out)


def test_an_out_that_is_no_array_or_shares_memory_is_named(place: Place) -> None:
    program, x = place.compile(ROWS), place.put(x_of())
    s = place.put(np.zeros(4, np.float32))
    with pytest.raises(FusecError, match="out: `y` is a str, expected an array"):
        program(x, out=("nonsense", s))
    with pytest.raises(FusecError, match="out: `y` shares memory with argument `x`"):
        program(x, out=(x, s))


def test_without_building_other_sizes_are_an_error(place: Place) -> None:
    program = place.compile(ROWS, build=False)
    np.testing.assert_allclose(place.read(program(place.put(x_of()))[0]), np.exp(x_of()), rtol=1e-5)
    with pytest.raises(
        FusecError, match=r"not compiled for B = 4, H = 96\n.*dynamic: B; specialized: H = 64"
    ):
        program(place.put(x_of(96)))


def test_views_of_inputs_aliases_and_layouts(place: Place) -> None:
    program = place.compile(VIEWS)
    x, z = x_of(), np.ones((4, 64), np.float32)
    given, into = place.put(x), place.put(z)
    t, y, z2 = program(given, into)
    assert z2 is into
    np.testing.assert_allclose(place.read(into), x + 1, rtol=1e-6)
    np.testing.assert_allclose(place.read(y), np.exp(x), rtol=1e-5)
    assert place.read(y).strides == (4, 16)
    np.testing.assert_array_equal(place.read(t), x.T)
    assert np.shares_memory(place.read(t), place.read(given))  # no copy
    out = place.put(np.zeros((64, 4), np.float32))
    transposed = GpuArray(out.array.T) if isinstance(out, GpuArray) else out.T
    assert program(given, into, out=transposed)[1] is transposed
    np.testing.assert_allclose(place.read(transposed), np.exp(x), rtol=1e-5)


def test_an_output_in_an_order_of_its_own_is_no_view(place: Place) -> None:
    program = place.compile(VIEWS.replace("  - t\n", "  - t: {stride_order: [1, 0]}\n"))
    x, z = place.put(x_of()), place.put(np.ones((4, 64), np.float32))
    t, *_ = program(x, z)
    np.testing.assert_array_equal(place.read(t), x_of().T)
    assert not np.shares_memory(place.read(t), place.read(x))
    assert place.read(t).strides == (16, 4)


def test_what_is_written_shares_no_memory(place: Place) -> None:
    program, x = place.compile(VIEWS), place.put(x_of())
    with pytest.raises(FusecError, match="`z` is written in place and shares memory with `x`"):
        program(x, x)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i64", "bool"])
def test_arrays_that_speak_dlpack_alone(dtype: str) -> None:
    import ml_dtypes

    text = (
        f"fusion: f\ninputs: {{x: '{dtype}[3, 4]'}}\nops:\n  - y = permute(x, [1, 0])\noutputs: [y]"
    )
    program = fusec.compile(text, target="sm_90a")
    kinds = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "i64": np.int64, "bool": np.bool_}
    x = np.arange(12).reshape(3, 4).astype(kinds[dtype])
    if dtype == "bf16":  # NumPy has no such type to offer
        with pytest.raises(FusecError, match="argument `x` is a Capsule that cannot be read"):
            program(Capsule(x))
        return
    np.testing.assert_array_equal(program(Capsule(x)), x.T)


def test_what_breaks_while_it_is_read_is_named() -> None:
    class Broken(Capsule):
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("it is lazy")

    program = fusec.compile(ROWS, target="sm_90a")
    with pytest.raises(
        FusecError, match="argument `x` is a Broken that cannot be read: it is lazy"
    ):
        program(Broken(x_of()))


class CpuTensor(GpuArray):
    """A tensor of a framework whose tensors may lie on the CPU, too."""


CpuTensor.__module__ = "called"


def test_tensors_on_the_cpu_of_frameworks_with_gpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, known = framework(monkeypatch, tmp_path)
    view, empty = known.view, known.empty

    def on_cpu(array: Any) -> View:
        seen = view(array)
        return View(seen.address, seen.shape, seen.strides, seen.dtype, None)

    monkeypatch.setattr(known, "view", on_cpu)
    monkeypatch.setattr(
        known, "empty", lambda shape, strides, dtype, *_: empty(shape, strides, dtype, 0, 0)
    )
    monkeypatch.setattr("fusec.call.host.device_available", lambda: "no GPU")
    y, s = fusec.compile(ROWS, target="sm_90a")(on_gpu(x_of()))
    assert type(y) is type(s) is GpuArray
    np.testing.assert_allclose(y.array, np.exp(x_of()), rtol=1e-5)


def test_a_stream_is_of_a_gpu() -> None:
    program = fusec.compile(ROWS, target="sm_90a")
    with pytest.raises(
        FusecError, match="`stream` is a GPU stream, and the arguments are on the CPU"
    ):
        program(x_of(), stream=7)


def _field() -> np.ndarray:
    records = np.zeros(4, np.dtype([("flag", "i1"), ("row", "f4", (64,))]))
    return records["row"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda x: x[:, ::-1], r"`x` has strides \[64, -1\]: it goes backwards in memory"),
        (lambda x: _field(), r"`x`: strides of \[257, 4\] bytes, not multiples of 4"),
        (np.ma.masked_array, "`x`: it is a masked array"),
        (lambda x: x.astype(x.dtype.newbyteorder()), "`x`: .* has another byte order"),
    ],
)
def test_arrays_that_cannot_be_read_as_they_lie_are_named(
    given: Callable[[np.ndarray], Any], message: str
) -> None:
    with pytest.raises(FusecError, match=message):
        fusec.compile(ROWS)(given(x_of()))
