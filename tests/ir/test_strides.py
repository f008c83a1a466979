"""Strides that are negative, huge, or reach outside are refused where they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import fusec, small

from fusec.diagnostics import FusecError
from fusec.ir.dim import dim, symbol
from fusec.ir.dtype import F16, F32
from fusec.ops.builder.build import GraphBuilder
from fusec.parse.dsl import DataType, FusionDefinition
from fusec.run.arrays import StridedArray, lay_out
from fusec.run.inputs import bind_sizes, choose_sizes

Capture = pytest.CaptureFixture[str]
STRIDED = np.lib.stride_tricks.as_strided


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusec.run.device.device_available", lambda: "none today")


def with_strides(strides: str) -> str:
    return (
        "fusion: f\ndims: {B: 8, H: 16}\ninputs:\n"
        f"  x:\n    type: f32[B, H]\n    strides: {strides}\nops:\n  - y = exp(x)\noutputs: [y]\n"
    )


@pytest.mark.parametrize(
    ("strides", "message"),
    [
        ("[2000000, -1]", "the stride of dim 1 of `x` is negative: -1"),
        ("[-16, 1]", "the stride of dim 0 of `x` is negative: -16"),
        ("[H - 100, 1]", "the stride of dim 0 of `x` is negative: H - 100 is -84"),
        ("[9223372036854775807, 1]", "`x` is too large: it spans "),
        ("[H, 9223372036854775807]", "`x` is too large: it spans "),
        ("[H * 100000000000000000, 1]", "`x` is too large: it spans "),
        ("[99999999999999999999, 1]", "does not fit in 64 bits"),
        ("[-99999999999999999999, 1]", "does not fit in 64 bits"),
    ],
)
@pytest.mark.parametrize("command", ["check", "compile", "run", "dump", "explain", "golden"])
def test_in_a_file(
    command: str, strides: str, message: str, tmp_path: Path, capsys: Capture
) -> None:
    path = small(tmp_path, with_strides(strides))
    done = fusec(capsys, command, path)
    done.says(2, message, f"--> {path}:6:")
    assert [p.name for p in tmp_path.iterdir()] == ["small.yaml"]


def test_what_is_allowed(tmp_path: Path, capsys: Capture) -> None:
    """Elements may lie on one another, and far apart."""
    for strides in ("[1, 1]", "[0, 1]", "[0, 0]", "[1, B]", "[H + 3, 1]", "[20000, 7]"):
        path = small(tmp_path, with_strides(strides))
        assert fusec(capsys, "run", path, "--device", "reference").code == 0


def test_at_other_sizes(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path, with_strides("[H - 10, 1]"))
    assert fusec(capsys, "check", path).code == 0
    message = "the stride of dim 0 of `x` is negative: H - 10 is -6"
    fusec(capsys, "check", path, "--set", "H=4").says(2, message)
    np.savez(tmp_path / "in.npz", x=np.zeros((8, 4), np.float32))
    fusec(capsys, "run", path, "--inputs", tmp_path / "in.npz").says(2, message)
    assert fusec(capsys, "compile", path, "-o", tmp_path / "out").code == 0
    fusec(capsys, "run", tmp_path / "out", "--inputs", tmp_path / "in.npz").says(2, message)


def test_planned_strides(tmp_path: Path, capsys: Capture) -> None:
    text = with_strides("[1, 1]").replace("strides: [1, 1]", "contiguity: [false, true]")
    path = small(tmp_path, text)
    for size, message in ((-5, "is negative: x.stride0 is -5"), (2**62, "it spans")):
        fusec(capsys, "check", path, "--set", f"x.stride0={size}").says(2, message, ":4:3")
        own = small(tmp_path, text.replace("H: 16", f"H: 16, x.stride0: {size}"), "own.yaml")
        fusec(capsys, "check", own).says(2, message, ":4:3")


def declared(**options: Any) -> FusionDefinition:
    with FusionDefinition("f") as fd:
        x = fd.define_tensor(shape=[8, 16], dtype=DataType.Float, name="x", **options)
        fd.add_output(fd.ops.exp(x))
    return fd


@pytest.mark.parametrize(
    ("strides", "message"),
    [
        ([2000000, -1], "the stride of dim 1 of `x` is negative: -1"),
        ([2**62, 1], "span more than any memory"),
        ([2**200, 1], "span more than any memory"),
    ],
)
def test_in_a_script(strides: list[int], message: str) -> None:
    with pytest.raises(FusecError, match=message) as caught:
        declared(strides=strides)
    assert caught.value.diagnostic.span is not None


@pytest.mark.parametrize("order", [[-1, 0], [0, 2], [1, 1], [2**70, 0]])
def test_stride_orders_in_a_script(order: list[int]) -> None:
    with pytest.raises(FusecError, match="is not an order of 2 dims"):
        declared(contiguity=True, stride_order=order)


def test_hints_in_a_script() -> None:
    fd = declared(contiguity=[False, True])
    fd.set_hint("x.stride0", -5)
    with pytest.raises(FusecError, match=r"is negative: x\.stride0 is -5"):
        fd.fusion()
    fd = declared(contiguity=True)
    fd.set_hint("x.stride7", 5)
    with pytest.raises(FusecError, match=r"has no dim or stride `x\.stride7`"):
        fd.fusion()


def test_sizes_of_scalars_that_there_are_none_of() -> None:
    with FusionDefinition("f") as fd:
        x = fd.define_tensor(shape=[fd.size_of("n"), 4], contiguity=True)
        fd.add_output(fd.ops.exp(x))
    with pytest.raises(FusecError, match="has no scalar input `n`") as caught:
        fd.fusion()
    assert caught.value.exit_code == 2


NUMBERS = np.arange(48, dtype=np.float32).reshape(6, 8)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (NUMBERS[::-1], "the stride of dim 0 of an input array is -32 bytes"),
        (NUMBERS[:, ::-1], "the stride of dim 1 of an input array is -4 bytes"),
        (STRIDED(NUMBERS, (6, 8), (4_000_000, 4)), "more than the 192 bytes of its base"),
        (STRIDED(NUMBERS, (6, 9), (32, 4)), "spans 196 bytes, more than the 192"),
        (STRIDED(NUMBERS[4:], (3, 8), (32, 4)), "more than the 192 bytes"),
        (STRIDED(np.frombuffer(bytes(192), "f4"), (2, 40), (128, 4)), "more than the 192 bytes"),
    ],
)
def test_arrays(array: np.ndarray, message: str) -> None:
    with FusionDefinition("f") as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=[False, False])
        fd.add_output(fd.ops.exp(x))
    with pytest.raises(FusecError, match=message):
        fd.execute([array])


@pytest.mark.parametrize(
    "array",
    [
        NUMBERS[1::2, 2::3], NUMBERS.T, NUMBERS[:, :0], NUMBERS[5:], NUMBERS[::-1][:1],
        np.broadcast_to(NUMBERS[0], (6, 8)), np.asfortranarray(NUMBERS)[:, 1:],
        np.frombuffer(bytes(192), "f4").reshape(6, 8),
        np.zeros((6, 8), [("a", "i1"), ("b", "f4")])["b"],
        STRIDED(NUMBERS, (41, 8), (4, 4)),
    ],
    ids=range(10),
)  # fmt: skip
def test_views_of_arrays(array: np.ndarray) -> None:
    with FusionDefinition("f") as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=[False, False])
        fd.add_output(fd.ops.exp(x))
    (found,) = fd.execute([array])
    np.testing.assert_allclose(found, np.exp(array), rtol=1e-6)


def test_arrays_in_place() -> None:
    with FusionDefinition("f") as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=[False, False])
        fd.add_output(fd.ops.add(x, 1.0), x)
    held = NUMBERS.copy()
    fd.execute([held[::2, ::2]])
    expected = NUMBERS.copy()
    expected[::2, ::2] += 1
    np.testing.assert_array_equal(held, expected)


def test_memory_is_never_left() -> None:
    """What lies between declarations and memory checks once more."""
    for strides in ((8, -1), (9, 1), (8, 2)):
        with pytest.raises(FusecError, match="exceed a buffer of 48 elements"):
            _ = StridedArray(NUMBERS.reshape(-1), (6, 8), strides).array
    with pytest.raises(FusecError, match="exceed a buffer of 40 elements"):
        _ = StridedArray(NUMBERS.reshape(-1), (6, 8), (8, 1), 8).array
    with pytest.raises(FusecError, match="exceed a buffer"):
        lay_out(NUMBERS, (-8, 1))
    assert lay_out(NUMBERS, (9, 1)).array.tolist() == NUMBERS.tolist()


def test_sizes_are_bound_with_strides() -> None:
    builder = GraphBuilder("f")
    n = builder.declare_dim("N", 16)
    x = builder.input("x", F32, [n, dim(4)], strides=[n - 8, dim(1)])
    builder.output(builder.apply("exp", x))
    fusion = builder.finish()
    assert choose_sizes(fusion)["N"] == 16
    with pytest.raises(FusecError, match="is negative: N - 8 is -4"):
        choose_sizes(fusion, {"N": 4})
    with pytest.raises(FusecError, match="is negative: N - 8 is -4"):
        bind_sizes(fusion, {"x": np.zeros((4, 4), np.float32)})


def test_as_large_as_it_gets() -> None:
    builder = GraphBuilder("f")
    builder.input("x", F16, [dim(2)], strides=[dim(2**62 - 2)])
    with pytest.raises(FusecError, match="spans 9223372036854775808 bytes"):
        builder.input("y", F16, [dim(2)], strides=[dim(2**62 - 1)])
    assert symbol("N").symbols == {"N"}
