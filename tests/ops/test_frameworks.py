"""Names of PyTorch, ATen, NumPy and JAX: each is known, and what fusec says to write is right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cli_tools import fusec
from paths import TESTS

from fusec import DataType, FusionDefinition
from fusec.diagnostics import FusecError, Unsupported
from fusec.ops import TABLE, find_op
from fusec.ops.builder.arguments import parameter_called
from fusec.ops.find import near_operation
from fusec.ops.frameworks import Entry, aliases, entries, find, find_bare
from fusec.ops.frameworks.find import NAMESPACES
from fusec.ops.numerics.special import erf
from fusec.parse import read_text
from fusec.parse.foreign import frameworks
from fusec.parse.syntax.trees import CallTree
from fusec.reference.evaluate import evaluate
from fusec.spelling import edits

RECORDED = TESTS / "torch_names_2_11.txt"
DEPRECATED = {"size_average", "reduce", "cudnn_enabled", "cudnn_enable"}


def recorded() -> Iterator[tuple[str, str, list[list[str]]]]:
    """Yield (namespace, name, the positional parameters of each overload)."""
    for line in RECORDED.read_text().splitlines():
        if line.startswith("#"):
            continue
        name, *overloads = (part.strip() for part in line.split("|"))
        namespace, _, name = name.rpartition(".")
        listed = [o.partition(";")[0].split() for o in overloads]
        space = "torch.Tensor" if namespace == "torch.Tensor" else "torch"
        yield space, name, [[p for p in o if p not in DEPRECATED] for o in listed]


def test_every_name_of_pytorch_is_known() -> None:
    """Each is the same, taken, written otherwise, or not supported because of a reason."""
    names = list(recorded())
    assert len(names) > 1400
    assert [f"{s}.{n}" for s, n, _ in names if find(s, n) is None] == []
    kinds = {e.kind for s, n, _ in names if (e := find(s, n)) is not None}
    assert kinds == {"same", "alias", "other", "unsupported"}


def test_no_name_of_pytorch_gets_a_guess() -> None:
    for space, name, _ in recorded():
        if space == "torch" and name not in TABLE:
            with pytest.raises(FusecError) as caught:
                find_op(name)
            assert "did you mean" not in caught.value.render(), name


OTHERWISE = {
    "batch_norm", "instance_norm", "embedding", "embedding_bag", "dropout", "scaled_mm",
    "scaled_grouped_mm", "gumbel_softmax", "binary_cross_entropy_with_logits",
}  # fmt: skip
"""Functions of torch.nn.functional whose namesakes in torch have another order, or more."""


def test_parameters_stand_in_pytorchs_order() -> None:
    wrong: list[str] = []
    for space, name, overloads in recorded():
        entry = find(space, name)
        if entry is None or entry.kind == "unsupported" or not overloads or name in OTHERWISE:
            continue
        wrong += [name] if not any(_in_order(entry, o) for o in overloads) else []
    assert wrong == []


def _in_order(entry: Entry, names: list[str]) -> bool:
    plain = [n.lstrip("*") for n in names]
    if entry.kind == "same":
        op = TABLE[entry.name]
        pairs = zip(plain, op.params, strict=False)
        return all(parameter_called(op, n) == p.name for n, p in pairs)
    pairs = list(zip(plain, entry.parameters, strict=False))
    return all(n == p.name for n, p in pairs[1:])


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_expressions_are_valid(namespace: str) -> None:
    """Their calls fit the operations; what fusec takes by a name uses its parameters alone."""
    for entry in entries(namespace):
        names = {p.name for p in entry.parameters}
        for text in entry.expressions:
            tree = frameworks.parsed(text)
            for call in frameworks.calls_in(tree):
                _check_call(entry, call)
            if entry.kind in ("alias", "same"):
                words = {n for n in frameworks.names_in(tree) if n not in names}
                assert words <= {"bf16", "f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8",
                                 "bool", "c64", "c128", "tanh"}, entry.signature  # fmt: skip


def _check_call(entry: Entry, call: CallTree) -> None:
    op = TABLE[call.name.text]
    params = [p.name for p in op.params]
    taken = set[str]()
    for place, argument in enumerate(call.arguments):
        name = params[place] if argument.keyword is None else argument.keyword.text
        assert name in params, (entry.signature, name)
        assert name not in taken
        taken.add(name)


HEAD = """fusion: f
dims: {B: 4, H: 6, N: 4}
inputs:
  x: f64[4, 6]
  y: f64[4, 6]
  w: f64[6]
  v: f64[N]
  q: f64[N, N]
  z: f64[B, 3]
  u: f64[B, 3]
  c: bool[4, 6]
  i: i64[4, 2]
