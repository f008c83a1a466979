"""Passes over broadcasts, permutes, reshapes, unit reductions and outer products."""

from __future__ import annotations

import pytest
from passes_sheet import Sheet

from fusec.ir.dtype import BF16, BOOL, F32, I32, DType
from fusec.passes.merge_broadcasts import merge_broadcasts
from fusec.passes.merge_permutes import merge_permutes
from fusec.passes.merge_reshapes import merge_reshapes
from fusec.passes.multiply_outer_products import multiply_outer_products
from fusec.passes.squeeze_unit_reductions import squeeze_unit_reductions


@pytest.fixture
def s() -> Sheet:
    return Sheet()


# -- broadcast, expand, squeeze


def test_broadcast_then_squeeze_is_nothing(s: Sheet) -> None:
    x = s.input("x", s.A, s.B)
    wide = s.op("wide", "broadcast", x, is_broadcast_dim=[False, True, False])
    y = s.op("y", "neg", s.op("narrow", "squeeze", wide, dims=[1]))
    assert s.lines(merge_broadcasts, y) == ["y = neg(x)"]


def test_squeeze_takes_some_broadcast_dims_and_leaves_others(s: Sheet) -> None:
    x = s.input("x", s.A, 1)
    wide = s.op("wide", "broadcast", x, is_broadcast_dim=[True, False, False, True])
    y = s.op("y", "squeeze", wide, dims=[2, 3])
    after = s.after(merge_broadcasts, y)
    assert [repr(n) for n in after.nodes] == ["y_squeeze = squeeze(x)", "y = broadcast(y_squeeze)"]
    assert after.nodes[1].attributes["is_broadcast_dim"] == (True, False)


def test_broadcast_in_dim_of_unit_dims_then_squeeze_is_nothing(s: Sheet) -> None:
    x = s.input("x", s.A, s.B)
    wide = s.op("wide", "broadcast_in_dim", x, shape=[1, s.A, 1, s.B], broadcast_dims=[1, 3])
    y = s.op("y", "neg", s.op("narrow", "squeeze", wide, dims=[0, 2]))
    assert s.lines(merge_broadcasts, y) == ["y = neg(x)"]


def test_broadcast_in_dim_that_repeats_stays(s: Sheet) -> None:
    x = s.input("x", s.B)
    wide = s.op("wide", "broadcast_in_dim", x, shape=[s.A, 1, s.B], broadcast_dims=[2])
    y = s.op("y", "squeeze", wide, dims=[1])
    after = s.after(merge_broadcasts, y)
    assert [repr(n) for n in after.nodes] == ["y = broadcast_in_dim(x)"]
    assert after.nodes[0].attributes["broadcast_dims"] == (1,)


def test_expand_then_squeeze_squeezes_first(s: Sheet) -> None:
    x = s.input("x", 1, 1, s.B)
    wide = s.op("wide", "expand", x, shape=[s.A, 1, s.B])
    y = s.op("y", "squeeze", wide, dims=[1])
    assert s.lines(merge_broadcasts, y) == ["y_squeeze = squeeze(x)", "y = expand(y_squeeze)"]


def test_squeeze_of_expanded_dims_reads_the_origin(s: Sheet) -> None:
    x = s.input("x", 1, s.B)
    wide = s.op("wide", "expand", x, shape=[s.A, s.B])
    y = s.op("y", "squeeze", wide, dims=[0], squeeze_expanded=True)
    assert s.lines(merge_broadcasts, y) == ["y = squeeze(x)"]


def test_squeeze_then_broadcast_back_is_nothing(s: Sheet) -> None:
    x = s.input("x", s.A, 1)
    back = s.op(
        "back", "broadcast", s.op("n", "squeeze", x, dims=[1]), is_broadcast_dim=[False, True]
    )
    y = s.op("y", "neg", back)
    assert s.lines(merge_broadcasts, y) == ["y = neg(x)"]


def test_squeeze_then_broadcast_elsewhere_stays(s: Sheet) -> None:
    x = s.input("x", s.A, 1)
    y = s.op("y", "broadcast", s.op("n", "squeeze", x, dims=[1]), is_broadcast_dim=[True, False])
    assert s.lines(merge_broadcasts, y) == ["n = squeeze(x)", "y = broadcast(n)"]


