"""Passes over slices, concatenations and pads."""

from __future__ import annotations

import pytest
from passes_sheet import Sheet

from fusec.ir.dim import dim
from fusec.ir.graph import Value
from fusec.passes.cancel_slices import cancel_slices
from fusec.passes.expand_repeats import expand_repeats
from fusec.passes.merge_pads import merge_pads


@pytest.fixture
def s() -> Sheet:
    return Sheet()


def cut(s: Sheet, name: str, x: Value, start: object, end: object, step: int = 1) -> Value:
    """Slice the first dim."""
    rest = x.shape[1:]
    return s.op(
        name, "slice", x,
        start_indices=[start, *(0 for _ in rest)], end_indices=[end, *rest],
        strides=[step, *(1 for _ in rest)],
    )  # fmt: skip


# -- slices and cats


def test_a_slice_of_a_cat_that_is_a_piece(s: Sheet) -> None:
    x, w = s.input("x", s.A, s.C), s.input("w", s.B, s.C)
    joined = s.op("joined", "cat", [x, w], dim=0)
    y = s.op("y", "neg", cut(s, "p", joined, 0, s.A))
    z = s.op("z", "neg", cut(s, "q", joined, s.A, s.A + s.B))
    assert s.lines(cancel_slices, y, z) == ["y = neg(x)", "z = neg(w)"]


def test_a_slice_of_a_cat_inside_a_piece_or_over_whole_ones(s: Sheet) -> None:
    x, w, v = s.input("x", 2), s.input("w", 3), s.input("v", 4)
    joined = s.op("joined", "cat", [x, w, v], dim=0)
    y, z = cut(s, "y", joined, 6, 9, 2), cut(s, "z", joined, 2, 9)
    after = s.after(cancel_slices, y, z)
    assert [repr(n) for n in after.nodes] == ["y = slice(v)", "z = cat(w, v)"]
    assert after.nodes[0].attributes["start_indices"] == (dim(1),)


def test_a_slice_across_pieces_or_of_unknown_place_stays(s: Sheet) -> None:
    x, w = s.input("x", s.A), s.input("w", s.B)
    joined = s.op("joined", "cat", [x, w], dim=0)
    y = cut(s, "y", joined, 1, s.A + 1)
    z = cut(s, "z", joined, 0, 2)
    assert len(s.lines(cancel_slices, y, z)) == 3


def test_neighbouring_slices_in_order_are_the_tensor(s: Sheet) -> None:
    x = s.input("x", 6, s.C)
    pieces = [cut(s, "a", x, 0, 1), cut(s, "b", x, 1, 4), cut(s, "c", x, 4, 6)]
    y = s.op("y", "neg", s.op("j", "cat", pieces, dim=0))
    assert s.lines(cancel_slices, y) == ["y = neg(x)"]


def test_slices_that_leave_a_part_out_become_one_slice(s: Sheet) -> None:
    x, w = s.input("x", 6), s.input("w", 2)
    y = s.op("y", "cat", [cut(s, "a", x, 1, 2), cut(s, "b", x, 2, 5), w], dim=0)
    after = s.after(cancel_slices, y)
    assert [repr(n) for n in after.nodes] == ["y_slice = slice(x)", "y = cat(y_slice, w)"]
    assert after.nodes[0].attributes["end_indices"] == (dim(5),)


