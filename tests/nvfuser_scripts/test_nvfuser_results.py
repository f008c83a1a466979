"""Types, layouts and shardings of results by nvFuser's rules, through its two modules."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from lockstep import agree
from lockstep import exchanges_of as all_exchanges_of
from loop_scripts import X, mesh_of

import fusec
from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.graph import Fusion
from fusec.nvfuser.definition import DirectDefinition, FusionDefinition
from fusec.nvfuser.results import PROMOTED_TO_FLOAT
from fusec.parse.dsl.datatype import DataType
from fusec.shard.partition import partition, partitioned


def exchanges_of(local: Fusion) -> list[str]:
    """Return what ranks send one another, in order; a slice of what a rank has is not sent."""
    return [name for name in all_exchanges_of(local) if name != "rank_slice"]


HALF_FORMATS = (DataType.Half, DataType.BFloat16)

# nvFuser's csrc/ops/arith.cpp, by the TypePromotion that each operation asks for.
UNARY = """
    neg acos acosh asin asinh atan atanh cos cosh exp exp2 expm1 erf erfc erfinv erfcinv
    lgamma log log10 log1p log2 reciprocal rsqrt sigmoid sin sinh sqrt tan tanh
"""
BINARY = "truediv atan2 nextafter div mod add fmod mul pow remainder sub minimum maximum"
KEPT = "ceil floor frac relu round silu trunc abs sign set"
COMPARED = "eq ge gt le lt ne"


def dtype_with(kind: type[fusec.FusionDefinition], call: Any, *dtypes: DataType) -> DataType:
    """Return the type of the result of a call on tensors of some types."""
    with kind() as fd:
        tensors = [fd.define_tensor([2, 3], contiguity=True, dtype=d) for d in dtypes]
        made = call(fd, *tensors)
    return made.dtype


def called(name: str) -> Any:
    return lambda fd, *tensors: getattr(fd.ops, name)(*tensors)


@pytest.mark.parametrize("half", HALF_FORMATS)
@pytest.mark.parametrize("kind", [FusionDefinition, DirectDefinition])
def test_arithmetic_on_halves_gives_floats(kind: Any, half: DataType) -> None:
    for name in UNARY.split():
        assert dtype_with(kind, called(name), half) is DataType.Float, name
    for name in BINARY.split():
        assert dtype_with(kind, called(name), half, half) is DataType.Float, name
    for name in KEPT.split():
        assert dtype_with(kind, called(name), half) is half, name
    for name in COMPARED.split():
        assert dtype_with(kind, called(name), half, half) is DataType.Bool, name
    three = {
        "lerp": lambda fd, a, b, c: fd.ops.lerp(a, b, c),
        "addcmul": lambda fd, a, b, c: fd.ops.addcmul(a, b, c, fd.define_scalar(2.0)),
        "var": lambda fd, a, b, c: fd.ops.var(a, dims=[1]),
        "operator": lambda fd, a, b, c: a * 2.0 + b,
    }
    for name, call in three.items():
        assert dtype_with(kind, call, half, half, half) is DataType.Float, name
    kept = {
        "where": lambda fd, a, b: fd.ops.where(a > b, a, b),
        "clamp": lambda fd, a, b: fd.ops.clamp(a, -1.0, 1.0),
        "threshold": lambda fd, a, b: fd.ops.threshold(a, 0.0, 1.0),
        "sum": lambda fd, a, b: fd.ops.sum(a, dims=[1]),
        "max": lambda fd, a, b: fd.ops.max(a, dims=[1]),
        "matmul": lambda fd, a, b: fd.ops.matmul(a, fd.ops.permute(b, [1, 0])),
        "linear": lambda fd, a, b: fd.ops.linear(a, b),
        "triu": lambda fd, a, b: fd.ops.triu(a),
    }
    for name, call in kept.items():
        assert dtype_with(kind, call, half, half) is half, name


def test_every_promoted_operation_is_checked() -> None:
    assert {*UNARY.split(), *BINARY.split(), "lerp", "addcmul", "var"} == PROMOTED_TO_FLOAT


def test_promotion_asks_for_the_common_type() -> None:
    half, bf16, i32 = DataType.Half, DataType.BFloat16, DataType.Int32
    cases = [
        (half, bf16, DataType.Float), (half, DataType.Double, DataType.Double),
        (half, DataType.Float, DataType.Float), (i32, half, DataType.Float),
        (i32, i32, i32), (half, DataType.Bool, DataType.Float),
    ]  # fmt: skip
    for left, right, common in cases:
        assert dtype_with(DirectDefinition, called("add"), left, right) is common
        assert dtype_with(DirectDefinition, called("add"), right, left) is common
    assert dtype_with(DirectDefinition, lambda fd, x: fd.ops.mul(x, 2.0), half) is DataType.Float
    scalar = lambda fd, x: fd.ops.mul(x, fd.define_scalar(DataType.Double))  # noqa: E731
    assert dtype_with(DirectDefinition, scalar, half) is DataType.Float


def test_fusecs_own_definition_keeps_halves() -> None:
    for half in HALF_FORMATS:
        assert dtype_with(fusec.FusionDefinition, called("add"), half, half) is half


def test_a_sum_of_halves_is_not_rounded_to_them() -> None:
    with DirectDefinition() as fd:
        x = fd.define_tensor([-1], dtype=DataType.Half)
        fd.add_output(fd.ops.add(x, x))
    (found,) = fd.execute([np.array([60000.0, 2049.0], np.float16)])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [120000.0, 4096.0])


def test_promotion_waits_for_sizes() -> None:
    with DirectDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Half)
        flat = fd.ops.reshape(x, [6])  # known when the sizes are
        fd.add_output(fd.ops.add(flat, flat))
    (found,) = fd.execute([np.full((2, 3), 40000.0, np.float16)])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.full(6, 80000.0))


# -- layouts


def attention(order: list[int], dtype: DataType = DataType.BFloat16, e: int = 16) -> Fusion:
    with DirectDefinition() as fd:
        q, k, v, grad = (
            fd.define_tensor([2, 4, 8, e], contiguity=True, dtype=dtype, stride_order=order)
            for _ in range(4)
        )
        out, lse, seed, offset = fd.ops.sdpfa_fwd(q, k, v, dropout_p=0.0, is_causal=True)
        grads = fd.ops.sdpfa_bwd(grad, q, k, v, out, lse, 0.0, True, seed, offset, scale=None)
        for value in (out, lse, *grads):
            fd.add_output(value)
    return fd.graph()


@pytest.mark.parametrize("order", [[3, 1, 2, 0], [3, 2, 1, 0], [1, 3, 2, 0]])
def test_attention_lies_as_its_operands_do(order: list[int]) -> None:
    out, lse, *grads = attention(order).outputs
    assert lse.stride_order is None  # PyTorch makes it dense
    for output in (out, *grads):
        assert output.stride_order == tuple(order)


def test_attention_of_operands_without_an_order_is_row_major() -> None:
    with DirectDefinition() as fd:
        x = fd.define_tensor([2, 8, 4, 16], contiguity=True, dtype=DataType.BFloat16)
        q = fd.ops.permute(x, [0, 2, 1, 3])
        fd.add_output(fd.ops.sdpfa_fwd(q, q, q)[0])
    (output,) = fd.graph().outputs
    assert output.stride_order is None


def test_the_order_of_one_result_is_that_of_the_next() -> None:
    with DirectDefinition() as fd:
        x = fd.define_tensor(
            [2, 4, 8, 16], contiguity=True, dtype=DataType.BFloat16, stride_order=[3, 1, 2, 0]
        )
        once = fd.ops.sdpfa_fwd(x, x, x)[0]
        fd.add_output(fd.ops.sdpfa_fwd(once, x, x)[0])
    (output,) = fd.graph().outputs
    assert output.stride_order == (3, 1, 2, 0)


# -- arguments of attention


def heads(fd: Any, count: int) -> list[Any]:
    return [
        fd.define_tensor([2, 3, 5, 4], contiguity=True, dtype=DataType.BFloat16)
        for _ in range(count)
    ]


def head_values(count: int) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((2, 3, 5, 4)).astype(ml_dtypes.bfloat16) for _ in range(count)]


@pytest.mark.parametrize("kind", [FusionDefinition, DirectDefinition])
@pytest.mark.parametrize("numbers", [(0.0, True, 0.3), (None, True), (0.0, True, None), "scalars"])
def test_a_forward_without_bias_and_mask_is_the_older_form(kind: Any, numbers: Any) -> None:
    with kind() as older:
        q, k, v = heads(older, 3)
        if numbers == "scalars":
            given = [older.define_scalar(0.0), older.define_scalar(True), older.define_scalar(0.3)]
        else:
            given = numbers
        older.add_output(older.ops.sdpfa_fwd(q, k, v, *given)[0])
    scale = 0.3 if len(given) > 2 and given[2] is not None else None
    with kind() as named:
        q, k, v = heads(named, 3)
        named.add_output(named.ops.sdpfa_fwd(q, k, v, is_causal=True, scale=scale)[0])
    names: dict[str, Any] = {"FusionDefinition": kind, "DataType": DataType}
    exec(repr(older), names)
    with kind() as printed:
        names[older.definition_name](printed)
    (expected,) = named.execute(head_values(3))
    for fd in (older, printed):
        np.testing.assert_array_equal(fd.execute(head_values(3))[0], expected)


def test_tensors_in_the_places_of_bias_and_mask_are_these() -> None:
    mask = np.tri(5, dtype=bool)
    with DirectDefinition() as fd:
        q, k, v = heads(fd, 3)
        t = fd.define_tensor([5, 5], dtype=DataType.Bool)
        fd.add_output(fd.ops.sdpfa_fwd(q, k, v, None, t)[0])
        fd.add_output(fd.ops.sdpfa_fwd(q, k, v, None, None, None, True)[0])
    masked, causal = fd.execute([*head_values(3), mask])
    np.testing.assert_array_equal(masked, causal)


def test_a_backward_takes_nvfusers_places() -> None:
    with DirectDefinition() as fd:
        g, q, k, v = heads(fd, 4)
        out, lse, seed, offset = fd.ops.sdpfa_fwd(q, k, v, is_causal=True, scale=0.3)
        by_place = fd.ops.sdpfa_bwd(g, q, k, v, out, lse, 0.0, True, seed, offset, 0.3)
        by_name = fd.ops.sdpfa_bwd(
            grad_output=g, query=q, key=k, value=v, output=out, logsumexp=lse, dropout_p=0.0,
            is_causal=True, philox_seed=seed, philox_offset=offset, scale=0.3,
        )  # fmt: skip
        for value in (*by_place, *by_name):
            fd.add_output(value)
    found = fd.execute(head_values(4))
    for one, other in zip(found[:3], found[3:], strict=True):
        np.testing.assert_array_equal(one, other)


# -- results of scaled products


def scaled_operands(fd: Any) -> list[Any]:
    shapes = [(16, 32), (32, 8), (16, 1), (1, 8)]
    dtypes = [DataType.Float8_e4m3fn] * 2 + [DataType.Float] * 2
    return [fd.define_tensor(s, dtype=d) for s, d in zip(shapes, dtypes, strict=True)]


def test_a_scaled_product_has_three_results() -> None:
    with DirectDefinition() as fd:
        a, b, s, t = scaled_operands(fd)
        out, *scales = fd.ops.scaled_mm(a, b, s, t, dtype=DataType.BFloat16)
        by_place = fd.ops.scaled_mm(
            a, b, s, t, None, None, None, DataType.Float, 0, DataType.BFloat16, False
        )
    assert (out.dtype, scales) == (DataType.BFloat16, [None, None])
    assert (by_place[0].dtype, *by_place[1:]) == (DataType.Float, None, None)


@pytest.mark.parametrize("asked", [(16,), (0, DataType.BFloat16, True)])
def test_scales_of_a_result_are_refused_by_name(asked: tuple[Any, ...]) -> None:
    with DirectDefinition() as fd:
        a, b, s, t = scaled_operands(fd)
        with pytest.raises(Unsupported, match="a GEMM with `output_"):
            fd.ops.scaled_mm(a, b, s, t, None, None, None, DataType.BFloat16, *asked)


def test_a_grouped_product_has_three_results_where_it_has_scales() -> None:
    with DirectDefinition() as fd:
        a = fd.define_tensor([16, 32], dtype=DataType.Float8_e4m3fn)
        b = fd.define_tensor([2, 32, 8], dtype=DataType.Float8_e4m3fn)
        ends = fd.define_tensor([2], dtype=DataType.Int32)
        s, t = (fd.define_tensor(shape) for shape in ([16, 1], [2, 1, 8]))
        plain = fd.ops.grouped_mm(a, b, ends)
        out, *scales = fd.ops.grouped_mm(a, b, ends, s, t)
    assert plain.dtype is DataType.Float8_e4m3fn
    assert (out.dtype, scales) == (DataType.BFloat16, [None, None])


# -- products with weights of many dims


def test_leading_dims_of_a_weight_come_first() -> None:
    rng = np.random.default_rng(0)
    x, w, bias = (rng.standard_normal(s).astype(np.float32) for s in ((2, 5, 3), (4, 6, 3), (4, 6)))
    with fusec.FusionDefinition() as fd:
        tx, tw, tb = (fd.define_tensor([-1] * a.ndim) for a in (x, w, bias))
        fd.add_output(fd.ops.linear(tx, tw, tb))
        fd.add_output(fd.ops.linear(tx, tw))
    with_bias, plain = fd.execute([x, w, bias])
    expected = np.einsum("bsk,lnk->lbsn", x, w)
    assert plain.shape == (4, 2, 5, 6)
    np.testing.assert_allclose(plain, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(with_bias, expected + bias[:, None, None], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [[6], [4, 1], [6, 4]])
def test_a_bias_has_the_dims_of_the_weight(bias: list[int]) -> None:
    with fusec.FusionDefinition() as fd:
        x, w, b = (fd.define_tensor(s) for s in ([5, 3], [4, 6, 3], bias))
        with pytest.raises(FusecError, match="bias of `linear`"):
            fd.ops.linear(x, w, b)


def test_each_rank_has_its_part_of_a_weight_with_a_dim_for_ranks() -> None:
    with DirectDefinition() as fd:
        x = fd.define_tensor([2, 8, 6], dtype=DataType.Double)
        w, bias = (fd.define_tensor(s, dtype=DataType.Double) for s in ([2, 6, 6], [2, 6]))
        out = fd.ops.linear(x, w, bias)
        fd.add_output(out)
        axes = len(out.get_loop_domain())
        for t in (x, w, bias):
            t.set_device_mesh(mesh_of(2))
        for t in (w, bias):
            t.axis(0).parallelize(X)
    assert axes == 5  # the contracted one last
    local = agree(fd.graph(), exact=False)
    assert exchanges_of(local) == []
    assert str(local.outputs[0].value.type) == "f64[1, 2, 8, 6]"


# -- shardings that readers ask for


def residual_block(*, sequence: bool, mesh: int = 2) -> Fusion:
    """Return x + dropout(x w^T), its weight divided along the summed dim."""
    with DirectDefinition() as fd:
        x = fd.define_tensor([4, 6], dtype=DataType.Double)
        h = fd.define_tensor([4, 8], dtype=DataType.Double)
        w = fd.define_tensor([6, 8], dtype=DataType.Double)
        product = fd.ops.linear(h, w)
        drawn = fd.ops.iota(24, 0, 1, DataType.Int)
        mask = fd.ops.lt(fd.ops.reshape(drawn, [4, 6]), 13)
        kept = fd.ops.mul(product, fd.ops.cast(mask, DataType.Double))
        out = fd.ops.add(x, kept)
        for value in (product, mask, out):
            fd.add_output(value)
        for t in (x, h, w):
            t.set_device_mesh(mesh_of(mesh))
        for t in (h, w):
            t.outer_split(1, mesh)
            t.axis(1).parallelize(X)
        if sequence:
            x.outer_split(0, mesh)
            x.axis(0).parallelize(X)
    return fd.graph()


def test_a_partial_sum_is_scattered_where_its_reader_is_divided() -> None:
    local = agree(residual_block(sequence=True), exact=False)
    assert exchanges_of(local) == ["reduce_scatter"]
    assert [str(o.value.shape[0]) for o in local.outputs] == ["2", "2", "2"]


def test_a_partial_sum_is_on_all_ranks_where_its_readers_are_whole() -> None:
    local = agree(residual_block(sequence=False), exact=False)
    assert exchanges_of(local) == ["all_reduce"]
    assert [str(o.value.shape[0]) for o in local.outputs] == ["4", "4", "4"]


def test_what_a_script_says_is_kept() -> None:
    with DirectDefinition() as fd:
        x = fd.define_tensor([4, 6], dtype=DataType.Double)
        h = fd.define_tensor([4, 8], dtype=DataType.Double)
        summed = fd.ops.sum(h, [1])
        wide = fd.ops.broadcast_in_dim(summed, [4, 6], [0])
        out = fd.ops.add(x, wide)
        fd.add_output(summed)
        fd.add_output(out)
        for t in (x, h, summed):
            t.set_device_mesh(mesh_of(2))
        h.outer_split(1, 2)
        h.axis(1).parallelize(X)
        x.outer_split(0, 2)
        x.axis(0).parallelize(X)
    local = agree(fd.graph(), exact=False)
    assert exchanges_of(local) == ["all_reduce"]
    assert [str(o.value.shape[0]) for o in local.outputs] == ["4", "2"]


def test_what_each_rank_has_is_not_divided_to_be_gathered() -> None:
    with DirectDefinition() as fd:
        x = fd.define_tensor([4, 8], dtype=DataType.Double)
        y = fd.define_tensor([4, 8], dtype=DataType.Double)
        w = fd.define_tensor([6, 8], dtype=DataType.Double)
        own = fd.ops.relu(x)
        fd.add_output(fd.ops.linear(own, w))  # of all rows
        fd.add_output(fd.ops.add(own, y))  # of a rank's rows
        for t in (x, y, w):
            t.set_device_mesh(mesh_of(2))
        y.outer_split(0, 2)
        y.axis(0).parallelize(X)
    local = agree(fd.graph(), exact=False)
    assert exchanges_of(local) == []
    assert [str(o.value.shape[0]) for o in local.outputs] == ["4", "2"]


def linear_backward(divided: dict[str, int]) -> Fusion:
    """Return the gradients of a linear layer, with some of x, w and grad divided along one dim."""
    b, s, e_in, e_out = 2, 3, 10, 8
    with DirectDefinition() as fd:
        shapes = {"x": [b, s, e_in], "w": [e_out, e_in], "grad": [b, s, e_out]}
        x, w, grad = made = [
            fd.define_tensor(shape, contiguity=True, dtype=DataType.Double, name=name)
            for name, shape in shapes.items()
        ]
        fd.add_output(fd.ops.matmul(grad, w))
        rows = fd.ops.permute(fd.ops.reshape(grad, [-1, e_out]), [1, 0])
        fd.add_output(fd.ops.matmul(rows, fd.ops.reshape(x, [-1, e_in])))
        for name, t in zip(shapes, made, strict=True):
            t.set_device_mesh(mesh_of(2))
            if name in divided:
                t.outer_split(divided[name], 2)
                t.axis(divided[name]).parallelize(X)
    return fd.graph()


@pytest.mark.parametrize(
    ("divided", "exchanges", "placed"),
    [
        ({"w": 0, "grad": 2}, ["all_reduce"], [-1, 0]),  # column-parallel
        ({"x": 2, "w": 1}, [], [2, 1]),  # row-parallel
    ],
)
def test_gradients_of_divided_layers(
    divided: dict[str, int], exchanges: list[str], placed: list[int]
) -> None:
    fusion = linear_backward(divided)
    assert exchanges_of(agree(fusion, exact=False)) == exchanges
    held = partitioned(fusion).placed
    found = [held[o.value.name].along("mesh") for o in fusion.outputs]
    assert [-1 if at is None else at for at in found] == placed


def test_an_attention_that_ranks_share_keeps_its_layout() -> None:
    with DirectDefinition() as fd:
        q, k, v = (
            fd.define_tensor([2, 4, 8, 16], dtype=DataType.BFloat16, stride_order=[3, 1, 2, 0])
            for _ in range(3)
        )
        fd.add_output(fd.ops.sdpfa_fwd(q, k, v, is_causal=True)[0])
        for t in (q, k, v):
            t.set_device_mesh(mesh_of(2))
            t.outer_split(1, 2)
            t.axis(1).parallelize(X)
    (output,) = partition(fd.graph()).outputs
    assert (str(output.value.type), output.stride_order) == ("bf16[2, 2, 8, 16]", (3, 1, 2, 0))
