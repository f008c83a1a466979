"""Cats of more tensors than one kernel takes: several kernels store them at their offsets."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from cuda_on_cpu import run_plan
from emulated import emulated
from families import GPU, estimate, plan_of, refused_rule

from fusec import driver
from fusec.codegen.dispatch import plan_sources
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.reference.verdict import compare
from fusec.run.execute import Executable
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.schedule.plan import TensorArgument
from fusec.schedule.registry import find_scheduler
from fusec.segment.limits import MOST_ARMS
from fusec.segment.protocol import Refusal

OPTIONS = CompileOptions(targets=("sm_90a",), targets_given=True, jobs=1)


def fusion_of(inputs: Iterable[str], ops: Iterable[str], outputs: str = "y") -> Fusion:
    lines = ["fusion: wide", "dims: {B: 6}", "inputs:", *(f"  {i}" for i in inputs)]
    return read_text("\n".join([*lines, "ops:", *(f"- {o}" for o in ops), f"outputs: [{outputs}]"]))


def cat_of(names: Iterable[str], dim: int) -> str:
    return f"cat([{', '.join(names)}], {dim})"


def wide(count: int) -> Fusion:
    """Return the fusion of a cat of columns, of 1 to 7 each."""
    inputs = [f"x{k}: f32[8, {1 + k % 7}]" for k in range(count)]
    return fusion_of(inputs, [f"y = {cat_of((f'x{k}' for k in range(count)), 1)}"])


MANY = {
    "rows of a dynamic size": (
        [f"x{k}: f16[B, 8]" for k in range(40)],
        [f"y = {cat_of((f'x{k}' for k in range(40)), 1)}"],
    ),
    "computed, sampled and moved": (
        [f"x{k}: f32[{1 + k % 3}, 5]" for k in range(34)],
        [f"y = {cat_of((f'relu(add(x{k}, rand_like(x{k})))' for k in range(34)), 0)}"],
    ),
    "complex": (
        [f"x{k}: c64[3, {1 + k % 2}]" for k in range(35)],
        [f"y = {cat_of((f'x{k}' for k in range(35)), 1)}"],
    ),
    "some without elements": (
        [f"x{k}: i8[4, {k % 3}, 2]" for k in range(66)],
        [f"y = {cat_of((f'x{k}' for k in range(66)), 1)}"],
    ),
    "read by a sum and a movement": (
        [f"x{k}: f32[4, 2]" for k in range(33)],
        [
            f"a = {cat_of((f'x{k}' for k in range(33)), 1)}",
            "y = sum(neg(a), dims=[1])",
        ],
    ),
}


@pytest.mark.parametrize("name", MANY)
def test_what_several_kernels_store_is_right(name: str, tmp_path: Path) -> None:
    fusion = fusion_of(*MANY[name])
    program = driver.plan(fusion, OPTIONS)
    assert "concat" in {s.scheduler for s in program.segmented.segments}
    sizes = choose_sizes(fusion)
    given = random_inputs(fusion, sizes, 0)
    device = emulated(program, tmp_path)
    cubins = {kernel.name: b"" for plan in program.plans for kernel in plan.kernels}
    executable = Executable(device, program.host, cubins)  # pyright: ignore[reportArgumentType]
    with executable.bind(given, sizes) as bound:
        bound.reset()
        bound.run()
        verdict = compare(fusion, sizes, given, bound.outputs())
    assert verdict.ok, verdict.text()


@pytest.mark.parametrize(("count", "kernels"), [(34, 2), (64, 2), (65, 3), (100, 4)])
def test_as_few_kernels_as_there_may_be(count: int, kernels: int) -> None:
    plan = plan_of("concat", wide(count))
    assert len(plan.kernels) == kernels
    assert estimate("concat", wide(count)).kernels == kernels
    tensors = [
        sum(isinstance(a, TensorArgument) and not a.written for a in k.arguments)
        for k in plan.kernels
    ]
    assert sum(tensors) == count
    assert max(tensors) - min(tensors) <= 1
    assert max(tensors) <= MOST_ARMS


def test_the_price_is_that_of_moving_each_element_once() -> None:
    fusion = wide(40)
    elements = sum(8 * (1 + k % 7) for k in range(40))
    assert estimate("concat", fusion).bytes == 2 * 4 * elements


@pytest.mark.nightly
def test_a_part_that_is_not_stored_is_seen(tmp_path: Path) -> None:
    fusion = wide(34)
    plan = plan_of("concat", fusion)
    given = random_inputs(fusion, fusion.hints)
    right = run_plan(plan, given, tmp_path)
    assert compare(fusion, fusion.hints, given, right).ok
    start = sum(1 + k % 7 for k in range(17))
    assert f" + {start}]" in plan_sources(plan)[1].text
    moved = run_plan(plan, given, tmp_path, edit=lambda text: text.replace(f" + {start}]", "]"))
    assert not compare(fusion, fusion.hints, given, moved).ok


def test_one_kernel_takes_few_tensors() -> None:
    assert refused_rule("concat", wide(MOST_ARMS)) == "concat"
    assert estimate("pointwise", wide(MOST_ARMS)).kernels == 1
    for scheduler in ("pointwise", "transpose", "inner_persistent"):
        assert refused_rule(scheduler, wide(MOST_ARMS + 1)) == "arms"


@pytest.mark.parametrize(
    ("ops", "outputs"),
    [
        (["a = neg(x0)", "y = relu(a)"], "y"),
        ([f"a = {cat_of(['x0'] * 40, 1)}", "y = neg(a)"], "y"),
        ([f"a = {cat_of(['x0'] * 40, 1)}", "y = neg(x0)"], "a, y"),
    ],
    ids=["no cat", "read later", "beside another"],
)
def test_other_segments_are_refused(ops: list[str], outputs: str) -> None:
    found = find_scheduler("concat").propose(fusion_of(["x0: f32[4, 2]"], ops, outputs), GPU)
    assert isinstance(found, Refusal)
