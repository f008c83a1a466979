"""Attention as the code of models writes it, of random choices, as the text of fusions.

The choices are those that implementations differ in: how heads of keys are shared, what scales,
how keys are masked, in which type the softmax is, and what is done to its result.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random

BATCH, HEADS, GROUPS, FEATURES = 2, 4, 2, 64

SHARED = {
    "own": ("k", "v"),
    "expand": tuple(
        f"reshape(expand(unsqueeze({x}, 2), [2, 2, 2, {{n}}, 64]), [2, 4, {{n}}, 64])" for x in "kv"
    ),
    "repeat_interleave": tuple(f"repeat_interleave({x}, 2, 1)" for x in "kv"),
    "grouped": tuple(f"unsqueeze({x}, 2)" for x in "kv"),
}
"""Keys and values as the products read them, by how the heads of queries share them."""
SCALED = {
    "none": ("{q}", "{k}", "{s}"),
    "queries": ("({q} * 0.125)", "{k}", "{s}"),
    "keys": ("{q}", "({k} * 0.125)", "{s}"),
    "both": ("({q} * 0.35355339)", "({k} * 0.35355339)", "{s}"),
    "scores": ("{q}", "{k}", "{s} * 0.125"),
    "divided scores": ("{q}", "{k}", "{s} / 8.0"),
}
"""Queries, keys and scores, by what is scaled."""
SEEN = {
    "all": "",
    "causal": "{column} <= {row}",
    "window": "logical_and({column} <= {row}, {row} - {column} < 50)",
    "padding": "keep",
}
"""Which keys are seen."""
MASKED = {
    "where": "where({seen}, {s}, cast(-inf, {t}))",
    "where lowest": "where({seen}, {s}, cast(-3.3895313892515355e+38, {t}))",
    "masked_fill": "masked_fill({s}, logical_not({seen}), -inf)",
    "add": "{s} + cast(where({seen}, 0.0, -inf), {t})",
    "add lowest": "{s} + where({seen}, cast(0.0, {t}), cast(-3.3895313892515355e+38, {t}))",
    "subtract": "{s} - 10000.0 * (1.0 - cast({seen}, {t}))",
}
"""How the others are masked; t: the type of scores."""
BIASED = {
    "none": "{s}",
    "bias": "{s} + cast(bias, {t})",
    "soft cap": "30.0 * tanh({s} / 30.0)",
}
TYPED = {
    "products": ("cast({q}, f32)", "cast({k}, f32)", "{s}", "f32"),
    "scores": ("{q}", "{k}", "cast({s}, f32)", "f32"),
    "softmax": ("{q}", "{k}", "{s}", "bf16"),
    "rounded": ("{q}", "{k}", "{s}", "bf16"),
}
"""Queries, keys, scores and the type of these, by where the wider type begins."""
WRITTEN = {
    "op": ["p = softmax({s}, -1)"],
    "parts": [
        "e = exp({s} - max({s}, [-1], keepdim=true))",
        "p = e / sum(e, [-1], keepdim=true)",
    ],
    "logarithms": ["p = exp(log_softmax({s}, -1))"],
}
DROPPED = {
    "none": "{p}",
    "dropout": "dropped",
}


@dataclass(frozen=True)
class Choices:
    """A value of each table above, and whether batches and heads are one dim of the products."""

    shared: str
    scaled: str
    seen: str
    masked: str
    biased: str
    typed: str
    written: str
    dropped: str
    flat: bool

    def __str__(self) -> str:
        """Return the choices, as the name of a test."""
        return ", ".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))


def draw(rng: Random) -> Choices:
    """Return random choices of all kinds."""
    tables = (SHARED, SCALED, SEEN, MASKED, BIASED, TYPED, WRITTEN, DROPPED)
    names = [rng.choice(list(table)) for table in tables]
    return Choices(*names, flat=names[0] != "grouped" and rng.random() < 0.3)


class _Lines:
    """Op lines under construction."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def let(self, name: str, expression: str) -> str:
        """Append a line unless it would only give another name, and return the name."""
        if expression.isidentifier():
            return expression
        self.lines.append(f"{name} = {expression}")
        return name


