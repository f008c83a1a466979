"""FusionDefinition: argument lists old and new, operators, names, and errors with their places."""

from __future__ import annotations

import numpy as np
import pytest

from fusec import DataType, FusionDefinition
from fusec.diagnostics import FusecError, Unsupported
from fusec.ir import dtype as dtypes
from fusec.ir.graph import Const, Fusion
from fusec.ops import TABLE
from fusec.parse.dsl.tensors import describe, read_form


def line_of(error: FusecError) -> str:
    """Return what the error's carets point at."""
    span = error.diagnostic.span
    assert span is not None
    assert span.file == __file__
    return span.text[span.column - 1 : span.column - 1 + span.width]


def fusion_of(define) -> Fusion:
    with FusionDefinition() as fd:
        define(fd)
    return fd.fusion()


def matrix(fd: FusionDefinition, **options):
    return fd.define_tensor(shape=[4, 8], contiguity=True, **options)


@pytest.mark.parametrize(
    "arguments",
    [
        ((), {"shape": [-1, 1], "contiguity": [True, None], "dtype": DataType.Half}),
        (([-1, 1], [True, None], DataType.Half), {}),
        (([-1, 1],), {"contiguity": [True, None], "dtype": DataType.Half}),
        (([-1, 1], [True, None], DataType.Half, False, [1, 0]), {}),
        ((), {"symbolic_sizes": [-1, 1], "contiguous": [True, None], "dtype": DataType.Half}),
        ((), {"sizes": [16, 1], "strides": [1, 1], "dtype": DataType.Half}),
        (([16, 1], [1, 1], DataType.Half), {}),
    ],
)
def test_define_tensor_has_old_and_new_forms(arguments) -> None:
    args, options = arguments
    form = read_form(args, options)
    assert form.shape == (-1, 1)
    assert form.contiguity == (True, None)
    assert form.dtype is dtypes.F16
    assert form.stride_order in (None, (1, 0))


def test_define_tensor_by_rank_is_symbolic_and_strided() -> None:
    form = read_form((3,), {"dtype": DataType.Float})
    assert form.shape == (-1, -1, -1)
    assert form.contiguity == (False, False, False)


@pytest.mark.parametrize(
    ("sizes", "strides", "contiguity", "order"),
    [
        ((4, 8), (8, 1), (True, True), None),
        ((4, 8), (1, 4), (True, True), (0, 1)),
        ((4, 8), (16, 1), (False, True), None),
        ((4, 8), (16, 2), (True, False), None),
        ((4, 8, 3), (0, 0, 1), (None, None, True), None),
        ((4, 1, 3), (3, 7, 1), (None, True, True), (1, 2, 0)),
        ((2, 3, 1, 5, 4), (28, 4, 14, 0, 1), (False, None, True, None, True), (4, 2, 3, 1, 0)),
        ((2, 3, 5, 7), (105, 1, 21, 3), (True, True, True, True), (3, 0, 2, 1)),
    ],
)
def test_strides_describe_contiguity(sizes, strides, contiguity, order) -> None:
    assert describe(sizes, strides) == (contiguity, order)


def test_strides_of_inputs_follow_nvfuser() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], [False, True], DataType.Float)
        y = fd.define_tensor(
            shape=[2, 3, 5, 7],
            contiguity=[True] * 4,
            dtype=DataType.Float,
            stride_order=[3, 0, 2, 1],
        )
        z = fd.define_tensor(shape=[-1, 8], contiguity=[None, True], dtype=DataType.Float)
        for value in (x, y, z):
            fd.add_output(fd.ops.neg(value))
    first, second, third = fd.fusion().inputs
    assert [str(s) for s in first.strides] == ["x.stride0", "1"]
    assert [str(s) for s in second.strides] == ["105", "1", "21", "3"]
    assert [str(s) for s in third.strides] == ["0", "1"]


def test_every_operation_of_the_table_is_a_method() -> None:
    with FusionDefinition() as fd:
        pass
    assert set(dir(fd.ops)) == set(TABLE)
    for name in TABLE:
        assert getattr(fd.ops, name).__doc__ == TABLE[name].doc


