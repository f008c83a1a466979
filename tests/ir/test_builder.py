"""The graph builder: inputs, broadcasting, unification, sizes, names, outputs, errors."""

from __future__ import annotations

from typing import Any

import pytest

from fusec.diagnostics import FusecError, InternalError, Span, Unsupported
from fusec.ir import dtype as dtypes
from fusec.ir.annotations import Pin
from fusec.ir.dim import dim, symbol
from fusec.ir.graph import Const, Fusion, Value
from fusec.ops.builder.build import GraphBuilder, make_node

F32, BF16, I64 = dtypes.F32, dtypes.BF16, dtypes.I64


def names(fusion: Fusion) -> list[str]:
    return [repr(n) for n in fusion.nodes]


def finished(builder: GraphBuilder, *outputs: Any) -> Fusion:
    for value in outputs:
        builder.output(value)
    return builder.finish()


def test_inputs_are_dense_unless_told() -> None:
    builder = GraphBuilder()
    b, h = builder.declare_dim("B", 16), builder.declare_dim("H", 8)
    builder.input("x", F32, [b, 3, h])
    builder.input("y", F32, [b, h], strides=[1, b])
    builder.input("z", F32, [b, 3, h], contiguity=[False, True, None])
    builder.input("w", F32, [b, 3, h], contiguity=[True, False, True], stride_order=[0, 2, 1])
    fusion = finished(builder, builder.apply("full", [2], 0.0))
    strides = {i.value.name: [str(s) for s in i.strides] for i in fusion.inputs}
    assert strides == {
        "x": ["H * 3", "H", "1"],
        "y": ["1", "B"],
        "z": ["z.stride0", "1", "0"],
        "w": ["1", "H * w.stride2", "w.stride2"],
    }
    assert fusion.hints == {"B": 16, "H": 8, "z.stride0": 3, "w.stride2": 16}


def test_scalar_inputs_carry_their_size() -> None:
    builder = GraphBuilder()
    n = builder.input("n", I64, None, default=5)
    eps = builder.input("eps", F32, None, default=1e-5)
    assert n.type.dim == symbol("n", extent=False)
    assert eps.type.dim is None
    assert builder.hints["n"] == 5


@pytest.mark.parametrize(
    ("op", "operands", "expected"),
    [
        ("add", ("n", 2), "n + 2"),
        ("sub", ("n", "n"), "0"),
        ("mul", ("n", "m"), "m * n"),
        ("div", ("n", 4), "n // 4"),
        ("mod", ("n", 4), "n % 4"),
        ("neg", ("n",), "-n"),
        ("minimum", ("n", "m"), "min(n, m)"),
        ("maximum", ("n", 0), "max(n, 0)"),
        ("ceilDiv", ("n", 4), "ceildiv(n, 4)"),
        ("mul", (3, 4), "12"),
        ("div", (-7, 2), "-3"),
        ("mod", (-7, 2), "-1"),
        ("div", (6, "n"), "6 // n"),
    ],
)
def test_size_arithmetic(op: str, operands: tuple[Any, ...], expected: str) -> None:
    builder = GraphBuilder()
    inputs = {name: builder.input(name, I64, None) for name in ("n", "m")}
    result = builder.apply(op, *(inputs.get(o, o) for o in operands))
    assert str(result.type.dim) == expected
    assert isinstance(result, Const) == all(isinstance(o, int) for o in operands)


def test_computed_sizes_make_shapes() -> None:
    builder = GraphBuilder()
    x = builder.input("x", F32, [builder.declare_dim("B", 4), 6])
    rows, columns = builder.call("shape", [x])
    half = builder.apply("div", columns, 2)
    flat = builder.apply("reshape", x, [builder.apply("mul", rows, 2), half])
    assert [str(d) for d in flat.shape] == ["B * 2", "3"]
    assert builder.apply("sub", builder.apply("cast", rows, "i32"), 1).type.dim == symbol("B") - 1


def test_shapes_from_data_are_refused() -> None:
    builder = GraphBuilder()
    x = builder.input("x", I64, [4])
    with pytest.raises(Unsupported, match="depends on tensor data"):
        builder.apply("full", [builder.apply("sum", x)], 0.0)


