"""Loop domains of scripts: the shardings that they say, and the parts that ranks have."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fusec import FusionDefinition, executor
from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.dim import dim
from fusec.ir.graph import Fusion
from fusec.ir.text import to_text
from fusec.nvfuser.definition import DirectDefinition
from fusec.nvfuser.modules import make_modules
from fusec.nvfuser.repro import clone
from fusec.nvfuser.script import load_script
from fusec.parse import read_text
from fusec.parse.dsl.datatype import DataType
from fusec.parse.dsl.loops import Loops, ParallelType
from fusec.parse.dsl.mesh import DeviceMesh, part_of
from fusec.parse.dsl.session import recording
from fusec.parse.twin import to_python
from fusec.shard import partition

nvfuser: Any = make_modules()["nvfuser_direct"]
multidevice: Any = make_modules()["nvfuser_direct.multidevice"]
ROOT = Path(__file__).parent.parent
X, Y, Z, STREAM = (ParallelType[n] for n in ("mesh_x", "mesh_y", "mesh_z", "stream"))


@dataclass(frozen=True)
class Ranks:
    """A rank that no process is."""

    rank: int
    size: int = 4
    local_rank: int = 0
    local_size: int = 1


@pytest.fixture(params=range(4))
def rank(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let this process be each of four ranks."""
    monkeypatch.setattr(executor, "ranks", lambda: Ranks(request.param))
    return request.param


def said(fd: FusionDefinition) -> dict[str, str]:
    """Return what a definition says of its values."""
    return {name: str(sharding) for name, sharding in fd.graph().shardings.items()}


def mesh_of(*shape: int) -> DeviceMesh:
    return DeviceMesh(np.arange(prod(shape)).reshape(shape))


def one_tensor(*shape: int, **options: Any) -> tuple[DirectDefinition, Any]:
    """Return a definition with one tensor, which is its output too."""
    with DirectDefinition() as fd:
        tv = fd.define_tensor(list(shape), **options)
        fd.add_output(tv)
    return fd, tv


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
    with pytest.raises(FusecError, match="which 4 parts do not divide"):
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


@settings(max_examples=150, deadline=None)
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
    assert found.flatten().tolist() == sorted(found.flatten().tolist())
    assert found.flatten().tolist() == sorted(np.take(array, place, axis=at).flatten().tolist())


# -- what scripts say


def test_products_have_the_contracted_axis_last() -> None:
    with DirectDefinition() as fd:
        x = fd.define_tensor([-1, 8, 24])
        w = fd.define_tensor([16, 24])
        y = fd.ops.linear(x, w)
        fd.add_output(y)
        for tv in (x, w, y):
            tv.set_device_mesh(mesh_of(4))
            tv.split(-1, 4, inner_split=False)
            tv.axis(-2).parallelize(X)
        y.outer_split(1, 4)
        y.axis(1).parallelize(X)
    assert said(fd) == {"x": "{2: mesh:4}", "w": "{1: mesh:4}", "y": "{1: mesh:4}"}
    with DirectDefinition() as fd:
        x = fd.define_tensor([8, 24])
        w = fd.define_tensor([24, 16])
        y = fd.ops.matmul(x, w)
        fd.add_output(y)
        y.set_device_mesh(mesh_of(4))
        y.outer_split(-2, 4)
        y.axis(-3).parallelize(X)
    assert said(fd) == {"y": "{1: mesh:4}"}


def test_reduced_axes_stand_where_they_were() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([8, 12, 16, 1])
        made = {
            "of": fd.ops.sum(x, [1, -1], name="of"),  # of extent 1: left out
            "kept": fd.ops.sum(x, [1], keepdim=True, name="kept"),
            "one": fd.ops.max(x, 1, name="one"),
            "all": fd.ops.sum(x, name="every"),
        }
        var, mean = fd.ops.var_mean(x, [1], name=["var", "mean"])
        kinds = {n: [a.is_reduction() for a in t.get_loop_domain()] for n, t in made.items()}
        for tv in (*made.values(), var, mean):
            fd.add_output(tv)
    assert kinds == {
        "of": [False, True, False],
        "kept": [False] * 4,
        "one": [False, True, False, False],
        "all": [True, True, True],
    }
    assert [a.is_reduction() for a in var.get_loop_domain()] == [False] * 3
    assert [a.is_reduction() for a in mean.get_loop_domain()] == [False, True, False, False]