def text_of(c: Choices, m: int = 70, n: int = 90) -> str:
    """Return the fusion: queries [2, 4, m, 64], keys and values [2, 4 or 2, n, 64] of bf16."""
    made = _Lines()
    keys, values = (made.let(f"{x}x", e) for x, e in zip("kv", SHARED[c.shared], strict=True))
    grouped = "2, 2, 2" if c.shared == "grouped" else "2, 4"
    queries = "q" if c.shared != "grouped" else made.let("qx", "reshape(q, [2, 2, 2, {m}, 64])")
    wide_q, wide_k, wide_s, dtype = TYPED[c.typed]
    scaled_q, scaled_k, scaled_s = SCALED[c.scaled]
    left = scaled_q.format(q=wide_q.format(q=queries))
    right = scaled_k.format(k=wide_k.format(k=keys))
    product = f"{left} @ transpose({right}, -2, -1)"
    if c.flat:
        queries = made.let("qf", f"reshape({left}, [8, {{m}}, 64])")
        keys = made.let("kf", f"reshape(transpose({right}, -2, -1), [8, 64, {{n}}])")
        product = f"reshape({queries} @ {keys}, [{grouped}, {{m}}, {{n}}])"
    scores = made.let("s0", scaled_s.format(s=wide_s.format(s=f"({product})")))
    scores = made.let("s1", BIASED[c.biased].format(s=scores, t=dtype))
    if c.seen != "all":
        position = {"row": "unsqueeze(iota({m}), 1)", "column": "unsqueeze(iota({n}), 0)"}
        seen = made.let("seen", SEEN[c.seen].format(**position))
        scores = made.let("s2", MASKED[c.masked].format(s=scores, seen=seen, t=dtype))
    if c.typed == "softmax":
        scores = made.let("wide", f"cast({scores}, f32)")
    made.lines += [line.format(s=scores) for line in WRITTEN[c.written]]
    if c.dropped == "dropout":
        made.lines.append("dropped, _ = dropout(p, 0.1)")
    weights = f"cast({DROPPED[c.dropped].format(p='p')}, bf16)"
    if c.flat:
        flat = f"reshape({weights}, [8, {{m}}, {{n}}]) @ reshape({values}, [8, {{n}}, 64])"
        made.let("o", f"reshape({flat}, [2, 4, {{m}}, 64])")
    else:
        made.let("o", f"{weights} @ {values}")
    return _file(c, made.lines, HEADS if c.shared == "own" else GROUPS, m, n)


def _file(c: Choices, lines: list[str], heads: int, m: int, n: int) -> str:
    inputs = [f"q: bf16[2, 4, {m}, 64]"]
    inputs += [f"{x}: bf16[2, {heads}, {n}, 64]" for x in "kv"]
    if c.biased == "bias":
        batch = "2, 2" if c.shared == "grouped" else "4"
        inputs.append(f"bias: bf16[{batch}, {m}, {n}]")
    if c.seen == "padding":
        lead = "2, 1, 1, 1" if c.shared == "grouped" else "2, 1, 1"
        inputs.append(f"keep: bool[{lead}, {n}]")
    body = [line.replace("{m}", str(m)).replace("{n}", str(n)) for line in lines]
    head = "".join(f"  {line}\n" for line in inputs)
    return (
        f"fusion: attention\ninputs:\n{head}ops:\n"
        + "".join(f"  - {line}\n" for line in body)
        + "outputs: [o]\n"
    )


def why_not(c: Choices) -> str:
    """Return a part of the reason why no attention kernel computes it; empty where one does."""
    if c.dropped != "none":
        return "`uniform` (random)"
    if c.written == "logarithms" or (c.typed == "rounded" and c.written == "parts"):
        return "is not a softmax along the keys"
    return ""


def own_kernels(c: Choices) -> int:
    """Return how many operands are rounded after they are scaled, which attention cannot do."""
    exact = c.scaled != "both" or c.typed == "products"
    return 0 if exact else 2
