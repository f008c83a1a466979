"""What a wrong call, input or dim of the graph builder is told, and where."""

from __future__ import annotations

from typing import Any

import pytest

from fusec.diagnostics import FusecError, Span
from fusec.ir import dtype as dtypes
from fusec.ir.dim import Dim
from fusec.ops.builder.build import GraphBuilder

F32, I64 = dtypes.F32, dtypes.I64


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "message"),
    [
        ("ad", ["x", "x"], {}, "unknown operation `ad`"),
        ("add", ["x"], {}, "`add` needs `b`"),
        ("add", ["x", "x", "x"], {}, "`add` takes 2 operands, got 3"),
        ("add", ["x", "text"], {}, "`b` of `add` must be a tensor or a number"),
        ("sum", ["x"], {"dim": [0]}, "`sum` has no argument `dim`"),
        ("sum", ["x"], {"dims": [2]}, "dim 2 of `sum` is out of range: expected -2 to 1"),
        ("sum", ["x"], {"dims": [0, -2]}, "dim 0 of `sum` is specified twice"),
        ("sum", ["x"], {"dims": "ab"}, "`dims` of `sum` must be an integer"),
        ("sum", ["x"], {"dims": []}, "dims of `sum` is empty"),
        ("sum", ["x"], {"keepdim": 1}, "`keepdim` of `sum` must be a bool"),
        ("sum", ["x"], {"dtype": "f31"}, "unknown dtype `f31`"),
        ("sum", [1.0], {}, "`sum` needs a tensor"),
        ("cast", ["x"], {}, "`cast` needs `dtype`"),
        ("reshape", ["x"], {"new_shape": [5]}, "changes the number of elements"),
        ("reshape", ["x"], {"new_shape": [-1, 5]}, "changes the number of elements"),
        ("reshape", ["x"], {"new_shape": [-1, -1]}, "only one extent"),
        ("permute", ["x"], {"dims": [0]}, "dims of `permute` has 1 entries for 2 dims"),
        ("permute", ["x"], {"dims": [0, 0]}, "dim 0 of `permute` is specified twice"),
        ("squeeze", ["x"], {"dims": [0]}, "`squeeze` of a dim of extent 3, not 1"),
        ("expand", ["x"], {"shape": [6, 4]}, "only dims of extent 1 can expand"),
        ("expand", ["x"], {"shape": [4]}, "`expand` to 1 dims of a tensor with 2"),
        ("expand", ["x"], {"shape": [-1, 3, 4]}, "a new dim has none"),
        ("broadcast", ["x"], {"is_broadcast_dim": [True, False]}, "is_broadcast_dim"),
        ("broadcast_in_dim", ["x"], {"shape": [3, 4], "broadcast_dims": [1, 0]}, "must increase"),
        ("broadcast_in_dim", ["x"], {"shape": [3, 5], "broadcast_dims": [0, 1]}, "4 and 5 differ"),
        ("broadcast_in_dim", ["x"], {"shape": [3, 4], "broadcast_dims": [0, 2]}, "out of range"),
        ("slice", ["x"], {"start_indices": [0], "end_indices": [1]}, "start_indices"),
        ("slice", ["x"], {"start_indices": [0, 0], "end_indices": [1, 1], "strides": [0, 1]},
         "at least 1"),
        ("slice", ["x"], {"start_indices": [0, 0], "end_indices": [9, 1],
                          "manual_normalization": True}, "leaves its extent 3"),
        ("pad", ["x"], {"pad_widths": [1]}, "two per dim, at most 4"),
        ("pad", ["x"], {"pad_widths": [-3, -3]}, "shrinks dim 1 to -2"),
        ("pad", ["x", "x"], {"pad_widths": [1, 1]}, "must be a scalar"),
        ("cat", ["x"], {}, "must be a list of tensors"),
        ("cat", [["x", "t"]], {"dim": 0}, "4 and 3 differ"),
        ("cat", [["x", "w"]], {}, "have 2 and 1 dims"),
        ("cat", [["x", "i"]], {}, "`cat` of f32 and i64"),
        ("matmul", ["x", "x"], {}, "4 and 3 differ"),
        ("linear", ["x", "t"], {}, "4 and 3 differ"),
        ("linear", ["x", "x", "x"], {}, "the bias of `linear` must have 1 dims"),
        ("full", ["x"], {"shape": [2]}, "`full` needs scalars"),
        ("full", [1.0], {"shape": [-2]}, "extents are at least 0"),
        ("layer_norm", ["x"], {"norm_shape": [3]}, "is not a suffix of the shape"),
        ("gelu", ["x"], {"approximate": "fast"}, "approximate is 'none' or 'tanh'"),
        ("add", [2**70, 1], {}, "does not fit in 64 bits"),
        ("maximum", [1j, 1], {}, "`maximum` of complex numbers"),
    ],
)  # fmt: skip
def test_call_errors(
    op: str, operands: list[Any], attributes: dict[str, Any], message: str
) -> None:
    builder = GraphBuilder()
    inputs = {
        "x": builder.input("x", F32, [3, 4]), "w": builder.input("w", F32, [4]),
        "t": builder.input("t", F32, [4, 3]), "i": builder.input("i", I64, [3, 4]),
    }  # fmt: skip

    def made(given: Any) -> Any:
        if isinstance(given, list):
            return [made(g) for g in given]
        return inputs.get(given, given) if isinstance(given, str) else given

    span = Span("f.yaml", 9, 5)
    with pytest.raises(FusecError) as caught:
        builder.call(op, [made(o) for o in operands], attributes, span=span)
    assert message in str(caught.value)
    assert caught.value.diagnostic.span == span


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strides": [1]}, "2 dims and 1 strides"),
        ({"contiguity": [True]}, "contiguity has 1 entries for 2 dims"),
        ({"stride_order": [1, 1]}, "not a permutation"),
        ({"on_cpu": True}, "only a 0-dim tensor"),
    ],
)
def test_input_errors(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(FusecError, match=message) as caught:
        GraphBuilder().input("x", F32, [2, 3], span=Span("f", 1, 1), **arguments)
    assert caught.value.diagnostic.span is not None


def test_dim_errors() -> None:
    builder = GraphBuilder()
    for default, multiple in ((-1, 1), (2**63, 1), (9, 8), (8, 0)):
        with pytest.raises(FusecError):
            builder.declare_dim("B", default, multiple_of=multiple)
    assert isinstance(builder.declare_dim("B", 8, multiple_of=8), Dim)