@pytest.mark.parametrize("bounds", [((3, 6), (0, 3)), ((0, 3), (4, 6)), ((0, 4), (3, 6))])
def test_slices_out_of_order_apart_or_overlapping_stay(
    s: Sheet, bounds: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    x = s.input("x", 6)
    y = s.op("y", "cat", [cut(s, f"p{a}", x, a, b) for a, b in bounds], dim=0)
    assert len(s.lines(cancel_slices, y)) == 3


def test_slices_of_different_tensors_or_axes_stay(s: Sheet) -> None:
    x, w = s.input("x", 6, 6), s.input("w", 6, 6)
    y = s.op("y", "cat", [cut(s, "a", x, 0, 3), cut(s, "b", w, 3, 6)], dim=0)
    z = s.op("z", "cat", [cut(s, "c", x, 0, 3), cut(s, "d", x, 3, 6)], dim=1)
    assert len(s.lines(cancel_slices, y, z)) == 6


def test_slices_of_slices_merge_and_whole_ones_vanish(s: Sheet) -> None:
    x = s.input("x", 9)
    a = cut(s, "a", x, 2, 8)
    y = cut(s, "y", cut(s, "whole", a, 0, 6), 1, 5, 2)
    after = s.after(cancel_slices, y)
    assert [repr(n) for n in after.nodes] == ["y = slice(x)"]
    attributes = after.nodes[0].attributes
    assert (attributes["start_indices"], attributes["end_indices"]) == ((dim(3),), (dim(7),))
    assert attributes["strides"] == (2,)


def test_a_slice_of_a_stepped_slice_stays(s: Sheet) -> None:
    x = s.input("x", 9)
    y = cut(s, "y", cut(s, "a", x, 0, 9, 2), 1, 5)
    assert len(s.lines(cancel_slices, y)) == 2


# -- repeats


def test_a_tensor_joined_with_itself_is_expanded(s: Sheet) -> None:
    x = s.input("x", s.A, s.B)
    after = s.after(expand_repeats, s.op("y", "cat", [x, x, x], dim=1))
    assert [repr(n) for n in after.nodes] == [
        "y_broadcast = broadcast(x)",
        "y_expand = expand(y_broadcast)",
        "y = reshape(y_expand)",
    ]
    assert after.nodes[1].output.shape == (s.A, dim(3), s.B)


def test_a_unit_dim_joined_with_itself_is_expanded_in_place(s: Sheet) -> None:
    x = s.input("x", s.A, 1)
    assert s.lines(expand_repeats, s.op("y", "cat", [x, x], dim=1)) == ["y = expand(x)"]


def test_different_tensors_are_no_repeat(s: Sheet) -> None:
    x, w = s.input("x", s.A), s.input("w", s.A)
    assert s.lines(expand_repeats, s.op("y", "cat", [x, w, x], dim=0)) == ["y = cat(x, w, x)"]


# -- pads


def padded(s: Sheet, name: str, x: Value, low: object, high: object, fill: object = 0.0) -> Value:
    return s.op(name, "pad", x, fill, pad_widths=[low, high])


def test_pads_merge(s: Sheet) -> None:
    x = s.input("x", s.A, s.B)
    y = padded(s, "y", padded(s, "a", x, 1, 0), 2, s.A)
    after = s.after(merge_pads, y)
    assert [repr(n) for n in after.nodes] == ["y = pad(x, 0.0)"]
    assert after.nodes[0].attributes["pad_widths"] == (0, 0, dim(3), s.A)


def test_a_pad_of_nothing_vanishes(s: Sheet) -> None:
    x = s.input("x", s.A)
    assert s.lines(merge_pads, s.op("y", "neg", padded(s, "a", x, 0, 0))) == ["y = neg(x)"]


@pytest.mark.parametrize(("op", "inner", "outer"), [
    ("relu", 0.0, 0.0), ("sqrt", 0.0, 0.0), ("exp", 0.0, 1.0), ("abs", -1.0, 1.0),
])  # fmt: skip
def test_a_pad_passes_an_operation_that_maps_the_fill(
    s: Sheet, op: str, inner: float, outer: float
) -> None:
    x = s.input("x", s.A)
    y = padded(s, "y", s.op("f", op, padded(s, "a", x, 1, 1, inner)), 0, 2, outer)
    assert s.lines(merge_pads, y) == [f"y_pad = pad(x, {inner})", f"y = {op}(y_pad)"]


@pytest.mark.parametrize(("op", "inner", "outer"), [
    ("neg", 0.0, 0.0),  # -0.0
    ("exp", 0.0, 0.0),
    ("exp", 2.0, 7.38905609893065),  # rounded one way or another
    ("relu", 0.0, 1.0),
])  # fmt: skip
def test_a_pad_stays_behind_an_operation_that_changes_the_fill(
    s: Sheet, op: str, inner: float, outer: float
) -> None:
    x = s.input("x", s.A)
    y = padded(s, "y", s.op("f", op, padded(s, "a", x, 1, 1, inner)), 0, 2, outer)
    assert len(s.lines(merge_pads, y)) == 3


def test_a_pad_stays_behind_what_others_use_and_where_it_meets_none(s: Sheet) -> None:
    x = s.input("x", s.A)
    f = s.op("f", "relu", padded(s, "a", x, 1, 1))
    y, z = padded(s, "y", f, 0, 2), s.op("z", "neg", f)
    w = padded(s, "w", s.op("g", "relu", x), 1, 1)
    assert len(s.lines(merge_pads, y, z, w)) == 6


def test_pads_that_cut_do_not_merge(s: Sheet) -> None:
    x = s.input("x", 6)
    y = padded(s, "y", padded(s, "a", x, -2, 0), 2, 0)
    assert len(s.lines(merge_pads, y)) == 2
