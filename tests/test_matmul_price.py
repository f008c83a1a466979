"""The predicted time of products: near what was measured, and what is chosen by it."""

from __future__ import annotations

import pytest

from fusec import driver, target
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.schedule.matmul import Matmul
from fusec.segment.protocol import Refusal

HOPPER = target.find("sm_90a")
SPLIT = {"kernel": "split_k", "tile_m": 128, "tile_n": 128, "stages": 4}
# M, N, K, the schedule that was timed, and milliseconds (H200, cold L2, median of 25).
MEASURED = [
    (4096, 4096, 4096, {"kernel": "wgmma", "tile_n": 256}, 0.2160),
    (2048, 2048, 2048, {"kernel": "wgmma", "tile_n": 256}, 0.0290),
    (128, 4096, 16384, {**SPLIT, "cluster": 2, "splits": 2, "split_method": "serial_tma"}, 0.0535),
    (64, 8192, 8192, {**SPLIT, "cluster": 2, "splits": 1}, 0.0614),
    (256, 256, 65536, {**SPLIT, "cluster": 8, "splits": 3, "split_method": "serial_tma"}, 0.0399),
    (768, 768, 131072, {**SPLIT, "cluster": 1, "splits": 7, "split_method": "serial_tma"}, 0.3357),
]


def product(m: int, n: int, k: int, epilogue: str = "") -> Fusion:
    """Return a product, and what follows it."""
    last = f"  - y = {epilogue}\n" if epilogue else ""
    return read_text(
        f"fusion: product\ninputs:\n  a: bf16[{m}, {k}]\n  b: bf16[{k}, {n}]\n"
        f"  bias: bf16[{n}]\n  r: bf16[{m}, {n}]\nops:\n  - p = matmul(a, b)\n{last}"
        f"outputs: [{'y' if epilogue else 'p'}]\n"
    )


@pytest.mark.parametrize(("m", "n", "k", "schedule", "measured"), MEASURED)
def test_the_price_is_near_what_was_measured(
    m: int, n: int, k: int, schedule: dict[str, str | int], measured: float
) -> None:
    offer = Matmul().offer(product(m, n, k), HOPPER, schedule)
    assert not isinstance(offer, Refusal), offer
    assert offer[1].seconds(HOPPER) * 1e3 == pytest.approx(measured, rel=0.08)


@pytest.mark.parametrize(("m", "rows"), [(16, 16), (64, 64), (256, 128)])
def test_few_rows_swap_operands(m: int, rows: int) -> None:
    plan = Matmul().build(product(m, 8192, 8192), HOPPER)
    assert plan.parameters.tile_m == rows
    assert plan.parameters.swapped == (rows < 128)


@pytest.mark.parametrize(
    ("m", "n", "k", "kinds"),
    [(4096, 4096, 4096, ["matmul", "pointwise"]), (64, 8192, 8192, ["matmul"])],
)
def test_a_residual_is_read_where_it_delays_no_tile(
    m: int, n: int, k: int, kinds: list[str]
) -> None:
    options = CompileOptions(targets=("sm_90a",), targets_given=True, jobs=1)
    planned = driver.plan(product(m, n, k, "mul(silu(add(p, bias)), r)"), options)
    assert [s.scheduler for s in planned.segmented.segments] == kinds
    planned = driver.plan(product(m, n, k, "relu(add(p, bias))"), options)
    assert [s.scheduler for s in planned.segmented.segments] == ["matmul"]
