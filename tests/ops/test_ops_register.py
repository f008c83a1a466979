"""A new operation is one function: registered here and driven through what derives from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from declared import temporary_ops

from fusec.diagnostics import FusecError, InternalError
from fusec.ir import dtype as dtypes
from fusec.ir.graph import Const
from fusec.ir.op import REQUIRED, Cost, OpDef
from fusec.ops import TABLE, find_op
from fusec.ops.builder.arguments import bind, signature, written_attributes
from fusec.ops.builder.build import GraphBuilder
from fusec.ops.declare import Array, pointwise
from fusec.ops.dtypes import FLOAT
from fusec.reference.evaluate import evaluate


@pytest.fixture
def log1pexp() -> Iterator[OpDef]:
    with temporary_ops():

        @pointwise(
            cuda={"f32": "log1pf(expf({x}))", "f64": "log1p(exp({x}))"},
            dtype=FLOAT,
            cost=Cost(20, 2),
            domain=(-5.0, 5.0),
            accuracy=3,
        )
        def log1pexp(x: Array) -> Array:
            """Return log(1 + exp(x))."""
            return np.log1p(np.exp(x))

        yield log1pexp


def test_a_new_op_is_one_function(log1pexp: OpDef) -> None:
    assert find_op("log1pexp") is log1pexp is TABLE["log1pexp"]
    assert log1pexp.doc == "Return log(1 + exp(x))."
    assert [(p.name, p.kind, p.default) for p in log1pexp.params] == [("x", "operand", REQUIRED)]
    builder = GraphBuilder()
    x = builder.input("x", dtypes.BF16, [3, builder.declare_dim("H", 4)])
    builder.output(builder.apply("log1pexp", x))
    fusion = builder.finish()
    assert str(fusion.outputs[0].value.type) == "bf16[3, H]"
    assert fusion.nodes[0].compute_dtypes == (dtypes.F32,)
    data = np.linspace(-4, 4, 12).reshape(3, 4)
    (found,) = evaluate(fusion, {"x": data.astype(dtypes.BF16.numpy)}, {"H": 4}).values()
    np.testing.assert_allclose(found, np.log1p(np.exp(data)), rtol=2**-7)


def test_the_table_is_restored() -> None:
    before = list(TABLE)
    with temporary_ops():
        pointwise(cuda="{x}")(lambda_named("nothing"))
        assert "nothing" in TABLE
    assert list(TABLE) == before


def lambda_named(name: str) -> Any:
    def body(x: Array) -> Array:
        """Return x."""
        return x

    body.__name__ = name
    return body


def test_a_name_is_declared_once() -> None:
    with temporary_ops(), pytest.raises(InternalError, match="`add` is declared twice"):
        pointwise(cuda="{x}")(lambda_named("add"))


def test_unknown_ops_get_a_suggestion() -> None:
    with pytest.raises(FusecError) as caught:
        find_op("sofmax")
    assert caught.value.diagnostic.help == "did you mean `softmax`?"


@pytest.mark.parametrize(
    ("op", "positional", "keywords", "operands", "attributes"),
    [
        ("sum", ["x", [1], True], {}, ["x"], {"dims": [1], "keepdim": True}),
        ("sum", ["x"], {"dtype": "f32"}, ["x"], {"dtype": "f32"}),
        ("pad", ["x", [1, 1], 2.0], {}, ["x", 2.0], {"pad_widths": [1, 1]}),
        ("pad", ["x"], {"value": 2.0, "pad_widths": [1, 1]}, ["x", 2.0], {"pad_widths": [1, 1]}),
        ("full", [[2], 1.0, "f32"], {}, [1.0], {"shape": [2], "dtype": "f32"}),
        ("iota", [4], {"step": 2}, [0, 2], {"length": 4}),
        ("cat", [["x", "y"], 1], {}, [["x", "y"]], {"dim": 1}),
        ("linear", ["x", "w"], {"bias": "b"}, ["x", "w", "b"], {}),
        ("linear", ["x", "w"], {}, ["x", "w", None], {}),
    ],
)
def test_bind(op: str, positional: Any, keywords: Any, operands: Any, attributes: Any) -> None:
    assert bind(TABLE[op], positional, keywords) == (operands, attributes)


@pytest.mark.parametrize(
    ("op", "positional", "keywords", "message"),
    [
        ("neg", ["x", "y"], {}, "`neg` takes 1 argument, got 2"),
        ("neg", ["x"], {"x": "y"}, "argument `x` of `neg` is specified twice"),
        ("sum", ["x"], {"dim": [1]}, "`sum` has no argument `dim`"),
        ("reshape", ["x"], {}, "`reshape` needs `new_shape`"),
    ],
)
def test_bind_errors(op: str, positional: Any, keywords: Any, message: str) -> None:
    with pytest.raises(FusecError) as caught:
        bind(TABLE[op], positional, keywords)
    assert caught.value.diagnostic.message == message


def test_signature() -> None:
    assert signature(TABLE["sum"]) == "sum(arg, dims=None, keepdim=False, dtype=None)"


def test_attributes_are_written_as_they_are_called() -> None:
    builder = GraphBuilder()
    x = builder.input("x", dtypes.F32, [2, 3, 4])
    calls: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("pad", {"pad_widths": [1, 2, 3, 4]}, {"pad_widths": (1, 2, 3, 4, 0, 0)}),
        ("slice", {"start_indices": [0, 0, 0], "end_indices": [1, 1, 1], "strides": [1, 1, 1]},
         {"start_indices": (0, 0, 0), "end_indices": (1, 1, 1)}),
        ("sum", {"dims": [-1], "dtype": "f32"}, {"dims": (2,)}),
        ("squeeze", {"dims": []}, {"dims": ()}),
    ]  # fmt: skip
    for op, given, expected in calls:
        value = builder.apply(op, x, **given)
        assert not isinstance(value, Const)
        node = next(d for d in builder._drafts if builder._slots[d.outputs[0]] is value)
        written = written_attributes(TABLE[op], node.attributes)
        assert written == expected
        again = builder.apply(op, x, **{k: list(v) for k, v in written.items()})
        assert again.type == value.type
