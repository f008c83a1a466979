"""Kernels that spill are built again, with more registers or for fewer; the best one is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from families import plan_of
from paths import TESTS

from fusec import driver
from fusec.codegen.dispatch import plan_sources
from fusec.codegen.render import ALL_REGISTERS
from fusec.ir.dtype import F32
from fusec.ops.builder.build import GraphBuilder
from fusec.options import CompileOptions
from fusec.run.build import Artifact, Source
from fusec.run.spills import SPILL_LIMIT, build_plans
from fusec.schedule.plan import KernelPlan

ONE_BLOCK = "__launch_bounds__(kThreads, 1)"


def doubled(size: int = 64, name: str = "doubled") -> KernelPlan:
    builder = GraphBuilder(name)
    x = builder.input("x", F32, [size])
    builder.output(builder.apply("add", x, x))
    return plan_of("pointwise", builder.finish())


class Compiler:
    """Reports spills by target: of kernels as planned, and of those for one block on an SM."""

    def __init__(self, planned: Sequence[int], all_registers: Sequence[int]) -> None:
        self.planned, self.all_registers = planned, all_registers
        self.calls = 0

    def build(self, sources: Sequence[Source]) -> dict[tuple[str, str], Artifact]:
        self.calls += 1
        return {
            (s.name, f"sm_{k}"): artifact(s, f"sm_{k}", spills)
            for s in sources
            for k, spills in enumerate(self.all_registers if ONE_BLOCK in s.text else self.planned)
        }


def artifact(source: Source, arch: str, spills: int) -> Artifact:
    text = source.text.encode()
    return Artifact(source.name, arch, text, "13.0", 32, spills, 0, 0, False, 0.0)


@pytest.mark.parametrize(
    ("planned", "all_registers", "calls", "kept"),
    [
        ([0], [0], 1, False),
        ([SPILL_LIMIT], [0], 1, False),
        ([SPILL_LIMIT + 1], [0], 2, True),
        ([2000], [1999], 2, True),
        ([2000], [2000], 2, False),
        ([0, 2000], [8, 8], 2, True),  # one text for all targets: the worst one counts
        ([0, 2000], [2008, 0], 2, False),
    ],
)
def test_the_build_that_spills_less_is_kept(
    planned: list[int], all_registers: list[int], calls: int, kept: bool
) -> None:
    plan, compiler = doubled(), Compiler(planned, all_registers)
    sources = plan_sources(plan)
    (found,), ((source,),), artifacts = build_plans((plan,), (sources,), compiler.build)
    assert compiler.calls == calls
    assert (
        found.kernels[0].all_registers,
        ONE_BLOCK in source.text,
        ALL_REGISTERS in source.text,
    ) == (kept,) * 3
    assert [a.spill_bytes for a in artifacts.values()] == (all_registers if kept else planned)
    assert {a.cubin for a in artifacts.values()} == {source.text.encode()}
    assert plan_sources(found) == (source,)


class ManyPlans:
    """Reports spills by the size that a plan is for, whichever way it is built."""

    def __init__(self, *spills: int) -> None:
        self.spills = {64 << k: each for k, each in enumerate(spills)}
        self.tried: list[int] = []

    def build(self, sources: Sequence[Source]) -> dict[tuple[str, str], Artifact]:
        return {(s.name, "sm_0"): artifact(s, "sm_0", self._spills(s.text)) for s in sources}

    def _spills(self, text: str) -> int:
        return next(each for size, each in self.spills.items() if doubled_text(size) in text)

    def others(self, number: int) -> Iterator[KernelPlan]:
        assert number == 0
        for size in list(self.spills)[1:]:
            self.tried.append(size)
            yield doubled(size)


def doubled_text(size: int) -> str:
    return f"chunks = {size // 4};"


@pytest.mark.parametrize(
    ("spills", "tried", "kept"),
    [
        ([SPILL_LIMIT, 0], [], 64),
        ([SPILL_LIMIT + 1, SPILL_LIMIT, 0], [128], 128),
        ([2000, 3000, 1000, 4000], [128, 256, 512], 256),
        ([2000, 2000], [128], 64),
        ([2000], [], 64),
    ],
)
def test_other_plans_are_tried_until_one_is_within_the_limit(
    spills: list[int], tried: list[int], kept: int
) -> None:
    plan, compiler = doubled(), ManyPlans(*spills)
    plans, ((source,),), artifacts = build_plans(
        (plan,), (plan_sources(plan),), compiler.build, compiler.others
    )
    assert compiler.tried == tried
    assert doubled_text(kept) in source.text
    assert plan_sources(plans[0]) == (source,)
    assert {a.cubin for a in artifacts.values()} == {source.text.encode()}


def test_equal_kernels_are_built_once_and_under_a_name_of_their_own() -> None:
    """The first of three gets another plan: the second one is then the first of two."""
    plans = [doubled(name=name) for name in ("first", "second", "third")]
    asked: list[list[str]] = []
    compiler = ManyPlans(2000, 0)

    def build(sources: Sequence[Source]) -> dict[tuple[str, str], Artifact]:
        asked.append([s.name for s in sources])
        return compiler.build(sources)

    def others(number: int) -> Iterator[KernelPlan]:
        if number == 0:
            yield doubled(128, "first")

    sources = [plan_sources(plan) for plan in plans]
    found, ((first,), (second,), _), artifacts = build_plans(plans, sources, build, others)
    assert asked == [["first_pointwise"], *[["first_pointwise"]] * 2, ["second_pointwise"]]
    assert [plan.kernels[0].name for plan in found] == [p.kernels[0].name for p in plans]
    texts = {name: artifact.cubin.decode() for (name, _), artifact in artifacts.items()}
    assert texts == {"first_pointwise": first.text, "second_pointwise": second.text}


def nothing_overflows(plan: KernelPlan, target: object) -> bool:
    return False


@pytest.mark.nightly
def test_what_is_launched_is_the_plan_that_spills_less(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    # As if its spills were not foretold.
    monkeypatch.setattr("fusec.schedule.segments._overflows", nothing_overflows)
    path = TESTS / "regressions" / "error_functions_beside_kept_columns.yaml"
    options = CompileOptions(targets=("sm_90a",), targets_given=True)
    planned = driver.plan(driver.load(str(path)), options)
    compiled = driver.build(planned)
    pairs = zip(planned.plans, compiled.program.plans, strict=True)
    ((before, after),) = (pair for pair in pairs if pair[0].parameters != pair[1].parameters)
    name = after.kernels[0].name
    (launched,) = (each for each in compiled.program.host.launches if each.kernel == name)
    assert launched.block == after.kernels[0].block != before.kernels[0].block
    assert all(a.spill_bytes <= SPILL_LIMIT for a in compiled.artifacts.values())
