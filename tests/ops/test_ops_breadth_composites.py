"""Norms, losses and attention: expansions against references, PyTorch, and worked cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusec.diagnostics import FusecError, Unsupported
from fusec.ir import dtype as dtypes
from fusec.ops import TABLE
from fusec.ops.builder.build import GraphBuilder
from fusec.parse import read_text
from fusec.parse.dsl import FusionDefinition
from fusec.reference.evaluate import evaluate

RNG = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape) + sum(shape)).normal(size=shape)


def build(op: str, given: list[Any], dtype: dtypes.DType, symbolic: bool, **attributes: Any) -> Any:
    builder = GraphBuilder()
    arrays: dict[str, Any] = {}
    operands: list[Any] = []
    dims: dict[int, Any] = {}
    for k, array in enumerate(given):
        if not isinstance(array, np.ndarray):
            operands.append(array)
            continue
        kind = dtype if array.dtype.kind == "f" else dtypes.of_numpy(array.dtype)
        for extent in array.shape:
            if symbolic and extent > 1 and extent not in dims:
                dims[extent] = builder.declare_dim(f"D{extent}", extent)
        shape = [dims.get(e, e) for e in array.shape]
        arrays[f"x{k}"] = array.astype(kind.numpy)
        operands.append(builder.input(f"x{k}", kind, shape))
    results = builder.call(op, operands, attributes)
    for value in results:
        builder.output(value)
    fusion = builder.finish()
    found = evaluate(fusion, {**arrays, "rng_seed": 0, "rng_offset": 0}, fusion.hints)
    return [found[o.value.name] for o in fusion.outputs]


X, W, B = normal(4, 6, 5), normal(6), normal(7)[:6]
MEAN, VAR = normal(9)[:6], np.abs(normal(8)[:6]) + 0.1
IMAGE = normal(3, 6, 4, 5)
TARGET = np.asarray([2, -100, 0, 4, 2])
LOGITS = 3 * normal(5, 6)
SPATIAL = RNG.integers(0, 6, (3, 4, 5))
SPATIAL[1, 2] = 3
QUERY, KEY, VALUE = normal(2, 3, 7, 4), normal(2, 3, 5, 4), normal(2, 3, 5, 8)
BIAS, MASK = normal(7, 5), RNG.random((2, 1, 7, 5)) < 0.6
MASK[0, 0, 3] = False

CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("batch_norm", [X], {}),
    ("batch_norm", [X, W, B], {}),
    ("batch_norm", [IMAGE, W, None, MEAN, VAR], {}),
    ("batch_norm", [IMAGE, W, B, MEAN, VAR, 0.3, 1e-3], {}),
    ("batch_norm", [IMAGE, W, B, MEAN, VAR], {"training": False}),
    ("batch_norm", [np.moveaxis(IMAGE, 1, -1).copy(), W, B], {"channels_last": True}),
    ("instance_norm", [IMAGE, W, B], {}),
    ("instance_norm", [X, W, B, MEAN, VAR, 0.3], {}),
    ("instance_norm", [IMAGE, None, None, MEAN, VAR], {"use_input_stats": False}),
    ("instance_norm", [np.moveaxis(IMAGE, 1, -1).copy(), W], {"channels_last": True}),
    ("group_norm", [IMAGE, W, B], {"num_groups": 3}),
    ("group_norm", [X], {"num_groups": 2}),
    *[("cross_entropy", [LOGITS, TARGET], {"reduction": r}) for r in ("mean", "sum", "none")],
    ("cross_entropy", [IMAGE, SPATIAL], {"ignore_index": 3}),
    ("cross_entropy", [LOGITS[0], np.asarray(4)], {}),
    *[("cross_entropy", [LOGITS, TARGET], {"reduction": r, "label_smoothing": 0.2})
      for r in ("mean", "sum", "none")],
    ("cross_entropy", [IMAGE, SPATIAL], {"ignore_index": 3, "label_smoothing": 0.1}),
    *[("cross_entropy", [LOGITS, np.abs(LOGITS)], {"reduction": r, "label_smoothing": 0.1})
      for r in ("mean", "sum", "none")],
    ("cross_entropy", [IMAGE, np.abs(IMAGE)], {}),
    ("cross_entropy", [LOGITS[0], np.abs(LOGITS[0])], {}),
    ("nll_loss", [LOGITS, TARGET], {}),
    ("nll_loss", [IMAGE, SPATIAL], {"reduction": "none", "ignore_index": 3}),
    ("sdpfa_fwd", [QUERY, KEY, VALUE], {}),
    ("sdpfa_fwd", [QUERY, KEY, VALUE, None, None, None, True], {}),
    ("sdpfa_fwd", [QUERY, KEY, VALUE, BIAS, None, 0.0, False, 0.7], {}),
    ("sdpfa_fwd", [QUERY, KEY, VALUE, None, MASK], {}),
    ("sdpfa_fwd", [QUERY, KEY, VALUE, BIAS, BIAS], {}),
    ("sdpfa_fwd", [QUERY, KEY, VALUE, None, None, 0.25], {}),
    ("scaled_dot_product_attention", [QUERY, KEY, VALUE], {"enable_gqa": True}),
]  # fmt: skip
IDS = [f"{c[0]}-{k}" for k, c in enumerate(CASES)]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("op", "given", "attributes"), CASES, ids=IDS)
def test_expansions_mean_what_the_reference_says(
    op: str, given: list[Any], attributes: dict[str, Any], symbolic: bool
) -> None:
    found = build(op, given, dtypes.F64, symbolic, **attributes)
    names = [p.name for p in TABLE[op].operands]
    expected = TABLE[op].reference(**dict(zip(names, given, strict=False)), **attributes)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(found) == len(expected)
    for array, want in zip(found, expected, strict=True):
        # The log of the sums is f32 whatever the operands are.
        np.testing.assert_allclose(array, want, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("op", "given", "attributes"), CASES, ids=IDS)
def test_half_results_are_rounded_and_near(
    op: str, given: list[Any], attributes: dict[str, Any]
) -> None:
    exact = build(op, given, dtypes.F64, False, **attributes)[0]
    found = build(op, given, dtypes.BF16, False, **attributes)[0]
    assert np.array_equal(found, found.astype(dtypes.BF16.numpy).astype(float))
    scale = max(1.0, float(np.abs(exact).max()))
    np.testing.assert_allclose(found, exact, atol=0.04 * scale)


def test_heads_of_keys_serve_several_of_queries() -> None:
    """With symbols the number of queries' heads must be a product."""
    name, queries = "scaled_dot_product_attention", np.tile(QUERY, (1, 2, 1, 1))
    queries = queries + normal(*queries.shape)
    (found,) = build(name, [queries, KEY, VALUE], dtypes.F64, False, enable_gqa=True)
    for head in range(queries.shape[1]):
        one = (queries[:, head : head + 1], *(x[:, head // 2, None] for x in (KEY, VALUE)))
        (want,) = build(name, [*one], dtypes.F64, False)
        np.testing.assert_allclose(found[:, head : head + 1], want, rtol=1e-11)
    with pytest.raises(FusecError, match="not known to be a multiple"):
        build(name, [queries, KEY, VALUE], dtypes.F64, True, enable_gqa=True)
    with pytest.raises(FusecError, match="not a multiple of"):
        build(name, [queries[:, :5], KEY, VALUE], dtypes.F64, False, enable_gqa=True)


def test_a_row_that_sees_nothing_is_zero() -> None:
    out, sums, *_ = build("sdpfa_fwd", [QUERY, KEY, VALUE, None, MASK], dtypes.F32, False)
    assert not out[0, :, 3].any()
    assert np.isneginf(sums[0, :, 3]).all()
    assert np.isfinite(out).all()


ADDED = normal(1, 3, 7, 5)
SEEN = ADDED > -1.0
SEEN[..., 0] = True


@pytest.mark.parametrize(
    "options",
    [
        {}, {"is_causal": True}, {"scale": 0.3}, {"dropout_p": 0.4}, {"mask": ADDED},
        {"mask": SEEN, "dropout_p": 0.2},
    ],
    ids=["plain", "causal", "scale", "dropout", "mask", "mask of bools"],
)  # fmt: skip
def test_attention_gradients_are_differences(options: dict[str, Any]) -> None:
    """The backward agrees with central differences of the forward, dropout mask included."""
    p, scale = options.get("dropout_p"), options.get("scale")
    causal, mask = options.get("is_causal"), options.get("mask")
    grad = normal(2, 3, 7, 8) + 1.0

    def forward(*arrays: Any) -> list[Any]:
        return build("sdpfa_fwd", [*arrays, None, mask, p, causal, scale], dtypes.F64, False)

    out, _, seed, offset = forward(QUERY, KEY, VALUE)
    seeds = np.asarray([0, 0], np.uint64), np.asarray(0, np.uint64)
    # The f32 log of the sums would hide small errors: give the exact one.
    scores = QUERY @ np.swapaxes(KEY, -1, -2) * (0.5 if scale is None else scale)
    if causal:
        scores = np.where(np.tri(7, 5, dtype=bool), scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    sums = np.log(np.exp(scores).sum(-1))
    assert seed.tolist() == [0, 0]
    assert offset == 0
    given = [grad, QUERY, KEY, VALUE, out, sums, p, causal, *seeds, scale, mask]
    found = build("sdpfa_bwd", given, dtypes.F64, False)
    step = 1e-6
    arrays = [QUERY, KEY, VALUE]
    for which, place in (
        (0, (1, 2, 3, 0)),
        (1, (0, 1, 2, 3)),
        (2, (1, 0, 4, 5)),
        (1, (1, 1, 0, 1)),
    ):
        moved: list[float] = []
        for sign in (1, -1):
            shifted = [a.copy() for a in arrays]
            shifted[which][place] += sign * step
            moved.append(float(np.sum(forward(*shifted)[0] * grad)))
        slope = (moved[0] - moved[1]) / (2 * step)
        assert found[which][place] == pytest.approx(slope, rel=1e-5, abs=1e-6)


def test_rows_that_see_nothing_have_no_gradients() -> None:
    seen = SEEN.copy()
    seen[:, :, 3] = False
    out, sums, _, _ = build("sdpfa_fwd", [QUERY, KEY, VALUE, None, seen], dtypes.F64, False)
    given = [normal(2, 3, 7, 8), QUERY, KEY, VALUE, out, sums, *[None] * 5, seen]
    found = build("sdpfa_bwd", given, dtypes.F64, False)
    assert all(np.isfinite(array).all() for array in found)
    assert not found[0][:, :, 3].any()


@pytest.mark.parametrize("causal", [False, True])
def test_causality_may_be_a_scalar_input(causal: bool) -> None:
    builder = GraphBuilder()
    operands = [
        builder.input(n, dtypes.F64, a.shape)
        for n, a in zip("qkv", (QUERY, KEY, VALUE), strict=True)
    ]
    flag = builder.input("flag", dtypes.BOOL, None)
    builder.output(builder.call("sdpfa_fwd", [*operands, None, None, None, flag])[0])
    given = {"q": QUERY, "k": KEY, "v": VALUE, "flag": causal}
    (found,) = evaluate(builder.finish(), given, {}).values()
    (want, *_) = build(
        "sdpfa_fwd", [QUERY, KEY, VALUE, None, None, None, causal], dtypes.F64, False
    )
    np.testing.assert_array_equal(found, want)


def test_forward_and_backward_draw_the_same_mask() -> None:
    builder = GraphBuilder()
    q, k, v = (builder.input(n, dtypes.F32, [1, 1, 8, 8]) for n in "qkv")
    builder.apply("rand_like", q)  # takes the first offset
    out, sums, seed, offset = builder.call("sdpfa_fwd", [q, k, v, None, None, 0.5])
    builder.call("sdpfa_bwd", [q, q, k, v, out, sums, 0.5, None, seed, offset])
    for value in (seed, offset):
        builder.output(value)
    fusion = builder.finish()
    drawn = [n for n in fusion.nodes if n.op.name == "uniform"]
    assert len(drawn) == 3
    state = {"rng_seed": 2**63 + 5, "rng_offset": 40}
    found = evaluate(fusion, state, fusion.hints)
    assert [a.tolist() for a in found.values()] == [[2**63 + 5] * 2, 41]
    assert drawn[1].operands[3] is offset
    assert drawn[2].operands[3] is offset


def test_running_statistics_are_written_into_the_inputs_by_the_dsl() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([4, 6, 5])
        mean, var = fd.define_tensor([6]), fd.define_tensor([6])
        y, m, r = fd.ops.batch_norm(x, None, None, mean, var, 0.1, 1e-5, True)
        fd.add_output(y)
        z, *_ = fd.ops.batch_norm(x, None, None, mean, var, 0.1, 1e-5, False)
        fd.add_output(z)
        fd.add_output(m)
        fd.add_output(r)
    fusion = fd.fusion()
    assert [o.alias for o in fusion.outputs] == ["T1", "T2", None, None, None, None]


MISTAKES: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("batch_norm", [W], {}, "at least 2 dims"),
    ("batch_norm", [X, X[0, 0]], {}, r"the weight of `batch_norm` has shape \[5\], expected \[6\]"),
    ("batch_norm", [X, None, None, MEAN], {}, "or neither"),
    ("batch_norm", [X], {"training": False}, "needs running_mean"),
    ("batch_norm", [X[:1, :, :1], None, None, MEAN, VAR], {}, "more than one value"),
    ("instance_norm", [LOGITS], {}, "at least 3 dims"),
    ("group_norm", [X], {"num_groups": 4}, "6 channels are not divisible into 4 groups"),
    ("cross_entropy", [LOGITS, normal(5)], {}, "must be integers, got f64"),
    ("cross_entropy", [LOGITS, SPATIAL], {}, "the target has 3 dims, expected 1"),
    ("cross_entropy", [LOGITS, TARGET[:4]], {}, "without the classes, dim 1: 5 and 4 differ"),
    ("nll_loss", [LOGITS, TARGET], {"reduction": "max"}, "mean, sum, none, not 'max'"),
    ("nll_loss", [LOGITS, TARGET + 200], {}, r"index 202 at \[0, 0\] is out of bounds"),
    ("sdpfa_fwd", [QUERY, KEY[0], VALUE], {}, "of one rank"),
    ("sdpfa_fwd", [QUERY, KEY, VALUE[:, :, :4]], {}, "key and value have 5 and 4 rows"),
    ("sdpfa_fwd", [QUERY, KEY[:, :1], VALUE[:, :1]], {}, "query and key have 3 and 1 heads"),
    ("sdpfa_bwd", [VALUE, QUERY, KEY, VALUE, VALUE, X], {}, "must agree"),
]


@pytest.mark.parametrize(
    ("op", "given", "attributes", "message"),
    MISTAKES,
    ids=[f"{m[0]}-{k}" for k, m in enumerate(MISTAKES)],
)
def test_mistakes(op: str, given: list[Any], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(FusecError, match=message) as caught:
        build(op, given, dtypes.F64, False, **attributes)
    assert not isinstance(caught.value, Unsupported)


class TestAgainstTorch:
    """The same calls of PyTorch's CPU build, where it is installed."""

    def test_norms(self) -> None:
        torch: Any = pytest.importorskip("torch")
        f = torch.nn.functional
        t = torch.from_numpy
        for training in (True, False):
            mean, var = t(MEAN.copy()), t(VAR.copy())
            want = f.batch_norm(t(IMAGE), mean, var, t(W), t(B), training, 0.3, 1e-3).numpy()
            given = [IMAGE, W, B, MEAN, VAR, 0.3, 1e-3]
            found = build("batch_norm", given, dtypes.F64, False, training=training)
            np.testing.assert_allclose(found[0], want, rtol=1e-10, atol=1e-12)
            if training:
                np.testing.assert_allclose(found[3], mean.numpy(), rtol=1e-12)
                np.testing.assert_allclose(found[4], var.numpy(), rtol=1e-12)
        mean, var = t(MEAN.copy()), t(VAR.copy())
        want = f.instance_norm(t(IMAGE), mean, var, t(W), t(B), True, 0.3, 1e-3).numpy()
        found = build("instance_norm", [IMAGE, W, B, MEAN, VAR, 0.3, 1e-3], dtypes.F64, False)
        for array, expected in zip((found[0], *found[3:]), (want, mean, var), strict=True):
            np.testing.assert_allclose(array, expected, rtol=1e-10, atol=1e-12)
        want = f.group_norm(t(IMAGE), 3, t(W), t(B)).numpy()
        (array,) = build("group_norm", [IMAGE, W, B], dtypes.F64, False, num_groups=3)
        np.testing.assert_allclose(array, want, rtol=1e-10, atol=1e-12)

    @pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
    def test_losses(self, reduction: str) -> None:
        torch: Any = pytest.importorskip("torch")
        f = torch.nn.functional
        for op, function in (("cross_entropy", f.cross_entropy), ("nll_loss", f.nll_loss)):
            for scores, target, ignored in ((LOGITS, TARGET, -100), (IMAGE, SPATIAL, 3)):
                options = {"reduction": reduction, "ignore_index": ignored}
                want = function(torch.from_numpy(scores), torch.from_numpy(target), **options)
                (found,) = build(op, [scores, target], dtypes.F64, False, **options)
                np.testing.assert_allclose(found, want.numpy(), rtol=1e-11, atol=1e-13)

    @pytest.mark.parametrize("case", [{}, {"is_causal": True}, {"mask": MASK}, {"scale": 0.3}])
    def test_attention(self, case: dict[str, Any]) -> None:
        torch: Any = pytest.importorskip("torch")
        q, k, v = (torch.from_numpy(a).requires_grad_() for a in (QUERY, KEY, VALUE))
        mask, causal, scale = case.get("mask"), case.get("is_causal", False), case.get("scale")
        want = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, None if mask is None else torch.from_numpy(mask), is_causal=causal, scale=scale
        )
        given = [QUERY, KEY, VALUE, None, mask, None, causal, scale]
        out, sums, *_ = build("sdpfa_fwd", given, dtypes.F64, False)
        np.testing.assert_allclose(out, want.detach().numpy(), rtol=1e-10, atol=1e-12)
        if mask is not None:
            return
        grad = normal(2, 3, 7, 8)
        want.backward(torch.from_numpy(grad))
        given = [grad, QUERY, KEY, VALUE, out, sums, None, causal, None, None, scale]
        found = build("sdpfa_bwd", given, dtypes.F64, False)
        for array, tensor in zip(found, (q, k, v), strict=True):
            np.testing.assert_allclose(array, tensor.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_none_is_a_word_where_an_attribute_is_one() -> None:
    text = """\
fusion: t
inputs:
  x: f32[4, 6]
  t: i64[4]
ops:
  - a = nll_loss(x, t, reduction=none)
  - b = gelu(x, approximate=none)
outputs: [a, b]
"""
    fusion = read_text(text)
    assert [str(o.value.type) for o in fusion.outputs] == ["f32[4]", "f32[4, 6]"]
