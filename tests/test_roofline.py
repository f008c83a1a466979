"""The share of a limit: of the fewest bytes, in explanations, in the table of a run, in records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.examples import EXAMPLES, figures_of
from fusec import driver
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.run.device import DeviceFacts
from fusec.segment.roofline import Rates, Roofline, tensor_flops
from fusec.target import find

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
RECORDED: list[dict[str, Any]] = json.loads((RESULTS / "examples.json").read_text())["workloads"]
FACTS = DeviceFacts("NVIDIA H200", 90, 132, 60 << 20, 141 << 30, 227 << 10, 4.8e12, "CUDA 13.0")


def test_shares_are_of_what_the_limits_do_in_that_time() -> None:
    least = Roofline(4_250_000_000, 790_000_000_000)
    rates = Rates(4.25e12, 7.9e14)
    assert least.share(2e-3, rates) == pytest.approx(0.5)
    assert least.tensor_share(2e-3, rates) == pytest.approx(0.5)
    assert least.tensor_share(2e-3, Rates(4.25e12)) == 0
    assert least.share(0.0, rates) == least.tensor_share(0.0, rates) == 0


def test_the_limits_of_a_device() -> None:
    h200 = find("sm_90a")
    assert FACTS.rates == Rates(h200.bandwidth, h200.half_flops)  # measured on this GPU
    assert FACTS.bandwidth == 4.25e12
    other = DeviceFacts("NVIDIA X", 90, 132, 0, 0, 0, 2e12, "CUDA 13.0")
    assert other.rates == Rates(pytest.approx(1.8e12), 0.0)  # pyright: ignore[reportArgumentType]
    unknown = DeviceFacts("NVIDIA Y", 70, 80, 0, 0, 0, 1e12, "CUDA 13.0")
    assert unknown.target is None


def test_what_a_plan_reads_twice_counts_once() -> None:
    fusion = driver.load(str(EXAMPLES / "softmax.yaml"), {"B": 1024, "H": 131072})
    options = CompileOptions()
    segmented = driver.segment(driver.optimise(fusion, options), options)
    figures = figures_of(segmented, 0.26674e-3, FACTS.rates)
    assert figures == {
        "moved": 4 * 1024 * 131072 * 2, "bytes": 2 * 1024 * 131072 * 2,
        "gb_per_s": 2013, "share": 0.474, "tensor_share": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize("row", RECORDED, ids=lambda r: r["name"])
def test_recorded_shares_are_of_the_fewest_bytes(row: dict[str, Any]) -> None:
    fusion = driver.load(str(EXAMPLES / f"{row['name']}.yaml"), row["sizes"])
    inputs = sum(_bytes(i.value, fusion.hints) for i in fusion.inputs if all(i.strides))
    outputs = sum(_bytes(o.value, fusion.hints) for o in fusion.outputs)
    assert row["bytes"] <= inputs + outputs
    least = Roofline(row["bytes"], tensor_flops(fusion))
    assert row["share"] == pytest.approx(least.share(row["ms"] / 1e3, FACTS.rates), abs=2e-3)
    tensor = least.tensor_share(row["ms"] / 1e3, FACTS.rates)
    assert row["tensor_share"] == pytest.approx(tensor, abs=2e-3)


def _bytes(value: Any, sizes: Any) -> int:
    count = 1
    for extent in value.shape:
        count *= extent.evaluate(sizes)
    return 0 if value.is_scalar else count * value.dtype.size


@pytest.mark.parametrize(
    ("inputs", "line", "products"),
    [
        ("a: 'bf16[3, 5, 7]', b: 'bf16[7, 11]'", "matmul(a, b)", 3 * 5 * 7 * 11),
        ("a: 'f16[5, 7]', b: 'f16[7]'", "matmul(a, b)", 5 * 7),
        ("a: 'bf16[5, 7]', b: 'bf16[11, 7]'", "linear(a, b)", 5 * 7 * 11),
        ("a: 'bf16[5, 7]', b: 'bf16[7, 11]', c: 'i32[4]'", "grouped_mm(a, b, c)", 5 * 7 * 11),
        ("a: 'f32[5, 7]', b: 'f32[7, 11]'", "matmul(a, b)", 0),
    ],
)
def test_products_are_counted_where_tensor_cores_can_do_them(
    inputs: str, line: str, products: int
) -> None:
    fusion = read_text(f"fusion: f\ninputs: {{{inputs}}}\nops:\n  - y = {line}\noutputs: [y]\n")
    assert tensor_flops(fusion) == 2 * products