SAME_CALLS = {
    "sum": [
        lambda fd, x: fd.ops.sum(x, dims=[1], keepdim=False, dtype=DataType.Null),
        lambda fd, x: fd.ops.sum(x, [1]),
        lambda fd, x: fd.ops.sum(x, axes=[-1]),
        lambda fd, x: fd.ops.sum(x, dim=1),
        lambda fd, x: fd.ops.sum(arg=x, dims=(1,)),
        lambda fd, x: x.sum(1),
    ],
    "sum_all": [
        lambda fd, x: fd.ops.sum(x),
        lambda fd, x: fd.ops.sum(x, dims=[0, 1]),
        lambda fd, x: fd.ops.sum(x, DataType.Null),
    ],
    "reshape": [
        lambda fd, x: fd.ops.reshape(x, new_shape=[2, 16]),
        lambda fd, x: fd.ops.reshape(x, [2, -1]),
        lambda fd, x: fd.ops.reshape(x, fd.define_vector([2, 16])),
        lambda fd, x: fd.ops.reshape(x, original_shape=[4, 8], new_shape=[2, 16]),
        lambda fd, x: fd.ops.reshape(x, [4, 8], [2, 16]),
        lambda fd, x: fd.ops.reshape(x, [x.size(0) / 2, x.size(1) * 2]),
        lambda fd, x: fd.ops.view(x, [2, 16]),
    ],
    "broadcast_in_dim": [
        lambda fd, x: fd.ops.broadcast_in_dim(x, shape=[3, 4, 8], broadcast_dims=[1, 2]),
        lambda fd, x: fd.ops.broadcast_in_dim(x, [3, 4, 8], [1, 2]),
        lambda fd, x: fd.ops.broadcast_in_dim(
            x, shape=fd.define_vector([3, *x.shape()]), broadcast_dims=[1, 2]
        ),
        lambda fd, x: fd.ops.broadcast_in_dim(x, output_shape=[3, 4, 8], broadcast_dims=[-2, -1]),
    ],
    "slice": [
        lambda fd, x: fd.ops.slice(
            x, start_indices=[0, 2], end_indices=[4, 6], strides=[1, 1], manual_normalization=0
        ),
        lambda fd, x: fd.ops.slice(x, [0, 2], [4, 6]),
        lambda fd, x: fd.ops.slice(x, fd.define_vector([0, 2]), fd.define_vector([4, 6])),
    ],
    "pad": [
        lambda fd, x: fd.ops.pad(x, [1, 2], 0.5),
        lambda fd, x: fd.ops.pad(x, pad_widths=[1, 2, 0, 0], value=fd.define_scalar(0.5)),
    ],
    "cat": [
        lambda fd, x: fd.ops.cat([x, x], 1),
        lambda fd, x: fd.ops.cat([x, x], dim=-1, manual_padding=False),
    ],
    "var_mean": [
        lambda fd, x: fd.ops.var_mean(x, dims=[1], correction=0, keepdim=False)[0],
        lambda fd, x: fd.ops.var_mean(x, axes=[1], correction=0)[0],
        lambda fd, x: fd.ops.var_mean(x, [1], 0, False)[0],
    ],
    "full": [
        lambda fd, x: fd.ops.full(shape=[4], fill_value=2.0, dtype=DataType.Float),
        lambda fd, x: fd.ops.full(size=[4], arg=2.0, dtype=DataType.Float),
        lambda fd, x: fd.ops.full([4], fd.define_scalar(2.0), DataType.Float),
    ],
    "squeeze": [
        lambda fd, x: fd.ops.squeeze(fd.ops.broadcast(x, [True, False, False]), [0]),
        lambda fd, x: fd.ops.squeeze(fd.ops.broadcast(x, [True, False, False]), dims=[0]),
        lambda fd, x: fd.ops.squeeze(
            fd.ops.broadcast(x, [True, False, False]), original_shape=[1, 4, 8], dims=[0]
        ),
        lambda fd, x: fd.ops.squeeze(fd.ops.broadcast(x, [True, False, False]), [1, 4, 8], [0]),
    ],
    "permute": [
        lambda fd, x: fd.ops.permute(x, [1, 0]),
        lambda fd, x: fd.ops.permute(x, dims=[-1, 0]),
    ],
    "cast": [
        lambda fd, x: fd.ops.cast(x, DataType.BFloat16),
        lambda fd, x: fd.ops.cast(x, dtype="bf16"),
        lambda fd, x: fd.ops.cast(x, dtype=dtypes.BF16),
    ],
    "mul": [
        lambda fd, x: fd.ops.mul(x, 2.0),
        lambda fd, x: x * 2.0,
        lambda fd, x: fd.ops.mul(x, fd.define_scalar(2.0, dtype=DataType.Double)),
        lambda fd, x: fd.ops.mul(x, np.float64(2.0)),
    ],
    "rsub": [
        lambda fd, x: 1 - x,
        lambda fd, x: fd.ops.sub(1, x),
        lambda fd, x: fd.ops.sub(fd.define_scalar(1), x),
    ],
    "lt": [lambda fd, x: x < 3.0, lambda fd, x: fd.ops.lt(x, 3.0)],
}


