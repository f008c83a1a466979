"""Divisions of a value depend on which are asked for, not on what asks for one first."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from annotated import draw, inferred, repeated_all
from annotated_trials import fusion_of
from draws import drawn, times
from hypothesis import given, reject
from hypothesis import strategies as st
from lockstep import agree, exchanges_of, mesh_of, sharding

from fusec.diagnostics import FusecError
from fusec.ir.dim import dim
from fusec.ir.dtype import F32
from fusec.ir.graph import Fusion
from fusec.ir.text import to_text
from fusec.ops.builder.build import GraphBuilder
from fusec.parse import read_text
from fusec.shard.partition import partition

MESH = mesh_of(a=2, b=2)
DIVISIONS = (
    "", "0:a", "1:a", "2:a", "0:b", "1:b", "0:a,1:b", "1:a,0:b", "0:a b", "1:b a", "0:stream/2",
    "1:stream/4", "0:a stream/2", "0:stream/2 a", "1:a,0:stream/2",
)  # fmt: skip
"""Of a tensor of three dims, all of 8 elements."""
READERS = st.tuples(st.sampled_from([None, 0, 1, 2]), st.sampled_from(DIVISIONS))
"""The dim along which a reader sums up, which it needs whole, and how its result is divided."""


def readers(given: str, asked: list[tuple[int | None, str]], *, expands: bool = False) -> Fusion:
    """Return a fusion whose readers of one computed value need it in several divisions."""
    builder = GraphBuilder("readers")
    x = builder.input("x", F32, [dim(8)] * 3)
    y: Any = builder.apply("neg", x)
    said = {"x": sharding(3, given, MESH)}
    for along, text in asked:
        z: Any = builder.apply("exp", y) if along is None else builder.apply("cumsum", y, along)
        builder.output(z)
        said[z.name] = sharding(3, text, MESH)
    if expands:
        wide = builder.apply("expand", y, [dim(4), *y.shape])
        builder.output(builder.apply("cumsum", wide, 3))
    return replace(builder.finish(), mesh=MESH, shardings=said)


def made(fusion: Fusion) -> Fusion:
    """Return what a rank runs; other draws where the file says what cannot be."""
    try:
        return partition(fusion)
    except FusecError:
        reject()


@drawn(60)
@given(
    given=st.sampled_from(DIVISIONS[:10]),
    asked=st.lists(READERS, min_size=2, max_size=4, unique=True),
    turned=st.randoms(use_true_random=False),
    expands=st.booleans(),
)
def test_readers_in_any_order_cause_the_same_exchanges(
    given: str, asked: list[tuple[int | None, str]], turned: random.Random, expands: bool
) -> None:
    local = made(readers(given, asked, expands=expands))
    turned.shuffle(asked)
    other = made(readers(given, asked, expands=expands))
    assert sorted(exchanges_of(local)) == sorted(exchanges_of(other))


def check(fusion: Fusion) -> None:
    """Check that saying what is inferred of all values, or of each, changes nothing at all."""
    text = to_text(partition(fusion))
    assert to_text(partition(repeated_all(fusion))) == text


@drawn(40)
@given(
    given=st.sampled_from(DIVISIONS[:10]),
    asked=st.lists(READERS, min_size=1, max_size=3, unique=True),
)
def test_saying_what_is_inferred_of_all_readers_changes_nothing(
    given: str, asked: list[tuple[int | None, str]]
) -> None:
    fusion = readers(given, asked, expands=True)
    made(fusion)
    check(fusion)


def check_drawn(seed: int, numbers: range) -> int:
    checked = 0
    for number in numbers:
        try:
            fusion = fusion_of(draw(seed, number))
            partition(fusion)
        except FusecError:
            continue
        if fusion.shardings and inferred(fusion):
            check(fusion)
            checked += 1
    return checked


@pytest.mark.parametrize("first", [0, pytest.param(10, marks=pytest.mark.nightly)])
def test_saying_what_is_inferred_of_all_values_changes_nothing(first: int) -> None:
    count = times(10) if first == 0 else 400
    assert check_drawn(41, range(first, first + count))


def test_a_slice_is_taken_of_what_is_gathered_for_another_reader() -> None:
    """Found by chance (seed 9101, number 784): an all-to-all beside the gather, or none."""
    assert check_drawn(9101, range(784, 785)) == 1


TWO_RESULTS = """
fusion: f
mesh: [2]
inputs: {x: "f32[4, 8]"}
ops:
  - values, indices = topk(x, k=4, dim=1)
outputs:
  - values
  - indices: {shard: {1: mesh}}
"""


SIZE = """
fusion: f
mesh: [2]
dims: {A: 8, B: 4}
inputs: {x: {type: "f32[A, 6]", shard: {0: mesh}}, w: "f32[B]"}
ops:
  - e = broadcast_in_dim(w, shape=[B, A], broadcast_dims=[0])
  - y = mul(x, cast(size(e, dim=1), f32))
  - z = sum(e, dims=[1])
outputs: [y, z]
"""


def test_a_size_is_taken_of_what_is_computed_once() -> None:
    """Whether `e` is there, or computed for its reader, depends on an annotation."""
    check(read_text(SIZE, "f.yaml"))


def test_results_of_one_operation_are_divided_apart() -> None:
    check(read_text(TWO_RESULTS, "f.yaml"))


def test_what_nothing_needs_decides_nothing() -> None:
    fusion = readers("0:a", [(1, "0:a"), (0, "1:a"), (None, "0:a")])
    first, second, third = fusion.outputs
    both = agree(replace(fusion, outputs=(first, second)))
    assert exchanges_of(both) == ["all_to_all"]
    again = readers("0:a", [(1, "0:a"), (0, "1:a"), (0, "")])
    first, second, third = again.outputs
    assert sorted(exchanges_of(agree(again))) == ["all_gather", "rank_slice"]
    assert exchanges_of(agree(replace(again, outputs=(first, second)))) == ["all_to_all"]
    assert exchanges_of(agree(replace(again, outputs=(third,)))) == ["all_gather"]
