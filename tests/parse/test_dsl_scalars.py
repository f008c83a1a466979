"""Attributes that are scalar inputs: their values come with each execution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.parse.dsl import DataType, FusionDefinition
from fusec.parse.dsl.session import recording


def sorted_rows() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.Float)
        down = fd.define_scalar(dtype=DataType.Bool)
        fd.add_output(fd.ops.argsort(x, 1, descending=down))
    return fd


def test_each_execution_defines_the_fusion_with_its_attributes() -> None:
    made: list[Fusion] = []

    def note(fusion: Fusion, _: Any) -> None:
        made.append(fusion)

    fd = sorted_rows()
    with recording(note):
        for down in (True, False, True):
            fd.execute([np.ones((2, 8), np.float32), down])
    assert [f.nodes[0].attributes["descending"] for f in made] == [True, False, True]
    assert made[0] == made[2]
    assert [i.default for i in made[1].inputs] == [None, False]


def test_without_an_execution_the_scalar_is_named() -> None:
    with pytest.raises(FusecError, match="the value of `down` is needed") as caught:
        sorted_rows().fusion()
    assert "fd.execute(inputs)" in str(caught.value.diagnostic.help)


def scaled() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], contiguity=True)
        a = fd.define_scalar(dtype=DataType.Float, default=2.0)
        w = fd.define_tensor([-1], contiguity=True)
        b = fd.define_scalar(dtype=DataType.Float, default=3.0)
        fd.add_output(x * a * w + b)
    return fd


X = np.ones(4, np.float32)


@pytest.mark.parametrize(
    ("given", "result"),
    [((X, 5, X, 1), 6), ((X, 5, X), 8), ((X, None, X), 5), ((X, None, X, None), 5)],
)
def test_a_scalar_that_is_not_given_has_its_default(given: tuple[Any, ...], result: int) -> None:
    (y,) = scaled().execute(given)
    np.testing.assert_array_equal(y, np.full(4, result, np.float32))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((X, 5), "got 2 inputs, the fusion takes 4: `w` is missing"),
        ((None, 5, X), "`x` is missing"),
        ((X, 5, X, 1, X), "got 5 inputs, the fusion takes 4"),
        ((X, 5, "X"), "input `w`: an input of type str cannot be used"),
        ((X[::-1], 5, X), "input `x`: the stride of dim 0"),
    ],
)
def test_errors_of_inputs_name_them(given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(FusecError, match=message):
        scaled().execute(given)


def test_scalars_elsewhere_stay_inputs() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[4], contiguity=True, dtype=DataType.Float)
        s = fd.define_scalar(dtype=DataType.Double)
        fd.add_output(fd.ops.mul(x, s))
    assert len(fd.fusion().inputs) == 2
    assert fd.fusion().nodes[0].inputs[1].name == "s"


def test_a_size_may_be_computed_in_floats() -> None:
    with FusionDefinition() as fd:
        rows = fd.define_scalar(None, dtype=DataType.Int)
        x = fd.define_tensor(shape=[-1, -1], dtype=DataType.Float)
        columns = fd.ops.mul(24, fd.ops.reciprocal(rows))
        fd.add_output(fd.ops.sum(fd.ops.reshape(x, [rows, columns]), [1]))
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for count in (3, 8):
        np.testing.assert_array_equal(fd.execute([count, x])[0], x.reshape(count, -1).sum(1))
    with pytest.raises(FusecError, match="must hold sizes"):
        fd.execute([5, x])