ops:
"""
RNG = np.random.default_rng(7)
X, Y, Z, U = (RNG.uniform(0.1, 0.9, s) for s in ((4, 6), (4, 6), (4, 3), (4, 3)))
W, V, Q = RNG.normal(size=6), RNG.normal(size=4), RNG.normal(size=(4, 4))
MASK, INDEX = X > 0.5, np.asarray([[0, 5], [1, 1], [2, 3], [4, 0]])
GIVEN = {"x": X, "y": Y, "w": W, "v": V, "q": Q, "z": Z, "u": U, "c": MASK, "i": INDEX}


def value(line: str) -> Any:
    fusion = read_text(f"{HEAD}  - {line}\noutputs: [r]\n")
    return evaluate(fusion, GIVEN, fusion.hints)["r"]


def line_to_write(call: str) -> str:
    """Return the op line that the error for a call says to write."""
    with pytest.raises(FusecError) as caught:
        value(f"r = {call}")
    found = re.search(r"write `(r = .*?)`(;|$)", str(caught.value.diagnostic.help))
    assert found is not None, caught.value.render()
    return found[1]


OTHER: dict[str, Any] = {
    "addmm(q, q, q)": Q + Q @ Q,
    "addmm(q, q, q, beta=2, alpha=3)": 2 * Q + 3 * (Q @ Q),
    "baddbmm(q, q, q, beta=0.5)": 0.5 * Q + Q @ Q,
    "addmv(v, q, v)": V + Q @ V,
    "dot(w, w)": np.dot(W, W),
    "outer(v, v)": np.outer(V, V),
    "inner(q, q)": np.inner(Q, Q),
    "addr(q, v, v, beta=2)": 2 * Q + np.outer(V, V),
    "std_mean(x, 1)": X.std(1, ddof=1),
    "kl_div(log(x), y, reduction=mean)": (Y * (np.log(Y) - np.log(X))).mean(),
    "sinc(x)": np.sinc(X),
    "heaviside(x - 0.5, y)": np.heaviside(X - 0.5, Y),
    "nanmean(where(c, nan, x), 1)": np.nanmean(np.where(MASK, np.nan, X), 1),
    "logcumsumexp(x, 1)": np.log(np.cumsum(np.exp(X), 1)),
    "trace(q)": np.trace(Q),
    "diag(q)": np.diag(Q),
    "diag_embed(v)": np.diag(V),
    "cross(z, u)": np.cross(Z, U),
    "cdist(z, u)": np.linalg.norm(Z[:, None] - U[None], axis=-1),
    "pairwise_distance(z, u)": np.linalg.norm(Z - U + 1e-6, axis=1),
    "dist(z, u)": np.linalg.norm(Z - U),
    "renorm(z, 2.0, 0, 0.5)": Z * np.minimum(0.5 / np.linalg.norm(Z, axis=1, keepdims=True), 1),
    "poisson_nll_loss(x, y)": (np.exp(X) - Y * X).mean(),
    "gaussian_nll_loss(x, y, y)": 0.5 * (np.log(Y) + (X - Y) ** 2 / Y).mean(),
    "soft_margin_loss(x, y)": np.log1p(np.exp(-Y * X)).mean(),
    "hinge_embedding_loss(x, sign(y))": X.mean(),
    "margin_ranking_loss(x, y, sign(y), margin=0.1)": np.maximum(0.1 - (X - Y), 0).mean(),
    "entr(x)": -X * np.log(X),
    "log_ndtr(x)": np.log(0.5 * (1 + erf(X / np.sqrt(2)))),
    "xlog1py(x, y)": X * np.log1p(Y),
    "ldexp(x, y)": X * 2**Y,
    "logaddexp2(x, y)": np.logaddexp2(X, Y),
    "linspace(0.0, 1.0, 5)": np.linspace(0, 1, 5),
    "logspace(0.0, 1.0, 5)": np.logspace(0, 1, 5),
    "allclose(x, x)": True,
    "equal(x, y)": False,
    "round(x, decimals=1)": np.round(X, 1),
    "rsub(x, y, alpha=2)": Y - 2 * X,
    "fliplr(x)": np.fliplr(X),
    "take(x, i)": np.take(X, INDEX),
    "x.masked_fill_(c, 0)": np.where(MASK, 0, X),
    "x.add_(y)": X + Y,
}  # fmt: skip


@pytest.mark.parametrize("call", OTHER)
def test_the_line_to_write_is_right(call: str) -> None:
    np.testing.assert_allclose(value(line_to_write(call)), OTHER[call], rtol=1e-6)


LOG_PROBS = X - np.log(np.exp(X).sum(1, keepdims=True))
PICKED = 0.9 * LOG_PROBS[np.arange(4), INDEX[:, 0]] + 0.1 * LOG_PROBS.mean(1)


def attention_of_groups() -> Any:
    """Return attention of 4 heads of queries, two each to a head of 2 of keys and values."""
    queries, keys = X.reshape(4, 2, 3), np.repeat(Y.reshape(4, 2, 3)[:2], 2, axis=0)
    powers = np.exp(queries @ keys.transpose(0, 2, 1) / np.sqrt(3))
    return (powers / powers.sum(-1, keepdims=True) @ keys)[None]


HEADS = "y.view(1, 4, 2, 3)[:, :2]"
EXACT: dict[str, Any] = {
    "F.cross_entropy(x, i[:, 0], label_smoothing=0.1)": -PICKED.mean(),
    "F.cross_entropy(x, i[:, 0], label_smoothing=0.1, ignore_index=4)": -PICKED[:3].mean(),
    "F.cross_entropy(x, y)": -(Y * LOG_PROBS).sum(1).mean(),
    "F.cross_entropy(x, y, label_smoothing=0.3, reduction='none')":
        -((0.7 * Y + 0.05) * LOG_PROBS).sum(1),
    f"F.scaled_dot_product_attention(x.view(1, 4, 2, 3), {HEADS}, {HEADS}, enable_gqa=True)":
        attention_of_groups(),
    "gather(x, 1, i)": np.take_along_axis(X, INDEX, 1),
    "index_select(x, -1, arange(4))": X[:, :4],
    "permute(x, 1, 0)": X.T,
    "x.max() * 2": X.max() * 2,
    "x / x.sum().item()": X / X.sum(),
    "torch.add(x, y, alpha=2)": X + 2 * Y,
    "x.add(y)": X + Y,
    "np.dot(q, v)": Q @ V,
    "F.prelu(-x, w)": -W * X,
    "np.std(x, axis=1)": X.std(1),
    "np.var(x, axis=0, ddof=1)": X.var(0, ddof=1),
    "special.ndtr(x)": 0.5 * (1 + erf(X / np.sqrt(2))),
    "torch.amax(x, 1)": X.max(1),
    "jax.nn.standardize(x)":
        (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(1, keepdims=True) + 1e-5),
    "jax.nn.squareplus(x)": (X + np.sqrt(X * X + 4)) / 2,
    "jax.nn.sparse_plus(x)": 0.25 * (X + 1) ** 2,
    "lax.select(c, x, y)": np.where(MASK, X, Y),
    "lax.clamp(0.2, x, 0.8)": np.clip(X, 0.2, 0.8),
    "np.ptp(x, 1)": np.ptp(X, 1),
    "np.cbrt(x)": np.cbrt(X),
    "np.transpose(x)": X.T,
    "np.transpose(x, [1, 0])": X.T,
    "np.expand_dims(x, 1)": X[:, None],
    "np.tri(4)": np.tri(4),
    "np.repeat(x, 2, 1)": np.repeat(X, 2, 1),
    "np.clip(x, 0.2, 0.8)": np.clip(X, 0.2, 0.8),
    "torch.nn.functional.silu(x - y)": (X - Y) / (1 + np.exp(Y - X)),
    "x.unsqueeze(0)": X[None],
    "x.view(4, 2, 3)": X.reshape(4, 2, 3),
    "x.view(4, -1)": X,
    "x.reshape([24])": X.ravel(),
    "x.permute(1, 0)": X.T,
    "x.mean(dim=1, keepdim=true)": X.mean(1, keepdims=True),
    "x.sum(-1)": X.sum(-1),
    "x.to(f64)": X,
    "x.double()": X,
    "x.masked_fill(c, 0)": np.where(MASK, 0, X),
    "x.clamp(min=0.5)": np.maximum(X, 0.5),
    "x.softmax(-1)": np.exp(X) / np.exp(X).sum(-1, keepdims=True),
    "x.expand(2, 4, 6)": np.broadcast_to(X, (2, 4, 6)),
    "x.where(c, y)": np.where(MASK, X, Y),
    "x.t()": X.T,
    "x.new_zeros([2, 3])": np.zeros((2, 3)),
    "x.new_full([2], 3.0)": np.full(2, 3.0),
}  # fmt: skip
"""Methods and names with a prefix: op lines accept them, as they have exact equivalents."""


@pytest.mark.parametrize("call", EXACT)
def test_methods_and_prefixed_names_are_accepted(call: str) -> None:
    np.testing.assert_allclose(value(f"r = {call}"), EXACT[call], rtol=1e-6)


CHAINED: dict[str, Any] = {
    "relu(x.unsqueeze(0))": np.maximum(X, 0)[None],
    "x.T @ y + 1": X.T @ Y + 1,
    "(x + y).sum(dim=1)": (X + Y).sum(1),
    "x.abs().clamp(min=0.5)": np.maximum(np.abs(X), 0.5),
    "-x.abs() ** 2": -(X**2),
    "torch.exp(q.T.double()).T": np.exp(Q),
    "x.reshape((x.size(0) * 3, 2)).mean((0, 1))": X.mean(),
    "x.gather(1, i)": np.take_along_axis(X, INDEX, 1),
    "x.to(torch.float32).to(y.dtype)": X.astype(np.float32),
    "F.mse_loss(x, y, reduction='none')": (X - Y) ** 2,
    "x.view(4, -1)[:, (0)]": X[:, 0],
    "torch.zeros(2, 3, dtype=torch.int64)": np.zeros((2, 3)),
    "where(c, x, float('-inf')).amax(1)": np.where(MASK, X, -np.inf).max(1),
    "x / math.sqrt(4.0) * torch.pi": X / 2 * np.pi,
    "F.relu(x, inplace=True) + torch.zeros(4, 6, device=x.device)": X,
    "torch.cat((x, y), dim=-1)": np.concatenate([X, Y], 1),
}  # fmt: skip


@pytest.mark.parametrize("call", CHAINED)
def test_lines_of_pytorch_are_accepted(call: str) -> None:
    np.testing.assert_allclose(value(f"r = {call}"), CHAINED[call], rtol=1e-6)


def test_a_dim_is_not_the_owner_of_a_function() -> None:
    """`F` may be a dim, and `F.silu` is PyTorch's all the same."""
    head = "fusion: f\ndims: {F: 4}\ninputs: {x: 'f64[F]'}\nops:\n"
    fusion = read_text(f"{head}  - r = F.silu(x) + F\noutputs: [r]\n")
    given = np.arange(4.0)
    found = evaluate(fusion, {"x": given}, fusion.hints)["r"]
    np.testing.assert_allclose(found, given / (1 + np.exp(-given)) + 4)


