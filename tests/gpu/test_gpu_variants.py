"""What the GPU tests of products and attention run is what its names say; no GPU is needed."""

from __future__ import annotations

import pytest
from gpu_broken import ARRIVAL, LOST, NO_RESET, NO_TURN, NO_WRAP, edited
from gpu_variants import VARIANTS

from fusec import driver
from fusec.options import CompileOptions

OPTIONS = CompileOptions(targets=("sm_90a",), targets_given=True, jobs=1)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_one_segment_with_its_schedule(name: str) -> None:
    variant = VARIANTS[name]
    program = driver.plan(variant.fusion, OPTIONS)
    (segment,), (plan,) = program.segmented.segments, program.plans
    assert segment.scheduler == variant.scheduler
    assert plan.parameters.settings.items() >= variant.fields.items()


@pytest.mark.parametrize(
    "edits", [ARRIVAL, NO_WRAP, NO_RESET, NO_TURN, LOST], ids=lambda e: e[0][1].strip()
)
def test_an_edit_is_of_text_that_is_there(edits: tuple[tuple[str, str, str], ...]) -> None:
    assert edited(edits)
