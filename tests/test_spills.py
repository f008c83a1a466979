"""Kernels that spill are built again with more registers, and the better one is kept."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from families import plan_of

from fusec.codegen.dispatch import plan_sources
from fusec.codegen.render import ROOMY
from fusec.ir.dtype import F32
from fusec.ops.build import GraphBuilder
from fusec.run.build import Artifact, Source
from fusec.run.spills import SPILL_LIMIT, build_plans
from fusec.schedule.plan import KernelPlan

ONE_BLOCK = "__launch_bounds__(kThreads, 1)"


def doubled() -> KernelPlan:
    builder = GraphBuilder("doubled")
    x = builder.input("x", F32, [64])
    builder.output(builder.apply("add", x, x))
    return plan_of("pointwise", builder.finish())


class Compiler:
    """Reports spills by target: of kernels as planned, and of those for one block on an SM."""

    def __init__(self, planned: Sequence[int], roomy: Sequence[int]) -> None:
        self.planned, self.roomy = planned, roomy
        self.calls = 0

    def build(self, sources: Sequence[Source]) -> dict[tuple[str, str], Artifact]:
        self.calls += 1
        return {
            (s.name, f"sm_{k}"): artifact(s, f"sm_{k}", spills)
            for s in sources
            for k, spills in enumerate(self.roomy if ONE_BLOCK in s.text else self.planned)
        }


def artifact(source: Source, arch: str, spills: int) -> Artifact:
    text = source.text.encode()
    return Artifact(source.name, arch, text, "13.0", 32, spills, 0, 0, False, 0.0)


@pytest.mark.parametrize(
    ("planned", "roomy", "calls", "kept"),
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
    planned: list[int], roomy: list[int], calls: int, kept: bool
) -> None:
    plan, compiler = doubled(), Compiler(planned, roomy)
    sources = plan_sources(plan)
    (found,), ((source,),), artifacts = build_plans((plan,), (sources,), compiler.build)
    assert compiler.calls == calls
    assert (found.kernels[0].roomy, ONE_BLOCK in source.text, ROOMY in source.text) == (kept,) * 3
    assert [a.spill_bytes for a in artifacts.values()] == (roomy if kept else planned)
    assert {a.cubin for a in artifacts.values()} == {source.text.encode()}
    assert plan_sources(found) == (source,)
