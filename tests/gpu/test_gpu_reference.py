"""The reference on a GPU through CuPy: NumPy's values but for last bits, the same verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_order import marked_early
from test_examples_verify import EXAMPLES, example
from test_reference_arrays import dense

from fusec.ir import arrays
from fusec.ir.arrays import computed_by
from fusec.ir.dtype import DType
from fusec.ir.evaluate import round_to
from fusec.ir.graph import Fusion
from fusec.ops import TABLE
from fusec.pages.operations import example_file
from fusec.parse import read_text
from fusec.reference import sweeps
from fusec.reference.errors.estimate import ulp
from fusec.reference.stream import estimate, outputs_of
from fusec.reference.verdict import NOT_DECIDED, compare
from fusec.run.inputs import choose_sizes
from tools.draw import draw_fusion

pytestmark = pytest.mark.gpu

RELATIVE = 1e-11
"""How far results may be off that add up doubles in another order, relative to the largest."""
FLIPPED = 0.002
"""Share of elements of a half type that may be next to another boundary, or one element."""
NEAR = 0.05
"""How far what a verdict says of errors may be off, relative to it."""


@pytest.fixture(scope="module")
def cupy() -> Any:
    """Return CuPy on the GPU."""
    module = pytest.importorskip("cupy")
    if not module.cuda.is_available():
        pytest.skip("CuPy finds no GPU")
    return module


def check_values(name: str, dtype: DType, expected: np.ndarray, found: np.ndarray) -> None:
    """Compare values as the reference holds them."""
    assert found.dtype == expected.dtype, name
    assert found.shape == expected.shape, name
    if not dtype.is_rounded:
        assert np.array_equal(found, expected), name
        return
    assert np.array_equal(np.isnan(found), np.isnan(expected)), name
    with np.errstate(all="ignore"):
        off = np.where(found == expected, 0.0, np.abs(found - expected))
    off = np.where(np.isnan(found), 0.0, off)
    finite = np.abs(expected[np.isfinite(expected)])
    limit = RELATIVE * np.max(finite, initial=0.0)
    beyond = off > limit
    if dtype.is_half and beyond.any():
        assert np.count_nonzero(beyond) <= max(1, FLIPPED * beyond.size), name
        step = ulp(round_to(expected[beyond], dtype), dtype)
        assert np.all(off[beyond] <= 2 * step + limit), name
        return
    assert not beyond.any(), (name, float(np.max(off)), float(limit))


@pytest.mark.parametrize("name", [marked_early(n, {"sdpfa_fwd"}) for n in TABLE])
def test_operations(cupy: Any, name: str) -> None:
    fusion = read_text(example_file(TABLE[name]))
    check(cupy, fusion, dict(fusion.hints), 0)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples(cupy: Any, path: Path) -> None:
    fusion, sizes, inputs, outputs = example(path)
    check_verdict(cupy, fusion, sizes, inputs, outputs)


@pytest.mark.parametrize("number", range(60))
def test_random_fusions(cupy: Any, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other one in blocks."""
    if number % 2:
        monkeypatch.setattr(sweeps, "WHOLE_ELEMENTS", 256)
        for name in ("BLOCK_ELEMENTS", "PRODUCT_ELEMENTS", "GPU_ELEMENTS"):
            monkeypatch.setattr(sweeps, name, 4096)
    fusion = draw_fusion(11, number)
    check(cupy, fusion, choose_sizes(fusion), number)


def check(cupy: Any, fusion: Fusion, sizes: dict[str, int], seed: int) -> None:
    """Compare the values of the outputs, and the verdicts on NumPy's."""
    inputs = dense(fusion, sizes, seed)
    expected = estimate(fusion, inputs, sizes)
    with computed_by(cupy):
        found = estimate(fusion, inputs, sizes)
    for output in fusion.outputs:
        value = output.value
        check_values(value.name, value.dtype, expected[value.name].value, found[value.name].value)
    check_verdict(cupy, fusion, sizes, inputs, outputs_of(fusion, inputs, sizes))


def check_verdict(
    cupy: Any, fusion: Fusion, sizes: dict[str, int], inputs: dict[str, Any], outputs: Any
) -> None:
    """Compare verdicts: the same words and counts, nearly the same errors."""
    expected = compare(fusion, sizes, inputs, outputs)
    with computed_by(cupy):
        found = compare(fusion, sizes, inputs, outputs)
    for a, b in zip(expected.outputs, found.outputs, strict=True):
        assert (a.name, a.checked, a.unwritten) == (b.name, b.checked, b.unwritten)
        assert a.word == b.word, (a.text(), b.text())
        if a.word != NOT_DECIDED:
            assert b.power == pytest.approx(a.power, rel=NEAR), (a.text(), b.text())


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("ufunc", [np.add, np.multiply])
def test_sums_in_order(cupy: Any, ufunc: Any, kind: Any) -> None:
    """To the bit, for one row and for many: the kernel of `arrays.running`."""
    rng = np.random.default_rng(3)
    for shape in ((1, 5000, 1), (3, 700, 5), (2, 33, 4096), (4, 1, 3), (0, 3, 2)):
        x = rng.normal(1, 0.01, shape).astype(kind)
        expected = ufunc.accumulate(x, axis=1)
        with computed_by(cupy):
            found = arrays.host(arrays.running(ufunc, cupy.asarray(x), 1))
            last = arrays.host(arrays.in_a_row(ufunc, cupy.asarray(x), 1)) if x.size else None
        if kind == np.complex64 and ufunc is np.multiply:
            assert np.allclose(found, expected, rtol=1e-4)  # a product may be fused with a sum
            continue
        assert found.tobytes() == expected.tobytes()
        if last is not None:
            assert last.tobytes() == np.ascontiguousarray(expected[:, -1]).tobytes()


def test_rounding(cupy: Any) -> None:
    """To the bit: additions of integers."""
    from fusec.ir import dtype as dtypes

    rng = np.random.default_rng(0)
    x = rng.normal(size=100_000) * 2.0 ** rng.integers(-30, 20, 100_000)
    x = np.concatenate([x, rng.integers(0, 2**64, 100_000, dtype=np.uint64).view(np.float64)])
    for dtype in (dtypes.F8E4M3, dtypes.F8E5M2, dtypes.F16, dtypes.BF16, dtypes.F32):
        expected = round_to(x, dtype)
        with computed_by(cupy):
            found = arrays.host(round_to(cupy.asarray(x), dtype))
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
        assert same.all(), (dtype, x[~same][:5], found[~same][:5], expected[~same][:5])
