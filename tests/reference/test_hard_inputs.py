"""Right results are decided, and wrong ones differ, where most elements contribute nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hard_inputs import KINDS, MASKS, Case, attention, text_of
from nightly import mostly_nightly
from segments_on_cpu import kernels_of, planned, run_segments

from fusec import driver
from fusec.reference.errors.nodes import Model
from fusec.reference.stream import estimate
from fusec.reference.verdict import compare, verdict_on
from fusec.run.arrays import lay_out
from tools.injected_faults import injected_faults, orders_of
from tools.single import Arithmetic, evaluate_single, rounded, stored
from tools.verdicts import ORDERS

SEEDS = [(kind, seed) for seed in range(24) for kind in KINDS]
TAKEN = ("chains", "tree")
"""Orders of sums that kernels take; a serial sum of values far from 0 is really off."""


def case_of(kind: str, seed: int) -> Case:
    return KINDS[kind](np.random.default_rng(seed))


@pytest.mark.parametrize(("kind", "seed"), mostly_nightly(SEEDS, 7))
def test_right_is_decided_and_wrong_differs(kind: str, seed: int) -> None:
    case = case_of(kind, seed)
    fusion = case.fusion
    inputs = case.inputs(fusion)
    arithmetic = Arithmetic(ORDERS[TAKEN[seed % 2]], seed)
    model = Model(orders_of(fusion, {}, arithmetic))
    rng = np.random.default_rng(seed)
    before = {n: rng.permutation(a.reshape(-1)).reshape(a.shape) for n, a in inputs.items()}
    with np.errstate(all="ignore"):
        right = evaluate_single(fusion, inputs, {}, arithmetic)
        verdict = compare(fusion, {}, inputs, stored(fusion, right), model=model)
        assert verdict.ok, f"{case.name}: {verdict.text()}"
        expected = estimate(fusion, inputs, {}, None, model)
        for made in injected_faults(fusion, inputs, before, {}, arithmetic, right):
            value, name = made.output, made.output.name
            if made.counts(right[name], expected[name]):
                found = verdict_on(value, rounded(made.wrong, value.dtype), expected[name])
                assert found.word == "differs", f"{case.name}, {made.kind}: {found.text()}"


def judged_on_cpu(case: Case, folder: Path, scheduler: str) -> None:
    """Assert that the kernels' results are verified, and 2 % more or less of each differ."""
    program = planned(case.text)
    assert scheduler in kernels_of(program)
    fusion = program.original
    inputs = {n: laid_out(a) for n, a in case.inputs(fusion).items()}
    outputs = run_segments(program, inputs, folder)
    model = driver.model_of(program.host, {})
    verdict = compare(fusion, {}, inputs, outputs, model=model)
    assert verdict.ok, f"{case.name}: {verdict.text()}"
    for name, right in outputs.items():
        for scale in (0.98, 1.02):
            with np.errstate(over="ignore"):
                wrong = {**outputs, name: right * right.dtype.type(scale)}
            found = compare(fusion, {}, inputs, wrong, model=model)
            assert found.word == "differs", f"{case.name}, {name}: {found.text()}"


def laid_out(array: np.ndarray) -> object:
    """Return an array as kernels take it."""
    steps = [int(np.prod(array.shape[a + 1 :])) for a in range(array.ndim)]
    return lay_out(array, steps)


SIZES = {"attention": {"rows": 100, "keys": 100}, "attention_decode": {"rows": 1, "keys": 384}}


@pytest.mark.parametrize(
    ("kernel", "mask"),
    mostly_nightly([(kernel, mask) for kernel in SIZES for mask in MASKS], 5),
)
def test_attention_with_rows_without_keys_is_decided(
    kernel: str, mask: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(len(mask))
    case = attention(rng, mask, features=64, lse=mask != "iota lowest", **SIZES[kernel])
    judged_on_cpu(case, tmp_path, kernel)


NORM = [
    "v, m = var_mean(x, dims=[1], correction=0, keepdim=true)",
    "y = mul(sub(x, m), rsqrt(add(v, 1e-5)))",
]


@pytest.mark.parametrize("mean", mostly_nightly([1e5, 1e3, 1e4], 3))
def test_norms_far_from_0_are_decided(mean: float, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(mean, 1, (4, 768)).astype(np.float32)
    case = Case("layer norm", text_of("  x: f32[4, 768]\n", NORM, "[y, v, m]"), {"x": x})
    judged_on_cpu(case, tmp_path, "inner_persistent")