TAKEN: dict[str, Any] = {
    "clip(x, 0.2, 0.8)": np.clip(X, 0.2, 0.8),
    "clip(x, min=0.5)": np.maximum(X, 0.5),
    "clip(x, max=0.5)": np.minimum(X, 0.5),
    "multiply(x, y)": X * Y,
    "subtract(x, y)": X - Y,
    "negative(x)": -X,
    "arcsin(x)": np.arcsin(X),
    "greater(x, y)": X > Y,
    "invert(c)": ~MASK,
    "mm(q, q)": Q @ Q,
    "amax(x, dim=1, keepdim=true)": X.max(1, keepdims=True),
    "concatenate([x, y], axis=1)": np.concatenate([X, Y], 1),
    "swapaxes(x, 0, 1)": X.T,
    "to(x, f64)": X,
    "float(x)": X.astype(np.float32),
    "view(x, [24])": X.ravel(),
    "expit(x)": 1 / (1 + np.exp(-X)),
    "swish(x)": X / (1 + np.exp(-X)),
    "tile(x, [1, 2])": np.tile(X, (1, 2)),
    "frobenius_norm(x, dim=1)": np.linalg.norm(X, axis=1),
    "hard_sigmoid(x)": np.clip(X + 3, 0, 6) / 6,
    "contiguous(x)": X,
}


