"""What scripts say of how tensors are divided."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loop_scripts import STREAM, X, Y, mesh_of, nvfuser, one_tensor, said
from paths import ROOT

from fusec import FusionDefinition
from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.graph import Fusion
from fusec.ir.text import to_text
from fusec.nvfuser.definition import DirectDefinition
from fusec.nvfuser.repro import clone
from fusec.nvfuser.script import load_script
from fusec.parse import read_text
from fusec.parse.dsl.datatype import DataType
from fusec.parse.dsl.loops import ParallelType
from fusec.parse.dsl.session import recording
from fusec.parse.twin import to_python
from fusec.shard.partition import partition

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


def chain(*on_streams: int) -> FusionDefinition:
    """Return nvFuser's chain of three copies, of which some are on streams; 0 is the input."""
    with DirectDefinition() as fd:
        tvs = [fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.Float)]
        for _ in range(3):
            tvs.append(fd.ops.set(tvs[-1]))
        fd.add_output(tvs[-1])
        for k in on_streams:
            tvs[k].axis(0).parallelize(STREAM)
    return fd


def test_three_set_ops_with_disjoint_for_loops() -> None:
    """As the seed has it: the copy between two in loops is one of the whole."""
    fd = chain(1, 3)
    assert said(fd)["set_2"] == "{}"
    assert [n.op.name for n in partition(fd.graph()).nodes] == [
        "stream_slice", "set", "stream_stack", "set", "stream_slice", "set", "stream_stack",
    ]  # fmt: skip
    assert read_text(to_text(fd.graph())) == fd.graph()
    again = to_python(fd.graph())
    assert "set_2, {}" in again


@pytest.mark.parametrize(
    ("on_streams", "ops"),
    [
        ((0,), ["stream_slice", "set", "set", "set", "stream_stack"]),
        ((1, 2, 3), ["stream_slice", "set", "set", "set", "stream_stack"]),
        ((1,), ["stream_slice", "set", "stream_stack", "set", "set"]),
        ((2,), ["set", "stream_slice", "set", "stream_stack", "set"]),
        ((0, 2), ["stream_slice", "set", "set", "stream_stack", "set"]),
    ],
)
def test_tensors_of_scripts_that_are_not_on_streams(
    on_streams: tuple[int, ...], ops: list[str]
) -> None:
    """What is made of an input on streams is in its loop, what is made of other tensors is not."""
    assert [n.op.name for n in partition(chain(*on_streams).graph()).nodes] == ops


@pytest.mark.parametrize("inner", [False, True])
def test_splits_that_leave_a_rest(inner: bool) -> None:
    """As in nvFuser's ceilDiv: 10 rows in 4 slices of 3 rows, the last one of 1."""
    fd, tv = one_tensor(10, 8)
    tv.inner_split(0, 3) if inner else tv.outer_split(0, 4)
    tv.axis(0).parallelize(STREAM)
    assert said(fd) == {"tv": "{0: stream:4}"}
    assert read_text(to_text(fd.graph())) == fd.graph()
    fd, tv = one_tensor(10, 8)
    tv.set_device_mesh(mesh_of(4))
    tv.outer_split(0, 4)
    tv.axis(0).parallelize(X)
    with pytest.raises(FusecError, match="10 elements, not divisible by 4"):
        said(fd)


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
    with pytest.raises(FusecError, match="no longer exists"):
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
    with pytest.raises(Unsupported, match="separates the parts"):
        order(0, 1, 2, 4, 3)
    with pytest.raises(Unsupported, match="separates the parts"):
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


def test_the_page_on_sharding_is_right() -> None:
    """Its file and its script say the same."""
    page = (ROOT / "docs/sharding.md").read_text(encoding="utf-8")
    (file,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(script, names)
    graph, fusion = names["fd"].graph(), read_text(file)
    assert graph == fusion
    assert fusion.shardings
    assert partition(fusion).mesh == fusion.mesh