def test_a_loop_over_streams_needs_no_mesh() -> None:
    with DirectDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        w = fd.define_tensor([-1, -1])
        y = fd.ops.matmul(x, w)
        fd.add_output(y)
        y.outer_split(1, 3)
        y.axis(1).parallelize(STREAM)
        x.axis(0).parallelize(STREAM)
    graph = fd.graph()
    assert graph.mesh is None
    assert {n: str(s) for n, s in graph.shardings.items()} == {
        "x": "{0: stream:x_size0}",
        "y": "{1: stream:3}",
    }
    assert read_text(to_text(graph)) == graph


def test_streams_outside_of_ranks() -> None:
    """As in nvFuser's overlapped products: either order of the two on a dim can be said."""
    with DirectDefinition() as fd:
        x = fd.define_tensor([24, 16])
        fd.add_output(fd.ops.relu(x))
        x.set_device_mesh(mesh_of(4))
        x.outer_split(0, 3)
        x.axis(0).parallelize(STREAM)
        x.outer_split(1, 4)
        x.axis(1).parallelize(X)
    assert said(fd) == {"x": "{0: stream:3 mesh:4}"}
    assert read_text(to_text(fd.graph())) == fd.graph()


def test_axes_are_kept_by_handles_and_can_come_late() -> None:
    fd, tv = one_tensor(8, 8)
    last = tv.axis(1)
    tv.outer_split(0, 2)
    last.parallelize(STREAM)
    assert said(fd) == {"tv": "{1: stream:8}"}
    fd.fusion.inputs()[0].axis(0).parallelize(X)
    fd.fusion.inputs()[0].set_device_mesh(mesh_of(2))
    assert said(fd) == {"tv": "{0: mesh:2, 1: stream:8}"}
    assert fd.graph().mesh == mesh_of(2).mesh
    axis = tv.axis(2)
    tv.axis(2).parallelize(ParallelType.serial)
    tv.outer_split(2, 2)
    with pytest.raises(FusecError, match="no longer there"):
        axis.parallelize(X)


def test_an_axis_of_unknown_extent_has_that_of_the_mesh() -> None:
    fd, tv = one_tensor(-1, 4)
    tv.set_device_mesh(mesh_of(4))
    tv.axis(0).parallelize(X)
    assert said(fd) == {"tv": "{0: mesh:4}"}


def test_a_mesh_of_one_rank_divides_nothing() -> None:
    fd, tv = one_tensor(-1, 4)
    tv.set_device_mesh(mesh_of(1))
    tv.outer_split(0, 1)
    tv.axis(0).parallelize(X)
    assert said(fd) == {"tv": "{}"}


def test_merged_axes() -> None:
    fd, tv = one_tensor(6, 4, 2)
    tv.merge(0)
    tv.outer_split(0, 12)  # 6 x 2
    tv.outer_split(0, 3)
    tv.axis(0).parallelize(STREAM)
    assert said(fd) == {"tv": "{0: stream:3}"}


def test_a_schedule_of_a_subclass_is_called_once() -> None:
    class Column(DirectDefinition):
        def definition(self) -> None:
            self.x = self.define_tensor([8, 8])
            self.add_output(self.ops.relu(self.x))

        def multidevice_schedule(self) -> None:
            self.x.set_device_mesh(mesh_of(4))
            self.x.outer_split(1, 4)
            self.x.axis(1).parallelize(X)

    fd = Column()
    assert list(said(fd).values()) == ["{1: mesh:4}"]
    assert list(said(fd).values()) == ["{1: mesh:4}"]


def test_a_schedule_after_the_first_use_counts() -> None:
    fd, tv = one_tensor(8)
    first = fd.graph()
    assert first.shardings == {}
    tv.axis(0).parallelize(STREAM)
    assert fd.graph() != first


def test_what_is_checked_and_says_nothing() -> None:
    with DirectDefinition() as fd:
        x = fd.define_tensor([8, 32])
        w = fd.define_tensor([32, 8])
        y = fd.ops.matmul(x, w)
        fd.add_output(y)
        for tv in (x, w, y):
            tv.set_device_mesh(mesh_of(4))
        y.outer_split(-1, 4)
        local = y.rfactor(axes=[-1])
        local.set_device_mesh(mesh_of(4))
        local.axis(-2).parallelize(X)
        assert [a.is_reduction() for a in y.get_loop_domain()] == [False, False, True]
        y.set_memory_type(nvfuser.MemoryType.symmetric)
        y.swizzle1d(0, X)
    assert said(fd) == {"x": "{}", "w": "{}", "y": "{}"}
    with pytest.raises(Unsupported, match="set_memory_type"):
        y.set_memory_type(nvfuser.MemoryType.shared)
    with pytest.raises(Unsupported, match="swizzle1d"):
        y.swizzle1d(0, STREAM)
    with pytest.raises(FusecError, match="rfactor takes reduced axes"):
        y.rfactor([0])


