"""Split products whose clusters leave halves: what they compute, what is expected, who may."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cuda_on_cpu import run_plan
from nightly import mostly_nightly
from test_hopper_on_cpu import dies, model_of, plan_of, product, wrong

from fusec import driver, target
from fusec.codegen.dispatch import plan_sources
from fusec.diagnostics import Unsupported
from fusec.explain.record import explain
from fusec.explain.text import explanation
from fusec.ir.annotations import Override
from fusec.ir.dtype import BF16, F16, F32, DType
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.reference.errors.order import LEAST, Order, Stage, performed, roundings
from fusec.reference.verdict import compare
from fusec.run.arrays import StridedArray, dense_strides
from fusec.run.inputs import random_inputs
from fusec.schedule.matmul.choice import MatmulParameters
from fusec.schedule.matmul.cost.estimate import hand_off_seconds
from fusec.schedule.matmul.family import Matmul
from fusec.schedule.plan import KernelPlan

HOPPER = target.find("sm_90a")
SHAPE = {"tile_m": 128, "tile_n": 64, "cluster_k": 1, "splits": 9, "stages": 2}
METHODS = ("two_pass", "slices", "serial_tma")
HALVED = {"kernel": "split_k", **SHAPE, "split_method": METHODS[0], "workspace_dtype": "half"}


def halved(
    method: str = METHODS[0], dtype: DType = BF16, **changes: object
) -> tuple[Fusion, KernelPlan]:
    """Return a ragged product and its plan, whose clusters leave halves."""
    fusion = product(200, 40, 64 * 9, dtype=dtype, bias=dtype == F16)
    wanted = {**SHAPE, "split_method": method, "workspace_dtype": "half", **changes}
    return fusion, plan_of(fusion, "split_k", **wanted)


@pytest.mark.parametrize(
    ("method", "dtype", "changes"),
    [
        ("two_pass", BF16, {}),
        ("two_pass", BF16, {"tile_m": 64, "tile_n": 128, "splits": 3}),
        ("two_pass", F16, {"cluster_k": 2, "splits": 4}),
        ("slices", F16, {"cluster_m": 2, "splits": 3}),
        ("serial_tma", F16, {}),
        *mostly_nightly(
            [
                ("serial_tma", F16, {"cluster_k": 2, "splits": 4}),
                ("serial_tma", F16, {"cluster_m": 2, "splits": 3}),
                ("serial_tma", F16, {"tile_m": 64, "tile_n": 128, "splits": 3}),
            ],
            3,
        ),
    ],
)
def test_halves_are_added(
    method: str, dtype: DType, changes: dict[str, object], tmp_path: Path
) -> None:
    fusion, plan = halved(method, dtype, **changes)
    assert plan.workspaces[0].dtype == dtype
    assert wrong(fusion, plan, tmp_path) == ""


TURNS = {
    "no fence before a bulk copy": ("  fence_proxy_async_shared_cta();", ""),
    "no fence after a turn": ("      fence_proxy_async();", ""),
    "nobody waits for a turn": ("  spin_until(semaphore, turn);\n      fence", "  fence"),
    "a sum in another type": (
        "bulk_reduce_add(work->data, sums->data, bytes)",
        "bulk_reduce_add(reinterpret_cast<bf16*>(work->data),"
        " reinterpret_cast<const bf16*>(sums->data), bytes)",
    ),
    "the turn is passed on early": ("wait_group<0>();", "wait_group_read<0>();"),
    "the last does not wait": ("spin_until(semaphore, turn);\n    *sem", "*sem"),
    "the bytes of floats": ("Config::kSlab * sizeof(Part)", "Config::kSlab * sizeof(float4)"),
    "the first half of the sums": ("Config::kSlab * sizeof(Part)", "Config::kSlab * 4"),
}


@pytest.mark.parametrize("name", mostly_nightly(TURNS, 3))
def test_wrong_turns_in_halves_are_seen(name: str, tmp_path: Path) -> None:
    dies(*halved("serial_tma", F16), *TURNS[name], tmp_path)


LEFT_OUT = {
    "two_pass": ("split < splits)", "split < splits - 1)"),
    "slices": ("split < splits; ++split", "split < splits - 1; ++split"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("method", LEFT_OUT)
def test_a_slice_that_is_left_out_is_seen(method: str, tmp_path: Path) -> None:
    dies(*halved(method), *LEFT_OUT[method], tmp_path)


def test_the_orders_of_halves_are_wider(tmp_path: Path) -> None:
    """What the kernel computes is not within what is expected of sums in f32."""
    fusion, plan = halved()
    inputs = random_inputs(fusion, fusion.hints, 0)
    outputs = run_plan(plan, inputs, tmp_path, seed=0)
    _, exact = halved(workspace_dtype="f32")
    assert str(plan.orders["c"]).replace(", kept in bf16", "") == str(exact.orders["c"])
    found = [
        compare(fusion, fusion.hints, inputs, outputs, model=model_of(fusion, p)).word
        for p in (plan, exact)
    ]
    assert found == ["verified", "differs"]


def test_whole_numbers_are_rounded_too(tmp_path: Path) -> None:
    """Sums of clusters beyond 256 are: exact in f32, and taken to be so of other kernels."""
    fusion, plan = halved()
    rng = np.random.default_rng(0)
    inputs: dict[str, StridedArray] = {}
    for entry, shape in zip(fusion.inputs, ((200, 576), (40, 576)), strict=True):
        whole = rng.integers(-20, 21, shape).astype(np.float32).astype(BF16.numpy)
        inputs[entry.value.name] = StridedArray(whole.reshape(-1), shape, dense_strides(shape))
    outputs = run_plan(plan, inputs, tmp_path, seed=0)
    verdict = compare(fusion, fusion.hints, inputs, outputs, model=model_of(fusion, plan))
    assert verdict.ok, verdict.text()


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [BF16, F16])
def test_each_turn_rounds_as_the_order_says(dtype: DType, tmp_path: Path) -> None:
    """The sums of clusters are whole numbers here, so that every bit of the result is known."""
    fusion = product(64, 64, 64 * 5, dtype=dtype)
    shape = {**SHAPE, "splits": 5, "split_method": "serial_tma", "workspace_dtype": "half"}
    plan = plan_of(fusion, "split_k", **shape)
    assert str(plan.orders["c"]).endswith(f"chains of 5, each turn rounds to {dtype}")
    rng = np.random.default_rng(0)
    given = {
        entry.value.name: rng.integers(-20, 21, (64, 320)).astype(np.float32)
        for entry in fusion.inputs
    }
    inputs = {
        name: StridedArray(x.astype(dtype.numpy).reshape(-1), x.shape, dense_strides(x.shape))
        for name, x in given.items()
    }
    a, b = (x.reshape(64, 5, 64) for x in given.values())
    shares = np.einsum("mck,nck->mcn", a, b).astype(np.float32)
    order = plan.orders["c"].at(fusion.hints)
    expected = performed(shares, Order(order.stages[1:])).astype(dtype.numpy)
    for number in range(4):
        found = run_plan(plan, inputs, tmp_path, seed=number, at_once=number == 3)
        assert np.array_equal(found["c"], expected)
    assert not np.array_equal(shares.sum(axis=1).astype(dtype.numpy), expected)


def test_the_orders_of_turns_are_wider_still(tmp_path: Path) -> None:
    """What turns in halves compute is off by more than halves that are added in f32 would be."""
    fusion, plan = halved("serial_tma", F16)
    inputs = random_inputs(fusion, fusion.hints, 0)
    outputs = run_plan(plan, inputs, tmp_path, seed=0)
    _, exact = halved("serial_tma", F16, workspace_dtype="f32")
    turns = ", each turn rounds to f16"
    assert str(plan.orders["c"]).replace(turns, "") == str(exact.orders["c"])
    found = [
        compare(fusion, fusion.hints, inputs, outputs, model=model_of(fusion, p)).word
        for p in (plan, exact)
    ]
    assert found == ["verified", "differs"]


ROUNDED = {
    "kept": lambda kept: (Stage(256, kept=kept), Stage(8, width=1)),
    "in turns": lambda kept: (Stage(256), Stage(8, width=1, rounded=kept)),
    "in many turns": lambda kept: (Stage(32), Stage(64, width=1, rounded=kept)),
}


@pytest.mark.parametrize("how", ROUNDED)
@pytest.mark.parametrize("kept", LEAST)
@pytest.mark.parametrize(("low", "scale"), [(-1.0, 1.0), (0.0, 1.0), (-1.0, 1e-6)])
def test_roundings_add_up_as_they_do(kept: str, low: float, scale: float, how: str) -> None:
    """Also of f16 below its least normal number."""
    order = Order(ROUNDED[how](kept))
    terms = np.random.default_rng(7).uniform(low, 1, (400, 2048, 1)).astype(np.float32)
    terms *= np.float32(scale)
    exact = terms.astype(np.float64).sum(axis=1)
    squares = np.square(terms.astype(np.float64)).sum(axis=1)
    off = performed(terms, order).astype(np.float64) - exact
    expected = roundings(exact, squares, 2048, order, 2.0**-24)
    assert 0.9 < np.sqrt(np.mean(expected) / np.mean(np.square(off))) < 2.1


def test_few_terms_are_rounded_where_one_chain_has_all() -> None:
    order = Order((Stage(64), Stage(2, width=1, kept="bf16"), Stage(4, width=1)), 16)
    assert [s.kept for s in order.within(100)] == ["", "bf16"]
    (found,) = performed(np.full((1, 16, 1), 1.001, np.float32), order)
    assert found == 16.0


REFUSED = {
    "turns": (BF16, {"split_method": "serial"}, "`serial` has f32 partial sums; `slices`, "),
    "arrival": (BF16, {"split_method": "parallel"}, "`serial_tma` support 16-bit ones"),
    "f32": (F32, {}, "is f32, not a 16-bit float"),
    "one": (BF16, {"splits": 1, "split_method": "slices"}, "one cluster has no partial sums"),
    "wgmma": (BF16, {"kernel": "wgmma", "splits": 1, "split_method": "slices"},
              "kernel `wgmma` has f32 partial sums"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_leaves_no_halves_says_why(name: str) -> None:
    dtype, changes, because = REFUSED[name]
    fusion = wide() if dtype == F32 else product(200, 40, 576)
    with pytest.raises(Unsupported, match=re.escape(because)):
        Matmul().build(fusion, HOPPER, {**HALVED, **changes})


def wide() -> Fusion:
    """Return a product of halves whose result is f32."""
    return read_text(
        "fusion: wide\ninputs:\n  a: bf16[200, 576]\n  b: bf16[576, 40]\nops:\n"
        "  - c = matmul(cast(a, f32), cast(b, f32))\noutputs: [c]\n"
    )


def test_price_never_chooses_halves() -> None:
    fusion = product(256, 256, 16384)
    family = Matmul()
    records = [p for p, _ in family.estimated_space(fusion, HOPPER)]
    assert any(p.settings["splits"] != 1 for p in records)
    assert {p.settings["workspace_dtype"] for p in records} == {"f32"}
    asked = [p for p, _ in family.estimated_space(fusion, HOPPER, {"workspace_dtype": "half"})]
    assert {p.settings["workspace_dtype"] for p in asked} == {"half"}
    assert "serial_tma" not in {p.settings["split_method"] for p in asked}


@pytest.mark.parametrize("method", METHODS[:2])
def test_price_counts_half_of_the_bytes(method: str) -> None:
    _, plan = halved(method)
    p = plan.parameters
    assert isinstance(p, MatmulParameters)
    cost = HOPPER.cost.matmul
    none = hand_off_seconds(replace(p, tile_m=0), 4, cost)
    half, whole = (
        hand_off_seconds(replace(p, workspace_dtype=k), 4, cost) for k in ("half", "f32")
    )
    assert whole - none == pytest.approx(2 * (half - none))


def test_explain_and_kernels_say_so() -> None:
    overrides = tuple(Override("c", name, value) for name, value in HALVED.items())
    fusion = replace(product(256, 256, 16384), schedules=overrides)
    options = CompileOptions(targets=("sm_90a",), use_cache=False)
    assert "16-bit workspace" in explanation(explain(driver.Compilation(fusion, options)))
    _, plan = halved()
    assert all("16-bit workspace" in source.text for source in plan_sources(plan))


def test_explain_says_that_each_turn_rounds() -> None:
    overrides = tuple(
        Override("c", name, value)
        for name, value in {**HALVED, "split_method": "serial_tma"}.items()
    )
    fusion = replace(product(256, 256, 16384), schedules=overrides)
    record = explain(driver.Compilation(fusion, CompileOptions(targets=("sm_90a",))))
    (order,) = record.segments[0].orders
    assert (order.value, order.rounded) == ("c", "bf16")
    (line,) = [
        line for line in explanation(record).splitlines() if line.lstrip().startswith("orders")
    ]
    assert line.endswith("each turn rounds to bf16")