def test_division_by_zero() -> None:
    with pytest.raises(FusecError, match="division by zero"):
        GraphBuilder().apply("div", 1, 0)


def test_lower_ranks_are_broadcast_in_writing() -> None:
    builder = GraphBuilder()
    b, h = builder.declare_dim("B", 4), builder.declare_dim("H", 8)
    x, w = builder.input("x", F32, [b, h]), builder.input("w", F32, [h])
    row = builder.input("row", F32, [1, h])
    first = builder.apply("add", x, w)
    second = builder.apply("mul", first, row)
    fusion = finished(builder, builder.apply("mul", second, 2.0))
    assert names(fusion) == [
        "w_broadcast = broadcast_in_dim(w)",
        "add_1 = add(x, w_broadcast)",
        "mul_1 = mul(add_1, row)",
        "mul_2 = mul(mul_1, 2.0)",
    ]
    assert dict(fusion.nodes[0].attributes) == {"shape": (b, h), "broadcast_dims": (1,)}
    assert fusion.nodes[2].output.shape == (b, h)


def test_named_dims_are_never_unified() -> None:
    builder = GraphBuilder()
    x = builder.input("x", BF16, [builder.declare_dim("B", 4), builder.declare_dim("H", 8)],
                      span=Span("f.yaml", 3, 3))  # fmt: skip
    w = builder.input("w", BF16, [builder.declare_dim("K", 8)], span=Span("f.yaml", 4, 3))
    with pytest.raises(FusecError) as caught:
        builder.call("add", [x, w], span=Span("f.yaml", 7, 9))
    error = caught.value.diagnostic
    assert error.message == "operands of `add` do not broadcast"
    assert error.span == Span("f.yaml", 7, 9)
    assert error.notes == (
        "x is bf16[B, H], w is bf16[K]",
        "H and K differ",
        "`x` is defined at f.yaml:3:3",
        "`w` is defined at f.yaml:4:3",
    )


def test_anonymous_dims_unify_everywhere() -> None:
    builder = GraphBuilder()
    i, j, k = (builder.anonymous_dim("i", size) for size in (56, 1024, 7))
    x = builder.input("x", F32, [i, j, j], contiguity=[False, True, True])
    y = builder.input("y", F32, [k, 1, k])
    flat = builder.apply("reshape", x, [-1])
    z = builder.apply("broadcast_in_dim", builder.input("t", F32, [56, 9]), [56, 9, 9], [0, 1])
    builder.apply("sub", x, z)
    fusion = finished(builder, builder.apply("neg", flat), builder.apply("exp", y))
    assert [str(v.value.type) for v in fusion.inputs] == [
        "f32[56, 9, 9]", "f32[i_3, 1, i_3]", "f32[56, 9]",
    ]  # fmt: skip
    assert [str(o.value.type) for o in fusion.outputs] == ["f32[4536]", "f32[i_3, 1, i_3]"]
    assert set(fusion.hints) == {"i_3", "x.stride0"}
    assert fusion.nodes[0].attributes["new_shape"] == (dim(4536),)
    assert builder.bindings.bound == {"i": dim(56), "i_2": dim(9)}


def test_anonymous_dims_follow_older_and_named_ones() -> None:
    builder = GraphBuilder()
    named = builder.declare_dim("N", 8)
    i, j = builder.anonymous_dim("i", 8), builder.anonymous_dim("j", 8)
    first, second = builder.input("a", F32, [i]), builder.input("b", F32, [j])
    total = builder.apply("add", second, first)
    assert builder.resolve(second).shape == (i,)
    assert builder.resolve(builder.apply("add", total, builder.input("c", F32, [named]))).shape == (
        named,
    )
    assert builder.resolve(first).shape == (named,)


def test_multiples_of_anonymous_dims_unify() -> None:
    builder = GraphBuilder()
    i = builder.anonymous_dim("i", 8)
    x = builder.input("x", F32, [i, 3])
    flat = builder.apply("reshape", x, [-1])
    builder.apply("add", flat, builder.input("y", F32, [12]))
    assert builder.resolve(x).shape == (dim(4), dim(3))
    with pytest.raises(FusecError, match="do not broadcast"):
        builder.apply("add", flat, builder.input("z", F32, [13]))


