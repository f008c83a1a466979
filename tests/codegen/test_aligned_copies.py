"""Products of operands whose rows begin anywhere: copies of them have aligned rows."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_check import check_on_gpu
from hypothesis import given, settings
from hypothesis import strategies as st

from fusec import lowering
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.passes.rewrite import rewrite
from fusec.reference.evaluate import evaluate
from fusec.run.inputs import random_inputs
from fusec.schedule.matmul.family import Matmul
from fusec.segment.protocol import Redefinition
from fusec.segment.segmented import SegmentedFusion
from fusec.target import find

TARGET = find("sm_90a")


def product(m: int, n: int, k: int, layout: str = "nt", dtype: str = "bf16") -> Fusion:
    a = f"[{m}, {k}]" if layout[0] == "n" else f"[{k}, {m}]"
    b = f"[{n}, {k}]" if layout[1] == "t" else f"[{k}, {n}]"
    x = "a" if layout[0] == "n" else "permute(a, dims=[1, 0])"
    y = "b" if layout[1] == "n" else "permute(b, dims=[1, 0])"
    return read_text(
        f"fusion: product\ninputs:\n  a: {dtype}{a}\n  b: {dtype}{b}\n  bias: {dtype}[{n}]\n"
        f"ops:\n  - p = matmul({x}, {y})\n  - y = relu(add(p, bias))\noutputs: [y]\n"
    )


def offered(fusion: Fusion) -> list[Redefinition]:
    found = Matmul().redefinitions(fusion, fusion, TARGET)
    return [r for r in found if r.name == "aligned"]


def segmented(fusion: Fusion) -> SegmentedFusion:
    return lowering.segment(fusion, CompileOptions(targets=("sm_90a",)))


@given(
    st.integers(1, 40), st.integers(2, 40), st.integers(2, 40),
    st.sampled_from(["nt", "nn", "tn", "tt"]),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_the_product_of_copies_is_the_same(m: int, n: int, k: int, layout: str) -> None:
    fusion = product(m, n, k, layout)
    inputs = random_inputs(fusion, fusion.hints, 1)
    expected = evaluate(fusion, inputs, fusion.hints)["y"]
    for redefinition in offered(fusion):
        assert redefinition.rule is not None
        changed = rewrite(fusion, redefinition.rule)
        assert changed is not fusion
        assert np.array_equal(
            np.asarray(evaluate(changed, inputs, fusion.hints)["y"]), np.asarray(expected)
        )


@pytest.mark.parametrize(
    ("layout", "shape", "copied"),
    [
        ("nt", (64, 64, 63), "`a` and `b`"),
        ("nn", (64, 63, 64), "`b`"),
        ("tn", (63, 64, 64), "`a`"),
        ("tt", (64, 64, 62), "`b`"),
        ("nn", (63, 64, 64), ""),
        ("nt", (63, 63, 64), ""),
    ],
)
def test_what_begins_anywhere_is_copied(
    layout: str, shape: tuple[int, int, int], copied: str
) -> None:
    found = offered(product(*shape, layout))
    assert [r.because.split(" are unaligned")[0] for r in found] == (
        [f"rows of {copied}"] if copied else []
    )


def test_f32_has_no_copies_in_bulk() -> None:
    assert offered(product(64, 64, 63, dtype="f32")) == []


@pytest.mark.parametrize("layout", ["nt", "nn", "tn"])
def test_large_products_are_of_copies(layout: str) -> None:
    found = segmented(product(2047, 2045, 2043, layout))
    assert [s.scheduler for s in found.segments] == ["pointwise", "pointwise", "matmul"]
    assert any(d.action == "redefine" and "aligned" in d.because for d in found.decisions)


def test_small_ones_are_not() -> None:
    found = segmented(product(33, 65, 21))
    assert [s.scheduler for s in found.segments] == ["matmul"]
    assert any(d.action == "undo" and "aligned" in d.because for d in found.decisions)


OPEN = read_text(
    "fusion: open\ndims: {M: 1029, N: 1031, K: 1035}\ninputs:\n  a: bf16[M, K]\n  b: bf16[K, N]\n"
    "ops:\n  - y = matmul(a, b)\noutputs: [y]\n"
)


def test_sizes_may_stay_open() -> None:
    (redefinition,) = offered(OPEN)
    assert redefinition.rule is not None
    changed = rewrite(OPEN, redefinition.rule)
    for sizes in ({"M": 5, "N": 9, "K": 7}, {"M": 5, "N": 16, "K": 8}):
        inputs = random_inputs(OPEN, sizes, 1)
        found, expected = (np.asarray(evaluate(f, inputs, sizes)["y"]) for f in (changed, OPEN))
        assert np.array_equal(found, expected)
    assert [s.scheduler for s in segmented(OPEN).segments][-1] == "matmul"


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
def test_products_of_copies_on_a_gpu(layout: str) -> None:
    checked = check_on_gpu(product(263, 517, 1035, layout))
    assert checked.schedulers == ["pointwise", "pointwise", "matmul"]
