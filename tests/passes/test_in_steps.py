"""Reductions in two steps: which are offered, that they compute the same, and where they pay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nightly import mostly_nightly
from test_layouts import check, declared

from fusec import driver
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.passes.rewrite import rewrite
from fusec.reference.evaluate import evaluate
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.schedule.rows.in_steps import outside_first, shared_first
from fusec.segment import redefine
from fusec.segment.protocol import Redefinition
from fusec.segment.segmented import extract

OPTIONS = CompileOptions(targets=("sm_90a",), targets_given=True, jobs=1)
GROUPS = """
fusion: groups
dims: {{N: 2, P: 24, G: 4, D: {width}}}
inputs:
  x: {dtype}[N, P, G, D]
ops:
{ops}
outputs: {outputs}
"""
NORM = """
fusion: group_norm
dims: {N: 32, P: 4096, G: 32, D: 10}
inputs:
  x: bf16[N, P, G * D]
ops:
  - xf = reshape(cast(x, f32), [N, P, G, D])
  - var, mean = var_mean(xf, dims=[1, 3], correction=0, keepdim=true)
  - y = cast(reshape(mul(sub(xf, mean), rsqrt(add(var, 1e-5))), [N, P, G * D]), bf16)
outputs: [y]
"""


def groups(ops: str, outputs: str, width: int = 10, dtype: str = "f32") -> Fusion:
    lines = "\n".join(f"  - {op.strip()}" for op in ops.split(";"))
    return read_text(GROUPS.format(ops=lines, outputs=outputs, width=width, dtype=dtype))


def redefined(fusion: Fusion, found: tuple[Redefinition, ...]) -> Fusion:
    (redefinition,) = found
    assert redefinition.rule is not None
    return rewrite(fusion, redefinition.rule)


@pytest.mark.parametrize(
    "op",
    [
        "y = sum(x, [1, 3])", "y = prod(x, [1, 3])", "y = max(x, [1, 3])", "y = min(x, [1, 3])",
        "y = var(x, [1, 3], 0)", "y, z = var_mean(x, [1, 3], 0)", "y = sum(x, [0, 1, 3])",
    ],
)  # fmt: skip
def test_steps_compute_the_same(op: str, tmp_path: Path) -> None:
    fusion = groups(op, "[y, z]" if "z" in op else "[y]")
    changed = redefined(fusion, outside_first(fusion, fusion))
    reductions = [n for n in changed.nodes if n.op.family == "reduction"]
    assert len(reductions) == (3 if "var" in op else 2)
    assert 3 not in reductions[0].attributes["dims"]
    sizes = choose_sizes(fusion, None)
    inputs = random_inputs(fusion, sizes, 1)
    for name, expected in evaluate(fusion, inputs, sizes).items():
        np.testing.assert_allclose(evaluate(changed, inputs, sizes)[name], expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("op", "width", "dtype"),
    [
        ("y = var(x, [1, 3], 1)", 10, "f32"),  # its number is corrected
        ("y = sum(x, [1, 3])", 10, "bf16"),  # parts would be rounded
        ("y = sum(x, [1, 3])", 32, "f32"),  # a line of the caches
        ("y = sum(x, [3])", 10, "f32"),
        ("y = sum(x, [0, 1])", 10, "f32"),
        ("y = sum(x, [2, 3])", 10, "f32"),
        ("y = sum(x)", 10, "f32"),
        ("y = argmax(reshape(x, [N * P * G * D]), 0)", 10, "f32"),
    ],
)
def test_no_steps_where_nothing_lies_apart(op: str, width: int, dtype: str) -> None:
    fusion = groups(op, "[y]", width, dtype)
    assert outside_first(fusion, fusion) == ()


def test_shared_axes_come_first() -> None:
    fusion = groups("y = sum(x, [1, 3]); z = sum(x, [0, 1])", "[y, z]")
    alone = extract(fusion, [n for n in fusion.nodes if n.output.name == "y"], "alone")
    changed = redefined(fusion, shared_first(alone, fusion))
    parts = [n for n in changed.nodes if n.attributes.get("dims") == (1,)]
    assert parts
    sizes = choose_sizes(fusion, None)
    inputs = random_inputs(fusion, sizes, 1)
    for name, expected in evaluate(fusion, inputs, sizes).items():
        np.testing.assert_allclose(evaluate(changed, inputs, sizes)[name], expected, rtol=1e-12)


def test_group_norm_of_channels_inside_is_read_along_them() -> None:
    found = driver.plan(read_text(NORM), OPTIONS)
    kinds = [s.scheduler for s in found.segmented.segments]
    assert kinds == ["reduction", "inner_persistent", "pointwise"]
    assert not found.plans[0].parameters.inner  # pyright: ignore[reportAttributeAccessIssue]
    decisions = found.segmented.decisions
    assert any(d.action == "redefine" and "in_steps" in d.because for d in decisions)


def test_a_variance_in_steps_has_the_order_of_both() -> None:
    found = driver.plan(read_text(NORM), OPTIONS)
    (order,) = (o for name, o in found.host.orders.items() if name.startswith("var"))
    elements = 1
    for stage in order.stages:
        elements *= max(1, stage.chain.evaluate({})) << stage.depth
    assert elements >= 4096 * 10


STRIDES = ["[960, 40, 10, 1]", "[1000, 41, 10, 1]", "[40, 80, 10, 1]", "[10, 80, 20, 1]"]


@pytest.mark.parametrize("strides", STRIDES)
@pytest.mark.parametrize(
    ("ops", "outputs"),
    mostly_nightly(
        [
            ("y = sub(x, sum(x, [1, 3], keepdim=true))", "[y]"),
            ("v, m = var_mean(x, [1, 3], 0)", "[v, m]"),
            ("v, m = var_mean(x, [1, 3], 0, true); y = mul(sub(x, m), v)", "[y, m]"),
            ("a = sum(mul(x, x), [1, 3]); b = max(x, [1, 3]); c = sum(x, [0, 1])", "[a, b, c]"),
        ],
        2,
    ),
)
def test_steps_on_the_host(
    ops: str, outputs: str, strides: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redefine, "LEAST_GAIN", -1000.0)
    x = declared("x", "f32[2, 24, 4, 10]", strides)
    check(x, ops, outputs, tmp_path)
    fusion = read_text(f"fusion: steps\ninputs:\n  {x}\nops: [{quoted(ops)}]\noutputs: {outputs}\n")
    decisions = driver.plan(fusion, OPTIONS).segmented.decisions
    assert any(d.action == "redefine" and "in_steps" in d.because for d in decisions)


def quoted(ops: str) -> str:
    """Return operations as the elements of a YAML list."""
    return ", ".join(f"'{op.strip()}'" for op in ops.split(";"))
