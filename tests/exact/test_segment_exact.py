"""Bounds on what segmentations move: against all segmentations of small fusions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from brute_force import cheapest, small_fusion
from fake_schedulers import H200, FakeScheduler, everything, usual
from hypothesis import HealthCheck, given, settings
from segment_runs import check_structure
from strategies import fusions as random_fusions
from strategies import random_inputs

from benchmarks.first_fit import first_fit
from fusec.exact.bound import bound
from fusec.exact.conflicts import Conflicts
from fusec.exact.costs import Costs
from fusec.exact.program import prove
from fusec.exact.space import Space
from fusec.exact.states import States
from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.reference.evaluate import evaluate
from fusec.schedule.no_op import NoOp
from fusec.schedule.registry import schedulers as real_schedulers
from fusec.segment.canonical import canonical, sizes_of_inputs
from fusec.segment.floor import floor_bytes
from tools.segments import run_segments

MOST = 5


def few(limit: int) -> Sequence[Any]:
    """Return a scheduler that takes at most so many nodes."""
    return (FakeScheduler("few", lambda s: None if len(s.nodes) <= limit else "too many"),)


def odd() -> Sequence[Any]:
    """Return schedulers whose refusals do not last: two nodes are refused, three are not."""
    return (
        NoOp(),
        FakeScheduler("odd", lambda s: None if len(s.nodes) % 2 else "an even number of nodes"),
    )


KINDS = {
    "usual": usual,
    "two": lambda: few(2),
    "three": lambda: few(3),
    "odd": odd,
    "everything": lambda: (NoOp(), everything()),
}


def fusions(kinds: int) -> list[Fusion]:
    found = (canonical(sizes_of_inputs(small_fusion(seed))) for seed in range(kinds))
    return [f for f in found if len(f.nodes) <= MOST]


@pytest.mark.parametrize("kind", KINDS)
def test_the_optimum_is_that_of_all_segmentations(kind: str) -> None:
    schedulers = KINDS[kind]()
    for fusion in fusions(15):
        expected = cheapest(fusion, schedulers)
        found = bound(fusion, schedulers, H200, seconds=600)
        assert found.proven
        assert (found.bytes, found.lower_bytes) == (expected, expected), fusion.nodes
        assert found.floor_bytes <= expected


def least(fusion: Fusion, schedulers: Sequence[Any], thorough: bool) -> int:
    """Return the optimum where either all values may be stored, or only the useful ones."""
    space = Space(fusion, thorough)
    costs = Costs(space, schedulers, H200, Conflicts(space, schedulers, H200))
    states = States(space, costs)
    found = states.run(1 << 60, 600)
    assert found.bytes is not None
    assert not states.undercut
    return found.bytes


def test_leaving_out_what_is_cheap_to_compute_again_loses_nothing() -> None:
    for fusion in fusions(60):
        assert least(fusion, usual(), False) == least(fusion, usual(), True), fusion.nodes


PRODUCTS = {
    "chain": ["p = matmul(a, b)", "e = exp(p)", "y = matmul(e, b)"],
    "shared": ["p = matmul(a, b)", "q = matmul(b, a)", "y = add(p, q)"],
    "sum after": ["p = matmul(a, b)", "s = sum(p, dims=[1])", "y = add(s, s)"],
    "sum before": ["s = sum(a, dims=[1], keepdim=true)", "n = mul(a, s)", "y = matmul(n, b)"],
}


def product_fusion(name: str) -> Fusion:
    lines = "".join(f"  - {line}\n" for line in PRODUCTS[name])
    inputs = "inputs: {a: 'bf16[N, N]', b: 'bf16[N, N]'}"
    text = f"fusion: f\ndims: {{N: 64}}\n{inputs}\nops:\n{lines}outputs: [y]\n"
    return canonical(sizes_of_inputs(read_text(text)))


@pytest.mark.parametrize("name", PRODUCTS)
def test_cuts_between_products_keep_the_optimum(name: str) -> None:
    fusion = product_fusion(name)
    expected = cheapest(fusion, real_schedulers())
    assert least(fusion, real_schedulers(), True) == expected
    assert bound(fusion, real_schedulers(), H200, seconds=600).bytes == expected


@pytest.mark.parametrize("kind", KINDS)
def test_the_program_proves_no_more_than_the_optimum(kind: str) -> None:
    pytest.importorskip("scipy")
    schedulers, tight = KINDS[kind](), 0
    for fusion in fusions(40):
        space = Space(fusion, True)
        proof = prove(space, Conflicts(space, schedulers, H200), 600)
        if proof is not None:
            optimum = least(fusion, schedulers, True)
            assert proof.lower <= optimum, fusion.nodes
            tight += proof.lower == optimum
    assert tight > 2


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_program_parts_products(name: str) -> None:
    pytest.importorskip("scipy")
    space = Space(product_fusion(name), True)
    # Which nodes attention takes is seen of all of them, and not of any two.
    pairs = tuple(s for s in real_schedulers() if not s.name.startswith("attention"))
    proof, loose = (
        prove(space, Conflicts(space, s, H200), 600) for s in (pairs, real_schedulers())
    )
    assert proof is not None
    assert loose is not None
    assert loose.lower <= proof.lower == least(space.fusion, real_schedulers(), True)


def test_what_is_computed_again_is_not_stored() -> None:
    text = """
