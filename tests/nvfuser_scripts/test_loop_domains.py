"""Loop domains of scripts: the parts that ranks have, against transforms of arrays."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from draws import drawn
from hypothesis import assume, given
from hypothesis import strategies as st
from loop_scripts import Ranks, X, Y, mesh_of, multidevice, one_tensor, said

from fusec import executor
from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.dim import dim
from fusec.nvfuser.definition import DirectDefinition
from fusec.parse.dsl.loops import Loops
from fusec.parse.dsl.mesh import part_of


@pytest.fixture(params=range(4))
def rank(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let this process be each of four ranks."""
    monkeypatch.setattr(executor, "ranks", lambda: Ranks(request.param))
    return request.param


# -- parts of tensors: what nvFuser's own tests of shard_tensor ask


def test_inner_split(rank: int) -> None:
    _, tv = one_tensor(-1)
    tv.set_device_mesh(mesh_of(4))
    tv.inner_split(0, 4)
    tv.axis(1).parallelize(X)
    whole = np.arange(12)
    np.testing.assert_array_equal(multidevice.shard_tensor(whole, tv), whole.reshape(3, 4)[:, rank])


def test_a_split_that_is_not_outermost(rank: int) -> None:
    _, tv = one_tensor(-1)
    tv.set_device_mesh(mesh_of(4))
    tv.outer_split(0, 2)
    tv.outer_split(1, 4)
    tv.axis(1).parallelize(X)
    whole = np.arange(24)
    expected = whole.reshape(2, 4, 3)[:, rank].flatten()
    np.testing.assert_array_equal(multidevice.shard_tensor(whole, tv), expected)


def test_a_reduced_axis_divides_no_result(rank: int) -> None:
    with DirectDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        y = fd.ops.sum(x, [1])
        fd.add_output(y)
        for tv in (x, y):
            tv.set_device_mesh(mesh_of(4))
            tv.outer_split(1, 4)
            tv.axis(1).parallelize(X)
    whole = np.arange(24.0).reshape(2, 12)
    own = multidevice.shard_tensor(whole, x)
    np.testing.assert_array_equal(own, whole[:, rank * 3 : (rank + 1) * 3])
    np.testing.assert_array_equal(multidevice.shard_tensor(whole.sum(1), y), whole.sum(1))
    assert said(fd) == {"x": "{1: mesh:4}", "y": "{}"}


def test_a_matrix_over_two_axes(rank: int) -> None:
    _, tv = one_tensor(-1, -1)
    tv.set_device_mesh(mesh_of(2, 2))
    tv.outer_split(0, 2)
    tv.axis(0).parallelize(Y)
    tv.outer_split(2, 2)
    tv.axis(2).parallelize(X)
    whole = np.arange(24).reshape(4, 6)
    row, column = divmod(rank, 2)
    expected = whole[row * 2 : row * 2 + 2, column * 3 : column * 3 + 3]
    np.testing.assert_array_equal(multidevice.shard_tensor(whole, tv), expected)


def test_a_vector_over_two_axes(rank: int) -> None:
    _, tv = one_tensor(-1)
    tv.set_device_mesh(mesh_of(2, 2))
    tv.inner_split(0, 6)
    tv.outer_split(0, 2)
    tv.axis(0).parallelize(Y)
    tv.outer_split(2, 2)
    tv.axis(2).parallelize(X)
    whole = np.arange(24)
    row, column = divmod(rank, 2)
    expected = whole.reshape(2, 2, 2, 3)[row, :, column].flatten()
    np.testing.assert_array_equal(multidevice.shard_tensor(whole, tv), expected)


def test_one_dim_over_two_axes_and_reordered(rank: int) -> None:
    _, tv = one_tensor(-1, -1, 5)
    tv.set_device_mesh(mesh_of(2, 2))
    tv.outer_split(1, 2)
    tv.axis(1).parallelize(X)
    tv.outer_split(2, 2)
    tv.axis(2).parallelize(Y)
    tv.reorder({2: 0, 1: 1})
    whole = np.arange(2 * 12 * 5).reshape(2, 12, 5)
    y, x = divmod(rank, 2)
    expected = whole.reshape(2, 2, 2, 3, 5)[:, x, y]
    np.testing.assert_array_equal(multidevice.shard_tensor(whole, tv), expected)


