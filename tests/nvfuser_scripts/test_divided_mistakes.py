"""Mistakes of scripts that divide tensors, by position."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loop_scripts import STREAM, X, Y, mesh_of

from fusec.diagnostics import FusecError, Unsupported
from fusec.nvfuser.definition import DirectDefinition
from fusec.parse.dsl.loops import ParallelType
from fusec.parse.dsl.mesh import DeviceMesh

# -- mistakes


def named(fd: DirectDefinition) -> Any:
    """Return a tensor of four by six."""
    return fd.define_tensor([4, 6], name="x")


MISTAKES = [
    (lambda x: x.axis(2), "loop axis 2 is out of range: there are 2", FusecError),
    (lambda x: x.axis("0"), "an axis is an integer", FusecError),
    (lambda x: x.outer_split(-3, 2), "none of number -3", FusecError),
    (lambda x: (x.outer_split(0, 2), x.outer_split(0, 3)), "2 iterations is not divisible by 3",
     FusecError),
    (lambda x: x.inner_split(0, 0), "a factor is at least 1", FusecError),
    (lambda x: x.split(0, 2.5), "the factor of a split is an integer", FusecError),
    (lambda x: x.merge(1), "axis 2 is out of range", FusecError),
    (lambda x: x.merge(0, 0), "merged with itself", FusecError),
    (lambda x: x.reorder({0: 1, 1: 1}), "two axes to one position", FusecError),
    (lambda x: x.set_device_mesh([0, 1]), "a device mesh must be a DeviceMesh", FusecError),
    (lambda x: x.axis(0).parallelize(ParallelType.block_x), "manual scheduling", Unsupported),
    (lambda x: x.axis(0).extent(), "extent", FusecError),
    (lambda x: x.cache_after(), "manual scheduling", Unsupported),
    (lambda x: x.definition.set_mesh([2, 0]), "at least 1 rank, found 0", FusecError),
    (lambda x: x.definition.set_mesh({"stream": 2}), "is taken", FusecError),
    (lambda x: x.definition.set_mesh([1, 1, 1, 1]), "needs names", FusecError),
    (lambda x: x.definition.shard(3, {}), "expected a tensor of the fusion", FusecError),
    (lambda x: DeviceMesh([[1, 0]]), "a mesh of 2 axes and the ranks", Unsupported),
    (lambda x: DeviceMesh([1, 1]), "a rank appears twice", FusecError),
    (lambda x: DeviceMesh([-1]), "a rank is at least 0", FusecError),
    (lambda x: DeviceMesh([[0, 1], [2]]), "must have equal lengths", FusecError),
    (lambda x: DeviceMesh([]), "at least 1 rank", FusecError),
    (lambda x: DeviceMesh(["0"]), "a rank must be an integer", FusecError),
    (lambda x: DeviceMesh(3), "a mesh must be a list", FusecError),
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
    x.set_device_mesh(mesh_of(24))
    x.merge(0)
    x.axis(0).parallelize(X)


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


def cut_again(x: Any) -> None:
    x.inner_split(0, 4)
    x.outer_split(0, 2)


def cut_across(x: Any) -> None:
    x.merge(0)
    x.outer_split(0, 3)


@pytest.mark.parametrize(
    ("call", "message", "kind"),
    [
        (only_streams, "parallelized on mesh_x, but there is no mesh", FusecError),
        (too_few_axes, "a mesh of rank 1 has no mesh_y", FusecError),
        (wrong_extent, "6 parts along `mesh`, an axis of 4 ranks", FusecError),
        (twice, "divided twice along `stream`", FusecError),
        (merged, "merged axis of several dims", Unsupported),
        (ordered, "of another order than the dims of `x`", Unsupported),
        (several_meshes, "several meshes in one fusion", Unsupported),
        (reduced, "carries a dependence", FusecError),
        (unknown_axis, "did you mean `mesh`", FusecError),
        (no_mesh, "no mesh to shard over", FusecError),
        (odd_factor, "expected a mesh axis as a factor of a dim, got 2", FusecError),
        (cut_again, "an axis of 1 iterations is not divisible by 2", FusecError),
        (cut_across, "across the boundary of merged dims", Unsupported),
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
