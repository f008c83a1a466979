"""Errors of a value that is repeated: common along the axis of repetition, and no other."""

from __future__ import annotations

import numpy as np
import pytest
from decodes import DECODES

from fusec import target
from fusec.ir.evaluate import Array
from fusec.ir.graph import Fusion
from fusec.parse.reader import read_text
from fusec.passes import run_pipeline
from fusec.reference.errors.nodes import Model
from fusec.reference.errors.sums import merged
from fusec.reference.stream import estimate, outputs_of
from fusec.reference.verdict import Verdict, compare
from fusec.run.inputs import random_inputs
from fusec.schedule.attention.decode.family import AttentionDecodes

WEIGHED = """fusion: weighed
inputs:
  x: {{type: 'f32[512]', range: [1, 2]}}
  v: {{type: 'f32[512, 64]', range: [1, 2]}}
ops:
  - p = sub(add(x, 1000.0), 1000.0)
  - s = {sums}
outputs: [s]
"""
REPEATED = ("broadcast(p, [false, true])", "expand(broadcast(p, [false, true]), [512, 64])")


def sigma(sums: str) -> Array:
    fusion = read_text(WEIGHED.format(sums=sums), "weighed.yaml")
    sizes = dict(fusion.hints)
    return estimate(fusion, random_inputs(fusion, sizes, 0), sizes)["s"].sigma


@pytest.mark.parametrize("repeated", REPEATED)
def test_sums_along_other_axes_are_as_those_of_a_product(repeated: str) -> None:
    ratio = sigma(f"sum(mul({repeated}, v), dims=[0])") / sigma("matmul(p, v)")
    assert 0.7 < np.median(ratio) < 1.5


@pytest.mark.parametrize("repeated", REPEATED)
@pytest.mark.parametrize("dims", ["[1]", "[0, 1]"])
def test_sums_along_the_axis_of_repetition_are_linear(repeated: str, dims: str) -> None:
    whole = sigma(f"sum(mul({repeated}, v), dims={dims})")
    fusion = read_text(WEIGHED.format(sums="neg(p)"), "weighed.yaml")
    sizes = dict(fusion.hints)
    inputs = random_inputs(fusion, sizes, 0)
    own, v = estimate(fusion, inputs, sizes)["s"].sigma, np.asarray(inputs["v"].array, np.float64)
    linear = np.sum(own[:, None] * v, axis=tuple(map(int, dims.strip("[]").split(","))))
    assert np.all(whole >= 0.99 * linear)


def test_a_block_may_have_errors_that_another_has_not() -> None:
    a, b = {"out": np.ones(2)}, {"out": np.ones(2), "apart": np.full(2, 3.0)}
    for state in (merged(a, b), merged(b, a)):
        assert state["apart"].tolist() == [3.0, 3.0]
        assert state["out"].tolist() == [2.0, 2.0]


def judged(fusion: Fusion, scale: float) -> Verdict:
    plan = AttentionDecodes().build(fusion, target.find("sm_90a"), {})
    sizes = dict(fusion.hints)
    orders = {name: order.at(sizes) for name, order in plan.orders.items()}
    model = Model(orders, early=plan.rounded_early)
    inputs = random_inputs(fusion, sizes, 0)
    outputs = {
        name: (value.astype(np.float64) * scale).astype(value.dtype)
        for name, value in outputs_of(fusion, inputs, sizes).items()
    }
    return compare(fusion, sizes, inputs, outputs, model=model)


def test_decoding_written_as_sums_is_judged_as_products_are() -> None:
    """With all weights' errors in common, 2 % more of everything would not show."""
    fusion = run_pipeline(read_text(DECODES["products of one row as sums"], "decode.yaml"))
    assert judged(fusion, 1.0).ok
    wrong = judged(fusion, 1.02)
    assert not wrong.ok
    assert "differs" in wrong.text()