fusion: again
dims: {B: 512, H: 64}
inputs: {x: "f32[B, H]", y: "f32[H]"}
ops:
  - a = add(x, y)
  - rows = sum(a, dims=[1], keepdim=true)
  - columns = sum(mul(a, rows), dims=[0])
outputs: [columns]
"""

    def one_reduction(segment: Fusion) -> str | None:
        reductions = [n for n in segment.nodes if n.op.family == "reduction"]
        return "two reductions" if len(reductions) > 1 else None

    fusion = canonical(sizes_of_inputs(read_text(text)))
    found = bound(fusion, (FakeScheduler("one", one_reduction),), H200, seconds=600)
    assert found.proven
    assert [s.count("a") for s in map(list, found.segments)] == [1, 1]
    assert found.bytes == 2 * (512 * 64 + 64) * 4 + 2 * 512 * 4 + 64 * 4


def test_a_limit_of_time_leaves_a_bound() -> None:
    fusion = canonical(sizes_of_inputs(small_fusion(3, 30)))
    found = bound(fusion, few(2), H200, seconds=0)
    assert found.floor_bytes <= found.lower_bytes <= found.bytes
    assert found.gap == 1 - found.lower_bytes / found.bytes
    assert not found.proven


FLOORS = {
    "a view of an input": (["y = permute(x, dims=[1, 0])"], "y", 0),
    "a slice": (["y = neg(slice(x, [0, 0], [8, 64]))"], "y", 2 * 8 * 64 * 4),
    "slices of a reshape": (
        ["r = reshape(x, new_shape=[8, 8, 64])", "y = neg(slice(r, [0, 0, 0], [8, 2, 64]))"],
        "y",
        2 * 16 * 64 * 4,
    ),
    "overlapping slices": (
        ["a = slice(x, [0, 0], [40, 64])", "b = slice(x, [24, 0], [64, 64])", "y = add(a, b)"],
        "y",
        (64 + 40) * 64 * 4,
    ),
    "a row of each sum": (["s = sum(x, dims=[1])", "y = neg(slice(s, [0], [16]))"], "y",
                          16 * 65 * 4),
    "a view of an output": (["z = neg(x)", "y = reshape(z, new_shape=[4096])"], "z, y",
                            2 * 64 * 64 * 4),
    "a crop": (["y = neg(pad(x, pad_widths=[0, 0, -4, -4]))"], "y", 2 * 56 * 64 * 4),
    "rows added in place": (["y = index_add(x, i, u, dim=0)"], "{y: {alias: x}}",
                            8 * 8 + 3 * 8 * 64 * 4),
    "elements put in place": (["y = scatter(x, j, 1.0, dim=0)"], "{y: {alias: x}}",
                              8 * 32 * 8 + 8 * 32 * 4),
    "rows added to a copy": (["y = index_add(x, i, u, dim=0)"], "y",
                             8 * 8 + 8 * 64 * 4 + 2 * 64 * 64 * 4),
    "rows of another in place": (["y = index_add(neg(x), i, u, dim=0)"], "{y: {alias: x}}",
                                 8 * 8 + 8 * 64 * 4 + 2 * 64 * 64 * 4),
}  # fmt: skip


@pytest.mark.parametrize("name", FLOORS)
def test_the_floor_counts_what_is_needed(name: str) -> None:
    lines, outputs, expected = FLOORS[name]
    ops = "".join(f"  - {line}\n" for line in lines)
    tensors = {"x": "f32[64, 64]", "u": "f32[8, 64]", "i": "i64[8]", "j": "i64[8, 32]"}
    given = (f"{n}: '{t}'" for n, t in tensors.items() if re.search(rf"\b{n}\b", ops))
    head = f"fusion: f\ninputs: {{{', '.join(given)}}}\n"
    fusion = read_text(f"{head}ops:\n{ops}outputs: [{outputs}]\n")
    assert floor_bytes(fusion) == expected
    assert floor_bytes(fusion) <= bound(fusion, real_schedulers(), H200, seconds=600).bytes


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(random_fusions(aliases=True))
def test_first_fit_computes_the_same_and_moves_no_less_than_the_floor(fusion: Fusion) -> None:
    found = first_fit(fusion, usual(), H200)
    check_structure(found)
    given_inputs = random_inputs(fusion)
    expected = evaluate(fusion, given_inputs, fusion.hints)
    values = run_segments(found, given_inputs, found.fusion.hints)
    for before, after in zip(fusion.outputs, found.fusion.outputs, strict=True):
        np.testing.assert_array_equal(values[after.value.name], expected[before.value.name])
    assert floor_bytes(found.fusion) <= found.bytes