def test_allocation_domains_order_the_memory_of_outputs() -> None:
    with DirectDefinition() as fd:
        x = fd.define_tensor([4, 12, 8], contiguity=True)
        y = fd.ops.relu(x)
        fd.add_output(y)
        y.outer_split(1, 2)
        y.axis(1).parallelize(X)
        y.set_device_mesh(mesh_of(2))
        a = y.get_loop_domain()

    def order(*axes: int) -> Any:
        y.set_allocation_domain([a[k] for k in axes], True)
        return fd.graph().outputs[0].stride_order

    assert order(1, 0, 2, 3) is None
    assert order(0, 2, 3, 1) is None
    assert order(0, 1, 3, 2) == (2, 0, 1)
    assert order(2, 1, 3, 0) == (0, 2, 1)
    copy = DirectDefinition()
    clone(fd, copy)
    assert copy.graph() == fd.graph()
    y.outer_split(2, 3)
    a = y.get_loop_domain()
    assert order(1, 2, 3, 4, 0) == (0, 2, 1)
    with pytest.raises(Unsupported, match="are apart"):
        order(0, 1, 2, 4, 3)
    with pytest.raises(Unsupported, match="are apart"):
        order(0, 1, 3, 2, 4)
    with pytest.raises(Unsupported, match="not contiguous"):
        y.set_allocation_domain(a, False)
    with pytest.raises(FusecError, match="every axis"):
        y.set_allocation_domain(a[:3], True)


# -- sizes: a rank gives its parts


def sizes_with(define: Any, *arrays: Any) -> dict[str, int]:
    """Return the sizes of a definition's fusion where a rank gives arrays."""
    found: list[Fusion] = []

    def run(fusion: Fusion, _: Any) -> None:
        found.append(fusion)

    with recording(run), DirectDefinition() as fd:
        define(fd)
        fd.execute(arrays)
    return dict(found[0].hints)


def test_unknown_sizes_are_those_of_whole_tensors() -> None:
    def define(fd: DirectDefinition) -> None:
        x = fd.define_tensor([-1, -1], contiguity=True)
        w = fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.matmul(x, w))
        fd.set_mesh([3])
        fd.shard(x, {0: "mesh"})
        fd.shard(w, stream={1: 5})
        graph = fd.graph()
        assert dict(graph.hints) | {"w.stride0": 0, "w.stride1": 0} == {
            "x_size0": 66, "x_size1": 64, "w_size1": 65, "w.stride0": 0, "w.stride1": 0,
        }  # fmt: skip
        assert partition(graph).hints["x_size0"] == 22

    x, w = np.ones((2, 7), np.float32), np.ones((7, 10), np.float32)
    assert sizes_with(define, x, w) == {
        "x_size0": 6, "x_size1": 7, "w_size1": 10, "w.stride0": 10, "w.stride1": 1,
    }  # fmt: skip


def test_a_rank_gives_as_much_as_is_declared() -> None:
    def define(fd: DirectDefinition) -> None:
        x = fd.define_tensor([8, 6], contiguity=True)
        fd.add_output(fd.ops.relu(x))
        x.set_device_mesh(mesh_of(4))
        x.outer_split(0, 4)
        x.axis(0).parallelize(X)

    assert sizes_with(define, np.ones((2, 6), np.float32)) == {}
    with pytest.raises(FusecError, match="dim 0 of `x` is 8, it is declared as 2"):
        sizes_with(define, np.ones((8, 6), np.float32))


