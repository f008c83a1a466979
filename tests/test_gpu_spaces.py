"""Every template at every pair of values of its free fields, run on a GPU.

Under `compute-sanitizer --tool memcheck` or `racecheck`, these are the launches to watch.
"""

from __future__ import annotations

import pytest
from gpu_check import DRY, check_on_gpu
from spaces import CASES, space_of

from fusec import driver
from fusec.ir.annotations import Setting
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text

REPEATS = 2


def scheduled(name: str, settings: dict[str, Setting]) -> Fusion:
    """Return the fusion of a case as one segment of its scheduler, with a schedule set."""
    case = CASES[name]
    made = [v for op in case.fusion.nodes for v in op.outputs]
    values = ", ".join(v.name for v in made)
    fields = ", ".join(f"{k}: {str(v).lower()}" for k, v in settings.items())
    return read_text(
        f"fusion: small\n{case.text}segments:\n"
        f"  whole: {{values: [{values}], scheduler: {case.scheduler}}}\n"
        f"schedules:\n  {case.scheduler}: {{{fields}}}\n"
    )


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_every_pair_of_values_is_right_on_a_gpu(name: str) -> None:
    space = space_of(name)
    for record in space.covering[:2] if DRY else space.covering:
        fusion = scheduled(name, record.settings)
        checked = check_on_gpu(fusion, scheduler=CASES[name].scheduler, repeats=REPEATS)
        (plan,) = checked.compiled.program.plans
        assert plan.parameters == record


def test_schedules_that_are_far_from_the_likeliest_are_set() -> None:
    """All fields are set at once: what each prefix of them would need is no matter."""
    name = "inner_persistent"
    for record in space_of(name).covering:
        (plan,) = driver.plan(scheduled(name, record.settings), CompileOptions()).plans
        assert plan.parameters == record
