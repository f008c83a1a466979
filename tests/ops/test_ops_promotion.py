"""Types of results: known answers of torch.result_type, and nvFuser's specifics."""

from __future__ import annotations

import pytest

from fusec.diagnostics import FusecError, Unsupported
from fusec.ir import dtype as dtypes
from fusec.ir.graph import Const, Operand
from fusec.ops import TABLE
from fusec.ops.builder.build import GraphBuilder

# Operands: `t` a tensor, `z` a 0-dim tensor, `s` a scalar input, else a Python literal.
# The answers were checked with torch.result_type(2.x) for tensors, 0-dim tensors and literals.
ANSWERS = [
    ("t:f32", "t:f32", "f32"), ("t:f16", "t:f32", "f32"), ("t:f16", "t:bf16", "f32"),
    ("t:f32", "t:f64", "f64"), ("t:bf16", "t:bf16", "bf16"), ("t:i32", "t:f16", "f16"),
    ("t:i64", "t:bf16", "bf16"), ("t:i64", "t:i32", "i64"), ("t:i8", "t:u8", "i16"),
    ("t:u8", "t:i32", "i32"), ("t:bool", "t:u8", "u8"), ("t:bool", "t:f16", "f16"),
    ("t:bool", "t:bool", "bool"), ("t:i16", "t:i8", "i16"),
    ("t:f16", "z:f64", "f16"), ("t:f16", "z:f32", "f16"), ("t:i32", "z:f64", "f64"),
    ("t:i32", "z:f16", "f16"), ("t:i8", "z:i64", "i8"), ("t:bool", "z:i64", "i64"),
    ("z:f32", "z:f64", "f64"), ("z:i64", "z:f16", "f16"),
    ("t:f16", 1.0, "f16"), ("t:f16", 1, "f16"), ("t:i32", 1.5, "f32"), ("t:i64", 2.0, "f32"),
    ("t:i8", 300, "i8"), ("t:u8", True, "u8"), ("t:bool", 1, "i64"), ("t:bool", 1.0, "f32"),
    ("t:f64", 1, "f64"), ("z:f16", 2.0, "f16"), ("z:i32", 2.5, "f32"),
    ("t:bf16", "s:f32", "bf16"), ("t:bf16", "s:f64", "bf16"), ("t:i32", "s:i64", "i32"),
    ("s:f32", 2.0, "f32"), ("s:f32", "s:f64", "f64"), ("s:i64", 2.0, "f64"),
]  # fmt: skip


def made(builder: GraphBuilder, text: object, name: str) -> Operand:
    if not isinstance(text, str):
        return Const(text, {bool: dtypes.BOOL, int: dtypes.I64, float: dtypes.F64}[type(text)])  # type: ignore
    kind, dtype = text.split(":")
    shape = {"t": [2, 3], "z": [], "s": None}[kind]
    return builder.input(name, dtypes.find(dtype), shape)


@pytest.mark.parametrize(("left", "right", "answer"), ANSWERS)
@pytest.mark.parametrize("op", ["add", "maximum"])
def test_promotion(op: str, left: object, right: object, answer: str) -> None:
    for first, second in ((left, right), (right, left)):
        builder = GraphBuilder()
        operands = [made(builder, first, "a"), made(builder, second, "b")]
        assert str(builder.apply(op, *operands).type.dtype) == answer


