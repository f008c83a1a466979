"""The share of a limit: of compulsory traffic, in explanations, tables of runs and records."""

from __future__ import annotations

import json
from typing import Any

import pytest
from paths import ROOT

import fusec
from benchmarks.examples import EXAMPLES, figures_of
from fusec import driver, lowering
from fusec.explain.text import explanation
from fusec.files import with_sizes
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.run.device import DeviceFacts
from fusec.segment.roofline import Rates, Roofline, tensor_flops
from fusec.target import find

RESULTS = ROOT / "benchmarks" / "results"
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
    assert FACTS.rates == Rates(h200.read_bandwidth, h200.half_flops)  # measured on this GPU
    assert 4.25e12 == h200.bandwidth < h200.read_bandwidth < 4.8e12  # copies, reads, the data sheet
    other = DeviceFacts("NVIDIA X", 90, 132, 0, 0, 0, 2e12, "CUDA 13.0")
    assert other.rates == Rates(pytest.approx(1.8e12), 0.0)  # pyright: ignore[reportArgumentType]
    unknown = DeviceFacts("NVIDIA Y", 70, 80, 0, 0, 0, 1e12, "CUDA 13.0")
    assert unknown.target is None


def read_again() -> Fusion:
    """Return a softmax whose rows are read from memory in each of three phases."""
    text = (EXAMPLES / "softmax.yaml").read_text()
    fusion = read_text(f"{text}\nschedules:\n  y: {{storage: none, online: false}}\n")
    return with_sizes(fusion, {"B": 1024, "H": 131072})


def test_what_a_plan_reads_twice_counts_once() -> None:
    fusion = read_again()
    options = CompileOptions()
    segmented = lowering.segment(lowering.optimise(fusion, options), options)
    figures = figures_of(segmented, 0.26674e-3, FACTS.rates)
    assert figures == {
        "moved": 4 * 1024 * 131072 * 2, "bytes": 2 * 1024 * 131072 * 2,
        "gb_per_s": 2013, "share": 0.438, "tensor_share": 0.0,
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
        ("a: 'bf16[5, 7]', b: 'bf16[7, 11]'", "matmul(cast(a, f32), cast(b, f32))", 5 * 7 * 11),
        (
            "a: 'bf16[5, 7]', b: 'bf16[11, 7]'",
            "matmul(cast(a, f32), permute(cast(b, f32), [1, 0]))",
            5 * 7 * 11,
        ),
        ("a: 'bf16[5, 7]', b: 'bf16[7, 11]'", "matmul(exp(cast(a, f32)), cast(b, f32))", 0),
        ("a: 'i32[5, 7]', b: 'bf16[7, 11]'", "matmul(cast(a, f32), cast(b, f32))", 0),
    ],
)
def test_products_are_counted_where_tensor_cores_can_do_them(
    inputs: str, line: str, products: int
) -> None:
    fusion = read_text(f"fusion: f\ninputs: {{{inputs}}}\nops:\n  - y = {line}\noutputs: [y]\n")
    assert tensor_flops(fusion) == 2 * products


PRODUCT = """
fusion: product
dims: {M: %d, N: 4096, K: 4096}
inputs: {x: "bf16[M, K]", w: "bf16[N, K]"}
ops:
  - narrow = segment_set(cast(exp(cast(w, f32)), bf16))
  - y = linear(x, narrow)
outputs: [y]
"""


@pytest.mark.parametrize("rows", [64, 4096])
def test_what_binds_takes_longest_of_the_times_beside_it(rows: int) -> None:
    """What the segment before it has left in L2 is part of the time, and decides here."""
    for segment in fusec.segmentation(read_text(PRODUCT % rows)).segments:
        assert segment.bound == max(segment.time, key=lambda name: segment.time[name])


def test_the_share_is_of_the_fewest_bytes() -> None:
    """Rows that are read twice: what that moves counts for nothing."""
    record = fusec.segmentation(read_again())
    (segment,) = record.segments
    fewest = 2 * 1024 * 131072 * 2
    assert segment.bytes > fewest == segment.floor_bytes == record.floor_bytes
    expected = fewest / (find("sm_90a").read_bandwidth * record.seconds)
    assert segment.share == record.share == pytest.approx(expected)
    text = explanation(record)
    assert text.count(f"{100 * expected:.0f} % of peak bandwidth (compulsory traffic)") == 2
    assert "live registers" not in " ".join(text.split())


def test_the_bandwidth_is_not_said_to_be_reached_where_tensor_cores_bind() -> None:
    record = fusec.segmentation(read_text(PRODUCT % 8192))
    product = record.segments[1]
    assert product.bound == "tensor_cores"
    operations, rate = 2 * 8192 * 4096 * 4096, find("sm_90a").half_flops
    assert product.tensor_share == pytest.approx(operations / (rate * product.seconds))
    assert record.segments[0].tensor_share == 0
    assert record.tensor_share == pytest.approx(operations / (rate * record.seconds))
    told = " ".join(explanation(record).split("\ns1 matmul\n")[1].split("Not fused")[0].split())
    assert f"{100 * product.tensor_share:.0f} % of peak tensor-core throughput" in told
    assert "of peak bandwidth" not in told
