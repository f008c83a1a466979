"""Registers, blocks of an SM and spills as predicted from plans, against what NVRTC made."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from families import plan_of
from paths import ROOT

from fusec.driver import Compilation, load
from fusec.ir.dim import dim
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.schedule.plan import Kernel, KernelPlan
from fusec.schedule.pressure import (
    WEIGHED,
    Pressure,
    most_of,
    most_registers,
    occupancy,
    resident_blocks,
)
from fusec.schedule.registry import find_scheduler
from fusec.schedule.segments import occupancies
from fusec.target import find

TARGET = find("sm_90a")


@cache
def program_of(path: Path) -> Compilation:
    return Compilation(load(str(path)), CompileOptions(targets=("sm_90a",)))


def plan_in(name: str, scheduler: str) -> KernelPlan:
    plans = program_of(ROOT / "tests" / "regressions" / f"{name}.yaml").plans
    return next(p for p in plans if p.scheduler == scheduler)


def built_in(example: str) -> dict[str, Any]:
    """Return registers and shared memory of an example's kernels, as its golden files have them."""
    text = (ROOT / "examples" / "golden" / example / "registers.json").read_text()
    return {name: by_target["sm_90a"] for name, by_target in json.loads(text)["kernels"].items()}


@pytest.mark.nightly
def test_blocks_of_an_sm_are_right_or_off_by_one() -> None:
    """Of 100 kernels of the examples 85 at least, as of those of the corpus (benchmarks)."""
    off: dict[str, int] = {}
    for path in sorted((ROOT / "examples").glob("*.yaml")):
        built = built_in(path.stem)
        for plan in program_of(path).plans:
            for kernel, told in zip(plan.kernels, occupancies(plan, TARGET), strict=True):
                facts = built[kernel.name]
                shared = kernel.shared_bytes + facts["shared_bytes"]
                real = resident_blocks(told.threads, facts["registers"], shared, TARGET)
                off[kernel.name] = abs(real - told.blocks)
                assert not told.spills, kernel.name
    assert len(off) > 20
    assert sum(n <= 1 for n in off.values()) >= 0.85 * len(off), off


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (256, 32, 0, 8),
        (256, 33, 0, 6),
        (1024, 64, 0, 1),
        (32, 16, 0, 32),
        (96, 40, 0, 16),  # three warps, of which each quarter of an SM holds twelve
        (128, 32, 100_000, 2),  # 1 KB of shared memory more for the system
        (384, 168, 196_672, 1),
        (1024, 72, 0, 0),
    ],
)
def test_blocks_follow_from_registers_and_shared_memory(
    threads: int, registers: int, shared: int, blocks: int
) -> None:
    assert resident_blocks(threads, registers, shared, TARGET) == blocks


@pytest.mark.parametrize(
    ("threads", "least", "most"), [(1024, 0, 64), (128, 0, 255), (128, 4, 128), (384, 1, 168)]
)
def test_launch_bounds_leave_registers(threads: int, least: int, most: int) -> None:
    assert most_registers(threads, least) == most


def test_a_thread_that_keeps_more_of_a_row_takes_more_registers_until_it_spills() -> None:
    plan: Any = program_of(ROOT / "examples" / "layernorm.yaml").plans[0]
    family: Any = find_scheduler(plan.scheduler)
    parameters = plan.parameters
    wanted: list[int] = []
    for times in (1, 2, 4):
        chunks = parameters.chunks * times
        more = replace(parameters, chunks=chunks, threads_x=parameters.threads_x // times)
        other = family.plan(plan.problem, more, TARGET)
        (told,) = occupancies(other, TARGET)
        wanted.append(told.wanted)
    assert wanted == sorted(set(wanted))
    assert told.spills


def test_rows_in_shared_memory_take_none_of_the_registers() -> None:
    plan: Any = program_of(ROOT / "examples" / "layernorm.yaml").plans[0]
    family: Any = find_scheduler(plan.scheduler)
    parameters = replace(plan.parameters, storage="shared")
    other = family.plan(plan.problem, parameters, TARGET)
    before, after = (occupancies(p, TARGET)[0] for p in (plan, other))
    assert after.registers <= 32 < before.registers
    assert before.shared_bytes == 0 < after.shared_bytes
    assert after.blocks == (TARGET.shared + 1024) // (after.shared_bytes + 1024)


def test_what_overflows_a_block_is_planned_for_fewer_registers_before_it_is_built() -> None:
    # 1024 threads of 64 registers each would hold 32 words of columns and error functions of them:
    # NVRTC spills 408 bytes there, 48 with half the threads.
    plan = plan_in("error_functions_beside_kept_columns", "outer_persistent")
    (kernel,) = plan.kernels
    assert kernel.block == (4, 128, 1)
    (told,) = occupancies(plan, TARGET)
    assert told.wanted <= told.most


def test_all_registers_are_those_of_one_block_on_an_sm() -> None:
    one = (dim(1), dim(1), dim(1))
    kernel = Kernel("k", "pointwise", one, (128, 1, 1), (), least_blocks=16)
    told = occupancy(kernel, Pressure(staged=80), TARGET)
    assert (told.most, told.registers, told.blocks, told.spills) == (32, 32, 16, True)
    told = occupancy(replace(kernel, all_registers=True), Pressure(staged=80), TARGET)
    assert (told.most, told.registers, told.blocks, told.spills) == (255, 96, 5, False)


def test_a_thread_holds_the_most_of_its_loops() -> None:
    both = most_of([Pressure(flight=8, sums=1), Pressure(flight=4, lanes=16)])
    assert both == Pressure(flight=8, sums=1, lanes=16)
    assert most_of([]) == Pressure()
    cost = TARGET.cost.registers
    assert both.registers(cost) > Pressure(flight=8).registers(cost)


@pytest.mark.parametrize(("axis", "scheduler"), [(1, "inner_persistent"), (0, "outer_persistent")])
def test_a_thread_has_a_sum_for_each_column_of_a_vector_and_one_for_a_row(
    axis: int, scheduler: str
) -> None:
    text = (
        "fusion: sums\ninputs: {x: 'f32[512, 512]'}\n"
        f"ops: ['m = mean(x, dims=[{axis}], keepdim=true)', y = x - m]\noutputs: [y]\n"
    )
    plan: Any = plan_of(scheduler, read_text(text, "sums.yaml"))
    width = plan.parameters.vector_width
    assert width > 1
    pressure = find_scheduler(scheduler).pressure(plan, plan.kernels[0])
    assert pressure.sums == (1 if axis == 1 else width)


def test_what_is_weighed_is_a_part_of_the_pressure() -> None:
    assert all(hasattr(Pressure(), name) for name in WEIGHED)


def test_the_benchmark_reads_fusions_and_plans_others_that_hold_more() -> None:
    from benchmarks.registers import graphs, holding_more

    ((name, read),) = graphs([ROOT / "examples" / "layernorm.yaml"])
    (plan,) = Compilation(read(), CompileOptions(targets=("sm_90a",))).plans
    held = [p.parameters.chunks for p in holding_more(plan)]
    assert name == "layernorm"
    assert held == [plan.parameters.chunks * times for times in (2, 4)]