def test_expanded_and_broadcast_dims(rank: int) -> None:
    for shape, flags in (((-1, -1), [True, None]), ((1, -1), [None, True])):
        _, tv = one_tensor(*shape, contiguity=flags)
        tv.set_device_mesh(mesh_of(4))
        tv.outer_split(1, 4)
        tv.axis(1).parallelize(X)
        column = np.arange(2)[:, None] if flags[1] is None else np.arange(12)[None]
        whole = np.broadcast_to(column, (2, 12)) if flags[1] is None else column
        expected = whole[:, rank * 3 : rank * 3 + 3]
        np.testing.assert_array_equal(multidevice.shard_tensor(whole, tv), expected)


def test_a_mesh_divides_one_dim(rank: int) -> None:
    whole = np.arange(24).reshape(2, 12)
    found = mesh_of(4).shard_tensor(whole, -1)
    np.testing.assert_array_equal(found, whole[:, rank * 3 : rank * 3 + 3])
    with pytest.raises(FusecError, match="not divisible by 4"):
        mesh_of(4).shard_tensor(whole, 0)
    with pytest.raises(Unsupported, match="a mesh of 2 axes"):
        mesh_of(2, 2).shard_tensor(whole, 0)


def test_what_is_not_divided_is_whole() -> None:
    _, tv = one_tensor(4)
    whole = np.arange(4)
    assert multidevice.shard_tensor(whole, tv) is whole
    with pytest.raises(FusecError, match="has 2 dims"):
        multidevice.shard_tensor(np.ones((2, 2)), tv)


# -- a drawn loop domain, against the same transforms of an array


@st.composite
def transforms(draw: Any) -> tuple[tuple[int, ...], list[tuple[Any, ...]]]:
    """Return a shape and calls of splits, merges and reorders."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 4, 6, 8]), min_size=1, max_size=3)))
    extents, found = [*shape], list[tuple[Any, ...]]()
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(["split", "merge", "reorder"]))
        at = draw(st.integers(0, len(extents) - 1))
        if kind == "split":
            factor = draw(st.sampled_from([f for f in (1, 2, 3, 4) if extents[at] % f == 0]))
            inner = draw(st.booleans())
            pair = [extents[at] // factor, factor]
            extents[at : at + 1] = pair if inner else pair[::-1]
            found.append(("split", at, factor, inner))
        elif kind == "merge" and len(extents) > 1:
            at = min(at, len(extents) - 2)
            extents[at : at + 2] = [extents[at] * extents[at + 1]]
            found.append(("merge", at))
        elif kind == "reorder":
            order = draw(st.permutations(range(len(extents))))
            extents = [extents[k] for k in order]
            found.append(("reorder", order))
    return shape, found


@drawn(60)
@given(transforms(), st.data())
def test_parts_are_those_of_the_transformed_array(drawn: Any, data: Any) -> None:
    """Taking one iteration of an axis leaves the elements that the part has, in row-major order."""
    shape, calls = drawn
    loops = Loops(range(len(shape)))
    extents = tuple(map(dim, shape))
    array = np.arange(prod(shape)).reshape(shape)
    try:
        for kind, *given in calls:
            if kind == "split":
                at, factor, inner = given
                loops.split(at, factor, extents, inner=inner)
                pair = (array.shape[at] // factor, factor)
                array = array.reshape(
                    *array.shape[:at], *(pair if inner else pair[::-1]), *array.shape[at + 1 :]
                )
            elif kind == "merge":
                (at,) = given
                loops.merge(at, at + 1)
                array = array.reshape(*array.shape[:at], -1, *array.shape[at + 2 :])
            else:
                (order,) = given
                loops.reorder({old: new for new, old in enumerate(order)})
                array = array.transpose(order)
        assert [loops.extent(a, extents) for a in loops.axes] == [*array.shape]
        at = data.draw(st.integers(0, array.ndim - 1))
        loops.axes[at].parallel = X
        mesh = mesh_of(array.shape[at]).mesh
        sharding = loops.sharding(extents, mesh)
    except Unsupported:
        assume(False)
        raise
    place = data.draw(st.integers(0, mesh.size - 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "ranks", lambda: Ranks(place))
        found = part_of(np.arange(prod(shape)).reshape(shape), sharding, mesh)
    assert found.flags.c_contiguous
    assert found.flatten().tolist() == sorted(found.flatten().tolist())
    assert found.flatten().tolist() == sorted(np.take(array, place, axis=at).flatten().tolist())