@pytest.mark.parametrize("name", SAME_CALLS)
def test_argument_lists_mean_the_same(name: str) -> None:
    fusions = []
    for call in SAME_CALLS[name]:
        with FusionDefinition() as fd:
            x = matrix(fd)
            fd.add_output(call(fd, x))
        fusions.append(fd.fusion())
    for other in fusions[1:]:
        assert other == fusions[0]


def test_names_come_from_assignments() -> None:
    with FusionDefinition() as fd:
        x = matrix(fd)
        var, mean = fd.ops.var_mean(x, dims=[1], correction=0)
        scaled = x * 2.0
        scaled = scaled + 1.0
        nested = fd.ops.exp(fd.ops.neg(scaled))
        chained = x.sum(1).exp()
        for value in (var, mean, nested, chained):
            fd.add_output(value)
    names = [v.name for v in fd.fusion().values]
    assert [n for n in names if n.startswith(("var", "mean", "scaled"))] == [
        "var", "mean", "scaled", "scaled_2",
    ]  # fmt: skip
    assert names.count("nested") == 1
    assert fd.fusion().outputs[2].value.name == "nested"
    assert fd.fusion().outputs[3].value.name == "chained"


def test_spans_point_at_the_call() -> None:
    with FusionDefinition() as fd:
        x = matrix(fd)
        fd.add_output(fd.ops.exp(x))
    span = fd.fusion().nodes[0].span
    assert span is not None
    assert span.text[span.column - 1 :][: span.width] == "fd.ops.exp(x)"


def test_unknown_sizes_are_unified_and_bound() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], [True, True], DataType.Float)
        w = fd.define_tensor([-1], [True], DataType.Float)
        fd.add_output(x * w)
    seen: list[Fusion] = []
    fd_fusion = fd.fusion()
    assert fd_fusion.inputs[0].value.shape[1] == fd_fusion.inputs[1].value.shape[0]

    def executor(fusion, actuals):
        seen.append(fusion)
        a, b = (a.array() for a in actuals)
        return [a * b]

    from fusec.parse.dsl.session import recording

    with recording(executor):
        a, b = np.ones((3, 5), np.float32), np.arange(5, dtype=np.float32)
        (out,) = fd.execute([a, b])
        assert (out == a * b).all()
        assert sorted(seen[0].hints.values()) == [3, 5]
        with pytest.raises(FusecError, match="dim 0 of `w` is 1, dim 1 of `x` is 5"):
            fd.execute([a, np.ones(1, np.float32)])
        with pytest.raises(FusecError, match=r"declared f32\[.*the type differs"):
            fd.execute([a.astype(np.float64), b])
        with pytest.raises(FusecError, match="the rank differs"):
            fd.execute([a[0], b])
        with pytest.raises(
            FusecError, match=r"the stride of dim 0 of `x` is 1, it is declared as .* = 5"
        ):
            fd.execute([np.ones((5, 3), np.float32).T, b])
        with pytest.raises(FusecError, match="got 1 inputs, the fusion takes 2"):
            fd.execute([a])


def test_a_dim_declared_1_is_broadcast() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], [True, True], DataType.Float)
        w = fd.define_tensor([-1, 1], [True, None], DataType.Float)
        fd.add_output(x + w)
    shape = fd.fusion().outputs[0].value.shape
    assert shape == fd.fusion().inputs[0].value.shape
    assert fd.fusion().inputs[1].value.shape[1] == 1


