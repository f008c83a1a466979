"""Random inputs with layouts, sizes read off arrays, and files of arrays."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from draws import times
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fusec.diagnostics import FusecError
from fusec.files import with_planned_strides
from fusec.ir.dtype import BF16, BOOL, F8E4M3, F16, F32, F64, I32, I64, U8, DType
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.run.arrays import StridedArray, as_declared, lay_out, load_arrays, save_arrays, span
from fusec.run.inputs import bind_sizes, choose_sizes, random_inputs


def single(dtype: DType = F32, op: str = "set", shape=("M", "N"), **options) -> Fusion:
    b = GraphBuilder()
    dims = {n: b.declare_dim(n, d) for n, d in (("M", 6), ("N", 10)) if n in shape}
    x = b.input("x", dtype, [dims.get(s, s) for s in shape], **options)
    b.output(b.apply(op, x))
    return b.finish()


def drawn(fusion: Fusion, seed: int = 0, **given: int) -> StridedArray:
    return random_inputs(fusion, choose_sizes(fusion, given), seed)["x"]


@pytest.mark.parametrize("dtype", [F64, F32, F16, BF16, F8E4M3, I64, I32, U8])
def test_inputs_are_fresh_for_each_seed_and_never_zero(dtype: DType):
    fusion = single(dtype)
    first, again, other = (np.asarray(drawn(fusion, seed)) for seed in (1, 1, 2))
    assert first.dtype == dtype.numpy
    assert first.shape == (6, 10)
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)
    assert np.all(first.astype(np.float64) != 0)


def test_bools_take_both_values():
    assert set(np.asarray(drawn(single(BOOL))).reshape(-1).tolist()) == {False, True}


def test_inputs_lie_where_their_users_are_defined():
    b = GraphBuilder()
    x = b.input("x", BF16, [b.declare_dim("N", 1000)])
    wide = b.apply("cast", x, dtype=F32)
    b.output(b.apply("log", b.apply("reshape", wide, [1, -1])))
    b.output(b.apply("acos", wide))
    fusion = b.finish()
    x = np.asarray(drawn(fusion)).astype(np.float64)
    assert 0 < x.min() < x.max() < 1


def test_declared_ranges_hold_and_may_contain_zero():
    x = np.asarray(drawn(single(I64, low=0, high=2)))
    assert set(x.reshape(-1).tolist()) == {0, 1, 2}
    y = np.asarray(drawn(single(F32, low=3.0, high=3.5)))
    assert 3 <= y.min() < y.max() <= 3.5


def test_run_time_strides_are_padded():
    fusion = single(BF16, contiguity=[False, True])
    x = drawn(fusion)
    assert x.strides == (24, 1)
    assert x.storage.size == span(x.shape, x.strides) == 5 * 24 + 10
    assert np.asarray(x).strides == (48, 2)


@example(dims=([(0, False), (1, True), (0, True), (5, False)], [3, 0, 2, 1]))
@settings(max_examples=times(100))
@given(
    dims=st.lists(
        st.tuples(st.sampled_from([0, 1, 1, 5]), st.sampled_from([True, False, None])),
        min_size=2,
        max_size=4,
    ).flatmap(lambda dims: st.tuples(st.just(dims), st.permutations(range(len(dims)))))
)
def test_chosen_run_time_strides_are_chosen_again(
    dims: tuple[list[tuple[int, bool | None]], list[int]],
):
    b = GraphBuilder()
    each, order = dims
    shape = [b.declare_dim(f"D{axis}", size) for axis, (size, _) in enumerate(each)]
    x = b.input("x", F32, shape, contiguity=[c for _, c in each], stride_order=order)
    b.output(b.apply("set", x))
    planned = with_planned_strides(b.finish())
    assert choose_sizes(planned) == planned.hints


def test_a_strided_innermost_dim_and_a_transposed_input():
    assert drawn(single(F32, contiguity=[False, False])).strides == (32, 2)
    assert drawn(single(F32, stride_order=[0, 1])).strides == (1, 6)
    order = single(F32, contiguity=[False, True], stride_order=[0, 1])
    assert drawn(order).strides == (1, 16)


def test_expanded_dims_share_memory():
    x = drawn(single(BF16, contiguity=[None, True]))
    assert x.strides == (0, 1)
    assert x.storage.size == 10
    array = np.asarray(x)
    np.testing.assert_array_equal(array[0], array[5])


def test_zero_size_inputs_are_empty():
    assert np.asarray(drawn(single(), M=0)).shape == (0, 10)


def test_scalars_come_from_defaults_sizes_or_their_range():
    b = GraphBuilder()
    x = b.input("x", F32, [4])
    eps = b.input("eps", F32, None, default=1e-5)
    scale = b.input("scale", F32, None, low=2.0, high=3.0)
    k = b.input("k", I64, None, default=3)
    total = b.apply("add", b.apply("mul", x, eps), b.apply("mul", scale, k))
    b.output(b.apply("add", x, total))
    fusion = b.finish()
    inputs = random_inputs(fusion, choose_sizes(fusion, {"k": 5}))
    assert inputs["eps"] == 1e-5
    assert 2 <= inputs["scale"] <= 3
    assert inputs["k"] == 5


def test_unknown_dims_and_broken_facts_are_refused():
    b = GraphBuilder()
    h = b.declare_dim("H", 16, multiple_of=8)
    b.output(b.apply("set", b.input("x", F32, [h])))
    fusion = b.finish()
    with pytest.raises(FusecError, match="no dim `K`"):
        choose_sizes(fusion, {"K": 2})
    with pytest.raises(FusecError, match="`H` is 12, declared a multiple of 8"):
        choose_sizes(fusion, {"H": 12})
    with pytest.raises(FusecError, match="`H` is 20, declared a multiple of 8"):
        bind_sizes(fusion, {"x": np.zeros(20, np.float32)})
    with pytest.raises(FusecError, match="cannot be negative"):
        choose_sizes(fusion, {"H": -8})


def two() -> Fusion:
    b = GraphBuilder()
    m, n = b.declare_dim("M", 6), b.declare_dim("N", 10)
    x = b.input("x", F32, [m, n * 2])
    w = b.input("w", F32, [n * 2])
    b.output(b.apply("mul", x, w))
    return b.finish()


def test_sizes_are_solved_from_shapes():
    arrays = {"x": np.zeros((3, 14), np.float32), "w": np.zeros(14, np.float32)}
    assert bind_sizes(two(), arrays) == {"M": 3, "N": 7}


def test_a_disagreeing_shape_names_input_dim_and_origin():
    with pytest.raises(
        FusecError, match=r"dim 0 of input `w` \(`N \* 2`\) is 12, expected 14"
    ) as caught:
        bind_sizes(two(), {"x": np.zeros((3, 14)), "w": np.zeros(12)})
    assert "`N` is 7 from dim 1 of input `x`" in caught.value.render()
    with pytest.raises(FusecError, match="dim 1 of input `x` is 13, which `N \\* 2` cannot be"):
        bind_sizes(two(), {"x": np.zeros((3, 13)), "w": np.zeros(13)})
    with pytest.raises(FusecError, match=r"input `x` has 1 dims \[14\], expected 2"):
        bind_sizes(two(), {"x": np.zeros(14), "w": np.zeros(14)})
    with pytest.raises(FusecError, match="input `w` is missing"):
        bind_sizes(two(), {"x": np.zeros((3, 14))})


def test_symbols_of_a_product_alone_are_as_by_default():
    b = GraphBuilder()
    h, e = b.declare_dim("H", 6), b.declare_dim("E", 4)
    b.output(b.apply("set", b.input("x", F32, [h * e, 3])))
    fusion = b.finish()
    assert bind_sizes(fusion, {"x": np.zeros((24, 3))}) == {"H": 6, "E": 4}
    with pytest.raises(FusecError, match=r"dim 0 of input `x` .* is 12, expected 24") as caught:
        bind_sizes(fusion, {"x": np.zeros((12, 3))})
    assert "`H` is 6 from its default" in caught.value.render()


def test_constant_extents_are_checked():
    with pytest.raises(FusecError, match="dim 1 of input `x` is 3, expected 4"):
        bind_sizes(single(shape=("M", 4)), {"x": np.zeros((2, 3))})


def test_run_time_strides_are_read_off_arrays():
    fusion = single(F32, contiguity=[False, True])
    x = np.zeros((6, 100), np.float32)[:, :10]
    assert bind_sizes(fusion, {"x": x})["x.stride0"] == 100
    assert bind_sizes(fusion, {"x": np.zeros((6, 10), np.float32)[::-1]})["x.stride0"] == 10
    dense = single(F32)
    laid = StridedArray(np.zeros(600, np.float32), (6, 10), (100, 1))
    with pytest.raises(FusecError, match="has stride 100 in dim 0, expected 10"):
        bind_sizes(dense, {"x": laid})


def test_lay_out_copies_into_the_declared_strides():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    laid = lay_out(x.T, (1, 4))
    np.testing.assert_array_equal(np.asarray(laid), x.T)
    assert laid.strides == (1, 4)
    padded = lay_out(x, (8, 1))
    assert padded.storage.size == 20
    np.testing.assert_array_equal(np.asarray(padded), x)
    reversed_ = lay_out(x[::-1], (4, 1))
    np.testing.assert_array_equal(reversed_.storage.reshape(3, 4), x[::-1])
    assert lay_out(laid, (1, 4)) is laid


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_files_keep_every_type(tmp_path: Path, suffix: str):
    arrays = {
        d.name: np.asarray(drawn(single(d))) for d in (F64, F32, F16, BF16, F8E4M3, I32, U8, BOOL)
    }
    arrays["scalar"] = np.asarray(2.5, np.float32)
    arrays["empty"] = np.zeros((0, 3), np.float32)
    file = tmp_path / f"arrays{suffix}"
    save_arrays(file, arrays)
    loaded = load_arrays(file)
    declared = {d.name: d for d in (F64, F32, F16, BF16, F8E4M3, I32, U8, BOOL)}
    for name, array in arrays.items():
        back = as_declared(name, loaded[name], declared.get(name, F32))
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)
    assert [p.name for p in tmp_path.iterdir()] == [file.name]


def test_a_type_that_is_not_the_declared_one_is_refused():
    with pytest.raises(FusecError, match=r"`x` has dtype float32, declared bf16"):
        as_declared("x", np.zeros(3, np.float32), BF16)
    bits = np.array([0x3F80], np.uint16)
    assert as_declared("x", bits, BF16)[0] == ml_dtypes.bfloat16(1)


def test_unreadable_files_are_named(tmp_path: Path):
    with pytest.raises(FusecError, match="no such file"):
        load_arrays(tmp_path / "missing.npz")
    for name in ("bad.npz", "bad.safetensors"):
        (tmp_path / name).write_bytes(b"not an archive")
        with pytest.raises(FusecError, match="is not a readable"):
            load_arrays(tmp_path / name)
    with pytest.raises(FusecError, match=r"write to a \.safetensors or \.npz file"):
        save_arrays(tmp_path / "out.bin", {})
    with pytest.raises(FusecError, match="cannot write"):
        save_arrays(tmp_path / "missing" / "out.npz", {"x": np.zeros(1)})


@settings(max_examples=times(30), deadline=None)
@given(st.data())
def test_arrays_of_any_layout_are_laid_out_as_declared(data: st.DataObject) -> None:
    """Also where strides are read from arrays: those of another layout cannot be taken."""
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    contiguity = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    fusion = single(shape=shape, stride_order=order, contiguity=contiguity)
    axes = data.draw(st.permutations(range(len(shape))))
    steps = [data.draw(st.sampled_from([1, 2, -1])) for _ in shape]
    whole = np.arange(8 ** len(shape), dtype=np.float32).reshape([8] * len(shape))
    array = whole.transpose(axes)[tuple(slice(None, None, step) for step in steps)]
    array = array[tuple(map(slice, shape))]
    sizes = bind_sizes(fusion, {"x": array})
    strides = tuple(s.evaluate(sizes) for s in fusion.inputs[0].strides)
    np.testing.assert_array_equal(lay_out(array, strides).array, array)