def test_squeeze_of_repeated_values_then_broadcast_stays(s: Sheet) -> None:
    x = s.input("x", s.A, s.B)
    first = s.op("first", "squeeze", x, dims=[1], squeeze_expanded=True)
    y = s.op("y", "broadcast", first, is_broadcast_dim=[False, True])
    assert s.lines(merge_broadcasts, y) == ["first = squeeze(x)", "y = broadcast(first)"]


def test_places_of_broadcasts_compose(s: Sheet) -> None:
    x = s.input("x", s.B)
    a = s.op("a", "broadcast_in_dim", x, shape=[s.A, s.B], broadcast_dims=[1])
    y = s.op("y", "broadcast_in_dim", a, shape=[s.A, 2, s.B, 2], broadcast_dims=[0, 2])
    after = s.after(merge_broadcasts, y)
    assert [repr(n) for n in after.nodes] == ["y = broadcast_in_dim(x)"]
    assert after.nodes[0].attributes["broadcast_dims"] == (2,)


def test_chains_of_broadcasts_become_one(s: Sheet) -> None:
    x = s.input("x", s.B)
    a = s.op("a", "broadcast", x, is_broadcast_dim=[True, False])
    b = s.op("b", "broadcast", a, is_broadcast_dim=[False, True, False])
    y = s.op("y", "broadcast_in_dim", b, shape=[2, s.A, 1, s.B], broadcast_dims=[0, 1, 3])
    after = s.after(merge_broadcasts, y)
    assert [repr(n) for n in after.nodes] == ["y = broadcast_in_dim(x)"]
    assert after.nodes[0].attributes["broadcast_dims"] == (3,)


def test_expand_of_expand_is_one_and_to_the_same_shape_none(s: Sheet) -> None:
    x = s.input("x", 1, s.B)
    a = s.op("a", "expand", s.op("same", "expand", x, shape=[1, s.B]), shape=[s.A, s.B])
    y = s.op("y", "expand", a, shape=[2, s.A, s.B])
    assert s.lines(merge_broadcasts, y) == ["y = expand(x)"]


# -- permute and reshape


def test_permutes_compose_in_the_right_order(s: Sheet) -> None:
    x = s.input("x", s.A, s.B, s.C)
    a = s.op("a", "permute", x, dims=[1, 2, 0])
    y = s.op("y", "permute", a, dims=[0, 2, 1])
    after = s.after(merge_permutes, y)
    assert [repr(n) for n in after.nodes] == ["y = permute(x)"]
    assert after.nodes[0].attributes["dims"] == (1, 0, 2)


def test_a_permute_through_something_else_stays(s: Sheet) -> None:
    x = s.input("x", s.A, s.B)
    a = s.op("a", "neg", s.op("p", "permute", x, dims=[1, 0]))
    y = s.op("y", "permute", a, dims=[1, 0])
    assert len(s.lines(merge_permutes, y)) == 3


def test_reshapes_merge_and_vanish(s: Sheet) -> None:
    x = s.input("x", s.A, s.B)
    flat = s.op("flat", "reshape", x, new_shape=[s.A * s.B])
    y = s.op("y", "neg", s.op("back", "reshape", flat, new_shape=[s.A, s.B]))
    z = s.op("z", "reshape", flat, new_shape=[s.B, s.A])
    assert s.lines(merge_reshapes, y, z) == ["y = neg(x)", "z = reshape(x)"]


# -- reductions over extent 1


def test_a_reduction_over_unit_dims_is_a_squeeze(s: Sheet) -> None:
    x = s.input("x", s.A, 1)
    y = s.op("y", "sum", x, dims=[1])
    assert s.lines(squeeze_unit_reductions, y) == ["y = squeeze(x)"]


def test_a_reduction_over_some_unit_dims_loses_them(s: Sheet) -> None:
    x = s.input("x", 1, s.A, s.B)
    y = s.op("y", "max", x, dims=[0, 2])
    after = s.after(squeeze_unit_reductions, y)
    assert [repr(n) for n in after.nodes] == ["y_squeeze = squeeze(x)", "y = max(y_squeeze)"]
    assert after.nodes[1].attributes["dims"] == (1,)


