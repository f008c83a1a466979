"""Plans of split products: the second kernel, parts of K that are spared, and small odd ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusec import driver, target
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.schedule import matmul_redefinitions
from fusec.schedule.matmul import Matmul, MatmulProblem
from fusec.schedule.matmul_choice import MatmulParameters
from fusec.schedule.matmul_once import operands_read_once
from fusec.schedule.plan import Plan

HOPPER = target.find("sm_90a")
OPTIONS = CompileOptions(targets=("sm_90a",), use_cache=False)
INT4 = Path(__file__).parents[1] / "examples" / "linear_int4.yaml"


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


@pytest.mark.parametrize("shape", [(512, 512, 32768), (768, 768, 131072), (128, 128, 524288)])
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
    monkeypatch.setattr(matmul_redefinitions, "_least_seconds", lambda *_: 0.0)  # pyright: ignore
    again, tried = planned(fusion)
    assert len(tried) == 4
    assert again == plans


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
    split = MatmulParameters("split_k", 64, 128, 256, 2, cluster=2, converted=True)
    assert operands_read_once(problem.product, split, problem.hints, HOPPER) == once


def test_few_elements_stored_alone_are_not_worth_copies() -> None:
    program = driver.plan(product(300, 127, 33), OPTIONS)
    assert [p.scheduler for p in program.plans] == ["matmul"]
