"""Plans of split products: the second kernel, parts of K that are spared, and small odd ones."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log
from random import Random
from typing import Any

import pytest
from draws import times
from paths import ROOT

from benchmarks import operands, products
from fusec import driver, target
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.passes import run_pipeline
from fusec.passes.rewrite import rewrite
from fusec.schedule.matmul.choice import MatmulParameters
from fusec.schedule.matmul.cost.cache_hints import streamed_operands
from fusec.schedule.matmul.family import Matmul, MatmulProblem
from fusec.schedule.matmul.hopper import SplitKParameters
from fusec.schedule.matmul.parts import InParts
from fusec.schedule.matmul.redefinitions import definitions_of_product
from fusec.schedule.plan import Plan
from fusec.schedule.registry import host_schedulers, schedulers
from fusec.segment.offers import Offers
from fusec.segment.search import segment
from fusec.target import Target

HOPPER = target.find("sm_90a")
OPTIONS = CompileOptions(targets=("sm_90a",), use_cache=False)
INT4 = ROOT / "examples" / "linear_int4.yaml"


def product(m: int, n: int, k: int) -> Fusion:
    """Return a plain product."""
    return read_text(
        f"fusion: product\ninputs:\n  a: bf16[{m}, {k}]\n  b: bf16[{n}, {k}]\nops:\n"
        "  - p = linear(a, b)\noutputs: [p]\n"
    )


def planned(fusion: Fusion) -> tuple[list[str], list[str]]:
    """Return the parameters of the plans, and the definitions in parts of K that were tried."""
    program = driver.plan(fusion, OPTIONS)
    tried = [d.because for d in program.segmented.decisions if "split_k_" in d.because]
    return [str(p.parameters) for p in program.plans if isinstance(p, Plan)], tried


@pytest.mark.parametrize(
    "shape",
    [(512, 512, 32768), (256, 256, 65536), (768, 768, 131072), (128, 128, 524288)],
)
def test_long_products_are_summed_by_a_second_kernel(shape: tuple[int, int, int]) -> None:
    (plan,) = driver.plan(product(*shape), OPTIONS).plans
    first, second = plan.kernels
    assert isinstance(plan.parameters, MatmulParameters)
    assert plan.parameters.has_second
    assert not first.overlapped
    assert second.overlapped
    assert second.grid[0].value > HOPPER.sms // 2


def test_parts_of_k_that_cannot_pay_are_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    """And without the bound they are tried in vain."""
    fusion = product(64, 8192, 8192)
    plans, tried = planned(fusion)
    assert tried == []
    monkeypatch.setattr(InParts, "least_seconds", lambda *_: 0.0)  # pyright: ignore
    again, tried = planned(fusion)
    assert len(tried) == 4
    assert again == plans


def test_parts_of_k_are_tried_where_the_product_has_no_plan() -> None:
    fusion = product(64, 512, 8192)
    found = definitions_of_product(fusion, fusion, None, None, HOPPER)
    assert [d.name for d in found] == ["split_k_2", "split_k_4", "split_k_8", "split_k_16"]


def test_parts_of_k_read_their_operands_no_faster_than_the_memory() -> None:
    m, n, k = 16, 8192, 16384
    fusion, cost = product(m, n, k), HOPPER.cost
    known = Matmul().built(fusion)
    assert isinstance(known, MatmulProblem)
    (node,) = fusion.nodes
    split = InParts(node, fusion, known.product, is_fed=False, alone=False)
    reading = 2 * (m + n) * k / (HOPPER.bandwidth * cost.gemm_memory_reach)
    adding = 2 * m * n * 4 / HOPPER.l2_bandwidth
    least = HOPPER.launch + cost.gemm_start_seconds + reading + adding
    assert split.least_seconds(2, HOPPER) == pytest.approx(least)


def over_bound(
    fusion: Fusion, monkeypatch: pytest.MonkeyPatch, bounding: Target = HOPPER
) -> list[float]:
    """Return what segments in parts of K take, over their bound; of each number of parts.

    bounding: the target by whose coefficients bounds are computed.
    """
    bounds: dict[int, float] = {}
    least_seconds = InParts.least_seconds

    def noted(split: InParts, parts: int, target: Target) -> float:
        bounds[parts] = least_seconds(split, parts, bounding)
        return 0.0

    offers = Offers((*schedulers(), *host_schedulers()), HOPPER)
    found = segment(run_pipeline(fusion), offers.schedulers, HOPPER, offers=offers)
    over: list[float] = []
    with monkeypatch.context() as patch:
        patch.setattr(InParts, "least_seconds", noted)
        for own in (s for s in found.segments if s.scheduler == "matmul"):
            assert own.estimate is not None
            others = found.seconds(HOPPER) - own.estimate.seconds(HOPPER)
            bounds.clear()
            for offered in Matmul().redefinitions(own.fusion, found.fusion, HOPPER):
                if not offered.name.startswith("split_k_") or not bounds or not offered.rule:
                    continue
                changed = rewrite(found.fusion, offered.rule)
                taken = segment(changed, offers.schedulers, HOPPER, offers=offers).seconds(HOPPER)
                over.append((taken - others) / bounds[int(offered.name.removeprefix("split_k_"))])
    return over


def drawn(draw: Random) -> Fusion:
    """Return a product that may be split, plain or with something before or behind it."""
    m, n, k = (round(exp(draw.uniform(log(a), log(b)))) for a, b in ((1, 2e3), (1, 60), (2, 200)))
    kind = draw.choice(("nt", "nn", "tn", "gelu", "weighted", "packed", "across"))
    if kind in ("weighted", "packed", "across"):
        return read_text(operands.text_of(kind, (m, 128 * n, 512 * k)))
    epilogue = kind if kind == "gelu" else ""
    return read_text(products.text_of((m, 128 * n, 512 * k), "nt" if epilogue else kind, epilogue))


@pytest.mark.nightly
def test_no_parts_of_k_are_quicker_than_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Random(5)
    over = [x for _ in range(times(24)) for x in over_bound(drawn(draw), monkeypatch)]
    assert len(over) > times(8)
    assert min(over) >= 1


@pytest.mark.parametrize(
    ("rate", "value", "shape"),
    [
        ("memory_reach", 0.9, (16, 8192, 28672)),
        ("tensor_reach", ((0, 0.0), (256, 0.5)), (256, 8192, 8192)),
    ],
)
def test_a_bound_above_what_parts_take_is_seen(
    monkeypatch: pytest.MonkeyPatch, rate: str, value: Any, shape: tuple[int, int, int]
) -> None:
    assert min(over_bound(product(*shape), monkeypatch)) >= 1
    tables = ("matmul", "matmul_wgmma", "matmul_gemv")
    known = {n: t for n in tables if hasattr(t := getattr(HOPPER.cost, n), rate)}
    lower = {n: replace(table, **{rate: value}) for n, table in known.items()}
    bounding = replace(HOPPER, cost=replace(HOPPER.cost, **lower))
    assert min(over_bound(product(*shape), monkeypatch, bounding)) < 1


@pytest.mark.parametrize(
    ("rate", "most"), [("gemm_memory_reach", 1.03), ("gemm_tensor_reach", 1.26)]
)
def test_bounds_follow_from_the_tables_of_all_kernels(rate: str, most: float) -> None:
    assert getattr(HOPPER.cost, rate) == most


@pytest.mark.parametrize(("k", "once"), [(8192, (False, False)), (32768, (False, True))])
def test_packed_weights_leave_l2_first_by_the_bytes_that_they_have(
    k: int, once: tuple[bool, bool]
) -> None:
    """Of 8192 x 8192 all 33 MB fit."""
    text = INT4.read_text().replace("M: 4", "M: 64").replace("512, 512", f"8192, {k // 2}")
    text = text.replace("[512, 8", f"[8192, {k // 128}").replace("[512, 1024", f"[8192, {k}")
    text = text.replace("M, 1024", f"M, {k}")
    problem = Matmul().problem(read_text(text))
    assert isinstance(problem, MatmulProblem)
    split = SplitKParameters(64, 128, 256, 2, cluster_k=2, converted=True)
    assert streamed_operands(problem.product, split, problem.hints, HOPPER) == once


def test_few_elements_stored_alone_are_not_worth_copies() -> None:
    program = driver.plan(product(300, 127, 33), OPTIONS)
    assert [p.scheduler for p in program.plans] == ["matmul"]