@pytest.mark.parametrize("call", TAKEN)
def test_names_that_fusec_takes_too(call: str) -> None:
    np.testing.assert_allclose(value(f"r = {call}"), TAKEN[call], rtol=1e-6)


NAMED_BY_USERS = [
    "unsqueeze", "transpose", "to", "float", "flatten", "stack", "bmm", "masked_fill", "one_hot",
    "multiply", "subtract", "negative", "clip", "scaled_dot_product_attention", "softplus",
    "roll", "dot", "arange", "invert", "greater", "swish", "square", "fma", "zeros_like", "std",
    "diag", "equal", "ones", "zeros", "ones_like", "view", "split", "chunk", "unbind", "narrow",
    "movedim", "permute", "type", "amax", "amin", "einsum", "conv2d", "nonzero", "unique", "mish",
    "elu", "selu", "leaky_relu", "hardswish", "logsumexp", "norm", "mse_loss", "l1_loss", "bce",
    "huber_loss", "kl_div", "cumsum", "outer", "mm", "mv", "addmm", "baddbmm", "less", "equal",
    "logical_xor", "floor_divide", "true_divide",
]  # fmt: skip


def test_no_name_that_users_tried_gets_a_guess() -> None:
    for name in set(NAMED_BY_USERS) - {"bce"}:
        entry = find_bare(name)
        assert name in TABLE or (entry is not None and entry.kind), name