def test_scalars_vectors_and_sizes() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 6], [True, True], DataType.Float)
        eps = fd.define_scalar(dtype=DataType.Double)
        n = fd.define_scalar(None, dtype=DataType.Int)
        shape = fd.define_vector([x.size(0), n, 6 // n])
        fd.add_output(fd.ops.reshape(x + eps, shape))
        five = fd.define_scalar(5, dtype=DataType.Int32)
        three = fd.define_vector(3)
    assert isinstance(five.operand, Const)
    assert five.operand.dtype is dtypes.I32
    assert [i.value.name for i in fd.fusion().inputs] == [
        "x",
        "eps",
        "n",
        "three_0",
        "three_1",
        "three_2",
    ]
    assert len(three) == three.size == 3
    assert str(fd.fusion().outputs[0].value.shape[1]) == "n"
    assert fd.fusion().inputs[1].value.is_scalar


def test_vector_inputs_take_lists() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], [True], DataType.Float)
        shape = fd.define_vector(2)
        fd.add_output(fd.ops.broadcast_in_dim(x, [*shape, x.size(0)], [2]))
    seen: list[Fusion] = []
    from fusec.parse.dsl.session import recording

    with recording(lambda fusion, actuals: seen.append(fusion)):
        fd.execute([np.zeros(7, np.float32), [2, 3]])
    out = seen[0].outputs[0].value
    assert [d.evaluate(seen[0].hints) for d in out.shape] == [2, 3, 7]


def test_steps_after_an_unknown_size_are_taken_at_execution() -> None:
    from fusec.parse.dsl.session import recording
    from fusec.reference.evaluate import evaluate

    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], [True, True], DataType.Float)
        n = fd.define_scalar(dtype=DataType.Int)
        y = fd.ops.reshape(x, [2, 3, n])
        assert y.ndim == 3
        z = fd.ops.permute(y, [0, 2, 1])
        assert (z.ndim, fd.ops.sum(z, [1]).ndim, fd.ops.sum(z, [1], True).ndim) == (3, 2, 3)
        assert fd.ops.broadcast(z, [True, False, False, False]).ndim == 4
        total = fd.ops.sum(z, dims=[0, 2])
        wide = fd.ops.broadcast_in_dim(total, [*y.shape()[:2], z.size(1)], [2])
        padded = fd.ops.pad(wide, [n, 0])
        fd.add_output(fd.ops.mul(padded, n))
    with pytest.raises(FusecError, match="changes the number of elements"):
        fd.fusion()

    def executor(fusion, actuals):
        names = [i.value.name for i in fusion.inputs]
        arrays = {k: a.array() for k, a in zip(names, actuals, strict=True)}
        return list(evaluate(fusion, arrays, fusion.hints).values())

    with recording(executor):
        for count in (4, 5):
            data = np.arange(6 * count, dtype=np.float32).reshape(6, count)
            (out,) = fd.execute([data, count])
            sums = data.reshape(2, 3, count).sum((0, 1))
            assert out.shape == (2, 3, 2 * count)
            assert (out[..., count:] == sums * count).all()
            assert not out[..., :count].any()


def test_an_aliased_output_is_written_back_and_not_returned() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], [True], DataType.Float)
        y = x + 1.0
        fd.add_output(y, x)
        fd.add_output(y * 2.0)
    from fusec.parse.dsl.session import recording

    data = np.zeros(4, np.float32)
    with recording(lambda f, a: [a[0].array() + 1, (a[0].array() + 1) * 2]):
        results = fd.execute([data])
    assert fd.fusion().outputs[0].alias == "x"
    assert data.tolist() == [1, 1, 1, 1]
    assert [r.tolist() for r in results] == [[2, 2, 2, 2]]


def test_old_add_output_takes_a_stride_order() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.neg(matrix(fd)), [0, 1])
    assert fd.fusion().outputs[0].stride_order == (0, 1)


def test_validate_compares_with_the_reference() -> None:
    from fusec.parse.dsl.session import recording

    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], [True], DataType.Float)
        fd.add_output(fd.ops.exp(x))
    data = np.linspace(0, 1, 9, dtype=np.float32)
    with recording(lambda f, a: [np.exp(a[0].array())]):
        fd.validate([data])
        fd.validate([data], [np.exp(data)])
        with pytest.raises(FusecError, match="differs from the reference in 9 elements"):
            fd.validate([data], [np.exp(data) + 1])
    wrong = np.exp(data)
    wrong[3] += 0.01
    with (
        recording(lambda f, a: [wrong]),
        pytest.raises(FusecError, match="in 1 elements") as caught,
    ):
        fd.validate([data])
    assert "first at [3]" in caught.value.diagnostic.notes[0]


def test_definition_in_a_subclass() -> None:
    class Double(FusionDefinition):
        def definition(self) -> None:
            x = self.define_tensor([-1], [True], DataType.Float)
            self.add_output(self.ops.mul(x, 2.0))

    assert [n.op.name for n in Double().fusion().nodes] == ["mul"]

    class Scheduled(Double):
        def schedule(self) -> None:
            pass

    with pytest.raises(Unsupported, match="manual scheduling") as caught:
        Scheduled().fusion()
    span = caught.value.diagnostic.span
    assert span is not None
    assert (span.column, span.width) == (9, len("def schedule(self) -> None:"))