def test_definitions_that_need_sizes_get_those_of_whole_tensors() -> None:
    """A reshape to constants shows its sizes in an execution alone."""

    def define(fd: DirectDefinition) -> None:
        x = fd.define_tensor([-1, -1], contiguity=True)
        s = fd.define_scalar(dtype=DataType.Int)
        y = fd.ops.slice(x, [0, 0], [4, 6])
        z = fd.ops.sum(y, [1])
        fd.add_output(z)
        for tv, at in ((x, 0), (z, 0)):
            tv.set_device_mesh(mesh_of(2))
            tv.outer_split(at, 2)
            tv.axis(at).parallelize(X)
        assert [a.is_reduction() for a in z.get_loop_domain()] == [False, False, True]
        fd.add_output(fd.ops.mul(y, s))

    found: list[Fusion] = []
    with recording(lambda fusion, _: found.append(fusion)), DirectDefinition() as fd:
        define(fd)
        fd.execute([np.ones((2, 6), np.float32), 3])
    (fusion,) = found
    assert {n: str(s) for n, s in fusion.shardings.items()} == {
        "x": "{0: mesh:2}",
        "z": "{0: mesh:2}",
    }
    assert fusion.inputs[0].value.shape == (4, 6)


# -- by names of its own


def test_fusecs_own_calls(tmp_path: Path) -> None:
    with FusionDefinition() as fd:
        b = fd.define_dim("B", 16)
        x = fd.define_tensor([b, 32], contiguity=True)
        y = fd.ops.relu(x)
        fd.add_output(y)
        fd.set_mesh({"dp": 2, "tp": 4})
        fd.shard(x, {0: ["dp", {"stream": b // 2}], -1: [{"whole": 2}, "tp"]})
        fd.shard(y, stream=0)
    graph = fd.graph()
    assert {n: str(s) for n, s in graph.shardings.items()} == {
        "x": "{0: dp:2 stream:B // 2, 1: _:2 tp:4}",
        "y": "{0: stream:B}",
    }
    assert again(graph, tmp_path) == graph


def again(graph: Fusion, folder: Path) -> Fusion:
    """Return the fusion of the script of a fusion."""
    path = folder / "f.py"
    path.write_text(to_python(graph))
    (loaded,) = load_script(path)
    return loaded


TWINS = (
    "mesh: [4]\ninputs: {x: {type: 'f32[8, B]', shard: {0: mesh}, stream: {1: 'min(B, 2)'}}}\n",
    "mesh: {dp: 2, lambda: 2}\ninputs: {x: {type: 'f32[8, B]', shard: {0: [lambda, dp]}}}\n",
    "inputs: {x: {type: 'f32[8, B]', stream: 0}}\nshardings: {y: {stream: {1: 3}}}\n",
    "mesh: [1, 2, 2]\ninputs: {x: {type: 'f32[8, B]', shard: {}}}\n"
    "shardings: {y: {shard: {1: [{stream: B // 6}, {whole: 3}, mesh_x]}}}\n",
)


@pytest.mark.parametrize("lines", TWINS)
def test_scripts_of_fusions_divide_alike(lines: str, tmp_path: Path) -> None:
    text = f"fusion: f\ndims: {{B: 12}}\n{lines}ops: [y = relu(x)]\noutputs: [y]\n"
    fusion = read_text(text)
    assert fusion.shardings
    loaded = again(fusion, tmp_path)
    assert loaded == fusion
    assert {*loaded.shardings} == {*fusion.shardings}


def test_text_and_clones_divide_alike() -> None:
    def define(parts: int) -> DirectDefinition:
        with DirectDefinition() as fd:
            x = fd.define_tensor([8, 8], contiguity=True)
            fd.add_output(fd.ops.relu(x))
            x.set_device_mesh(mesh_of(2, 2))
            x.outer_split(0, parts)
            x.axis(0).parallelize(Y if parts == 2 else STREAM)
            x.merge(1)
            x.reorder({0: 1})
        return fd

    fd, other = define(2), define(4)
    assert "multidevice.DeviceMesh([[0, 1], [2, 3]])" in repr(fd)
    assert "axis(0).parallelize(ParallelType.mesh_y)" in repr(fd)
    assert fd.fusion != other.fusion
    assert fd.fusion == define(2).fusion
    copy = DirectDefinition()
    clone(fd, copy)
    assert copy.graph() == fd.graph()
    head = fd.repro_script_for().split("\n")[2]
    assert (
        head == "from nvfuser_direct import FusionDefinition, DataType, ParallelType, multidevice"
    )


# -- mistakes


def named(fd: DirectDefinition) -> Any:
    """Return a tensor of four by six."""
    return fd.define_tensor([4, 6], name="x")


MISTAKES = [
    (lambda x: x.axis(2), "2 loop axes, and none of number 2", FusecError),
    (lambda x: x.axis("0"), "an axis is an integer", FusecError),
    (lambda x: x.outer_split(-3, 2), "none of number -3", FusecError),
    (lambda x: x.outer_split(0, 3), "an axis of 4 iterations is not divided by 3", FusecError),
    (lambda x: x.inner_split(0, 0), "a factor is at least 1", FusecError),
    (lambda x: x.split(0, 2.5), "the factor of a split is an integer", FusecError),
    (lambda x: x.merge(1), "none of number 2", FusecError),
    (lambda x: x.merge(0, 0), "merged with itself", FusecError),
    (lambda x: x.reorder({0: 1, 1: 1}), "two axes in one place", FusecError),
    (lambda x: x.set_device_mesh([0, 1]), "a device mesh is a DeviceMesh", FusecError),
    (lambda x: x.axis(0).parallelize(ParallelType.block_x), "manual scheduling", Unsupported),
    (lambda x: x.axis(0).extent(), "extent", FusecError),
    (lambda x: x.cache_after(), "manual scheduling", Unsupported),
    (lambda x: x.definition.set_mesh([2, 0]), "at least 1 rank, found 0", FusecError),
    (lambda x: x.definition.set_mesh({"stream": 2}), "is taken", FusecError),
    (lambda x: x.definition.set_mesh([1, 1, 1, 1]), "needs names", FusecError),
    (lambda x: x.definition.shard(3, {}), "a tensor of the fusion is divided", FusecError),
    (lambda x: DeviceMesh([1, 0]), "a mesh of the ranks", Unsupported),
    (lambda x: DeviceMesh([[0, 1], [2]]), "have one length", FusecError),
    (lambda x: DeviceMesh([]), "at least 1 rank", FusecError),
    (lambda x: DeviceMesh(["0"]), "a rank is an integer", FusecError),
    (lambda x: DeviceMesh(3), "a mesh is a list", FusecError),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message", "kind"), MISTAKES)
def test_mistakes_point_at_the_call(call: Any, message: str, kind: type[FusecError]) -> None:
    with DirectDefinition() as fd:
        x = named(fd)
        with pytest.raises(kind, match=message) as caught:
            call(x)
    span = caught.value.diagnostic.span
    assert span is not None
    assert span.file == __file__
    assert span.text.lstrip().startswith("(lambda x:")


def only_streams(x: Any) -> None:
    x.axis(0).parallelize(X)


def too_few_axes(x: Any) -> None:
    x.set_device_mesh(mesh_of(4))
    x.axis(0).parallelize(Y)


def wrong_extent(x: Any) -> None:
    x.set_device_mesh(mesh_of(4))
    x.axis(1).parallelize(X)


def twice(x: Any) -> None:
    x.outer_split(0, 2)
    x.axis(0).parallelize(STREAM)
    x.axis(1).parallelize(STREAM)


def merged(x: Any) -> None:
    x.merge(0)
    x.axis(0).parallelize(STREAM)


def ordered(x: Any) -> None:
    x.set_allocation_domain([x.axis(1), x.axis(0)], True)


def several_meshes(x: Any) -> None:
    x.set_device_mesh(mesh_of(4))
    x.definition.set_mesh([2, 2])


def reduced(x: Any) -> None:
    y = x.sum(1)
    y.axis(1).parallelize(STREAM)


def unknown_axis(x: Any) -> None:
    x.definition.set_mesh([4])
    x.definition.shard(x, {0: "mash"})


def no_mesh(x: Any) -> None:
    x.definition.shard(x, {0: "mesh"})


def odd_factor(x: Any) -> None:
    x.definition.set_mesh([4])
    x.definition.shard(x, {0: 2})


def cut_across(x: Any) -> None:
    x.merge(0)
    x.outer_split(0, 3)


@pytest.mark.parametrize(
    ("call", "message", "kind"),
    [
        (only_streams, "parallelised on mesh_x, and there is no mesh", FusecError),
        (too_few_axes, "a mesh of rank 1 has no mesh_y", FusecError),
        (wrong_extent, "6 parts along `mesh`, an axis of 4 ranks", FusecError),
        (twice, "divided twice along `stream`", FusecError),
        (merged, "merged of several dims", Unsupported),
        (ordered, "of another order than the dims of `x`", Unsupported),
        (several_meshes, "several meshes in one fusion", Unsupported),
        (reduced, "carries a dependence", FusecError),
        (unknown_axis, "did you mean `mesh`", FusecError),
        (no_mesh, "no mesh to shard over", FusecError),
        (odd_factor, "is a mesh axis, got 2", FusecError),
        (cut_across, "across the dims that an axis is merged of", Unsupported),
    ],
)
def test_mistakes_that_show_at_the_end_point_too(
    call: Any, message: str, kind: type[FusecError]
) -> None:
    def define() -> None:
        with DirectDefinition() as fd:
            x = named(fd)
            fd.add_output(fd.ops.relu(x))
            call(x)
        fd.graph()

    with pytest.raises(kind) as caught:
        define()
    error = caught.value
    assert message in error.render()
    assert type(error) is kind or issubclass(type(error), kind)
    span = error.diagnostic.span
    assert span is not None
    assert f"{call.__name__}" in _function_around(span.line)


def _function_around(line: int) -> str:
    lines = Path(__file__).read_text().split("\n")[:line]
    return next(text for text in reversed(lines) if text.startswith("def "))


# -- nvFuser's modules


def test_several_devices_by_nvfusers_names() -> None:
    code = """
import fusec.nvfuser
fusec.nvfuser.install()
import nvfuser_direct as nvfuser
import nvfuser_direct.multidevice
from nvfuser_direct import CommunicatorBackend, DataType, FusionDefinition, TensorView
one = nvfuser.multidevice.Communicator.instance()
assert one is nvfuser.multidevice.Communicator.instance()
print(one.size(), one.rank(), one.local_size(), one.local_rank(), one.barrier())
params = nvfuser.multidevice.MultiDeviceExecutorParams()
params.backend_type = CommunicatorBackend.cuda
params.use_allocation_cache = True
params.offset_stream_indexing_by_rank = True
mesh = nvfuser.multidevice.DeviceMesh(range(1))
assert (mesh.size, mesh.shape) == (1, (1,))
with FusionDefinition() as fd:
    x = fd.define_tensor([-1], dtype=DataType.Float)
    fd.add_output(fd.ops.relu(x))
    x.set_device_mesh(mesh)
    x.axis(0).parallelize(nvfuser.ParallelType.mesh_x)
    assert isinstance(x, TensorView)
nvfuser.multidevice.MultiDeviceExecutor(fd.fusion, params)
try:
    params.backend_type = CommunicatorBackend.ucc
except RuntimeError as error:
    print(error.exit_code)
assert "torch" not in __import__("sys").modules
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "0", "1", "0", "None", "3"]


def test_a_barrier_waits_for_all_ranks(tmp_path: Path) -> None:
    """Each rank leaves a file behind, waits, and finds those of all others."""
    code = f"""
import pathlib
import fusec.nvfuser
from fusec.nvfuser.multidevice import Communicator
one, folder = Communicator.instance(), pathlib.Path({str(tmp_path)!r})
for turn in range(2):
    (folder / f"{{turn}}.{{one.rank()}}").touch()
    one.barrier()
    assert len(list(folder.glob(f"{{turn}}.*"))) == one.size() == one.local_size() == 2
"""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    given = {**os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": port}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True,
            env={**given, "MASTER_ADDR": "127.0.0.1", "RANK": str(k), "LOCAL_RANK": str(k)},
        )
        for k in range(2)
    ]  # fmt: skip
    said = [process.communicate(timeout=60)[1] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], said


def test_unknown_parameters_are_refused() -> None:
    params = multidevice.MultiDeviceExecutorParams()
    with pytest.raises(AttributeError):
        params.streams = 3
    with pytest.raises(FusecError, match="a fusion is the `fusion`"):
        multidevice.MultiDeviceExecutor(3, params)


def test_shardings_of_nvfuser() -> None:
    _, tv = one_tensor(8, 8)
    tv.set_device_mesh(mesh_of(2, 2))
    tv.outer_split(1, 2)
    tv.axis(1).parallelize(Y)
    graph = tv.definition.graph()
    found = multidevice.Sharding(mesh_of(2, 2), graph.shardings["tv"])
    assert (found.axis_sharded_on(Y), found.axis_sharded_on(X), found.axis_sharded_on(Z)) == (
        1,
        -1,
        -1,
    )
    assert found.mesh.shape == (2, 2)
