"""The text that nvFuser's direct interface prints: normalised, in the order of its outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusec.diagnostics import FusecError
from fusec.nvfuser.definition import DirectDefinition
from fusec.parse.dsl import DataType
from fusec.passes import run_pipeline


def lines(define: Any) -> list[str]:
    """Return the calls that a definition prints, which define the same again."""
    with DirectDefinition() as made:
        define(made)
    body = repr(made).splitlines()[1:]
    with DirectDefinition() as again:
        exec("\n".join(line.strip() for line in body), {"fd": again, "DataType": DataType})
    assert [str(o.operand.type.dtype) for o in again.outputs()] == [
        str(o.operand.type.dtype) for o in made.outputs()
    ]
    assert planned_ops(again) == planned_ops(made)
    return [line.strip() for line in body]


def planned_ops(fd: Any) -> list[tuple[str, str]]:
    """Return the operations that segments are made of, which decide what is rounded where."""
    nodes = run_pipeline(fd.graph()).canonical_order
    return [(n.op.name, f"{n.output.dtype}, {n.output.rank} dims") for n in nodes]


def test_order_follows_the_outputs() -> None:
    def define(fd: Any) -> None:
        x = fd.define_tensor(shape=[-1, 4])
        a, unused, b = fd.ops.exp(x), fd.ops.log(x), fd.ops.sin(x)
        y = fd.ops.mul(b, a)
        del unused
        fd.add_output(y)
        fd.add_output(fd.ops.neg(a))

    assert [line.partition(" = ")[0] for line in lines(define)] == [
        "tv0", "tv3", "tv1", "tv4", "tv5", "tv2", "fd.add_output(tv4)", "fd.add_output(tv5)"
    ]  # fmt: skip


def test_draws_stay_in_the_order_of_the_generator() -> None:
    def define(fd: Any) -> None:
        first = fd.ops.uniform(0.0, 1.0, [8], dtype=DataType.Float)
        second = fd.ops.uniform(2.0, 3.0, [8], dtype=DataType.Float)
        fd.add_output(second)
        fd.add_output(first)

    printed = lines(define)
    assert "0.00000, 1.00000" in printed[0]
    assert "2.00000, 3.00000" in printed[1]


def test_a_reduction_names_its_dims_and_type() -> None:
    def define(fd: Any) -> None:
        x = fd.define_tensor(shape=[-1, -1], dtype=DataType.Int32)
        fd.add_output(fd.ops.sum(x, [-1]))
        fd.add_output(fd.ops.max(x, None, True))

    printed = lines(define)
    assert "tv1 = fd.ops.sum(tv0, dims=[1], dtype=DataType.Int)" in printed
    assert "tv2 = fd.ops.max(tv0, dims=[0, 1], keepdim=True, dtype=DataType.Int32)" in printed


def test_a_reduction_of_nothing_is_a_squeeze() -> None:
    def define(fd: Any) -> None:
        x = fd.define_tensor(shape=[1, -1, 1], dtype=DataType.Float)
        fd.add_output(fd.ops.sum(x, [0, -1]))
        fd.add_output(fd.ops.sum(x, [0, 1]))

    printed = lines(define)
    assert "tv1 = fd.ops.squeeze(tv0, dims=[0, 2])" in printed
    assert "tv2 = fd.ops.sum(tv0, dims=[0, 1], dtype=DataType.Float)" in printed


def test_no_new_dim_is_an_expansion() -> None:
    def define(fd: Any) -> None:
        x = fd.define_tensor(shape=[1, 4])
        fd.add_output(fd.ops.broadcast_in_dim(x, [3, 4], [0, 1]))
        fd.add_output(fd.ops.broadcast_in_dim(x, [2, 3, 4], [1, 2]))
        fd.add_output(fd.ops.broadcast_in_dim(x, [5, 4], [-2, -1]))

    printed = lines(define)
    assert "tv1 = fd.ops.expand(tv0, shape=[3, 4])" in printed
    assert "tv2 = fd.ops.broadcast_in_dim(tv0, shape=[2, 3, 4], broadcast_dims=[1, 2])" in printed
    assert "tv3 = fd.ops.expand(tv0, shape=[5, 4])" in printed


@pytest.mark.parametrize(
    ("shape", "places", "to"),
    [([2, 2], [0], [2, 2, 3]), ([2, 2], [0], [2]), ([2, 2], [0, 2], [2, 2]), ([2], [0, 1], [2, 2])],
)
def test_dims_that_broadcast_in_dim_does_not_take_are_refused(
    shape: list[int], places: list[int], to: list[int]
) -> None:
    with DirectDefinition() as fd:
        x = fd.define_tensor(shape=shape, contiguity=True)
        with pytest.raises(FusecError, match="broadcast_dims"):
            fd.ops.broadcast_in_dim(x, to, places)
    with DirectDefinition() as late:
        x = late.define_tensor(shape=[-1] * len(shape), contiguity=True)
        like = late.define_tensor(shape=[-1] * len(to), contiguity=True)
        late.add_output(late.ops.broadcast_in_dim(x, like.shape(), places))
    with pytest.raises(FusecError, match="broadcast_dims"):
        late.execute([np.ones(shape, np.float32), np.ones(to, np.float32)])


def test_broadcasts_one_after_the_other_are_merged_in_the_printed_definition_too() -> None:
    def define(fd: Any) -> None:
        x = fd.define_tensor(shape=[16])
        y = fd.define_tensor(shape=[8, 16])
        row = fd.ops.broadcast_in_dim(x, [1, 16], [1])
        wide = fd.ops.broadcast_in_dim(row, [8, 16], [0, 1])
        fd.add_output(fd.ops.mul(wide, y))

    assert "fd.ops.expand(" in "".join(lines(define))


def test_a_slice_is_normalised_where_it_lies_within() -> None:
    def define(fd: Any) -> None:
        x = fd.ops.full([4, 6], 1.0, DataType.Float)
        fd.add_output(fd.ops.slice(x, [0, 2], [4, 5]))
        fd.add_output(fd.ops.slice(x, [0, 2], [9, 5]))

    within, beyond = (line for line in lines(define) if "slice" in line)
    assert within.endswith("manual_normalization=True)")
    assert "manual" not in beyond
