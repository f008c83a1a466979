"""What errors say to write is right: put in place of the wrong line, it is accepted."""

from __future__ import annotations

import random
import re

import pytest
from followed import error_of, follow
from test_messages import FILE, OPS
from wrong_files import right, wrong, wrong_input

from fusec.ops import TABLE

HEAD = """fusion: f
dims: {B: 8, N: 2, S: 4, H: 32, D: 16, T: 6, V: 12, M: 8, K: 4}
inputs:
  x: f32[B, H]
  w: f32[H]
  c: bool[B, H]
  keep: f32[B, H]
  s: f32[B, S, H]
  v: f32[B]
  h: bf16[B, N, S, D]
  few: bf16[B, 2, S, D]
  many: bf16[B, 4, S, D]
  seen: bool[B, S]
  m: bf16[M, K]
  n: bf16[K, V]
  logits: f32[T, V]
  steps: f32[B, T, V]
  t: i64[T]
  bt: i64[B, T]
  place: f32[64, H]
  wide: f32[B, S, 32]
  table: f32[V, H]
  experts: bf16[T, D, V]
  q: bf16[B, D, S, H]
  kv: bf16[B, K, S, H]
ops:
  - {LINE}
outputs: [y]
"""
LINES = {
    "a weight that is not transposed": "y = linear(m, n)",
    "a weight that is not transposed, with a bias": "y = linear(m, n, cast(zeros([V]), bf16))",
    "keys that are not transposed": "y = softmax((h @ h) * 0.125, dim=-1)",
    "a vector for each matrix": "y = s @ zeros([B, H])",
    "products of two types": "y = m @ cast(n, f32)",
    "a float where a condition is": "y = where((x > 0) & keep, x, 0.0)",
    "a power": "y = x ^ 2",
    "the negative of a bool": "y = where(-c, x, 0.0)",
    "a number for a condition": "y = x.masked_fill(keep, 0.0)",
    "and": "y = where(x > 0 and x < 1, x, 0.0)",
    "or and not": "y = where(not (x > 0) or x > 3, x, 0.0)",
    "not of a tensor": "y = where(not x, x, 0.0)",
    "a choice": "y = x if x > 0 else 0.1 * x",
    "a chain": "y = where(0 <= x < 1, x, 0.0)",
    "a longer chain": "y = where(0 < x <= w < 2, x, 0.0)",
    "a mask of keys": "y = F.scaled_dot_product_attention(h, h, h, attn_mask=seen)",
    "fewer heads of keys": "y = F.scaled_dot_product_attention(many, few, few, is_causal=True)",
    "an index of another rank": "y = log_softmax(logits, 1).gather(1, t)",
    "an index of floats": "y = F.embedding(v, table)",
    "a table before its index": "y = F.embedding(table, t)",
    "classes in the last dim": "y = F.cross_entropy(steps, bt)",
    "tensors in another order of dims": "y = torch.cat([h, h.transpose(1, 2)], dim=2)",
    "another dim": "y = cat([h, many], 0)",
    "tensors of two types": "y = cat([h, cast(h, f32)], 0)",
    "a size that is a number": "y = wide.view(B, S, N, D)",
    "a size that is a name": "y = x.view(B, 2, 16)",
    "a slice": "y = s + place[:S]",
    "a dim at the front": "y = x * v",
    "a dim in the middle": "y = s * seen",
    "dims in another order": "y = s + s.transpose(0, 2).float()",
    "a device": 'y = relu(x.to("cuda"))',
    "a device alone": "y = x.cuda()",
    "a number of a result": "y = x / x.sum()",
    "two results": "y, i = max(x, dim=1)",
    "one name of three": "y = F.batch_norm(s, training=True)",
    "a name of two": "y = topk(x, 2)",
    "a result within": "y = F.dropout(x, 0.1) * 2",
    "a string for a bool": 'y = x - mean(x, [1], keepdim="yes")',
    "keywords first": "y = sum(dims=[1], x)",
    "an argument of PyTorch's": "y = add(x, w, out=x)",
    "dims of a norm": "y = layer_norm(x, [B], w)",
    "a colon": "y: relu(x)",
    "two ops": "h_1 = relu(x); y = h_1 * 2",
    "a copy": "y = x",
    "no dim": "y = softmax(x)",
    "an index": "y = table[t]",
    "an index of a later dim": "y = x[:, t]",
    "an index of several dims": "y = table[bt]",
    "and, as in C": "y = where(x > 0 && x < 1, x, 0.0)",
    "a vector's transpose": "y = x @ w.T",
    "a squeeze": "y = x[:, none].squeeze(0)",
    "a quotient that leaves a remainder": "y = x.view(B, 5, -1)",
    "a quotient of a product of sizes": "y = x.view(-1, 5)",
    "a quotient that is written": "y = reshape(s, [B, S, H // 5, 5])",
    "a quotient within": "y = s.unflatten(1, [-1, 3])",
    "a quotient by a size": "y = x.view(B, -1, T)",
    "groups that do not divide channels": "y = F.group_norm(s, 3)",
    "chunks": "y, z, u = chunk(x, 3, 1)",
    "half of the features": "y = x * cos(cast(arange(0, H, 2), f32))",
    "half of the features and the rest": "y = x[:, :H // 2] * x[:, H // 2:]",
    "a size too many": "y = reshape(s, [B, 8, 64])",
    "a dim that is not permuted": "y = permute(h, [0, 2, 1])",
    "heads of queries that are no multiple by name":
        "y = F.scaled_dot_product_attention(q, kv, kv, is_causal=True)",
    "more than there are": "y, i = topk(logits, 16, -1)",
    "a new dim within": "y = x.expand(B, T, H)",
    "parts that do not add up": "y, z = split(x, [20, 20], 1)",
    "unequal parts that do not add up": "y, z = split(x, [20, 30], 1)",
    "a module": "y = nn.Linear(32, 8)(x)",
    "a module without weights": "y = nn.Softmax(dim=-1)(x)",
    "a table of a module": "y = nn.Embedding(12, 32)(t)",
    "a comprehension": "y = torch.cat([x[:, k * 8:(k + 1) * 8].relu() for k in range(4)], 1)",
    "a mask as an index": "y = x[x > 0].sum()",
    "a mask of rows as an index": "y = s[seen].sum()",
    "elements by a mask": "x[c] = 0.0\n  - y = x * w",
    "elements by a condition": "x[x > 1] *= 2\n  - y = x * w",
    "elements of a slice": "x[:, 2:4] = 0.0\n  - y = x * w",
    "elements of an index": "x[0] = 1.0\n  - y = x * w",
    "the results of a method": "y, i = x.max(1)",
    "weights of groups": "y = grouped_mm(n, experts, cast(t, i32))",
    "a dim that is broadcast at the other end": "y = x * broadcast(v, [true, false])",
}  # fmt: skip
FILES = {
    "an op line that is indented deeper": (
        "fusion: f\ndims: {B: 8}\ninputs:\n  x: f32[B]\nops:\n  - h = relu(x)\n"
        "    - y = h * 2\noutputs: [y]\n"
    ),
    "sizes by each other": (
        "fusion: f\ndims:\n  H: 2 * D\n  D: H // 2\ninputs:\n  x: f32[H]\nops:\n"
        "  - y = relu(x)\noutputs: [y]\n"
    ),
    "an unknown size": (
        "fusion: f\ndims: {B: -1}\ninputs:\n  x: f32[B]\nops:\n  - y = relu(x)\noutputs: [y]\n"
    ),
    "heads of keys that are repeated": (
        "fusion: f\ndims: {B: 2, NH: 8, KV: 4, S: 16, D: 8}\ninputs:\n  q: bf16[B, NH, S, D]\n"
        "  k: bf16[B, KV, S, D]\nops:\n  - kr = repeat_interleave(k, NH // KV, 1)\n"
        "  - y = torch.matmul(q, kr.transpose(2, 3))\noutputs: [y]\n"
    ),
    "a size that is written as a quotient": (
        "fusion: f\ndims: {N: 30, M: N // 8}\ninputs:\n  x: f32[N]\nops:\n"
        "  - y = x.view(8, M)\noutputs: [y]\n"
    ),
    "three sizes by each other": (
        "fusion: f\ndims:\n  A: C + 1\n  B: A * 2\n  C: B\ninputs:\n  x: f32[A]\nops:\n"
        "  - y = relu(x)\noutputs: [y]\n"
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_lines_to_write_are_accepted(name: str) -> None:
    """Some are taken as they are written; none is left without a line to write."""
    said = follow(HEAD.replace("{LINE}", LINES[name]))
    assert said.accepted, (said.steps, said.stuck)


WRITTEN = {
    "a weight that is not transposed": "y = m @ n",
    "a weight that is not transposed, with a bias": "y = m @ n + cast(zeros([V]), bf16)",
    "keys that are not transposed": "y = softmax(h @ transpose(h, -2, -1) * 0.125, dim=-1)",
    "a vector for each matrix": "y = s @ unsqueeze(zeros([B, H]), -1)",
    "a float where a condition is": "y = where((x > 0) & (keep != 0), x, 0.0)",
    "a mask of keys": "y = scaled_dot_product_attention(h, h, h, seen[:, none, none, :])",
    "fewer heads of keys":
        "y = scaled_dot_product_attention(many, few, few, is_causal=true, enable_gqa=true)",
    "classes in the last dim": "y = cross_entropy(movedim(steps, -1, 1), bt)",
    "tensors in another order of dims":
        "y = cat([h, permute(transpose(h, 1, 2), [0, 2, 1, 3])], 2)",
    "a size that is a number": "wide: f32[B, S, N * D]",
    "a slice": "place: f32[S, H]",
    "a dim at the front": "y = x * unsqueeze(v, -1)",
    "no dim": "y = softmax(x, dim=-1)",
    "and, as in C": "y = where((x > 0) & (x < 1), x, 0.0)",
    "a longer chain": "y = where((0 < x) & ((x <= w) & (w < 2)), x, 0.0)",
    "or and not": "y = where(~(x > 0) | (x > 3), x, 0.0)",
    "a quotient that leaves a remainder": "H: {default: 35, multiple_of: 5}",
    "groups that do not divide channels": "S: {default: 6, multiple_of: 3}",
    "a size too many": "y = reshape(s, [B, 8, -1])",
    "a module": "y = linear(x, keep, v)",
    "a table of a module": "y = embedding_fwd(t, table)",
    "elements by a mask": "x_2 = where(c, 0.0, x)",
    "elements of a slice":
        "x_2 = update_slice(x, full([B, 2], 0.0, dtype=f32), [0, 2])",
    "a comprehension":
        "y = cat([relu(x[:, 0:8]), relu(x[:, 8:16]), relu(x[:, 16:24]), relu(x[:, 24:32])], 1)",
    "more than there are": "y, i = topk(logits, V, -1)",
    "parts that do not add up": "y, z = chunk(x, 2, 1)",
    "heads of queries that are no multiple by name":
        "y = scaled_dot_product_attention(q, kv, kv, is_causal=true, enable_gqa=true)",
}  # fmt: skip
"""What some of them are to be: other lines are accepted, too, and mean something else."""


@pytest.mark.parametrize("name", WRITTEN)
def test_lines_to_write_are_what_is_meant(name: str) -> None:
    said = follow(HEAD.replace("{LINE}", LINES[name]))
    assert re.search(f"(write|declare) `{re.escape(WRITTEN[name])}`", said.steps[0])


@pytest.mark.parametrize("name", FILES)
def test_files_to_write_are_accepted(name: str) -> None:
    assert error_of(FILES[name]) is not None
    said = follow(FILES[name])
    assert said.accepted, (said.steps, said.stuck)


@pytest.mark.parametrize("line", OPS)
def test_wrong_lines_of_other_tests(line: str) -> None:
    said = follow(FILE.replace("y = x * w", line))
    assert not said.stuck, (said.steps, said.stuck)


def check_wrong_files(seed: int, count: int) -> int:
    """Return how many of `count` wrong files are accepted once the help of errors is followed."""
    rng, accepted = random.Random(seed), 0
    for _ in range(count):
        example = wrong(rng, rng.choice(right()))
        if example is None:
            continue
        said = follow(example.text)
        assert not said.stuck, f"{example.text}\n{said.steps}\n{said.stuck}"
        accepted += said.accepted and bool(said.steps)
    return accepted


def test_followed_help_of_random_mistakes() -> None:
    assert check_wrong_files(38, 250) > 30


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(5))
def test_followed_help_of_many_random_mistakes(seed: int) -> None:
    assert check_wrong_files(seed, 4000) > 500


_DESCRIBED = re.compile(r"(\S+) is \w+\[")


def test_errors_of_composites_name_what_is_in_the_file() -> None:
    """Composites call other operations, whose values have names that no reader has seen."""
    rng, seen = random.Random(3), 0
    composites = [e for e in right() if TABLE[e.function].family == "composite"]
    composites = [e for e in composites if not e.before and "(" not in "".join(e.arguments)]
    for example in [e for e in composites for _ in range(5)]:
        changed = wrong_input(rng, example)
        error = None if changed is None else error_of(changed.text)
        known = {line.partition(":")[0] for line in example.inputs}
        for diagnostic in error.diagnostics if error is not None else ():
            named = [n for note in diagnostic.notes for n in _DESCRIBED.findall(note)]
            assert known.issuperset(named), f"{example.text}\n{diagnostic.render()}"
            assert f"`{example.function}`" in diagnostic.message, diagnostic.render()
            seen += bool(named)
    assert seen > 50
