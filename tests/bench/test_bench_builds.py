"""The record of how long rows of suites take to build."""

from __future__ import annotations

from itertools import chain
from typing import Any

from benchmarks import builds, products
from fusec import driver
from fusec.options import CompileOptions


def test_every_stage_of_a_build_is_counted_once() -> None:
    (row,) = builds.rows_of("products", ["few_1x8192x8192_gelu"])
    program = driver.plan(row.fusion, CompileOptions(use_cache=False))
    parts = list(chain.from_iterable(builds.STAGES.values()))
    assert len(set(parts)) == len(parts)
    assert {*program.timings.seconds, "parse", "build"} == set(parts)


def test_a_row_is_read_and_built_anew_each_time() -> None:
    (row,) = builds.rows_of("products", ["few_1x8192x8192_gelu"])
    found = builds.measured("products", row, "sm_90a", 2)
    assert "fusion" not in vars(row)
    assert found["kernels"] == 1
    assert 0 < found["best_ms"] <= found["median_ms"]
    assert all(ms > 0 for ms in found["stages_ms"].values())


def test_rows_over_their_limit_are_named_by_kind() -> None:
    def of(suite: str, name: str, ms: float) -> dict[str, Any]:
        return {
            "suite": suite, "row": name, "median_ms": ms,
            "stages_ms": dict.fromkeys(builds.STAGES, ms),
        }  # fmt: skip

    found = builds.summary([
        of("products", "large_8x8x8_gelu", 299.0), of("products", "large_8x8x16_gelu", 301.0),
        of("products", "large_8x8x8", 250.0), of("attention", "attention_causal_2048", 599.0),
    ])  # fmt: skip
    assert list(found) == ["large_gelu", "large", "attention_causal"]
    assert found["large_gelu"]["exceeding"] == ["large_8x8x16_gelu"]
    assert (found["large_gelu"]["median_ms"], found["large_gelu"]["most_ms"]) == (300.0, 301.0)
    assert not found["attention_causal"]["exceeding"]


def test_products_that_are_drawn_are_not_built() -> None:
    assert not [r for r in builds.rows_of("products") if r.name.startswith("drawn")]
    assert len(builds.rows_of("products")) == len(products.rows([]))