def test_values_of_two_definitions_do_not_mix() -> None:
    with FusionDefinition() as first:
        x = matrix(first)
    with FusionDefinition() as second, pytest.raises(FusecError, match="another FusionDefinition"):
        second.ops.neg(x)


ERRORS = [
    (lambda fd, x: fd.ops.rsqr(x), "unknown operation `rsqr`", "rsqrt", "fd.ops.rsqr"),
    (
        lambda fd, x: fd.ops.sum(x, dimz=[0]),
        "no argument `dimz`",
        "dims",
        "fd.ops.sum(x, dimz=[0])",
    ),
    (lambda fd, x: fd.ops.sum(x, [5]), "out of range", "", "fd.ops.sum(x, [5])"),
    (lambda fd, x: fd.ops.add(x), "needs", "add(", "fd.ops.add(x)"),
    (lambda fd, x: fd.ops.cast(x, "bf61"), "bf61", "bf16", 'fd.ops.cast(x, "bf61")'),
    (lambda fd, x: fd.define_tensr([1]), "no `define_tensr`", "define_tensor", "fd.define_tensr"),
    (
        lambda fd, x: fd.define_tensor([2], [True] * 2),
        "2 entries for 1 dims",
        "",
        "fd.define_tensor",
    ),
    (
        lambda fd, x: fd.define_tensor([2], contig=True),
        "no argument `contig`",
        "",
        "fd.define_tensor",
    ),
    (lambda fd, x: fd.define_scalar("1"), "a number, got '1'", "", 'fd.define_scalar("1")'),
    (
        lambda fd, x: fd.define_scalar(300, DataType.Byte),
        "does not fit",
        "",
        "fd.define_scalar(300",
    ),
    (lambda fd, x: fd.add_output(3), "an output must be a tensor", "", "fd.add_output(3)"),
    (lambda fd, x: x + matrix(fd, name="w").sum(1), "do not broadcast", "", "x + matrix"),
    (
        lambda fd, x: fd.ops.layernorm(x, [8]),
        "not an operation",
        "fd.ops.layer_norm(x, [8])",
        "fd.ops.layernorm",
    ),
    (
        lambda fd, x: fd.ops.layernorm(x, x),
        "not an operation",
        "fd.ops.layer_norm(x, [fd.ops.size(x, -1)], x)",
        "fd.ops.layernorm",
    ),
    (lambda fd, x: bool(x > 0), "no truth value while", "where", "bool(x > 0)"),
]


@pytest.mark.parametrize(("call", "message", "help", "place"), ERRORS)
def test_errors_point_at_the_script(call, message: str, help: str, place: str) -> None:
    with FusionDefinition() as fd:
        x = matrix(fd)
        with pytest.raises(FusecError, match=message) as caught:
            call(fd, x)
    assert caught.value.exit_code == 2
    assert line_of(caught.value).startswith(place)
    assert help in caught.value.render()


@pytest.mark.parametrize(
    "use",
    [
        lambda fd, x: fd.sched,
        lambda fd, x: fd.schedule(),
        lambda fd, x: fd.multidevice_schedule(),
        lambda fd, x: fd.manual_execute([x]),
        lambda fd, x: x.swizzle(0, 1),
        lambda fd, x: x.cache_after(),
        lambda fd, x: fd.ops.nv_block_quantize(x),
        lambda fd, x: fd.last_cuda_code(),
    ],
)
def test_what_fusec_lacks_is_refused_by_name(use) -> None:
    with FusionDefinition() as fd:
        x = matrix(fd)
        with pytest.raises(Unsupported) as caught:
            use(fd, x)
    assert caught.value.exit_code == 3
    assert line_of(caught.value)


def test_no_refusal_recommends_what_fusec_refuses_itself() -> None:
    """What is recommended is tried."""
    with FusionDefinition() as fd:
        x = matrix(fd)
        y = fd.ops.exp(x)
        fd.add_output(y)
        fd.pin("name", [y], "pointwise")
        fd.schedule(y, threads_x=128)
    assert fd.fusion().schedules[0].value == 128
    assert fd.fusion().pins[0].scheduler == "pointwise"
