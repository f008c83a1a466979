"""Mutation tests of the verifier: every rule is broken once, and named in the error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fusec.diagnostics import FusecError, InternalError
from fusec.ir import dtype as dtypes
from fusec.ir.annotations import Pin
from fusec.ir.dim import dim, symbol
from fusec.ir.graph import Const, Fusion, Node, Output, Type, Value
from fusec.ir.verify import verify
from fusec.ops import TABLE
from fusec.ops.builder.build import GraphBuilder


def sample() -> Fusion:
    builder = GraphBuilder("sample")
    b, h = builder.declare_dim("B", 4), builder.declare_dim("H", 8)
    x = builder.input("x", dtypes.F32, [b, h])
    y = builder.input("y", dtypes.F32, [b, h])
    (s,) = builder.call("sum", [x], {"dims": [1], "keepdim": True}, names=["s"])
    (z,) = builder.call("add", [x, s], names=["z"])
    (v, m) = builder.call("var_mean", [y], {"dims": [1]}, names=["v", "m"])
    builder.output(z, alias=y)
    builder.output(v)
    builder.output(m)
    builder.pin(Pin("s0", ("z",)))
    return builder.finish()


def with_node(fusion: Fusion, index: int, **fields: Any) -> Fusion:
    """Return the fusion with fields of one node replaced."""
    nodes = list(fusion.nodes)
    old = nodes[index]
    given = {
        "op": old.op, "operands": old.operands, "attributes": old.attributes,
        "outputs": old.outputs,
    }  # fmt: skip
    nodes[index] = Node(**(given | fields))
    return fusion.with_nodes(nodes)


def index_of(fusion: Fusion, op: str) -> int:
    return next(k for k, n in enumerate(fusion.nodes) if n.op.name == op)


def swap_ab(f: Fusion) -> Fusion:
    return f.with_nodes(reversed(f.nodes))


def stranger(f: Fusion) -> Fusion:
    x = f.inputs[0].value
    k = index_of(f, "sum")
    return with_node(f, k, operands=(Value(x.name, x.type),))


def renamed(name: str) -> Callable[[Fusion], Fusion]:
    def mutate(f: Fusion) -> Fusion:
        k = index_of(f, "var_mean")
        v, m = f.nodes[k].outputs
        other = Value(name, m.type)
        outputs = tuple(replace(o, value=other) if o.value is m else o for o in f.outputs)
        return replace(with_node(f, k, outputs=(v, other)), outputs=outputs)

    return mutate


def retyped(**changes: Any) -> Callable[[Fusion], Fusion]:
    def mutate(f: Fusion) -> Fusion:
        k = index_of(f, "var_mean")
        v, m = f.nodes[k].outputs
        other = Value("m", replace(m.type, **changes))
        outputs = tuple(replace(o, value=other) if o.value is m else o for o in f.outputs)
        return replace(with_node(f, k, outputs=(v, other)), outputs=outputs)

    return mutate


def edited(which: str, **fields: Any) -> Callable[[Fusion], Fusion]:
    return lambda f: with_node(f, index_of(f, which), **fields)


def output(index: int, **fields: Any) -> Callable[[Fusion], Fusion]:
    def mutate(f: Fusion) -> Fusion:
        outputs = list(f.outputs)
        outputs[index] = replace(outputs[index], **fields)
        return replace(f, outputs=tuple(outputs))

    return mutate


def with_input(index: int, **fields: Any) -> Callable[[Fusion], Fusion]:
    def mutate(f: Fusion) -> Fusion:
        inputs = list(f.inputs)
        inputs[index] = replace(inputs[index], **fields)
        return replace(f, inputs=tuple(inputs))

    return mutate


def scalar_output(f: Fusion) -> Fusion:
    k = index_of(f, "var_mean")
    rows = Value("rows", Type(dtypes.I64, None, symbol("B")))
    node = Node(TABLE["size"], (f.inputs[0].value,), {"dim": 0}, (rows,))
    nodes = (*f.nodes[:k], node, *f.nodes[k:])
    return replace(f.with_nodes(nodes), outputs=(Output(rows),))


def undeclared(f: Fusion) -> Fusion:
    shape = (symbol("K"),)
    grown = Value("grown", Type(dtypes.F32, shape))
    zero = Const(0.0, dtypes.F32)
    node = Node(TABLE["full"], (zero,), {"shape": shape, "dtype": dtypes.F32}, (grown,))
    return f.with_nodes((*f.nodes, node))


MUTATIONS: list[tuple[str, Callable[[Fusion], Fusion]]] = [
    ("uses `s` before it is defined", swap_ab),
    ("uses `x` before it is defined", stranger),
    ("`x` is defined twice", renamed("x")),
    ("the name `m n` is not an identifier", renamed("m n")),
    ("the name `1m` is not an identifier", renamed("1m")),
    ("is f64[B], not f32[B]", retyped(dtype=dtypes.F64)),
    ("is f32[H], not f32[B]", retyped(shape=(symbol("H"),))),
    ("has 1 results, not 2", lambda f: edited("var_mean", outputs=f.nodes[-1].outputs[:1])(f)),
    ("has 1 operands, not 2", lambda f: edited("add", operands=(f.inputs[0].value,))(f)),
    ("has 3 operands, not 2", lambda f: edited("add", operands=(f.inputs[0].value,) * 3)(f)),
    ("lacks attribute `dtype`", edited("sum", attributes={"dims": (1,)})),
    ("has an unknown attribute `axis`",
     edited("sum", attributes={"dims": (1,), "dtype": None, "axis": 1})),
    ("is f32[B], not bf16[B]", edited("sum", attributes={"dims": (1,), "dtype": dtypes.BF16})),
    ("is_broadcast_dim", edited("broadcast", attributes={"is_broadcast_dim": (True, True)})),
    ("`neg` is not defined for bool",
     edited("sum", op=TABLE["neg"], operands=(Const(True, dtypes.BOOL),), attributes={})),
    ("a composite is expanded", edited("sum", op=TABLE["softmax"], attributes={"dim": 1})),
    ("uses the undeclared dim `B`", lambda f: replace(f, dims=f.dims[1:])),
    ("`grown` uses the undeclared dim `K`", undeclared),
    ("has 2 dims and 1 strides", with_input(0, strides=(dim(1),))),
    ("output `q` is not defined", output(1, value=Value("q", Type(dtypes.F32, ())))),
    ("output `x` is an input", lambda f: output(1, value=f.inputs[0].value)(f)),
    ("`v` is an output twice", lambda f: output(2, value=f.outputs[1].value)(f)),
    ("output `rows` is a scalar", scalar_output),
    ("stride_order of output `v` is not a permutation", output(1, stride_order=(1,))),
    ("aliases `s`, not an input", output(0, alias="s")),
    ("its alias `y` is f32[B, H]", output(1, alias="y")),
    ("two outputs are written to `y`",
     lambda f: replace(f, outputs=(f.outputs[0], Output(extra(f), "y")),
                       nodes=(*f.nodes, copy_of(f)))),
]  # fmt: skip


def copy_of(f: Fusion) -> Node:
    z = f.outputs[0].value
    return Node(TABLE["set"], (z,), {}, (extra(f),))


EXTRA: dict[int, Value] = {}


def extra(f: Fusion) -> Value:
    return EXTRA.setdefault(id(f), Value("z_copy", f.outputs[0].value.type))


def test_the_sample_is_well_formed() -> None:
    verify(sample())


@pytest.mark.parametrize(("message", "mutate"), MUTATIONS, ids=[m for m, _ in MUTATIONS])
def test_mutation_is_found(message: str, mutate: Callable[[Fusion], Fusion]) -> None:
    broken = mutate(sample())
    with pytest.raises(InternalError) as caught:
        verify(broken)
    assert message in str(caught.value)


def test_a_pin_of_a_missing_value_is_the_users_error() -> None:
    broken = replace(sample(), pins=(Pin("s0", ("nowhere",)),))
    with pytest.raises(FusecError, match="`nowhere`") as caught:
        verify(broken)
    assert not isinstance(caught.value, InternalError)
