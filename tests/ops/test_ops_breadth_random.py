"""Random numbers: known Philox words, the same bits in the device header, moments, keys."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from families import plan_of, run_on_host, text_of
from paths import TESTS

from fusec.diagnostics import FusecError
from fusec.ir import dtype as dtypes
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.ops.numerics import philox
from fusec.parse import read_text
from fusec.reference import sweeps
from fusec.reference.errors.nodes import Model
from fusec.reference.evaluate import evaluate, find_values
from fusec.reference.stream import Stream, estimate
from fusec.run.binary.headers import device_headers

# From the test vectors that come with the generator's paper: counter, key, words.
KNOWN = [
    ((0,) * 4, (0,) * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


STATE = {"rng_seed": np.asarray(3, np.uint64), "rng_offset": np.asarray(70, np.uint64)}


def pack(low: int, high: int) -> int:
    return low | high << 32


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("philox")
    for name, text in device_headers().items():
        (folder / name).write_text(text)
    source = TESTS / "device" / "philox_values.cpp"
    target = folder / "philox.so"
    command = [compiler, "-std=c++17", "-O1", "-w", "-shared", "-fPIC", f"-I{folder}"]
    subprocess.run([*command, str(source), "-o", str(target)], check=True)
    return ctypes.CDLL(str(target))


def fill(function: Any, count: int, *keys: int, out: np.ndarray) -> np.ndarray:
    numbers = [ctypes.c_ulonglong(k) for k in keys]
    function(ctypes.c_longlong(count), *numbers, ctypes.c_void_p(out.ctypes.data))
    return out


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_words(counter: tuple[int, ...], key: tuple[int, int], expected: str) -> None:
    a, b, c, d = counter
    found = philox.words((a, b, c, d), key)
    assert " ".join(f"{int(w):08x}" for w in found) == expected
    (block,) = philox.blocks(pack(*key), pack(c, d), pack(a, b), 1)
    assert " ".join(f"{int(w):08x}" for w in block) == expected


def test_the_device_header_has_the_same_words(device: ctypes.CDLL) -> None:
    for counter, key, _ in KNOWN:
        a, b, c, d = counter
        first = pack(a, b) - 2 if a else 0  # not beyond the last block
        keys = (pack(*key), pack(c, d), first)
        out = fill(device.blocks, 3, *keys, out=np.zeros((3, 4), np.uint32))
        np.testing.assert_array_equal(out, philox.blocks(*keys, 3))


@pytest.mark.parametrize("count", [1, 4, 1001])
def test_the_device_header_has_the_same_numbers(device: ctypes.CDLL, count: int) -> None:
    out = fill(device.numbers, count, 7, 2**40 + 3, out=np.zeros((4, count)))
    key = (7, 2**40 + 3, count)
    np.testing.assert_array_equal(out[0], philox.uniforms(*key, double=False))
    np.testing.assert_array_equal(out[1], philox.uniforms(*key, double=True))
    np.testing.assert_allclose(out[2], philox.normals(*key, double=False), rtol=3e-6, atol=1e-7)
    np.testing.assert_allclose(out[3], philox.normals(*key, double=True), rtol=1e-13, atol=1e-15)


def test_a_vector_has_the_numbers_of_its_elements(device: ctypes.CDLL) -> None:
    key = (9, 2**40 + 3)
    one = fill(device.numbers, 1024, *key, out=np.zeros((4, 1024)))
    many = fill(device.vectors, 1024, *key, out=np.zeros((3, 2, 1024)))
    for found in many:
        np.testing.assert_array_equal(found, one[[0, 2]])


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
def test_kernels_share_the_words_of_a_vector(dtype: str, tmp_path: Path) -> None:
    """Each block of four words is made once, and what is drawn is what elements have alone."""
    key = f"[B, H], 5, {2**40 + 3}, dtype={dtype}"
    fusion = read_text(
        f"fusion: drawn\ndims: {{B: 6, H: 64}}\ninputs: {{x: '{dtype}[B, H]'}}\nops:\n"
        f"  - u = add(x, uniform(0.0, 1.0, {key}))\n"
        f"  - n = add(x, normal(0.0, 1.0, {key}))\noutputs: [u, n]\n"
    )
    run_on_host("pointwise", fusion, tmp_path)
    text = text_of(plan_of("pointwise", fusion))
    assert text.count("random_words<kVec>") == (0 if dtype == "f64" else 2)


@pytest.mark.parametrize("double", [False, True])
def test_moments(double: bool) -> None:
    u = philox.uniforms(1, 2, 400_000, double=double)
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean() - 0.5) < 2e-3
    assert abs(u.var() - 1 / 12) < 1e-3
    z = philox.normals(1, 2, 400_000, double=double)
    assert np.isfinite(z).all()
    assert abs(z.mean()) < 6e-3
    assert abs(z.var() - 1) < 8e-3
    assert abs(np.mean(z**4) - 3) < 0.08
    assert abs(np.mean(z[0::2] * z[1::2])) < 8e-3
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 6e-3


def test_prefixes_agree_whatever_the_count() -> None:
    whole = philox.normals(3, 4, 4 * philox.BLOCKS + 9, double=False)
    for count in (1, 2, 7, 4 * philox.BLOCKS + 1):
        np.testing.assert_array_equal(philox.normals(3, 4, count, double=False), whole[:count])


@pytest.mark.parametrize("double", [False, True])
def test_numbers_may_be_drawn_from_anywhere(double: bool) -> None:
    for draw in (philox.uniforms, philox.normals):
        whole = draw(3, 4, 50, double=double)
        for first, count in ((0, 50), (1, 8), (7, 1), (13, 30), (48, 2), (5, 0)):
            part = draw(3, 4, count, first=first, double=double)
            np.testing.assert_array_equal(part, whole[first : first + count])


@pytest.mark.parametrize("outer", [1, 3])
def test_random_numbers_are_evaluated_in_blocks(
    outer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = GraphBuilder()
    shape = [outer, builder.declare_dim("N", 50), 7]
    x = builder.input("x", dtypes.find("f32"), shape)
    for name in ("uniform", "normal"):
        builder.output(builder.apply("mul", builder.apply(name, 1.0, 2.0, shape), x))
    fusion = builder.finish()
    inputs = {"x": np.ones((outer, 50, 7), np.float32), **STATE}
    whole = estimate(fusion, inputs, fusion.hints)
    monkeypatch.setattr(sweeps, "WHOLE_ELEMENTS", 16)
    monkeypatch.setattr(sweeps, "BLOCK_ELEMENTS", 100)
    stream = Stream(fusion, inputs, fusion.hints, find_values(fusion, None), Model())
    for group in stream.groups:
        assert group.plan.band is not None
        assert {n.op.name for n in group.plan.band.unbound} <= {"uniform", "normal"}
        assert group.plan.step < 50
    blocks = estimate(fusion, inputs, fusion.hints)
    for name, expected in whole.items():
        np.testing.assert_array_equal(blocks[name].value, expected.value)
        np.testing.assert_allclose(blocks[name].sigma, expected.sigma, rtol=1e-12)


def drawn(dtype: str = "f32", **keys: Any) -> tuple[GraphBuilder, Fusion]:
    builder = GraphBuilder()
    n = builder.declare_dim("N", 6)
    shape = [n, 5]
    builder.output(builder.apply("uniform", -1.0, 3.0, shape, dtype=dtypes.find(dtype), **keys))
    builder.output(builder.apply("normal", 2.0, 0.5, shape, dtype=dtypes.find(dtype), **keys))
    return builder, builder.finish()


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16"])
def test_elements_are_keyed_by_their_row_major_position(dtype: str) -> None:
    _, fusion = drawn(dtype, rng_seed=11, rng_offset=5)
    found = evaluate(fusion, {}, fusion.hints)
    kind = dtypes.find(dtype)
    u = philox.uniforms(11, 5, 30, double=dtype == "f64").reshape(6, 5) * 4 - 1
    z = philox.normals(11, 5, 30, double=dtype == "f64").reshape(6, 5) * 0.5 + 2
    for value, want in zip(fusion.outputs, (u, z), strict=True):
        want = want.astype(kind.numpy).astype(np.float64) if kind.is_half else want
        np.testing.assert_allclose(found[value.value.name], want, rtol=1e-15)


def test_calls_without_a_seed_differ_and_follow_the_generator() -> None:
    builder = GraphBuilder()
    x = builder.input("x", dtypes.F32, [64])
    for _ in range(2):
        builder.output(builder.apply("rand_like", x))
    builder.output(builder.apply("randn_like", x))
    fusion = builder.finish()

    def draw(seed: int, offset: int) -> list[Any]:
        state = {"rng_seed": np.uint64(seed), "rng_offset": np.uint64(offset)}
        found = evaluate(fusion, {"x": np.zeros(64), **state}, fusion.hints)
        return [found[o.value.name] for o in fusion.outputs]

    for seed, offset in ((0, 0), (2**64 - 1, 2**64 - 2)):
        a, b, c = draw(seed, offset)
        np.testing.assert_array_equal(a, philox.uniforms(seed, offset, 64, double=False))
        np.testing.assert_array_equal(b, philox.uniforms(seed, offset + 1, 64, double=False))
        np.testing.assert_allclose(
            c, philox.normals(seed, offset + 2, 64, double=False).astype(np.float32)
        )


def test_seeds_may_be_scalar_inputs() -> None:
    builder = GraphBuilder()
    seed = builder.input("seed", dtypes.I64, None, default=3)
    offset = builder.input("offset", dtypes.U64, [])
    builder.output(builder.apply("uniform", 0.0, 1.0, [8], seed, offset), span=None)
    fusion = builder.finish()
    given = {"offset": np.uint64(2**63 + 9)}
    found = evaluate(fusion, given, {**fusion.hints, "seed": 3})[fusion.outputs[0].value.name]
    np.testing.assert_array_equal(found, philox.uniforms(3, 2**63 + 9, 8, double=False))


def test_dropout_keeps_a_share_and_scales() -> None:
    builder = GraphBuilder()
    x = builder.input("x", dtypes.BF16, [1000])
    out, mask = builder.call("dropout", [x, 0.25])
    builder.output(out)
    builder.output(mask)
    fusion = builder.finish()
    given = {"x": np.full(1000, 3.0), **STATE}
    y, kept = evaluate(fusion, given, fusion.hints).values()
    assert 0.2 < 1 - kept.mean() < 0.3
    assert set(y[kept]) == {4.0}
    assert set(y[~kept]) == {0.0}


def test_dropout_of_everything_and_nothing() -> None:
    for p, share in ((1.0, 0), (0.0, 1)):
        builder = GraphBuilder()
        x = builder.input("x", dtypes.F32, [100])
        out, _ = builder.call("dropout", [x, p])
        builder.output(out)
        fusion = builder.finish()
        (y,) = evaluate(fusion, {"x": np.ones(100), **STATE}, fusion.hints).values()
        assert set(y) == {float(share)}


def test_errors_are_those_of_the_arithmetic_only() -> None:
    _, fusion = drawn(rng_seed=1, rng_offset=2)
    for found in estimate(fusion, {}, fusion.hints).values():
        assert not found.exact
        assert 0 < float(found.sigma.max()) < 5e-6


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"rng_seed": 1}, "rng_seed without rng_offset"),
        ({"rng_seed": 1.5, "rng_offset": 0}, "integer scalars"),
        ({"dtype": dtypes.I32}, "random numbers are floats"),
    ],
)
def test_errors(keys: dict[str, Any], message: str) -> None:
    builder = GraphBuilder()
    with pytest.raises(FusecError, match=message):
        builder.apply("uniform", 0.0, 1.0, [4], **keys)
    with pytest.raises(FusecError, match="at least 0"):
        builder.apply("normal", 0.0, 1.0, [-4])
    with pytest.raises(FusecError, match=r"probability 1\.5"):
        builder.call("dropout", [builder.input("x", dtypes.F32, [2]), 1.5])
    with pytest.raises(FusecError, match="random numbers are floats"):
        builder.apply("rand_like", builder.input("y", dtypes.I32, [2]))
