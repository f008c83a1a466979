"""Guards on what operations need of sizes, lest kernels read elements that are not there."""

from __future__ import annotations

import pytest

from fusec import driver
from fusec.diagnostics import FusecError
from fusec.options import CompileOptions
from fusec.parse import read_text

RESHAPED = """
fusion: reshaped
dims: {N: 256, M: 256, B: 4}
inputs: {t: "f32[B, M, 5]", x: "f32[N]"}
ops:
  - a = reshape(t, [B, 32, M // 32, 5])
  - y = mul(a, reshape(x, [1, 32, M // 32, 1]))
outputs: [y]
"""
GATHERED = """
fusion: gathered
dims: {B: 8, C: 6, K: 4}
inputs: {x: "f32[B, 16]", i: "i64[C, K]"}
ops:
  - y = gather(x, i, 1)
outputs: [y]
"""
SCATTERED = """
fusion: scattered
dims: {B: 8, C: 6, D: 7}
inputs: {x: "f32[B, 16]", i: "i64[C, 4]", s: "f32[D, 4]"}
ops:
  - y = scatter(x, i, s, 1)
outputs: [y]
"""
SURE = """
fusion: sure
dims: {N: {default: 64, multiple_of: 4}, B: 4}
inputs: {x: "f32[N]", t: "f32[B, 12]"}
ops:
  - a = reshape(x, [N // 4, 4])
  - y = sum(a, dims=[1])
  - z = relu(reshape(t, [B * 3, 4]))
outputs: [y, z]
"""


def guards(text: str, **sizes: int) -> dict[str, bool]:
    """Return the guards on how sizes are related, and whether each holds at some."""
    plan = driver.plan(read_text(text), CompileOptions(targets=("sm_90a",), targets_given=True))
    hints = {**plan.fusion.hints, **sizes}
    return {str(g): g.holds(hints) for g in plan.host.guards if g.bound == 0}


@pytest.mark.parametrize(
    ("text", "guard", "right", "wrong"),
    [
        (RESHAPED, "-(M // 32) * 32 + N == 0", {"N": 256}, {"N": 64}),
        (GATHERED, "-B + C <= 0", {"C": 8}, {"C": 9}),
        (SCATTERED, "-B + C <= 0", {"B": 6}, {"B": 5}),
        (SCATTERED, "C - D <= 0", {"D": 6}, {"D": 5}),
    ],
)
def test_sizes_that_an_operation_needs_are_asked_for(
    text: str, guard: str, right: dict[str, int], wrong: dict[str, int]
) -> None:
    assert guards(text, **right)[guard]
    assert not guards(text, **wrong)[guard]


def test_what_holds_at_all_sizes_is_not_asked_for() -> None:
    assert guards(SURE) == {}


def test_the_default_sizes_are_those_of_a_reshape() -> None:
    with pytest.raises(FusecError, match="64 elements, not 256, at default sizes"):
        read_text(RESHAPED.replace("N: 256", "N: 64"))
