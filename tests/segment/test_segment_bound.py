"""Parts of a fusion with products take at least what bounds say, and are then not searched.

`least_seconds` bounds those of one product, `least_seconds_in_parts` those of an attention.
"""

from __future__ import annotations

from unittest.mock import patch

import pytest
from draws import drawn
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from fusec import driver
from fusec import target as targets
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.passes import run_pipeline
from fusec.schedule.attention.decode.family import AttentionDecodes
from fusec.schedule.registry import find_scheduler, schedulers
from fusec.segment import split
from fusec.segment.protocol import is_bounded_in_parts
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


MASKS = {
    "none": "tanh(scores)",
    "causal": "where(le(column, broadcast(iota({m}), [false, true])), scores, -inf)",
    "lengths": "where(lt(column, broadcast(lengths, [false, true, true, true])), scores, -inf)",
}
PAGED = "reshape(index_select({}_pages, pages, dim=0), [{}, {}, {}, {}])"


@st.composite
def attentions(draw: st.DrawFn) -> str:
    """Draw an attention, with pages or without."""
    b, h = draw(st.sampled_from((1, 4, 32))), draw(st.sampled_from((1, 2, 8)))
    m, n = draw(st.sampled_from((1, 4, 64))), draw(st.sampled_from((32, 64, 512, 4096)))
    d, mask = draw(st.sampled_from((64, 128))), draw(st.sampled_from(sorted(MASKS)))
    paged = draw(st.booleans())
    kind = f"bf16[{b * n // 16}, 16, {h}, {d}]" if paged else f"bf16[{b}, {n}, {h}, {d}]"
    names = ("k_pages", "v_pages") if paged else ("k", "v")
    ops = [f"{o} = {PAGED.format(o, b, n, h, d)}" for o in "kv"] if paged else []
    ops = [f"pages = reshape(table, [{b * n // 16}])", *ops] if paged else ops
    ops += [
        "scores = mul(cast(matmul(q, permute(k, [0, 2, 3, 1])), f32), 0.125)",
        f"column = broadcast(iota({n}), [true, true, true, false])",
        f"seen = {MASKS[mask].format(m=m)}",
        "p = cast(softmax(seen, -1), bf16)",
        "o = matmul(p, permute(v, [0, 2, 1, 3]))",
        draw(st.sampled_from((f"y = reshape(o, [{b}, {h * m * d}])", "y = add(o, 1.0)"))),
    ]
    inputs = [f"q: bf16[{b}, {h}, {m}, {d}]", *(f"{name}: {kind}" for name in names)]
    inputs += [f"table: {{type: 'i32[{b}, {n // 16}]', range: [0, 1]}}"] if paged else []
    inputs += [f"lengths: {{type: 'i32[{b}]', range: [1, {n}]}}"] if mask == "lengths" else []
    text = "\n".join(f"  - {line}" for line in ops)
    given = "\n".join(f"  {line}" for line in inputs)
    return f"fusion: drawn\ninputs:\n{given}\nops:\n{text}\noutputs: [y]\n"


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@drawn(8)
@given(text=attentions(), places=st.lists(st.integers(0, 30), max_size=3))
def test_parts_of_an_attention_take_at_least_what_is_said(
    arch: str, text: str, places: list[int]
) -> None:
    target, fusion = targets.find(arch), run_pipeline(read_text(text))
    values = [n.output.name for n in fusion.nodes if n.op.family != "scalar"]
    names, alone = {*values}, {values[place % len(values)] for place in places}

    def may_merge(part: Fusion) -> bool:
        made = {n.output.name for n in part.nodes}
        return not made & alone and bool(names - made)

    found = segment(fusion, schedulers(), target, may_merge=may_merge)
    for family in map(find_scheduler, ("attention", "attention_decode")):
        assert is_bounded_in_parts(family)
        least = family.least_in_parts(found.fusion, target)
        assert len(found.segments) < 2 or found.seconds(target) >= least


def test_parts_of_a_decoding_attention_that_cannot_pay_are_not_searched() -> None:
    fusion = driver.load(str(ROOT / "examples" / "paged_decode.yaml"))
    with patch.object(split.Splits, "of", side_effect=AssertionError):
        found = driver.Compilation(fusion, OPTIONS).segmented
    with patch.object(AttentionDecodes, "least_in_parts", lambda *_: 0.0):
        assert driver.Compilation(fusion, OPTIONS).segmented == found
