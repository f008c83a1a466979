"""References and promotion against PyTorch's CPU build, where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_ops_promotion import ANSWERS
from test_ops_reference import COMPOSITES, composite

from fusec.diagnostics import FusecError
from fusec.ir import dtype as dtypes
from fusec.ops import TABLE
from fusec.ops.builder.build import GraphBuilder
from fusec.reference.evaluate import evaluate

torch: Any = pytest.importorskip("torch")


def divide(a: Any, b: Any) -> Any:
    return torch.div(a, b, rounding_mode=None if a.is_floating_point() else "trunc")


def torch_functions() -> dict[str, Callable[..., Any]]:
    """Return PyTorch's function for each operation that has one by another name."""
    f = torch.nn.functional
    return {
        "logical_right_shift": lambda a, b: (a.to(torch.int64) & 0xFFFFFFFF) >> b,
        "relu": f.relu, "silu": f.silu, "truediv": torch.true_divide, "erfcinv": None,
        "isreal": torch.isreal, "mod": torch.fmod, "ceilDiv": lambda a, b: (a + b - 1) // b,
        "div": divide,
        "threshold": lambda x, t, v: torch.where(x <= t, v, x),
        "addcmul": lambda a, b, c, alpha: a + alpha * b * c,
        "neg": torch.neg, "cast": None, "frac": torch.frac,
    }  # fmt: skip


@pytest.mark.parametrize("op", [n for n, o in TABLE.items() if o.family == "pointwise"])
def test_pointwise_against_torch(op: str) -> None:
    functions = torch_functions()
    function = functions[op] if op in functions else getattr(torch, op)
    if function is None:
        return  # erfcinv and cast have no PyTorch function; covered above
    definition = TABLE[op]
    rng = np.random.default_rng(2)
    low, high = definition.domain
    shape = (50, 20)
    compared = 0
    for kind in (np.float64, np.int32, np.bool_):
        builder = GraphBuilder()
        arrays: list[Any] = []
        for param in definition.operands:
            if param.name == "condition" or kind is np.bool_:
                arrays.append(rng.uniform(size=shape) < 0.5)
            elif kind is np.int32:
                # Integers beyond the domain of floats, but no shift by more than the width.
                wide = 8 if "shift" in op or op in ("ceilDiv", "pow") else 50
                arrays.append(rng.integers(1 if wide == 8 else -wide, wide, shape, np.int32))
            else:
                arrays.append(rng.uniform(low, high, shape))
        values = [
            builder.input(f"x{k}", dtypes.of_numpy(a.dtype), a.shape) for k, a in enumerate(arrays)
        ]
        try:
            result = builder.apply(op, *values)
        except FusecError:
            continue  # refused for this type, as the rule tests check
        try:
            expected = function(*(torch.from_numpy(a) for a in arrays)).numpy()
        except (RuntimeError, TypeError):
            continue  # PyTorch lacks this type; the rule tests cover it
        builder.output(result)
        inputs = {f"x{k}": a for k, a in enumerate(arrays)}
        found = next(iter(evaluate(builder.finish(), inputs, {}).values()))
        if expected.dtype.kind != "f":
            np.testing.assert_array_equal(found, expected)
        else:
            precise = 1e-5 if expected.dtype == np.float32 else 1e-11
            np.testing.assert_allclose(found, expected, rtol=precise, atol=precise * 1e-2)
        compared += 1
    assert compared


REDUCTIONS: dict[str, str] = {
    "sum": "sum", "prod": "prod", "max": "amax", "min": "amin", "any": "any", "all": "all",
    "var": "var", "var_mean": "var_mean",
}  # fmt: skip


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions_against_torch(op: str) -> None:
    rng = np.random.default_rng(3)
    for array in (
        rng.normal(size=(3, 4, 5)),
        rng.integers(-3, 3, (3, 4, 5)),
        rng.random((3, 4)) < 0.7,
    ):
        if array.dtype.kind != "f" and op.startswith("var"):
            continue
        for dims in ((0,), (-1,), tuple(range(array.ndim))):
            if op == "prod" and len(dims) > 1:
                continue  # torch.prod takes one dim
            function = getattr(torch, REDUCTIONS[op])
            expected = function(torch.from_numpy(array), dims[0] if op == "prod" else dims)
            expected = expected if isinstance(expected, tuple) else (expected,)
            builder = GraphBuilder()
            x = builder.input("x", dtypes.of_numpy(array.dtype), array.shape)
            for result in builder.call(op, [x], {"dims": list(dims)}):
                builder.output(result)
            found = evaluate(builder.finish(), {"x": array}, {}).values()
            for f, e in zip(found, expected, strict=True):
                assert f.dtype.kind == e.numpy().dtype.kind
                np.testing.assert_allclose(f, e.numpy(), rtol=1e-12)


def test_composites_against_torch() -> None:
    f = torch.nn.functional
    functions = {
        "softmax": f.softmax, "log_softmax": f.log_softmax, "gelu": f.gelu,
        "layer_norm": f.layer_norm, "rms_norm": f.rms_norm,
        "mean": lambda x, dims, keepdim=False: torch.mean(x, dims, keepdim),
    }  # fmt: skip
    rng = np.random.default_rng(4)
    for op, shapes, attributes in COMPOSITES:
        arrays = [None if s is None else rng.normal(size=s) for s in shapes]
        given = dict(attributes) | ({"eps": 1e-5} if op.endswith("norm") else {})
        names = ["input" if op != "mean" else "x", "weight", "bias"]
        tensors = {
            n: None if a is None else torch.from_numpy(a)
            for n, a in zip(names, arrays, strict=False)
        }
        if "norm_shape" in given:
            given["normalized_shape"] = given.pop("norm_shape")
        expected = functions[op](**tensors, **given).numpy()
        found = composite(op, arrays, dtypes.F64, **attributes)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_result_type_agrees_with_torch() -> None:
    def as_torch(text: object) -> object:
        if not isinstance(text, str):
            return text
        kind, dtype = text.split(":")
        return torch.zeros(
            [2] if kind == "t" else [], dtype=getattr(torch, dtypes.find(dtype).long)
        )

    for left, right, answer in ANSWERS:
        if "s:" in f"{left}{right}":
            continue  # a scalar input has no counterpart: torch takes Python numbers
        found = torch.result_type(as_torch(left), as_torch(right))
        assert str(found) == f"torch.{dtypes.find(answer).long}", (left, right)
