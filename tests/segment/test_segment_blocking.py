"""Copies that keep a segment from being accepted: one operand's, where that is enough."""

from __future__ import annotations

import pytest
from fake_schedulers import H200, FakeScheduler, usual
from segment_runs import check_structure

from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.segment.search import segment

TEXT = """
fusion: weights
inputs: {x: "bf16[512, 256]", w: "bf16[128, 256]"}
ops:
  - half = mul(x, 0.5)
  - turned = permute(w, [1, 0])
  - y = matmul(half, turned)
outputs: [y]
"""


def gemms(*rejected: str) -> FakeScheduler:
    """Return a scheduler of GEMMs that reads no operand through some operations."""

    def because(segment: Fusion) -> str | None:
        names = [n.op.name for n in segment.nodes]
        found = [name for name in rejected if name in names]
        if names.count("matmul") != 1:
            return "needs one GEMM"
        return f"`{found[0]}` of an operand" if found else None

    return FakeScheduler("matmul", because)


@pytest.mark.parametrize(
    ("rejected", "stored"),
    [
        ((), set[str]()),
        (("mul",), {"half"}),
        (("permute",), {"turned"}),
        (("mul", "permute"), {"half", "turned"}),
    ],
)
def test_only_what_a_scheduler_does_not_read_through_is_stored(
    rejected: tuple[str, ...], stored: set[str]
) -> None:
    takers = [s for s in usual() if s.name != "matmul"] + [gemms(*rejected)]
    found = segment(read_text(TEXT), takers, H200)
    check_structure(found)
    assert found.uncopied == stored
    assert {e.value.name for e in found.edges} == stored