def test_an_anonymous_dim_never_broadcasts() -> None:
    builder = GraphBuilder()
    i = builder.anonymous_dim("i", 1)
    x = builder.input("x", F32, [i])
    assert builder.apply("add", x, builder.input("one", F32, [1])).shape == (i,)
    builder.apply("add", x, builder.input("y", F32, [8]))
    assert builder.resolve(x).shape == (dim(8),)


@pytest.mark.parametrize(
    ("op", "other", "attributes"),
    [
        ("expand", None, {"shape": [2, 4]}),
        ("squeeze", None, {"dims": [1]}),
        ("matmul", [4, 5], {}),
        ("linear", [5, 4], {}),
        ("layer_norm", None, {"norm_shape": [4]}),
    ],
)
def test_other_ops_unify_too(op: str, other: Any, attributes: dict[str, Any]) -> None:
    builder = GraphBuilder()
    x = builder.input("x", F32, [2, builder.anonymous_dim("i", 4)])
    more = [] if other is None else [builder.input("y", F32, other)]
    builder.call(op, [x, *more], attributes)
    assert builder.resolve(x).shape[1].is_const


def test_keepdim_is_lowered() -> None:
    builder = GraphBuilder()
    x = builder.input("x", F32, [3, 4])
    builder.call("var_mean", [x], {"dims": [1], "keepdim": True}, names=["v", "m"])
    v, m = builder.find_value("v"), builder.find_value("m")
    fusion = finished(builder, v, m)
    assert names(fusion) == [
        "v_reduced, m_reduced = var_mean(x)",
        "v = broadcast(v_reduced)",
        "m = broadcast(m_reduced)",
    ]
    assert "keepdim" not in fusion.nodes[0].attributes
    assert fusion.outputs[0].value.shape == (3, 1)


def test_names_are_fresh_and_checked() -> None:
    builder = GraphBuilder()
    x = builder.input("x", F32, [4])
    (y,) = builder.call("neg", [x], names=["y"])
    assert builder.fresh_name("x") == "x_2"
    for bad, why in (("x", "twice"), ("2x", "identifier"), ("float", "CUDA"), ("__x", "reserved")):
        with pytest.raises(FusecError, match=why):
            builder.call("neg", [x], names=[bad])
    with pytest.raises(FusecError, match="2 names"):
        builder.call("neg", [x], names=["a", "b"])
    with pytest.raises(FusecError, match="twice"):
        builder.declare_dim("y", 4)
    assert y is builder.resolve(y)
    builder.input("t", F32, [4], span=Span("f.yaml", 2, 1))
    with pytest.raises(FusecError) as caught:
        builder.input("t", F32, [4], span=Span("f.yaml", 3, 1))
    assert caught.value.diagnostic.notes == ("first defined at f.yaml:2:1",)


def test_renamed_values_stay_usable() -> None:
    builder = GraphBuilder()
    x = builder.input("x", F32, [4])
    old = builder.apply("neg", x)
    assert isinstance(old, Value)
    new = builder.rename(old, "y")
    twice = builder.apply("add", old, new)
    fusion = finished(builder, twice)
    assert names(fusion) == ["y = neg(x)", "add_1 = add(y, y)"]
    assert builder.find_value("neg_1") is None
    with pytest.raises(FusecError, match="cannot be renamed"):
        builder.rename(x, "other")


def test_composite_results_take_the_name() -> None:
    builder = GraphBuilder()
    x = builder.input("x", BF16, [4, 8])
    (y,) = builder.call("softmax", [x], {"dim": -1}, names=["probabilities"])
    fusion = finished(builder, y)
    assert fusion.outputs[0].value.name == "probabilities"
    assert all(n.op.family != "composite" for n in fusion.nodes)


def test_outputs_are_copied_where_needed() -> None:
    builder = GraphBuilder()
    x = builder.input("x", F32, [4])
    y = builder.apply("neg", x)
    fusion = finished(builder, x, y, y)
    assert names(fusion) == ["neg_1 = neg(x)", "x_out = set(x)", "neg_1_out = set(neg_1)"]


