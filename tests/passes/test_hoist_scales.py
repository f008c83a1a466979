"""Literals that operands of a GEMM are multiplied by multiply its result."""

from __future__ import annotations

import pytest

from fusec.parse import read_text
from fusec.passes import run_pipeline
from fusec.passes.hoist_scales import hoist_scales

HEAD = """fusion: scaled
inputs:
  x: {dtype}[2, 16, 32]
  y: {dtype}[2, 32, 8]
  b: {dtype}[16]
ops:
"""


def lines(dtype: str, *ops: str, outputs: str = "z") -> list[str]:
    """Return the nodes after the pass, and after those that tidy up."""
    text = HEAD.format(dtype=dtype) + "".join(f"  - {op}\n" for op in ops)
    fusion = hoist_scales(read_text(text + f"outputs: [{outputs}]\n"))
    return [repr(n) for n in run_pipeline(fusion, without=["hoist_scales"]).nodes]


@pytest.mark.parametrize(
    ("dtype", "op"),
    [
        ("bf16", "z = (x * 0.125) @ y"),
        ("bf16", "z = x @ (y * 0.125)"),
        ("bf16", "z = (x * 0.5) @ (y * 0.25)"),
        ("f32", "z = (0.125 * x) @ y"),
        ("f32", "z = (x * 0.1) @ y"),
    ],
)
def test_the_result_is_multiplied_instead(dtype: str, op: str) -> None:
    assert lines(dtype, op) == ["z_matmul = matmul(x, y)", f"z = mul(z_matmul, {_factor(op)})"]


def _factor(op: str) -> str:
    return "0.1" if "0.1)" in op else "0.125"


def test_movements_and_exact_casts_are_passed() -> None:
    moved = "z = transpose(cast(y * 0.25, f32), 1, 2) @ transpose(cast(x, f32) * 0.3, 1, 2)"
    found = lines("bf16", moved)
    assert found[-1].startswith("z = mul(z_matmul, 0.075")
    assert not any("mul(x" in line or "mul(y" in line for line in found)


@pytest.mark.parametrize(
    ("dtype", "op"),
    [
        ("bf16", "z = (x * 0.1) @ y"),  # rounds each element of x
        ("f16", "z = (x * 0.125) @ y"),  # may fall below the normal floats
        ("f32", "z = cast(x * 0.1, bf16) @ cast(y, bf16)"),
        ("f32", "z = (x * unsqueeze(b, 1)) @ y"),
        ("f32", "z = (x * 0.0) @ y"),
        ("f32", "z = flip(x * 0.5, [1]) @ y"),
    ],
)
def test_other_operands_stay(dtype: str, op: str) -> None:
    text = HEAD.format(dtype=dtype) + f"  - {op}\noutputs: [z]\n"
    fusion = read_text(text)
    assert hoist_scales(fusion) is fusion


def test_what_others_read_stays() -> None:
    ops = "  - s = x * 0.5\n  - z = s @ y\n  - w = exp(s)\noutputs: [z, w]\n"
    fusion = read_text(HEAD.format(dtype="f32") + ops)
    assert hoist_scales(fusion) is fusion
