"""Parts of a fusion with a product take at least what `least_seconds` says, and are then spared."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from draws import drawn
from hypothesis import given
from hypothesis import strategies as st

from fusec import driver
from fusec import target as targets
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.passes import run_pipeline
from fusec.schedule.registry import schedulers
from fusec.segment import split
from fusec.segment.search import segment
from fusec.segment.split import least_seconds

EXTENTS = (1, 8, 24, 64, 200, 512, 1024, 4096)
STEPS = ("relu({})", "gelu({})", "mul({}, {})", "add({}, 1.0)", "cast({}, f32)")
OPTIONS = CompileOptions(targets=("sm_90a",))


@st.composite
def products(draw: st.DrawFn) -> Fusion:
    """Draw a product with steps before and behind it, a bias, a row sum and a second output."""
    m, n, k = (draw(st.sampled_from(EXTENTS)) for _ in range(3))
    lines, value = list[str](), "a"
    for at in range(draw(st.integers(0, 1))):
        lines.append(f"  - p{at} = {draw(st.sampled_from(STEPS[:4])).format(value, value)}")
        value = f"p{at}"
    lines.append(f"  - p = linear(cast({value}, bf16), w{', bias' if draw(st.booleans()) else ''})")
    value, outputs = "p", ["p"] if draw(st.booleans()) else []
    for at in range(draw(st.integers(1, 3))):
        lines.append(f"  - e{at} = {draw(st.sampled_from(STEPS)).format(value, value)}")
        value = f"e{at}"
    if draw(st.booleans()):
        lines.append(f"  - r = sum({value}, dims=[1])")
        outputs.append("r")
    text = "\n".join(lines)
    return read_text(
        f"fusion: drawn\ninputs:\n  a: bf16[{m}, {k}]\n  w: bf16[{n}, {k}]\n  bias: bf16[{n}]\n"
        f"ops:\n{text}\noutputs: [{', '.join([*outputs, value])}]\n"
    )


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@drawn(20)
@given(fusion=products())
def test_parts_take_at_least_what_is_said(arch: str, fusion: Fusion) -> None:
    target = targets.find(arch)
    fusion = run_pipeline(fusion)
    names = {n.output.name for n in fusion.nodes if n.op.family != "scalar"}

    def is_part(part: Fusion) -> bool:
        return bool(names - {n.output.name for n in part.nodes})

    found = segment(fusion, schedulers(), target, may_merge=is_part)
    if len(found.segments) > 1:
        assert found.seconds(target) >= least_seconds(found.fusion, target)


GELU = """
fusion: small
inputs:
  x: bf16[512, 1024]
  w: bf16[1024, 1024]
ops:
  - y = gelu(linear(x, w))
outputs: [y]
"""


def test_parts_of_a_product_that_cannot_pay_are_not_searched() -> None:
    searched: list[int] = []
    kept = split.Splits.of

    def of(self: split.Splits, fusion: Fusion, seconds: float, search: split.Search) -> object:
        searched.append(len(fusion.nodes))
        return kept(self, fusion, seconds, search)

    fusion = read_text(GELU)
    with patch.object(split.Splits, "of", of):
        found = driver.Compilation(fusion, OPTIONS).segmented
        assert searched == []
        with patch.object(split, "_multiplying_seconds", lambda *_: 0.0):
            assert driver.Compilation(fusion, OPTIONS).segmented == found
        assert searched
