"""The shape and dtype rules of every operation agree with what its reference returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fusec.diagnostics import FusecError
from fusec.ir import dtype as dtypes
from fusec.ir.dtype import DType
from fusec.ir.evaluate import convert, evaluate_attributes
from fusec.ir.graph import Const, Node
from fusec.ops import TABLE
from fusec.ops.builder.build import GraphBuilder

KINDS = {"bool": "b", "int": "i", "uint": "u", "float": "f", "complex": "c"}
SIZES = {"B": 3, "H": 4}
_INTEGER_ONLY = """
bitwise_not bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift
logical_right_shift gcd ceilDiv
"""
INTEGER_ONLY = frozenset(_INTEGER_ONLY.split())
_NO_BOOL = """
abs neg relu ceil floor round trunc sub div fmod mod remainder ceilDiv pow gcd clamp
threshold addcmul bitwise_left_shift bitwise_right_shift logical_right_shift
"""
NO_BOOL = frozenset(_NO_BOOL.split())
POINTWISE = [name for name, op in TABLE.items() if op.family == "pointwise" and name != "cast"]
COMPOSITES = [name for name, op in TABLE.items() if op.family == "composite"]
ELSEWHERE = ("indexing", "scatter", "scan", "sort", "random")
"""Families whose calls are in test_ops_breadth.py."""
OTHERS = [
    n
    for n, op in TABLE.items()
    if n not in (*POINTWISE, *COMPOSITES, "argmax", "argmin", "grouped_mm")
    and op.family not in ELSEWHERE
]

SIX = ("sum", "prod", "max", "min", "any", "all")

# One or more calls of every operation: operand types and shapes, attributes, expected shape.
CALLS: list[tuple[str, list[Any], dict[str, Any], tuple[int, ...]]] = [
    ("cast", ["f32 B H"], {"dtype": "bf16"}, (3, 4)),
    ("cast", ["f32 B H"], {"dtype": "i32"}, (3, 4)),
    ("cast", ["i32 B H"], {"dtype": "bool"}, (3, 4)),
    ("cast", ["bool H"], {"dtype": "f16"}, (4,)),
    *[(op, ["f32 B H"], {"dims": [-1]}, (3,)) for op in SIX],
    *[(op, ["i32 B H"], {"dims": [0]}, (4,)) for op in SIX],
    *[(op, ["u8 B H"], {}, ()) for op in ("sum", "prod", "max", "min")],
    *[(op, ["bool B H"], {"dims": [0]}, (4,)) for op in ("sum", "max", "min", "any", "all")],
    ("sum", ["bf16 B H"], {"dims": [0, 1], "dtype": "f32"}, ()),
    ("sum", ["bf16 B H"], {"dims": 1, "dtype": "i32"}, (3,)),
    ("max", ["f32 B H"], {"dims": [0], "dtype": "f64"}, (4,)),
    ("var", ["f32 B H"], {"dims": [1]}, (3,)),
    ("var", ["bf16 B H"], {}, ()),
    ("var_mean", ["f32 B H"], {"dims": [0], "correction": 0}, (4,)),
    ("welford", ["f64 B H"], {"dims": [0]}, (4,)),
    ("set", ["f16 B"], {}, (3,)),
    ("segment_set", ["f16 B"], {}, (3,)),
    ("broadcast", ["f32 B H"], {"is_broadcast_dim": [True, False, True, False]}, (1, 3, 1, 4)),
    ("broadcast_in_dim", ["f32 H"], {"shape": [2, "B", "H"], "broadcast_dims": [2]}, (2, 3, 4)),
    ("broadcast_in_dim", ["f32 1 H"], {"shape": [5, 2, "H"], "broadcast_dims": [1, 2]}, (5, 2, 4)),
    ("expand", ["f32 1 H"], {"shape": [2, "B", -1]}, (2, 3, 4)),
    ("squeeze", ["f32 1 H 1"], {"dims": [0, -1]}, (4,)),
    ("squeeze", ["f32 B H"], {"dims": [0], "squeeze_expanded": True}, (4,)),
    ("reshape", ["f32 B H"], {"new_shape": [2, -1]}, (2, 6)),
    ("reshape", ["f32 B H"], {"new_shape": [-1]}, (12,)),
    ("flip", ["f32 B H"], {"dims": [-1]}, (3, 4)),
    ("permute", ["f32 B H 5"], {"dims": [2, 0, -2]}, (5, 3, 4)),
    ("slice", ["f32 B H"], {"start_indices": [1, 0], "end_indices": [3, "H"]}, (2, 4)),
    ("slice", ["i8 7"], {"start_indices": [1], "end_indices": [-1], "strides": [2]}, (3,)),
    ("slice", ["i8 7"], {"start_indices": [-3], "end_indices": [99]}, (3,)),
    ("slice", ["i8 7"], {"start_indices": [5], "end_indices": [2]}, (0,)),
    ("pad", ["f32 B H", 1.5], {"pad_widths": [1, 2]}, (3, 7)),
    ("pad", ["i32 B H"], {"pad_widths": [-1, 0, 2, 0]}, (5, 3)),
    ("cat", [["f32 B H", "f32 2 H", "f32 B H"]], {}, (8, 4)),
    ("cat", [["bool B H", "bool B 1"]], {"dim": -1}, (3, 5)),
    ("update_slice", ["i8 7 H", "i8 2 H"], {"start_indices": [3, 0]}, (7, 4)),
    ("full", [2.0], {"shape": ["B", 2]}, (3, 2)),
    ("full", [7], {"shape": [], "dtype": "f16"}, ()),
    ("iota", [], {"length": "H"}, (4,)),
    ("iota", [1.0, 0.5], {"length": 5, "dtype": "f32"}, (5,)),
    ("size", ["f32 B H"], {"dim": -1}, ()),
    ("matmul", ["f32 B H", "f32 H 5"], {}, (3, 5)),
    ("matmul", ["bf16 2 1 B H", "bf16 7 H 5"], {}, (2, 7, 3, 5)),
    ("matmul", ["f32 H", "f32 H 5"], {}, (5,)),
    ("matmul", ["i32 B H", "i32 H"], {}, (3,)),
    ("linear", ["f32 2 B H", "f32 5 H", "f32 5"], {}, (2, 3, 5)),
    ("linear", ["f32 B H", "f32 H"], {}, (3,)),
    ("real", ["c64 B H"], {}, (3, 4)),
    ("imag", ["c128 B H"], {}, (3, 4)),
    ("complex", ["f32 B H", "f64 H"], {}, (3, 4)),
]


def operand(builder: GraphBuilder, spec: Any, name: str) -> Any:
    if isinstance(spec, list):
        return [operand(builder, s, f"{name}_{k}") for k, s in enumerate(spec)]
    if not isinstance(spec, str):
        return spec
    dtype, *extents = spec.split()
    return builder.input(name, dtypes.find(dtype), [size(builder, e) for e in extents])


def size(builder: GraphBuilder, text: Any) -> Any:
    if not isinstance(text, str):
        return text
    if not text.isalpha():
        return int(text)
    found = {fact: None for fact in builder.hints}
    from fusec.ir.dim import symbol

    return symbol(text) if text in found else builder.declare_dim(text, SIZES[text])


def check_node(node: Node) -> None:
    """Run the reference on random operands and compare with the inferred types."""
    rng = np.random.default_rng(0)
    low, high = node.op.domain
    arrays: list[Any] = []
    for source, dtype in zip(node.operands, node.compute_dtypes, strict=True):
        if isinstance(source, Const):
            raw = np.asarray(source.value)
        else:
            extents = [d.evaluate(SIZES) for d in source.shape]
            raw = rng.uniform(low, high, extents)
            raw = raw if source.dtype.is_float else np.abs(raw)
        arrays.append(convert(convert(raw, source.type.dtype), dtype))
    results = node.op.reference(*arrays, **evaluate_attributes(node.attributes, SIZES))
    results = results if isinstance(results, tuple) else (results,)
    assert len(results) == len(node.outputs) == len(node.op.results)
    for value, result in zip(node.outputs, results, strict=True):
        assert np.shape(result) == tuple(d.evaluate(SIZES) for d in value.shape)
        assert np.asarray(result).dtype.kind == KINDS[value.dtype.kind] or node.op.name in (
            "cast",  # rounds where the result is stored
            "full",
            "iota",
        )


def last_node(builder: GraphBuilder, op: str) -> Node:
    value = next(v for v in reversed(builder._slots) if not v.is_scalar)
    builder.output(value)
    fusion = builder.finish()
    return next(n for n in reversed(fusion.nodes) if n.op.name == op)


def test_calls() -> None:
    for call in CALLS:
        check_call(*call)


def check_call(
    op: str, specs: list[Any], attributes: Mapping[str, Any], shape: tuple[int, ...]
) -> None:
    builder = GraphBuilder()
    operands = [operand(builder, s, f"x{k}") for k, s in enumerate(specs)]
    given = {
        k: [size(builder, e) for e in v]
        if k in ("shape", "end_indices")
        else size(builder, v)
        if k == "length"
        else v
        for k, v in attributes.items()
    }
    results = builder.call(op, operands, given)
    if op == "size":
        assert str(results[0].type.dim) == "H"
        return
    node = last_node(builder, op)
    assert tuple(d.evaluate(SIZES) for d in node.output.shape) == shape, (op, specs, attributes)
    check_node(node)


def test_every_op_is_called() -> None:
    assert {c[0] for c in CALLS} == set(OTHERS)


@pytest.mark.parametrize(
    "name", ["f64", "f32", "f16", "bf16", "f8e4m3", "i64", "i8", "u32", "bool"]
)
def test_pointwise(name: str) -> None:
    for op in POINTWISE:
        check_pointwise(op, dtypes.find(name))


def check_pointwise(op: str, dtype: DType) -> None:
    builder = GraphBuilder()
    shapes = (["B", "H"], [1, "H"], ["B", 1], ["B", "H"])
    operands: list[Any] = []
    for k, param in enumerate(TABLE[op].operands):
        own = dtypes.BOOL if param.name == "condition" else dtype
        operands.append(builder.input(f"x{k}", own, [size(builder, s) for s in shapes[k]]))
    unlike = (dtype.is_half and op == "nextafter") or (dtype == dtypes.F64 and op == "tf32")
    if (
        unlike
        or (dtype.is_float and op in INTEGER_ONLY)
        or (dtype == dtypes.BOOL and op in NO_BOOL)
    ):
        with pytest.raises(FusecError, match=f"`{op.removesuffix('_approx')}`"):
            builder.call(op, operands)
        return
    builder.call(op, operands)
    node = last_node(builder, op)
    if dtype.is_half and node.output.dtype.kind != "bool":
        assert node.output.dtype == dtype
        assert node.compute_dtypes[-1] == dtypes.F32
    check_node(node)


def test_every_op_is_documented_and_priced() -> None:
    for op in TABLE.values():
        assert op.doc.endswith("."), op.name
        assert (
            op.family == "composite"
            or op.cuda
            or op.family
            in (
                "movement",
                "scalar",
                "contraction",
                "complex",
                *ELSEWHERE,
            )
        ), op.name
        low, high = op.domain
        assert low < high