@pytest.mark.parametrize(
    ("op", "operands", "answer"),
    [
        ("div", ["t:i32", "t:i32"], "i32"),
        ("truediv", ["t:i32", "t:i32"], "f32"),
        ("truediv", ["t:i64", "t:bf16"], "bf16"),
        ("exp", ["t:i64"], "f32"),
        ("exp", ["t:bool"], "f32"),
        ("exp", ["t:bf16"], "bf16"),
        ("sqrt", ["t:f64"], "f64"),
        ("lt", ["t:f32", "t:f64"], "bool"),
        ("isnan", ["t:bf16"], "bool"),
        ("logical_and", ["t:f32", "t:i8"], "bool"),
        ("where", ["t:bool", "t:f16", "t:f32"], "f32"),
        ("where", ["t:bool", "t:f16", 0.0], "f16"),
        ("where", ["t:bool", 1.0, 0.0], "f64"),
        ("clamp", ["t:bf16", 0.0, 1.0], "bf16"),
        ("ceil", ["t:i32"], "i32"),
        ("sum", ["t:bool"], "i64"),
        ("sum", ["t:u8"], "i64"),
        ("prod", ["t:i32"], "i64"),
        ("sum", ["t:bf16"], "bf16"),
        ("mean", ["t:i32"], "f32"),
        ("mean", ["t:bf16"], "bf16"),
        ("max", ["t:i32"], "i32"),
        ("any", ["t:f32"], "bool"),
        ("softmax", ["t:bf16"], "bf16"),
        ("gelu", ["t:f16"], "f16"),
        ("matmul", ["q:bf16", "q:bf16"], "bf16"),
    ],
)
def test_specifics(op: str, operands: list[object], answer: str) -> None:
    builder = GraphBuilder()
    values = [
        builder.input(f"x{k}", dtypes.find(o[2:]), [3, 3])
        if isinstance(o, str) and o[0] == "q"
        else made(builder, o, f"x{k}")
        for k, o in enumerate(operands)
    ]
    extra = {"dim": 0} if op == "softmax" else {}
    assert str(builder.apply(op, *values, **extra).type.dtype) == answer


def test_weak_operands_are_compared_in_the_tensor_type() -> None:
    builder = GraphBuilder()
    x, limit = builder.input("x", dtypes.BF16, [4]), builder.input("limit", dtypes.F64, None)
    zero_dim = builder.input("z", dtypes.F64, [])
    for other in (0.1, limit, zero_dim):
        builder.output(builder.apply("gt", x, other))
    nodes = [n for n in builder.finish().nodes if n.op.name == "gt"]
    assert [n.compute_dtypes for n in nodes] == [(dtypes.F32, dtypes.F32)] * 3


def test_zero_dim_operand_keeps_the_type_of_the_result() -> None:
    builder = GraphBuilder()
    x, z = builder.input("x", dtypes.F16, [4]), builder.input("z", dtypes.F64, [])
    y = builder.apply("mul", x, z)
    builder.output(y)
    fusion = builder.finish()
    assert [n.op.name for n in fusion.nodes] == ["cast", "broadcast_in_dim", "mul"]
    assert fusion.outputs[0].value.dtype == dtypes.F16


@pytest.mark.parametrize(
    ("op", "operands"),
    [
        ("sub", ["t:bool", "t:bool"]),
        ("neg", ["t:bool"]),
        ("bitwise_and", ["t:f32", "t:i32"]),
        ("gcd", ["t:bool", "t:bool"]),
        ("where", ["t:f32", "t:f32", "t:f32"]),
        ("var", ["t:i32"]),
        ("matmul", ["t:f32", "t:bf16"]),
        ("mean", ["t:i32", None, False, "i64"]),
    ],
)
def test_refused(op: str, operands: list[object]) -> None:
    builder = GraphBuilder()
    values = [
        made(builder, o, f"x{k}") if isinstance(o, str) and ":" in o else o
        for k, o in enumerate(operands)
    ]
    with pytest.raises(FusecError, match=f"`{op}`"):
        builder.apply(op, *values)


@pytest.mark.parametrize("name", ["f4e2m1", "f8e8m0"])
def test_known_but_unsupported_types(name: str) -> None:
    builder = GraphBuilder()
    with pytest.raises(Unsupported, match=name):
        builder.input("x", dtypes.find(name), [2])
    x = builder.input("y", dtypes.F32, [2])
    with pytest.raises(Unsupported, match=name):
        builder.apply("cast", x, dtype=name)


def test_every_pointwise_op_takes_scalars() -> None:
    for op in TABLE.values():
        if op.family != "pointwise" or op.name in ("cast", "tf32"):  # of f32, which no scalar is
            continue
        builder = GraphBuilder()
        whole = op.name.startswith("bitwise") or op.name in (
            "gcd",
            "ceilDiv",
            "logical_right_shift",
        )
        operands = [
            builder.input(p.name + "_", dtypes.BOOL if p.name == "condition"
                          else dtypes.I64 if whole else dtypes.F64, None)
            for p in op.operands
        ]  # fmt: skip
        assert builder.apply(op.name, *operands).is_scalar