def test_guesses_are_slips_of_the_finger() -> None:
    assert edits("expp", "exp") == edits("epx", "exp") == 1
    assert edits("", "ab") == edits("lerp", "relu") - 1 == 2
    assert near_operation("sigmodi") == "sigmoid"
    assert near_operation("epx", 1) == "exp"
    assert near_operation("epx", 2) is None, "exp takes one"
    assert near_operation("dto") is None, "of short names only one letter"
    assert near_operation("foo") is None


GRAPHS = [
    "mul.Tensor", "view", "permute", "_to_copy", "unsqueeze", "add.Tensor", "mm",
    "sum.dim_IntList", "sub.Tensor", "alias", "clone", "slice.Tensor", "expand", "where.self",
    "pow.Tensor_Scalar", "scalar_tensor", "full", "mul.Scalar", "bmm", "ne.Scalar",
    "squeeze.dims", "div.Tensor", "neg", "arange.start_step", "cat", "slice_scatter",
    "bitwise_and.Tensor", "mean.dim", "rsqrt", "addmm", "index.Tensor", "native_dropout",
    "div.Scalar", "sigmoid", "exp", "index_put", "convolution", "convolution_backward",
    "le.Scalar", "constant_pad_nd", "full_like", "_native_batch_norm_legit_functional",
    "bitwise_not", "ge.Scalar", "native_layer_norm", "lt.Scalar", "relu", "embedding", "clamp",
    "cumsum", "select.int", "eq.Scalar", "split_with_sizes",
    "_scaled_dot_product_flash_attention_for_cpu", "_softmax", "_log_softmax", "gather",
    "scatter.value", "logical_not", "le.Tensor", "cos", "sin", "tanh",
    "_scaled_dot_product_flash_attention_for_cpu_backward", "eq.Tensor", "pow.Scalar", "sqrt",
    "gt.Scalar", "flip", "_grouped_mm", "copy", "any.dim", "logical_and", "abs", "reciprocal",
    "gelu", "minimum", "add.Scalar", "log1p", "topk", "scatter.src", "log", "erf", "mean", "sort",
    "div.Tensor_mode", "histc", "empty_permuted", "max_pool2d_with_indices",
    "max_pool2d_with_indices_backward", "lift_fresh_copy", "ge.Tensor",
]  # fmt: skip
"""The overloads in recorded graphs of GPT-2, Llama, ViT, DiT, T5, Mixtral, ResNet and Mamba."""


@pytest.mark.parametrize("key", GRAPHS)
def test_overloads_of_exported_graphs_are_known(key: str) -> None:
    name, _, overload = key.partition(".")
    assert find("aten", name, overload) is not None


def test_an_importer_asks_by_overload() -> None:
    """Arguments by name with defaults; what changes nothing here may be given."""
    entry = find("aten", "full", "default")
    assert entry is not None
    given = frameworks.bind(entry, [[2], 0], {"device": "cpu", "pin_memory": False}, list)
    tree = frameworks.instantiate(entry, given, lambda v: frameworks.OPAQUE if v == [2] else v)
    assert frameworks.text_of(tree, {"size": "[2]", "fill_value": "0"}) == "full([2], 0)"
    softmax = find("aten", "_softmax")
    assert softmax is not None
    with pytest.raises(Unsupported, match="`half_to_float=True`"):
        frameworks.instantiate(softmax, {"self": "x", "dim": "d", "half_to_float": True},
                               lambda v: v if v is True else frameworks.OPAQUE)  # fmt: skip


