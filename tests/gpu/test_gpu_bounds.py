"""Large tensors and bad indices on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gpu_check import DRY, options, the_device
from sparse_on_cpu import PERIOD
from test_check_bounds import CASES as INDEXED
from test_check_bounds import fusion_of as indexed
from test_large import CASES, PATTERN, fusion_of

from fusec import driver
from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.run.bound import ZONE, ZONE_BYTE
from fusec.run.execute import Executable
from fusec.run.inputs import choose_sizes, random_inputs

pytestmark = pytest.mark.gpu

RANGE = 4096
"""Elements at each place that is looked at."""
Expected = Callable[[np.ndarray], np.ndarray]


def compiled(fusion: Fusion, *, check_bounds: bool = False) -> driver.Package:
    """Return a fusion compiled for the device."""
    return driver.compile_fusion(fusion, replace(options(), check_bounds=check_bounds))


def executable(built: driver.Package) -> Executable:
    """Return a compiled fusion on the device."""
    cubins = {name: a.cubin for (name, _), a in built.artifacts.items()}
    return Executable(the_device(), built.program.host, cubins)


def repeated(elements: int) -> np.ndarray:
    """Return the pattern repeated to so many bytes."""
    return np.tile(PATTERN, -(-elements // PERIOD))[:elements]


def check_samples(fusion: Fusion, inputs: Mapping[str, Any], expected: Expected) -> None:
    """Run a fusion and compare its output `y` at its ends, around 2^31 and in between."""
    built = compiled(fusion)
    if DRY:
        return
    output = fusion.outputs[0].value
    length = int(np.prod([e.value for e in output.shape]))
    count = min(RANGE, length)
    starts = np.random.default_rng(1).integers(0, length - count, 60, endpoint=True)
    near = [b - count // 2 for b in (2**30, 2**31, 2**32) if b + count < length]
    device = the_device()
    with executable(built).bind(inputs, {}) as bound:
        bound.reset()
        bound.run()
        device.synchronise("running the kernels")
        size, base = output.dtype.size, bound.address["y"]
        for start in (0, length - count, *near, *(int(s) for s in starts)):
            raw = device.download(base + start * size, count * size)
            places = np.arange(start, start + count)
            if len(places) > 64 and start not in (0, length - count, *near):
                raw, places = raw[: 64 * size], places[:64]
            found = raw.view(output.dtype.numpy).astype(np.float64)
            np.testing.assert_array_equal(found, expected(places).astype(np.float64))
        for edge in (base - ZONE, base + length * size):
            assert np.all(device.download(edge, ZONE) == ZONE_BYTE)


@pytest.mark.parametrize(
    "name",
    ["flat", "rows", "padded", "transposed", "transposed, batched", "inner", "outer", "persistent",
     "persistent, columns", "gathered", "sorted"],
)  # fmt: skip
def test_numbers_of_large_tensors(name: str) -> None:
    case = CASES[name]
    fusion = fusion_of(case.inputs, case.ops)
    shape = tuple(e.value for e in fusion.inputs[0].value.shape)
    data = np.zeros(shape, np.uint8) if DRY else repeated(int(np.prod(shape))).reshape(shape)

    def expected(k: np.ndarray) -> np.ndarray:
        at = case.first(k)[:, None] + case.step * np.arange(case.count)
        return case.make(PATTERN[at % PERIOD].astype(np.int64), k)

    check_samples(fusion, {"x": data}, expected)


LENGTH = 2**31 + 11
TOTALS = np.cumsum(PATTERN, dtype=np.int64)


def prefix(k: np.ndarray) -> np.ndarray:
    """Return the sum of the first k + 1 elements of the repeated pattern."""
    return (k + 1) // PERIOD * TOTALS[-1] + np.where(
        (k + 1) % PERIOD, TOTALS[(k + 1) % PERIOD - 1], 0
    )


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ("y = cast(cumsum(x, 0), i32)", lambda k: prefix(k).astype(np.int32)),
        ("y = sum(x, [0], keepdim=true)", lambda k: prefix(k + LENGTH - 1)),
    ],
    ids=["scan", "sum"],
)
def test_one_row_of_more_than_two_to_the_31(ops: str, expected: Expected) -> None:
    data = np.zeros(1, np.uint8) if DRY else repeated(LENGTH)
    check_samples(fusion_of(f"x: u8[{LENGTH}]", ops), {"x": data}, expected)


def test_sums_of_rows_and_columns_together() -> None:
    rows, columns = 2097155, 1032
    fusion = fusion_of(
        f"x: u8[{rows}, {columns}]",
        "s = sum(x, [1], keepdim=true); y = sum(sub(x, s), [0]); z = cast(sub(x, s), i32)",
        "y, z",
    )
    data = np.zeros((1, 1), np.uint8) if DRY else repeated(rows * columns).reshape(rows, columns)
    down = data.sum(0, dtype=np.int64)
    check_samples(fusion, {"x": data}, lambda k: down[k] - down.sum())


def test_a_product_of_more_than_two_to_the_32_elements() -> None:
    generator = np.random.default_rng(4)
    a, b = (generator.integers(-2, 3, s).astype(ml_dtypes.bfloat16) for s in ((65537, 64),) * 2)
    fusion = fusion_of("a: bf16[65537, 64]; b: bf16[65537, 64]", "y = linear(a, b)")
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)

    def expected(k: np.ndarray) -> np.ndarray:
        return np.sum(wide_a[k // 65537] * wide_b[k % 65537], 1)

    check_samples(fusion, {"a": a, "b": b}, expected)


@pytest.mark.parametrize("name", INDEXED)
def test_a_bad_index_is_an_error_and_the_device_goes_on(name: str) -> None:
    declaration, call, extent = INDEXED[name]
    fusion = indexed(declaration, call)
    sizes = choose_sizes(fusion, None)
    inputs = random_inputs(fusion, sizes, 1)
    built = compiled(fusion, check_bounds=True)
    if DRY:
        return
    loaded, index = executable(built), np.array(inputs["i"].array)
    expected = driver.reference(fusion, inputs, sizes)["y"]
    for bad in (extent, -1, 2**31 - 1, None):
        given = index.copy()
        if bad is not None:
            given.reshape(-1)[-1] = bad
        with loaded.bind({**inputs, "i": given}, sizes) as bound:
            bound.reset()
            bound.run()
            if bad is None:
                np.testing.assert_allclose(bound.outputs()["y"], expected, rtol=1e-4, atol=1e-5)
                continue
            with pytest.raises(FusecError, match=rf"index {bad} of `i` is out of bounds") as caught:
                bound.outputs()
            assert caught.value.exit_code == 2
