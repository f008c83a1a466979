"""Fusions and inputs whose right results are hard to tell from wrong ones, at random.

Most elements of theirs contribute nothing (masked scores, weights that underflow, rows without
keys), or all share the roundings of a large mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fusec.ir.graph import Fusion
from fusec.parse.reader import read_text
from fusec.run.inputs import choose_sizes, random_inputs

LOWEST = np.finfo(np.float32).min
MASKS = ("iota", "bool", "added -inf", "added lowest", "iota lowest", "padding")


@dataclass(frozen=True)
class Case:
    """A fusion with inputs of its own kind."""

    name: str
    text: str
    given: dict[str, Any]

    @property
    def fusion(self) -> Fusion:
        """The fusion."""
        return read_text(self.text, "hard.yaml")

    def inputs(self, fusion: Fusion) -> dict[str, Any]:
        """Return all inputs: random ones where the case has none."""
        drawn = random_inputs(fusion, choose_sizes(fusion), len(self.text))
        return {n: np.asarray(a) for n, a in drawn.items()} | self.given


def text_of(inputs: str, lines: list[str], outputs: str = "[y]") -> str:
    """Return the text of a fusion."""
    ops = "".join(f"  - {line}\n" for line in lines)
    return f"fusion: hard\ninputs:\n{inputs}ops:\n{ops}outputs: {outputs}\n"


def attention(
    rng: np.random.Generator, mask: str, *, dtype: str = "bf16", rows: int = 64, keys: int = 96,
    features: int = 32, lse: bool = False,
) -> Case:  # fmt: skip
    """Return attention with rows that see no key, or few."""
    empty = int(rng.integers(1, rows // 2)) if rows > 1 else int(mask == "added lowest")
    shape = f"[1, 2, {rows}, {keys}]"
    sees = f"ge(i, add(j, {empty}))" if rows > 1 else f"lt(j, {keys // 3})"
    fill, entry, given = "-inf", "", np.zeros(())
    if mask == "bool":
        given = rng.random((rows, keys)) < 0.5
        given[:empty] = False
        entry, sees = f"  m: bool[{rows}, {keys}]\n", f"broadcast_in_dim(m, {shape}, [2, 3])"
    elif mask.startswith("added"):
        low = -np.inf if mask == "added -inf" else LOWEST
        given = np.where(rng.random((rows, keys)) < 0.5, 0.0, low).astype(np.float32)
        given[:empty] = low
        entry = f"  m: f32[{rows}, {keys}]\n"
    elif mask == "padding":
        sees = f"lt(j, {keys // 3})"
    elif mask == "iota lowest":
        fill = f"{LOWEST:.9g}"
    scores = f"t = where({sees}, s, {fill})"
    if mask.startswith("added"):
        scores = f"t = add(s, broadcast_in_dim(m, {shape}, [2, 3]))"
    lines = [
        "s = mul(cast(matmul(q, permute(k, [0, 1, 3, 2])), f32), 0.18)",
        f"i = broadcast(iota({rows}), [true, true, false, true])",
        f"j = broadcast(iota({keys}), [true, true, true, false])",
        scores,
        "x = max(t, dims=[3], keepdim=true)",
        "e = exp(sub(t, x))",
        "l = sum(e, dims=[3], keepdim=true)",
        f"y = matmul(cast(div(e, l), {dtype}), v)",
        "lse = add(x, log(l))",
    ]
    sides = "".join(
        f"  {name}: {dtype}[1, 2, {count}, {features}]\n"
        for name, count in (("q", rows), ("k", keys), ("v", keys))
    )
    name = f"{dtype} attention, {mask}, {empty} rows of {rows} without keys"
    outputs = "[y, lse]" if lse else "[y]"
    return Case(name, text_of(sides + entry, lines, outputs), {"m": given} if entry else {})


def projected(
    rng: np.random.Generator, *, guarded: bool = True, keys: int = 0, scale: float = 0.4
) -> Case:
    """Return attention over few keys whose queries, keys and bias are rounded products.

    Some scores may be rounded the other way and are then off by tenths; some rows see no key.
    """
    keys, features = keys or int(rng.integers(3, 17)), 64
    rows, sides = f"[6, 2, {keys}, {keys}]", dict[str, str]()
    for name in "qkv":
        sides[name] = f"reshape(linear(x, w{name}), [6, {keys}, 2, {features}])"
    lines = [f"{n} = permute({text}, [0, 2, 1, 3])" for n, text in sides.items()]
    lines += [
        f"s = mul(cast(matmul(q, permute(k, [0, 1, 3, 2])), f32), {scale})",
        f"b = permute(reshape(linear(x, wb), [6, {keys}, 2, 1]), [0, 2, 3, 1])",
        f"t = add(where(broadcast_in_dim(m, {rows}, [0, 3]), s, -inf), b)",
        "h = max(t, dims=[3], keepdim=true)",
        "g = where(eq(h, -inf), 0.0, h)" if guarded else "g = mul(h, 1.0)",
        "e = exp(sub(t, g))",
        "l = sum(e, dims=[3], keepdim=true)",
        "d = where(eq(h, -inf), 1.0, l)" if guarded else "d = mul(l, 1.0)",
        "y = matmul(cast(div(e, d), bf16), v)",
        "lse = add(g, log(l))",
    ]
    entry = f"  x: bf16[6, {keys}, 128]\n  m: bool[6, {keys}]\n  wb: bf16[2, 128]\n"
    entry += "".join(f"  w{n}: bf16[{2 * features}, 128]\n" for n in "qkv")
    given = rng.random((6, keys)) < 0.6
    given[0], given[1] = False, True
    name = f"projected attention over {keys} keys, {'guarded' if guarded else 'plain'}"
    return Case(name, text_of(entry, lines, "[y, lse]"), {"m": given})


def steep(rng: np.random.Generator) -> Case:
    """Return a function of softmax for logits whose weights nearly all underflow."""
    deviation, rows = float(10 ** rng.uniform(1.5, 3.5)), int(rng.integers(2, 9))
    columns, dtype = int(rng.integers(33, 5000)), str(rng.choice(["f32", "bf16"]))
    wide = "x" if dtype == "f32" else "cast(x, f32)"
    lines = [f"c = add({wide}, 0.0)", "m = max(c, dims=[1], keepdim=true)", "d = sub(c, m)"]
    lines += ["e = exp(d)", "l = sum(e, dims=[1], keepdim=true)"]
    kind = str(rng.choice(["softmax", "log softmax", "lse", "cross entropy"]))
    entry, given = f"  x: {dtype}[{rows}, {columns}]\n", dict[str, Any]()
    if kind == "cross entropy":
        entry += f"  t: i64[{rows}]\n"
        given["t"] = rng.integers(0, columns, rows)
        lines = [f"y = cross_entropy({wide}, t)"]
    else:
        results = {"softmax": "div(e, l)", "log softmax": "sub(d, log(l))", "lse": "add(m, log(l))"}
        lines.append(f"y = {results[kind]}")
    logits = rng.normal(0, deviation, (rows, columns))
    fusion = Case(f"{kind} of {dtype}, deviation {deviation:.3g}", text_of(entry, lines), given)
    kinds = {i.value.name: i.value.dtype.numpy for i in fusion.fusion.inputs}
    given["x"] = logits.astype(kinds["x"])
    return fusion


def norm(rng: np.random.Generator) -> Case:
    """Return a norm or a variance of values far from 0."""
    mean, rows = float(10 ** rng.uniform(3, 5)), int(rng.integers(2, 12))
    columns = int(rng.choice([384, 768, 1000, 2048, 4096]))
    lines = {
        "layer norm": [
            "v, m = var_mean(x, dims=[1], correction=0, keepdim=true)",
            "y = mul(sub(x, m), rsqrt(add(v, 1e-5)))",
        ],
        "layer norm by hand": [
            "m = mean(x, dims=[1], keepdim=true)",
            "d = sub(x, m)",
            "y = div(d, sqrt(add(mean(mul(d, d), dims=[1], keepdim=true), 1e-5)))",
        ],
        "variance": ["y = var(x, dims=[1], correction=1)"],
        "deviation": ["y = sqrt(var(x, dims=[1], correction=1))"],
        "root mean square": ["y = mul(x, rsqrt(mean(mul(x, x), dims=[1], keepdim=true)))"],
    }
    kind = str(rng.choice(list(lines)))
    x = rng.normal(mean, 1, (rows, columns)).astype(np.float32)
    name = f"{kind}, mean {mean:.3g}, {rows} x {columns}"
    return Case(name, text_of(f"  x: f32[{rows}, {columns}]\n", lines[kind]), {"x": x})


def logsumexp(rng: np.random.Generator) -> Case:
    """Return sums of exponentials of which some rows are all minus infinity."""
    rows, columns = int(rng.integers(8, 64)), int(rng.integers(10, 700))
    x = rng.normal(0, 3, (rows, columns)).astype(np.float32)
    x[: rows // 3] = -np.inf
    x[-1, columns // 2 :] = -np.inf
    lines = {
        "plain": ["y = log(sum(exp(x), dims=[1]))"],
        "shifted": [
            "m = max(x, dims=[1], keepdim=true)",
            "g = where(eq(m, -inf), 0.0, m)",
            "y = add(g, log(sum(exp(sub(x, g)), dims=[1], keepdim=true)))",
        ],
        "scaled": ["y = log(sum(exp(mul(x, 1.7)), dims=[1]))"],
    }
    kind = str(rng.choice(list(lines)))
    name = f"{kind} log-sum-exp, {rows // 3} rows of {rows} empty"
    return Case(name, text_of(f"  x: f32[{rows}, {columns}]\n", lines[kind]), {"x": x})


def masked(rng: np.random.Generator) -> Case:
    """Return attention with a mask of any kind."""
    dtype = str(rng.choice(["bf16", "f16", "f32"]))
    lse = bool(rng.random() < 0.5)
    return attention(rng, str(rng.choice(MASKS)), dtype=dtype, lse=lse)


KINDS: dict[str, Callable[[np.random.Generator], Case]] = {
    "attention": masked,
    "projected": projected,
    "steep": steep,
    "norm": norm,
    "logsumexp": logsumexp,
}