@pytest.mark.parametrize(
    ("line", "column", "told"),
    [
        ("r = relu(x.min(1))", 14, "write `r = relu(min(x, 1))`; the values alone"),
        (
            "r = (x.T + y).max(dim=1)", 18,
            "write `r = max(permute(x, [1, 0]) + permute(y, [1, 0]), 1)`; the values",
        ),
        ("r = -x.abs().copy_(y)", 17, "write `r = -set(y)`"),
        ("r = outer(x.float(), torch.exp(w.T))", 9,
         "write `r = unsqueeze(cast(x, f32), 1) * exp(w)`"),
        ("r = x[None].T", 9, "`permute` has 2 entries"),
        ("r = x.clamp(0, 1, 2)", 9, "takes 3 arguments, got 4"),
        ("r = F.cross_entropy(x, i, weight=w)", 9, "the target has 2 dims"),
        ("r = relu(gather(x, dim=1, index=i, z=1))", 40, "no argument `z`"),
        ("r = x.foo(1)", 9, "`x.foo` is not a method"),
        ("r = x.foo", 9, "no attributes: `x.foo`"),
        ("r = conv2d(x, y)", 9, "convolutions have no kernels"),
        ("r = nonzero(x)", 9, "depends on the data"),
        ("r = unsqueeze(x)", 9, "needs `dim`"),
        ("r = multiply(x)", 9, "needs `other`"),
        ("r = multiply(x, y, w)", 9, "takes 2 arguments, got 3"),
        ("r = multiply(x, z=y)", 9, "argument `z` of `multiply` is unknown"),
        ("r = reluu(x)", 9, "did you mean `relu`?"),
        ("r = add(x, y, alpha=2)", 19, "write `r = x + 2 * y`"),
        ("r = scaled_dot_product_attention(x)", 9, "needs `key`"),
    ],
)  # fmt: skip
def test_errors_say_where_and_what_to_write(line: str, column: int, told: str) -> None:
    with pytest.raises(FusecError) as caught:
        value(line)
    span = caught.value.diagnostic.span
    assert span is not None
    assert (span.line, span.column) == (14, column)
    assert told in caught.value.render()


def test_scripts_take_them_too() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[4, 6, 2], contiguity=True, dtype=DataType.Double)
        a, b = fd.ops.chunk(x, 2, dim=1)
        y = a.permute(0, 2, 1).unsqueeze(0).to(DataType.Float).double()
        z = fd.ops.clip(x, max=0.5).transpose(0, 1).flatten(1).view(6, 8)
        parts = b.unbind(2)
        fd.add_output(y)
        fd.add_output(z)
        fd.add_output(parts[1] // 0.25)
    data = RNG.uniform(size=(4, 6, 2))
    fusion = fd.fusion()
    found = list(evaluate(fusion, {"x": data}, fusion.hints).values())
    assert [o.value.name for o in fusion.outputs][:2] == ["y", "z"]
    expected = data[:, :3].transpose(0, 2, 1)[None].astype(np.float32)
    np.testing.assert_allclose(found[0], expected)
    np.testing.assert_allclose(found[1], np.minimum(data, 0.5).swapaxes(0, 1).reshape(6, 8))
    np.testing.assert_allclose(found[2], data[:, 3:, 1] // 0.25)


def test_scripts_are_told_in_python() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[4, 6], contiguity=True)
    with pytest.raises(AttributeError, match=r"write `fd.ops.sum\(x \* x\)`"):
        fd.ops.dot(x, x)
    with pytest.raises(AttributeError, match=r"fd.ops.set\(x\)"):
        x.copy_(x)
    with pytest.raises(Unsupported, match="convolutions"):
        fd.ops.conv2d(x, x)
    with pytest.raises(AttributeError, match="did you mean `sigmoid`"):
        fd.ops.sigmodi(x)
    assert not hasattr(x, "numpy")
    assert not hasattr(fd.ops, "foo")


def test_ops_and_completion_know_them(capsys: pytest.CaptureFixture[str]) -> None:
    shown = fusec(capsys, "ops", "dot")
    assert shown.code == 0
    assert "sum(input * tensor)" in shown.out
    assert "clamp(x, min, max)" in fusec(capsys, "ops", "clip").out
    assert "PyTorch's `gather(input, dim, index)`" in fusec(capsys, "ops", "gather").out
    assert "silu(x)" in fusec(capsys, "ops", "torch.nn.functional.silu").out
    assert "multiply(input, other)" in fusec(capsys, "ops").out
    fusec(capsys, "ops", "conv2d").says(3, "convolutions have no kernels")
    assert "clip" in aliases()
    assert not aliases().keys() & TABLE.keys()