def test_a_reduction_that_changes_the_type_becomes_a_cast(s: Sheet) -> None:
    x, m = s.input("x", s.A, 1, dtype=I32), s.input("m", 1, dtype=F32)
    y = s.op("y", "sum", x, dims=[1])
    z = s.op("z", "any", m, dims=[0])
    after = s.after(squeeze_unit_reductions, y, z)
    assert [repr(n) for n in after.nodes] == [
        "y_squeeze = squeeze(x)",
        "y = cast(y_squeeze)",
        "z_squeeze = squeeze(m)",
        "z = cast(z_squeeze)",
    ]
    assert after.nodes[3].output.dtype == BOOL


def test_variances_and_unknown_extents_stay(s: Sheet) -> None:
    x = s.input("x", s.A, 1)
    var = s.op("y", "var", x, dims=[1], correction=0)
    total = s.op("z", "sum", x, dims=[0])
    assert s.lines(squeeze_unit_reductions, var, total) == ["y = var(x)", "z = sum(x)"]


# -- products over one element


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ((3, 1), (1, 4), ["y = mul(x, w)"]),
        ((2, 3, 1), (1, 4), ["y_broadcast = broadcast(w)", "y = mul(x, y_broadcast)"]),
        ((1,), (1, 4), ["y_squeeze = squeeze(w)", "y = mul(x, y_squeeze)"]),
        ((3, 1), (1,), ["y_squeeze = squeeze(x)", "y = mul(y_squeeze, w)"]),
    ],
)
def test_a_product_over_one_element_is_a_multiplication(
    s: Sheet, left: tuple[int, ...], right: tuple[int, ...], expected: list[str]
) -> None:
    x, w = s.input("x", *left, dtype=BF16), s.input("w", *right, dtype=BF16)
    assert s.lines(multiply_outer_products, s.op("y", "matmul", x, w)) == expected


def test_a_product_over_more_stays(s: Sheet) -> None:
    x, w = s.input("x", s.A, s.B), s.input("w", s.B, 1)
    assert s.lines(multiply_outer_products, s.op("y", "matmul", x, w)) == ["y = matmul(x, w)"]


def test_a_linear_rounds_once(s: Sheet) -> None:
    x, w = s.input("x", s.A, 1, dtype=BF16), s.input("w", s.B, 1, dtype=BF16)
    bias = s.input("bias", s.B, dtype=BF16)
    after = s.after(multiply_outer_products, s.op("y", "linear", x, w, bias))
    assert [n.op.name for n in after.nodes][-3:] == ["mul", "add", "cast"]
    assert after.nodes[-3].output.dtype == after.nodes[-2].output.dtype == F32


@pytest.mark.parametrize("left", [(1,), (3, 1), (2, 3, 1)])
@pytest.mark.parametrize("weight", [(1,), (4, 1)])
@pytest.mark.parametrize("dtype", [F32, BF16, I32])
@pytest.mark.parametrize("with_bias", [False, True])
def test_linear_over_one_element_keeps_numbers(
    s: Sheet, left: tuple[int, ...], weight: tuple[int, ...], dtype: DType, with_bias: bool
) -> None:
    import numpy as np

    from fusec.reference.evaluate import evaluate

    x, w = s.input("x", *left, dtype=dtype), s.input("w", *weight, dtype=dtype)
    bias = [s.input("bias", *weight[:-1], dtype=dtype)] if with_bias else []
    s.b.output(s.op("y", "linear", x, w, *bias))
    before = s.b.finish()
    after = multiply_outer_products(before)
    assert "linear" not in {n.op.name for n in after.nodes}
    generator = np.random.default_rng(0)
    inputs = {
        i.value.name: generator.uniform(-9, 9, [d.value for d in i.value.shape]).astype(dtype.numpy)
        for i in before.inputs
    }
    expected = evaluate(before, inputs, before.hints)["y"]
    np.testing.assert_array_equal(evaluate(after, inputs, after.hints)["y"], expected)