def test_output_aliases() -> None:
    builder = GraphBuilder()
    i = builder.anonymous_dim("i", 4)
    x, y = builder.input("x", F32, [i]), builder.input("y", F32, [4])
    z = builder.apply("neg", y)
    with pytest.raises(FusecError, match="not an input"):
        builder.output(z, alias="z")
    with pytest.raises(FusecError, match="cannot be written to `x`"):
        builder.output(builder.apply("cast", z, "bf16"), alias=x)
    builder.output(z, alias=x)
    with pytest.raises(FusecError, match="two outputs"):
        builder.output(builder.apply("exp", y), alias="x")
    output = builder.finish().outputs[0]
    assert (output.alias, output.value.shape) == ("x", (4,))


def test_output_errors() -> None:
    builder = GraphBuilder()
    n = builder.input("n", I64, None)
    for scalar in (n, Const(1, I64)):
        with pytest.raises(FusecError, match="a scalar cannot be an output"):
            builder.output(scalar)
    with pytest.raises(FusecError, match="no outputs"):
        builder.finish()
    with pytest.raises(FusecError, match="not a permutation"):
        builder.output(builder.apply("full", [2, 2], 0.0), stride_order=[1, 1])


def test_pins_must_name_values() -> None:
    builder = GraphBuilder()
    x = builder.input("x", F32, [4])
    builder.output(builder.apply("neg", x))
    builder.pin(Pin("s0", ("neg_1",)))
    assert builder.finish().pins[0].values == ("neg_1",)
    builder.pin(Pin("s1", ("missing",)))
    with pytest.raises(FusecError, match="segment `s1` names `missing`"):
        builder.finish()


def test_values_of_other_fusions_are_refused() -> None:
    x = GraphBuilder().input("x", F32, [4])
    other = GraphBuilder()
    other.input("x", F32, [4])
    with pytest.raises(InternalError, match="another fusion"):
        other.apply("neg", x)


def test_make_node_types_results() -> None:
    builder = GraphBuilder()
    x = builder.input("x", F32, [3, 4])
    node = make_node("sum", [x], {"dims": (0,), "dtype": None}, ["s"])
    assert str(node.output.type) == "f32[4]"


def test_slices_of_symbolic_extents() -> None:
    builder = GraphBuilder()
    h = builder.declare_dim("H", 8)
    x = builder.input("x", F32, [h])

    def end(index: Any) -> str:
        return str(builder.apply("slice", x, [0], [index]).shape[0])

    assert end(h // 2) == "H // 2"
    assert end(h // 4 * 3) == "(H // 4) * 3"
    assert end(h - 1) == "H - 1"
    assert end(-1) == "H - 1"
    assert end(3) == "min(3, H)"
    assert end(h // 2 * 3) == "min((H // 2) * 3, H)"
    trusted = builder.apply("slice", x, [0], [3], None, True)
    assert trusted.shape == (3,)


def test_calls_of_a_composite_are_placed_at_its_span() -> None:
    builder = GraphBuilder()
    x, w = builder.input("x", BF16, [3, 4]), builder.input("w", BF16, [4])
    span = Span("f.yaml", 5, 9)
    (y,) = builder.call("layer_norm", [x, w], {"norm_shape": [4]}, span=span)
    fusion = finished(builder, builder.apply("neg", y))
    assert {n.span for n in fusion.nodes[:-1]} == {span}
    assert fusion.nodes[-1].span is None


@pytest.mark.parametrize(
    ("extents", "message"),
    [
        (["H - 9"], "dim 0 of `x` is H - 9, which is -1 at default sizes"),
        (["H", 2**31, 2**31], "`full_1` is too large: f32[H, 2147483648, 2147483648] holds"),
    ],
)
def test_sizes_that_no_memory_holds(extents: list[Any], message: str) -> None:
    builder = GraphBuilder()
    h = builder.declare_dim("H", 8)
    shape = [{"H": h, "H - 9": h - 9}.get(e, e) for e in extents]
    source = builder.input("x", F32, shape) if extents == ["H - 9"] else None
    value = builder.apply("neg", source) if source else builder.apply("full", shape, 0.0, "f32")
    builder.output(value)
    with pytest.raises(FusecError) as caught:
        builder.finish()
    assert message in str(caught.value)
