"""Lines of other frameworks compute what they compute there: accepted, or as the help says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from followed import MOST_STEPS, error_of, written

from fusec.ops.numerics.special import erf
from fusec.parse import read_text
from fusec.reference.evaluate import evaluate

HEAD = """fusion: f
dims: {B: 4, H: &six {default: 6, multiple_of: 6}, C: 4, Y: {default: 4, multiple_of: 2}, X: *six}
inputs:
  x: f64[B, H]
  r: f64[B, H]
  w: f64[H]
  p: f64[B]
  q: f64[B, B]
  img: f64[B, C, Y, X]
  s: f64[C]
  i: i64[B, H]
  j: i64[B, H]
  t: i64[B]
  m: bool[B, H]
ops:
{LINES}
outputs: [y]
"""
RNG = np.random.default_rng(3)
X, R = RNG.normal(size=(4, 6)), RNG.normal(size=(4, 6))
W, P, Q, S = RNG.normal(size=6), RNG.normal(size=4), RNG.normal(size=(4, 4)), RNG.normal(size=4)
IMG = RNG.normal(size=(4, 4, 4, 6))
K, J = RNG.integers(-9, 9, (4, 6)), RNG.integers(1, 4, (4, 6)) * RNG.choice([-1, 1], (4, 6))
T, M = np.asarray([0, 5, 2, 3]), X > 0
GIVEN = {"x": X, "r": R, "w": W, "p": P, "q": Q, "img": IMG, "s": S, "i": K, "j": J, "t": T, "m": M}
SORTED = np.sort(X, 1)[:, ::-1]


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def pooled(x: Any) -> Any:
    return x.reshape(4, 4, 2, 2, 3, 2)


def distance(x: Any, y: Any) -> Any:
    return np.sqrt(((x - y + 1e-6) ** 2).sum(-1))


def gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


MEANINGS: dict[str, Any] = {
    # operators are Python's
    "y = i % j": K % J,
    "y = x % w": X % W,
    "y = (i // j) * j + i % j": K,
    "y = (i - 1) % 4": (K - 1) % 4,
    # what a call writes into
    "h = F.relu(x, inplace=True)|y = h + x": 2 * np.maximum(X, 0),
    "h = torch.add(x, r, out=x)|y = h + x": 2 * (X + R),
    "h = x.relu_()|y = h + x": 2 * np.maximum(X, 0),
    "y = F.relu(x, inplace=True) + x": 2 * np.maximum(X, 0),
    "y = x.mul_(2).add_(r) + x.sum()": 2 * X + R + (2 * X + R).sum(),
    "p.add_(t, alpha=-2)|y = p": P - 2 * T,
    "x *= 2|y = x": 2 * X,
    "x = x * 2|y = x": 2 * X,
    "x = x * 2|h = x + 1|x = h * x|y = x": (2 * X + 1) * 2 * X,
    "x[m] = 0.0|y = x": np.where(M, 0, X),
    # one of several results
    "y = torch.topk(x, 3, dim=-1)[0][..., -1, None]": SORTED[:, 2:3],
    "y = x.topk(3).values[:, -1]": SORTED[:, 2],
    "y = torch.topk(x, 2).indices": np.argsort(-X, 1)[:, :2],
    "y = torch.sort(x, dim=1).values": np.sort(X, 1),
    "y = x * torch.sort(x, 1)[0]": X * np.sort(X, 1),
    "y = torch.chunk(x, 2, 1)[1]": X[:, 3:],
    "y = torch.tensor_split(x, 2, 1)[1]": X[:, 3:],
    "y = torch.hsplit(x, 3)[-1]": X[:, 4:],
    "y = x.split([2, 4], -1)[1]": X[:, 2:],
    "y = x.chunk(3, -1)[1] * 2": X[:, 2:4] * 2,
    "y = torch.std_mean(x, dim=-1)[0]": X.std(1, ddof=1),
    "y = torch.std_mean(x, dim=-1)[1]": X.mean(1),
    "y = torch.var_mean(x, dim=-1)[1]": X.mean(1),
    "y = torch.cummax(x, 1)[0]": np.maximum.accumulate(X, 1),
    "y = torch.cummax(x, 1).values": np.maximum.accumulate(X, 1),
    "y = torch.aminmax(x, dim=1)[1]": X.max(1),
    "d, a = torch.std_mean(x, 1)|y = d + a": X.std(1, ddof=1) + X.mean(1),
    "y = x.topk(3).values[:, -1] + 1": SORTED[:, 2] + 1,
    "y = torch.sort(x, 1).values * torch.sort(r, 1)[0]": np.sort(X, 1) * np.sort(R, 1),
    # what Python and PyTorch write around tensors
    "y = x.detach().cpu().numpy()": X,
    "p.data.add_(t, alpha=-2)|y = p": P - 2 * T,
    "p.data = p - 2 * t|y = p": P - 2 * T,
    "y = x.data * 2": 2 * X,
    "torch._foreach_add_(p, t)|y = p": P + T,
    "torch.relu_(x)|y = x": np.maximum(X, 0),
    "u, v = x[:, :H // 2], x[:, H // 2:]|y = u - v": X[:, :3] - X[:, 3:],
    "u, v = x[:, : H // 2], x[:, H // 2 :]|y = u - v": X[:, :3] - X[:, 3:],
    "y = x.reshape(x.shape[:-1] + (-1, 3))": X.reshape(4, 2, 3),
    "y = cast(f32, x)": X,
    # tensors and lists as indices
    "y = x[torch.arange(B), t]": X[np.arange(4), T],
    "y = x[range(B), 5 - t]": X[np.arange(4), 5 - T],
    "y = img[torch.arange(B), t // 2]": IMG[np.arange(4), T // 2],
    "y = x[:, [-1]]": X[:, [-1]],
    "y = x[:, [2]]": X[:, [2]],
    "y = x[:, [0, 2, 3]]": X[:, [0, 2, 3]],
    "u, v = torch.var_mean(x, [1], 0, True)|y = u * v":
        X.var(1, keepdims=True) * X.mean(1, keepdims=True),
    "y = torch.var(x, 1, False, True)": X.var(1, keepdims=True),
    "y = x.std(1, True)": X.std(1, ddof=1),
    "y = torch.einsum('a,ab->', p, q)": (P[:, None] * Q).sum(),
    "y = torch.einsum('bh,oh->bo', x, r)": X @ R.T,
    "y = torch.einsum('bh,bo->bo', x, q)": X.sum(1)[:, None] * Q,
    # by the number of dims
    "y = F.prelu(img, s)": np.where(IMG > 0, IMG, S[:, None, None] * IMG),
    "y = F.prelu(img, s[:1])": np.where(IMG > 0, IMG, S[0] * IMG),
    "y = img.T": IMG.T,
    "y = img.mT": np.swapaxes(IMG, -1, -2),
    "y = np.transpose(img)": IMG.T,
    "y = torch.diag(p)": np.diag(P),
    "y = torch.diag(q)": np.diag(Q),
    "y = torch.diagonal(q)": np.diag(Q),
    "y = torch.trace(q)": np.trace(Q),
    "y = torch.hstack([p, s])": np.hstack([P, S]),
    "y = torch.vstack([p, p])": np.vstack([P, P]),
    "y = torch.column_stack([x, r])": np.column_stack([X, R]),
    "y = torch.column_stack([p, p])": np.column_stack([P, P]),
    "y = torch.roll(x, 1)": np.roll(X, 1),
    "y = torch.roll(x, 1, 0)": np.roll(X, 1, 0),
    "y = np.roll(x, 2, 1)": np.roll(X, 2, 1),
    "y = np.flip(x)": np.flip(X),
    "y = np.cumsum(x)": np.cumsum(X),
    "y = F.pixel_shuffle(img, 2)": IMG.reshape(4, 1, 2, 2, 4, 6).transpose(0, 1, 4, 2, 5, 3)
    .reshape(4, 1, 8, 12),
    "y = F.pixel_unshuffle(img, 2)": pooled(IMG).transpose(0, 1, 3, 5, 2, 4).reshape(4, 16, 2, 3),
    "y = torch.kron(q, q)": np.kron(Q, Q),
    "y = torch.diff(x)": np.diff(X),
    "y = np.trapz(x, dx=0.5)": (X[:, 1:] + X[:, :-1]).sum(1) * 0.25,
    "y = torch.tensordot(x, r.T, dims=1)": X @ R.T,
    "y = torch.linalg.norm(x, dim=-1)": np.linalg.norm(X, axis=-1),
    "y = np.linalg.norm(x)": np.linalg.norm(X),
    # by the value of an argument
    "y = torch.div(i, j, rounding_mode='floor')": K // J,
    "y = torch.div(i, j, rounding_mode='trunc')": np.trunc(K / J),
    "y = torch.div(x, r, rounding_mode='trunc')": np.trunc(X / R),
    "y = F.dropout(x, 0.1, training=False)": X,
    "y = F.adaptive_avg_pool2d(img, 1).flatten(1)": IMG.mean((2, 3)),
    "y = F.max_pool2d(img, 2)": pooled(IMG).max((3, 5)),
    "y = F.avg_pool2d(img, 2, stride=2)": pooled(IMG).mean((3, 5)),
    "y = F.interpolate(img, scale_factor=2)": IMG.repeat(2, 2).repeat(2, 3),
    "y = img.unfold(2, 2, 2)": np.moveaxis(IMG.reshape(4, 4, 2, 2, 6), 3, -1),
    "y = F.triplet_margin_loss(img, 2 * img, img + 1)":
        np.maximum(distance(IMG, 2 * IMG) - distance(IMG, IMG + 1) + 1, 0).mean(),
    "y = F.embedding_bag(j % 4, q)": Q[J % 4].mean(1),
    "y = F.embedding_bag(j % 4, q, mode='sum')": Q[J % 4].sum(1),
    "y = torch.inner(x, w)": X @ W,
    "y = torch.inner(p, p)": P @ P,
    "y = torch.median(x, dim=1)[0]": np.sort(X, 1)[:, 2],
    "y = x.median(-1, keepdim=True).values": np.sort(X, 1)[:, 2:3],
    "y = x.kthvalue(2).values": np.sort(X, 1)[:, 1],
    "y = x.repeat_interleave(2)": X.repeat(2),
    "y = torch.bucketize(x, s.sort()[0])": np.searchsorted(np.sort(S), X),
    "y = torch.searchsorted(s.sort()[0], x, right=True)": np.searchsorted(np.sort(S), X, "right"),
    "y = torch.kron(p, s)": np.kron(P, S),
    "y = F.kl_div(x, r, log_target=True)": (np.exp(R) * (R - X)).mean(),
    "y = F.cross_entropy(x, t, weight=w)":
        (W[T] * (np.log(np.exp(X).sum(1)) - X[np.arange(4), T])).sum() / W[T].sum(),
    "y = torch.hann_window(H) * x": (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(6) / 6)) * X,
    "y = x[m].mean()": X[M].mean(),
    "y = x[m].max()": X[M].max(),
    "y = torch.diag_embed(x)": X[:, :, None] * np.eye(6),
    "y = torch.distributions.Normal(x, w * w).log_prob(r)":
        -0.5 * ((R - X) / W**2) ** 2 - np.log(W**2) - 0.5 * np.log(2 * np.pi),
    "y = torch.distributions.Categorical(logits=x).entropy()":
        -(softmax(X) * np.log(softmax(X))).sum(-1),
    "y = F.max_pool2d(img, (2, 2))": pooled(IMG).max((3, 5)),
    "y = torch.conj(x)": X,
    # JAX's own defaults
    "y = jax.nn.gelu(x)": gelu_tanh(X),
    "y = jax.nn.gelu(x, approximate=False)": 0.5 * X * (1 + erf(X / np.sqrt(2))),
    "y = jax.nn.softmax(x)": softmax(X),
    "y = lax.div(i, j)": np.trunc(K / J),
    "y = lax.rem(i, j)": np.fmod(K, J),
    "y = lax.cumsum(x)": np.cumsum(X, 0),
    "y = lax.round(x * 2)": np.sign(X) * np.floor(np.abs(X * 2) + 0.5),
    # slices with steps of what is a multiple
    "y = x[:, ::2] * x[:, 1::2]": X[:, ::2] * X[:, 1::2],
    "y = x[:, 2::3] - r[:, 1::3]": X[:, 2::3] - R[:, 1::3],
    "y = img[..., 1::2, ::2]": IMG[..., 1::2, ::2],
    "y = torch.stack([x[:, ::2], x[:, 1::2]], -1).flatten(-2)": X,
}  # fmt: skip


def value_of(lines: str) -> Any:
    text = HEAD.replace("{LINES}", "\n".join(f"  - {line}" for line in lines.split("|")))
    for _ in range(MOST_STEPS):
        error = error_of(text)
        if error is None:
            break
        told = next((t for d in error.diagnostics if (t := written(text, d)) is not None), None)
        assert told is not None, error.render()
        text = told
    fusion = read_text(text)
    return evaluate(fusion, GIVEN, fusion.hints)["y"]


@pytest.mark.parametrize("lines", MEANINGS)
def test_a_line_computes_what_it_does_there(lines: str) -> None:
    found = np.asarray(value_of(lines))
    assert found.shape == np.shape(MEANINGS[lines])
    np.testing.assert_allclose(found, MEANINGS[lines], rtol=1e-6, atol=1e-12)


TYPES = {
    "torch.where(m, 1.0, 0.0)": "f32",
    "torch.where(m, 1, 0)": "i64",
    "jax.nn.one_hot(t, 8)": "f32",
    "F.one_hot(t, 8)": "i64",
    "lax.div(i, j)": "i64",
}


@pytest.mark.parametrize("call", TYPES)
def test_the_type_is_that_of_the_framework(call: str) -> None:
    fusion = read_text(HEAD.replace("{LINES}", f"  - y = {call}"))
    assert str(fusion.outputs[0].value.type.dtype) == TYPES[call]


WRONG = {
    "y = x * 1e--5": "write `1e-5`",
    "y = x * 1e\u22125": "its sign is not a hyphen: write `1e-5`",
    "y = x[r]": "declare it as integers, or cast it: write `y = x[cast(r, i64)]`",
    "y = x[B]": "index B is out of bounds for dim 0 of extent B",
    "y = select(x, H, 1)": "index H is out of bounds for dim 1 of extent H",
    "y = x[:, H + 1]": "index H + 1 is out of bounds",
    "y = torch.add(x, r, out=z)": "undefined name `z`",
    "y = torch.cummax(x, 1)[1]": "the indices of `cummax` have no operation",
    "y = F.avg_pool2d(img, 3, 1)": "with `kernel_size=3` and `stride=1` has no equivalent",
    "y = F.interpolate(img, scale_factor=2, mode='bilinear')": "`mode=bilinear` has no equivalent",
    "y = np.linalg.norm(x, 2)": "`ord=2` has no equivalent",
}


@pytest.mark.parametrize("line", WRONG)
def test_what_has_no_equivalent_is_refused(line: str) -> None:
    error = error_of(HEAD.replace("{LINES}", f"  - {line}"))
    assert error is not None
    assert WRONG[line] in error.render()
