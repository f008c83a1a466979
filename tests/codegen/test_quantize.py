"""Scaling to fp8 and back: of tensors, rows, columns and blocks; casts at the ends of types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulated import emulated
from gpu_check import check_on_gpu
from nightly import mostly_nightly

from fusec import driver
from fusec.ir.dtype import BF16, F8E4M3, F8E5M2, F32, DType
from fusec.ir.graph import Fusion, Operand
from fusec.ops.builder.build import GraphBuilder
from fusec.options import CompileOptions
from fusec.reference.verdict import compare
from fusec.run.arrays import StridedArray
from fusec.run.execute import Executable
from fusec.run.inputs import choose_sizes, random_inputs

LARGEST = {F8E4M3: 448.0, F8E5M2: 57344.0}
BLOCKS = {
    "tensor": (32, 256), "rows": (1, 256), "columns": (32, 1), "1 x 128": (1, 128),
    "16 x 128": (16, 128),
}  # fmt: skip


def pieces(builder: GraphBuilder, x: Operand, block: tuple[int, int]) -> Operand:
    """Return a matrix as [row blocks, rows of one, column blocks, columns of one]."""
    (rows, columns), (high, wide) = (e.value for e in x.shape), block
    return builder.apply("reshape", x, new_shape=[rows // high, high, columns // wide, wide])


def quantize(block: tuple[int, int], target: DType, source: DType = BF16) -> Fusion:
    builder = GraphBuilder("quantize")
    x = builder.input("x", source, [32, 256])
    wide = pieces(builder, builder.apply("cast", x, dtype=F32), block)
    most = builder.apply("max", builder.apply("abs", wide), dims=[1, 3], keepdim=True)
    scale = builder.apply("div", builder.apply("maximum", most, 1e-12), LARGEST[target])
    small = builder.apply("cast", builder.apply("div", wide, scale), dtype=target)
    builder.output(builder.apply("reshape", small, new_shape=[32, 256]))
    builder.output(builder.apply("squeeze", scale, dims=[1, 3]))
    return builder.finish()


def dequantize(block: tuple[int, int], source: DType) -> Fusion:
    builder = GraphBuilder("dequantize")
    q = builder.input("q", source, [32, 256])
    scale = builder.input("scale", F32, [32 // block[0], 256 // block[1]])
    wide = pieces(builder, builder.apply("cast", q, dtype=F32), block)
    factor = builder.apply("broadcast", scale, is_broadcast_dim=[False, True, False, True])
    product = builder.apply("mul", wide, factor)
    flat = builder.apply("reshape", product, new_shape=[32, 256])
    builder.output(builder.apply("cast", flat, dtype=BF16))
    return builder.finish()


def casts(target: DType) -> Fusion:
    builder = GraphBuilder("saturate")
    x = builder.input("x", F32, [64])
    builder.output(builder.apply("cast", x, dtype=target))
    return builder.finish()


def run(fusion: Fusion, folder: Path, **given: StridedArray) -> dict[str, np.ndarray]:
    """Run a fusion's kernels for sm_80 on the host, and compare."""
    compiled = driver.compile_fusion(
        fusion, CompileOptions(targets=("sm_80",), targets_given=True, jobs=1)
    )
    sizes = choose_sizes(fusion, None)
    inputs = {**random_inputs(fusion, sizes, 0), **given}
    device: Any = emulated(compiled.program, folder)
    cubins = {name: b"" for name, _ in compiled.artifacts}
    with Executable(device, compiled.program.host, cubins).bind(inputs, sizes) as bound:
        bound.reset()
        bound.run()
        outputs = {name: array.copy() for name, array in bound.outputs().items()}
    verdict = compare(fusion, sizes, inputs, outputs)
    assert verdict.ok, verdict.text()
    return outputs


@pytest.mark.parametrize("target", LARGEST, ids=str)
@pytest.mark.parametrize("name", mostly_nightly(BLOCKS, 2))
def test_quantize(name: str, target: DType, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    x = (rng.standard_normal((32, 256)) * 2.0 ** rng.integers(-9, 9, (32, 1))).astype(BF16.numpy)
    x[5] = 0
    given = StridedArray(x.reshape(-1), x.shape, (256, 1))
    small, scale = run(quantize(BLOCKS[name], target), tmp_path, x=given).values()
    high, wide = BLOCKS[name]
    assert scale.shape == (32 // high, 256 // wide)
    spread = np.repeat(np.repeat(scale, high, 0), wide, 1).astype(np.float64)
    back = small.astype(np.float64) * spread
    # Half a step of the format, relative to the value or to the smallest normal one.
    exact = x.astype(np.float64)
    step = np.maximum(np.abs(exact), spread * float(ml_dtypes.finfo(target.numpy).smallest_normal))
    assert np.all(np.abs(back - exact) <= 1.01 * target.epsilon * step)
    assert np.abs(small.astype(np.float64)).max() == LARGEST[target]


@pytest.mark.parametrize("source", LARGEST, ids=str)
@pytest.mark.parametrize("name", BLOCKS)
def test_dequantize(name: str, source: DType, tmp_path: Path) -> None:
    run(dequantize(BLOCKS[name], source), tmp_path)


EDGES = {
    F8E4M3: [0.0, 448.0, 449.0, 464.0, 480.0, 1e30, 2.0**-9, 2.0**-10, 3 * 2.0**-11, 17.0, 19.0],
    F8E5M2: [0.0, 57344.0, 6e4, 61440.0, 1e30, 2.0**-16, 2.0**-17, 3 * 2.0**-18, 9.0, 11.0, 1.125],
}
CAST = {
    F8E4M3: [0, 448, 448, 448, 448, 448, 2.0**-9, 0, 2.0**-9, 16, 20],
    F8E5M2: [0, 57344, 57344, np.inf, np.inf, 2.0**-16, 0, 2.0**-16, 8, 12, 1],
}
INFINITY = {F8E4M3: 448, F8E5M2: np.inf}


@pytest.mark.parametrize("target", LARGEST, ids=str)
def test_casts_round_to_even_and_overflow_as_in_pytorch(target: DType, tmp_path: Path) -> None:
    values = np.zeros(64, np.float32)
    edges = np.asarray(EDGES[target], np.float32)
    values[: edges.size], values[16 : 16 + edges.size] = edges, -edges
    values[40:43] = [np.inf, -np.inf, np.nan]
    given = StridedArray(values, (64,), (1,))
    (found,) = run(casts(target), tmp_path, x=given).values()
    found = found.astype(np.float64)
    assert found[: edges.size].tolist() == CAST[target]
    assert (-found[16 : 16 + edges.size]).tolist() == CAST[target]
    assert found[40:42].tolist() == [INFINITY[target], -INFINITY[target]]
    assert np.isnan(found[42])


@pytest.mark.gpu
@pytest.mark.parametrize("target", LARGEST, ids=str)
@pytest.mark.parametrize("name", BLOCKS)
def test_on_a_gpu(name: str, target: DType) -> None:
    check_on_gpu(quantize(BLOCKS[name], target))
    check_on_gpu(quantize(BLOCKS[name], target, F32))
    check_on_gpu(dequantize(BLOCKS[name], target))


@pytest.mark.gpu
@pytest.mark.parametrize("target", LARGEST, ids=str)
def test_casts_on_a_gpu(target: DType) -> None:
    values = np.linspace(-1.2, 1.2, 64, dtype=np.float32) * np.float32(LARGEST[target])
    values[:3] = [np.inf, -np.inf, np.nan]
    check_on_gpu(casts(target), inputs={"x": StridedArray(values, (64,), (1,))})
