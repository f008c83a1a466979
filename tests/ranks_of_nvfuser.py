"""nvFuser's tests of communication, shardings and overlap, by their names, with NumPy.

Each rank of a run executes this file: `torchrun --nproc-per-node 2 tests/ranks_of_nvfuser.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import fusec.nvfuser

fusec.nvfuser.install()
import nvfuser_direct as nvfuser  # noqa: E402  # pyright: ignore[reportMissingImports]
from nvfuser_direct import DataType, FusionDefinition  # noqa: E402  # pyright: ignore[reportMissingImports]

multidevice = nvfuser.multidevice
X, Y = nvfuser.ParallelType.mesh_x, nvfuser.ParallelType.mesh_y
STREAM = nvfuser.ParallelType.stream
ONE = multidevice.Communicator.instance()
D: int = ONE.size()
RNG = np.random.default_rng(0)  # the same numbers on all ranks
shard = multidevice.shard_tensor
Made = tuple[Any, list[Any], list[Any]]
"""A definition, its inputs and its outputs: whole, each with its tensor; None: a rank's part."""


def line() -> Any:
    """Return all ranks in one axis."""
    return multidevice.DeviceMesh(np.arange(D))


def plane() -> Any:
    """Return all ranks in two axes, of which the inner one has two."""
    return multidevice.DeviceMesh(np.arange(D).reshape(D // 2, 2))


def integers(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Return small integers, whose sums are exact in any order."""
    return RNG.integers(-4, 5, shape).astype(dtype)


def test_allgather() -> Made:
    with FusionDefinition() as fd:
        x = fd.define_tensor((D * 4,), contiguity=True, dtype=DataType.Float)
        y = fd.ops.set(x)
        fd.add_output(y)
        for tv in (x, y):
            tv.set_device_mesh(line())
        x.outer_split(0, D)
        x.axis(0).parallelize(X)
    whole = integers(D * 4)
    return fd, [(whole, x)], [(whole, y)]


def test_allgather_2d() -> Made:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.Float)
        y = fd.ops.set(x)
        fd.add_output(y)
        for tv in (x, y):
            tv.set_device_mesh(plane())
            tv.outer_split(0, D // 2)
            tv.axis(0).parallelize(Y)
        x.outer_split(2, 2)
        x.axis(2).parallelize(X)
    whole = integers(D, 6)
    return fd, [(whole, x)], [(whole, y)]


def test_allgather_expanded_broadcast() -> Made:
    with FusionDefinition() as fd:
        x = fd.define_tensor([D], contiguity=True, dtype=DataType.Float)
        wide = fd.ops.broadcast_in_dim(x, [D, 3], [0])
        y = fd.ops.set(wide)
        fd.add_output(y)
        for tv in (x, wide, y):
            tv.set_device_mesh(line())
        for tv in (x, wide):
            tv.axis(0).parallelize(X)
    whole = integers(D)
    return fd, [(whole, x)], [(np.broadcast_to(whole[:, None], (D, 3)), y)]


def test_allreduce() -> Made:
    with FusionDefinition() as fd:
        x = fd.define_tensor((-1, -1, -1), contiguity=True, dtype=DataType.Float)
        y = fd.ops.sum(x, [1])
        fd.add_output(y)
        x.set_device_mesh(line())
        x.outer_split(1, D)
        x.axis(1).parallelize(X)
    whole = integers(2, D * 3, 5)
    return fd, [(whole, x)], [(whole.sum(1), y)]


def reduce_scatter(*inner: int) -> Made:
    """Return a sum over the ranks, of which each gets a part of the last dim."""
    with FusionDefinition() as fd:
        x = fd.define_tensor((D, *inner, D * 4), contiguity=True, dtype=DataType.Float)
        y = fd.ops.sum(x, [0])
        fd.add_output(y)
        for tv in (x, y):
            tv.set_device_mesh(line())
        x.axis(0).parallelize(X)
        y.outer_split(-1, D)
        y.axis(-2).parallelize(X)
    whole = integers(D, *inner, D * 4)
    return fd, [(whole, x)], [(whole.sum(0), y)]


def test_reduce_scatter() -> Made:
    return reduce_scatter()


def test_reduce_scatter_noncontiguous() -> Made:
    return reduce_scatter(3)


def alltoall(of: int, to: int) -> Made:
    """Return a copy that is divided along another dim."""
    with FusionDefinition() as fd:
        x = fd.define_tensor((D, D * 3), contiguity=True, dtype=DataType.Half)
        y = fd.ops.set(x)
        fd.add_output(y)
        for tv, at in ((x, of), (y, to)):
            tv.set_device_mesh(line())
            tv.outer_split(at, D)
            tv.axis(at).parallelize(X)
    whole = integers(D, D * 3, dtype=np.float16)
    return fd, [(whole, x)], [(whole, y)]


def test_alltoall_dispatch() -> Made:
    return alltoall(0, 1)


def test_alltoall_combine() -> Made:
    return alltoall(1, 0)


def test_inner_split() -> None:
    with FusionDefinition() as fd:
        tv = fd.define_tensor([-1])
        fd.add_output(tv)
        tv.set_device_mesh(line())
        tv.inner_split(0, D)
        tv.axis(1).parallelize(X)
    whole = np.arange(3 * D, dtype=np.float32)
    np.testing.assert_array_equal(shard(whole, tv), whole.reshape(3, D)[:, ONE.rank()])


def test_nonoutermost_split() -> None:
    with FusionDefinition() as fd:
        tv = fd.define_tensor([-1])
        fd.add_output(tv)
        tv.set_device_mesh(line())
        tv.outer_split(0, 2)
        tv.outer_split(1, D)
        tv.axis(1).parallelize(X)
    whole = np.arange(2 * D * 3, dtype=np.float32)
    own = whole.reshape(2, D, 3)[:, ONE.rank()].ravel()
    np.testing.assert_array_equal(shard(whole, tv), own)


def test_parallel_reduction() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        y = fd.ops.sum(x, [1])
        fd.add_output(y)
        for tv in (x, y):
            tv.set_device_mesh(line())
            tv.outer_split(1, D)
            tv.axis(1).parallelize(X)
    whole = np.arange(2 * D * 3, dtype=np.float32).reshape(2, D * 3)
    begin = 3 * ONE.rank()
    np.testing.assert_array_equal(shard(whole, x), whole[:, begin : begin + 3])
    np.testing.assert_array_equal(shard(whole.sum(1), y), whole.sum(1))


def test_row_parallel_linear_forward() -> Made:
    slices, h = 3, 2
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, h * 4], contiguity=True, dtype=DataType.Float)
        w = fd.define_tensor([h, h * 4], contiguity=True, dtype=DataType.Float)
        y = fd.ops.linear(x, w)
        fd.add_output(y)
        for tv in (x, w):
            tv.set_device_mesh(line())
        x.outer_split(0, slices)
        x.axis(0).parallelize(STREAM)
        x.outer_split(2, D)
        x.axis(2).parallelize(X)
        w.outer_split(1, D)
        w.axis(1).parallelize(X)
    given, weight = integers(6, h * 4), integers(h, h * 4)
    return fd, [(given, x), (weight, w)], [(given @ weight.T, y)]


def test_column_parallel_linear_forward_broadcast() -> Made:
    return column_parallel(swizzled=False)


def test_column_parallel_linear_forward_collective_permute() -> Made:
    return column_parallel(swizzled=True)


def column_parallel(*, swizzled: bool) -> Made:
    """Return a product of gathered rows; each rank has the columns of its weights."""
    h, t = 2, 2 * D
    with FusionDefinition() as fd:
        x = fd.define_tensor((-1, h), contiguity=True, dtype=DataType.Float)
        w = fd.define_tensor((4 * h, h), contiguity=True, dtype=DataType.Float)
        gathered = fd.ops.set(x)
        y = fd.ops.linear(gathered, w)
        fd.add_output(y)
        for tv in (x, w):
            tv.set_device_mesh(line())
            tv.outer_split(0, D)
            tv.axis(0).parallelize(X)
        gathered.set_device_mesh(line())
        gathered.outer_split(0, D)
        if swizzled:
            gathered.swizzle1d(0, X)
        gathered.axis(0).parallelize(STREAM)
    given, weight = integers(t, h), integers(4 * h, h)
    return fd, [(given, x), (weight, w)], [(given @ shard(weight, w).T, None)]


def test_allgather_matmul_no_overlap() -> Made:
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.Float)
        b = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.Float)
        c = fd.ops.matmul(a, b)
        fd.add_output(c)
        for tv in (a, b, c):
            tv.set_device_mesh(line())
        a.outer_split(0, D)
        a.axis(0).parallelize(X)
    first, second = integers(D * 2, 3), integers(3, 5)
    return fd, [(first, a), (second, b)], [(first @ second, c)]


def held(whole: np.ndarray[Any, Any], *ranks: int) -> np.ndarray[Any, Any]:
    """Return what this rank has of a tensor that some ranks hold: others have no use for theirs."""
    return whole if ONE.rank() in ranks else np.full_like(whole, 99)


def test_broadcast() -> None:
    """LowerCollectiveTest.Broadcast: from the mesh of one rank to that of all."""
    for root in range(D):
        with FusionDefinition() as fd:
            x = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.Float)
            y = fd.ops.set(x)
            fd.add_output(y)
            x.set_device_mesh(multidevice.DeviceMesh([root]))
            y.set_device_mesh(line())
        whole = integers(4, 3)
        (out,) = fd.execute([held(whole, root)])
        np.testing.assert_array_equal(out, whole)


def test_pipeline_two_stages() -> None:
    """PipelineTestTwoStages: the second stage is on another rank, the last one."""
    first, last = 0, D - 1
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.Float)
        w = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.Float)
        a = fd.ops.sum(x, [0], keepdim=True)
        b = fd.ops.set(a)
        y = fd.ops.matmul(b, w)
        fd.add_output(y)
        for tv in (x, a):
            tv.set_device_mesh(multidevice.DeviceMesh([first]))
        for tv in (b, w, y):
            tv.set_device_mesh(multidevice.DeviceMesh([last]))
    given, weight = integers(5, 4), integers(4, 3)
    (out,) = fd.execute([held(given, first), held(weight, last)])
    if ONE.rank() == last:
        np.testing.assert_array_equal(out, given.sum(0, keepdims=True) @ weight)


def perform(test: Callable[[], Made | None]) -> None:
    """Run one test on this rank; its outputs are this rank's parts, bit for bit."""
    made = test()
    if made is None:
        return
    fd, given, wanted = made
    found = fd.execute([shard(whole, tv) for whole, tv in given])
    for (whole, tv), out in zip(wanted, found, strict=True):
        own = whole if tv is None else shard(whole, tv)
        np.testing.assert_array_equal(out, own, err_msg=test.__name__)


if __name__ == "__main__":
    for name, test in [*globals().items()]:
        if name.startswith("test_"):
            perform(test)
            print(name)
    sys.stdout.flush()
