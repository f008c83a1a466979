"""Every kernel of products and attention: fusions, schedules, inputs and what PyTorch has for them.

Inputs are drawn at random, or such that no result is rounded on the way: then a kernel must agree
with fp64 to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from attentions import CAUSAL, PLAIN, SOFTMAX, attention
from backwards import CAUSAL as CAUSAL_BACKWARD
from backwards import PLAIN as PLAIN_BACKWARD
from backwards import backward
from decodes import DECODES
from gpu_variant import Draw, Drawing, Variant, Wanted

from fusec.ir.annotations import Setting

# Products of -1, 0 and 1, so few that sums are below 256: exact in every type.


def _sparse(drawing: Drawing, *names: str, part: int) -> dict[str, Any]:
    return {name: drawing.sparse(name, part) for name in names}


def linear(m: int, n: int, k: int, dtype: str = "bf16") -> str:
    """Return the text of a product with a bias, a maximum and a residual behind it."""
    return (
        f"fusion: linear\ninputs:\n  a: {dtype}[{m}, {k}]\n  b: {dtype}[{n}, {k}]\n"
        f"  bias: {dtype}[{n}]\n  r: {dtype}[{m}, {n}]\nops:\n"
        "  - y = add(relu(linear(a, b, bias)), r)\noutputs: [y]\n"
    )


def _exact_linear(drawing: Drawing) -> dict[str, Any]:
    small = {name: drawing.integers(name, -4, 4) for name in ("bias", "r")}
    return {**_sparse(drawing, "a", "b", part=4), **small}


def _linear(a: Any, b: Any, bias: Any, r: Any) -> Any:
    return (a @ b.T + bias).relu() + r


def _product(m: int, n: int, k: int, dtype: str = "bf16", **fields: Setting) -> Variant:
    return Variant(linear(m, n, k, dtype), "matmul", fields, _exact_linear, _linear)


def _few_bits(m: int, n: int, k: int, **fields: Setting) -> Variant:
    """Return the same of f32, of whose factors 10 bits count."""
    text = linear(m, n, k, "f32").replace("linear(a, b, bias)", "linear(tf32(a), tf32(b), bias)")
    return Variant(text, "matmul", fields, _exact_linear, _linear)


def _across(m: int, n: int, k: int, **fields: Setting) -> Variant:
    """Return a product of operands that both lie across K."""
    text = (
        f"fusion: product\ninputs:\n  a: bf16[{k}, {m}]\n  b: bf16[{k}, {n}]\nops:\n"
        "  - y = matmul(permute(a, [1, 0]), b)\noutputs: [y]\n"
    )
    return Variant(
        text, "matmul", fields, lambda d: _sparse(d, "a", "b", part=4), lambda a, b: a.T @ b
    )


def _scaled(m: int, n: int, k: int, left: str, right: str, **fields: Setting) -> Variant:
    """Return a product of 8-bit floats whose rows and columns are scaled."""
    text = (
        f"fusion: product\ninputs:\n  a: {left}[{m}, {k}]\n  b: {right}[{n}, {k}]\n"
        f"  s: f32[{m}, 1]\n  t: f32[{n}]\nops:\n"
        "  - p = matmul(cast(a, f32), permute(cast(b, f32), [1, 0]))\n"
        "  - y = cast(mul(mul(p, s), t), bf16)\noutputs: [y]\n"
    )

    def exact(drawing: Drawing) -> dict[str, Any]:
        scales = {name: 2.0 ** drawing.integers(name, -3, 3) for name in ("s", "t")}
        return {**_sparse(drawing, "a", "b", part=4), **scales}

    return Variant(text, "matmul", fields, exact, lambda a, b, s, t: a @ b.T * s * t)


def _weighted(m: int, n: int, k: int, **fields: Setting) -> Variant:
    """Return a product with weights of 8-bit integers and a scale for each column."""
    text = (
        f"fusion: product\ninputs:\n  x: bf16[{m}, {k}]\n  w: i8[{n}, {k}]\n  s: bf16[{n}, 1]\n"
        "ops:\n  - v = mul(cast(w, bf16), s)\n  - y = linear(x, v)\noutputs: [y]\n"
    )

    def exact(drawing: Drawing) -> dict[str, Any]:
        scales = 2.0 ** drawing.integers("s", -3, 3)
        return {"x": drawing.sparse("x", 16), "w": drawing.integers("w", -3, 3), "s": scales}

    return Variant(text, "matmul", fields, exact, lambda x, w, s: x @ (w * s).T)


def _joined(m: int, n: int, k: int, **fields: Setting) -> Variant:
    """Return two products of one operand, whose results are multiplied."""
    text = (
        f"fusion: product\ninputs:\n  x: bf16[{m}, {k}]\n  v: bf16[{n}, {k}]\n"
        f"  w: bf16[{n}, {k}]\nops:\n  - g = linear(x, v)\n  - u = linear(x, w)\n"
        "  - y = mul(relu(g), u)\noutputs: [y]\n"
    )
    return Variant(
        text, "matmul", fields, lambda d: _sparse(d, "x", "v", "w", part=4),
        lambda x, v, w: (x @ v.T).relu() * (x @ w.T),
    )  # fmt: skip


def _normalised(m: int, n: int, k: int, **fields: Setting) -> Variant:
    """Return a product of rows whose statistics are given, computed in its kernel."""
    text = (
        f"fusion: product\ninputs:\n  x: bf16[{m}, {k}]\n  e: f32[{m}, 1]\n  r: f32[{m}, 1]\n"
        f"  g: bf16[{k}]\n  w: bf16[{n}, {k}]\nops:\n"
        "  - a = cast(mul(mul(sub(cast(x, f32), e), r), cast(g, f32)), bf16)\n"
        "  - y = linear(a, w)\noutputs: [y]\n"
    )

    def exact(drawing: Drawing) -> dict[str, Any]:
        scales = {name: 2.0 ** drawing.integers(name, 0, 1) for name in ("r", "g")}
        means = drawing.integers("e", 0, 0)
        return {**_sparse(drawing, "x", "w", part=16), **scales, "e": means}

    return Variant(text, "matmul", fields, exact, lambda x, e, r, g, w: ((x - e) * r * g) @ w.T)


# Queries are a key times 64, so that all other keys have no weight that f32 can tell from zero.


def _pointed(drawing: Drawing, *, shifted: int = 0, copies: int = 1) -> dict[str, Any]:
    """Return queries that point at keys: of query i at most at key i + shifted, if it is given."""
    import torch

    batch, heads, rows, features = drawing.shape("q")
    columns = drawing.shape("k")[2]
    distinct = drawing.codes((batch, heads, columns // copies, features), torch.bfloat16)
    keys = distinct.repeat(1, 1, copies, 1)
    most = (_counted(rows) + shifted).clamp(max=columns) if shifted else columns
    at = drawing.whole((batch, heads, rows), 0, (1 << 30) - 1) % most
    wide = at[..., None].expand(-1, -1, -1, features)
    return {"q": 64 * keys.gather(2, wide), "k": keys, "v": drawing.integers("v", -8, 8)}


def _counted(count: int) -> Any:
    import torch

    return torch.arange(count, device="cuda")


def _weights(scores: Any) -> Any:
    return scores.softmax(-1)


def _seen(scores: Any) -> Any:
    """Return scores without those of keys behind a query."""
    rows, columns = scores.shape[-2:]
    return scores.masked_fill(scores.new_ones(rows, columns).triu(1).bool(), float("-inf"))


def _scores(q: Any, k: Any) -> Any:
    return q @ k.mT * 0.125


def _full(q: Any, k: Any, v: Any) -> Any:
    return _weights(_scores(q, k)) @ v


def _causal(q: Any, k: Any, v: Any) -> Any:
    return _weights(_seen(_scores(q, k))) @ v


def _alibi(q: Any, k: Any, v: Any, slopes: Any) -> Any:
    distance = _counted(k.shape[2]) - _counted(q.shape[2])[:, None]
    return _weights(_seen(_scores(q, k) + slopes * distance)) @ v


ALIBI = (
    "distance = cast(sub({column}, {row}), f32)",
    "s = add(mul({scores}, 0.125), mul(slopes, distance))",
    "seen = where(le({column}, {row}), s, -inf)",
    "  - o = matmul(cast(softmax(seen, -1), bf16), v)",
)


def _exact_alibi(drawing: Drawing) -> dict[str, Any]:
    slopes = 2.0 ** -drawing.integers("slopes", 5, 8)
    return {**_pointed(drawing, shifted=1), "slopes": slopes}


def _random_alibi(drawing: Drawing) -> dict[str, Any]:
    return {"slopes": 2.0 ** -drawing.integers("slopes", 2, 8)}


def _attention(
    *graph: str, m: int, n: int, exact: Draw, wanted: Wanted, scheduler: str = "attention",
    inputs: str = "", random: Draw | None = None, d: int = 128, heads: int = 3, **fields: Setting,
) -> Variant:  # fmt: skip
    text = attention(*graph, m=m, n=n, d=d, heads=heads, batch=2, inputs=inputs)
    return Variant(text, scheduler, fields, exact, wanted, random)


def _backward(*graph: str, wanted: Wanted, shifted: int, **fields: Setting) -> Variant:
    def exact(drawing: Drawing) -> dict[str, Any]:
        given = _pointed(drawing, shifted=shifted, copies=1 if shifted else 2)
        scores = _scores(given["q"].double(), given["k"].double())
        lse = (_seen(scores) if shifted else scores).logsumexp(-1).float()
        delta, g = drawing.integers("delta", -8, 8), drawing.sparse("g", 4)
        return {**given, "g": g, "lse": lse, "delta": delta}

    def random(drawing: Drawing) -> dict[str, Any]:
        return {"lse": 2 + drawing.integers("lse", 0, 8) / 4}

    text = backward(*graph, m=300, n=300, d=128, heads=2)
    return Variant(text, "attention_backward", fields, exact, wanted, random)


def _gradients(shares: Any, g: Any, q: Any, k: Any, v: Any, delta: Any) -> Any:
    shares = (shares * 4).round() / 4  # 1 or 1/2: the sums of exponentials are f32
    pulls = shares * (g @ v.mT - delta[..., None]) * 0.125
    return pulls @ k, pulls.mT @ q, shares.mT @ g


def _full_gradients(g: Any, q: Any, k: Any, v: Any, lse: Any, delta: Any) -> Any:
    return _gradients((_scores(q, k) - lse[..., None]).exp(), g, q, k, v, delta)


def _causal_gradients(g: Any, q: Any, k: Any, v: Any, lse: Any, delta: Any) -> Any:
    return _gradients((_seen(_scores(q, k)) - lse[..., None]).exp(), g, q, k, v, delta)


PAGES, BLOCK, POSITIONS = 40, 16, 144


def _tables(drawing: Drawing) -> dict[str, Any]:
    """Return a page of its own for each part of each sequence, and their lengths."""
    import torch

    order = torch.randperm(PAGES, device="cuda", generator=drawing._generator)
    table = order[:27].reshape(3, 9).int()
    return {"table": table, "lengths": drawing.integers("lengths", 1, POSITIONS)}


def _gathered(pages: Any, table: Any) -> Any:
    return pages[table.long().flatten()].reshape(3, POSITIONS, 2, 64).permute(0, 2, 1, 3)


def _exact_pages(drawing: Drawing) -> dict[str, Any]:
    import torch

    given = _tables(drawing)
    keys = drawing.codes(drawing.shape("k_pages"), torch.bfloat16)
    at = drawing.whole((3, 2, 4), 0, (1 << 30) - 1) % given["lengths"].reshape(3, 1, 1)
    wide = at[..., None].expand(-1, -1, -1, 64)
    q = 64 * _gathered(keys, given["table"]).gather(2, wide)
    return {**given, "q": q, "k_pages": keys, "v_pages": drawing.integers("v_pages", -8, 8)}


def _paged(q: Any, k_pages: Any, v_pages: Any, table: Any, lengths: Any) -> Any:
    k, v = (_gathered(pages, table) for pages in (k_pages, v_pages))
    behind = _counted(POSITIONS) >= lengths
    return _weights(_scores(q, k).masked_fill(behind, float("-inf"))) @ v


_WGMMA: dict[str, Setting] = {"kernel": "wgmma", "tile_m": 128, "tile_n": 128}
_SPLIT: dict[str, Setting] = {"kernel": "split_k", "tile_m": 128, "tile_n": 128, "stages": 4}
_PARTS: dict[str, Setting] = {**_SPLIT, "cluster_k": 2, "splits": 8}
_LARGE = (2300, 2312, 72)
"""Several tiles for each SM, and ragged."""
_LONG = (250, 264, 16392)


VARIANTS: Mapping[str, Variant] = {
    "ping-pong": _product(*_LARGE, **_WGMMA, ping_pong=True, epilogue_smem=False),
    "ping-pong multicast": _product(
        *_LARGE, **_WGMMA, ping_pong=True, cluster_m=2, epilogue_smem=True
    ),
    "cooperative": _product(
        *_LARGE, **{**_WGMMA, "tile_n": 256}, ping_pong=False, epilogue_smem=True
    ),
    "cooperative multicast": _product(
        *_LARGE, **{**_WGMMA, "tile_m": 256}, ping_pong=False, cluster_n=2, epilogue_smem=True
    ),
    "three warpgroups": _product(
        *_LARGE, **{**_WGMMA, "tile_m": 192, "tile_n": 192}, ping_pong=False, cluster_m=2
    ),
    "four CTAs": _product(
        *_LARGE, **_WGMMA, ping_pong=True, cluster_m=2, cluster_n=2, epilogue_smem=True
    ),
    "eight CTAs": _product(
        *_LARGE, **_WGMMA, ping_pong=False, cluster_m=4, cluster_n=2, epilogue_smem=True
    ),
    "swapped tiles": _product(
        *_LARGE, **{**_WGMMA, "tile_m": 104}, ping_pong=True, cluster_m=2, epilogue_smem=False
    ),
    "parts of few tiles": _product(500, 528, 1040, **_WGMMA, ping_pong=False, splits=5),
    "parts of a wave": _product(1500, 1528, 1040, **_WGMMA, ping_pong=True, splits=4),
    "parts of a wave of pairs": _product(
        1500, 3050, 1040, **{**_WGMMA, "tile_n": 240}, ping_pong=False, cluster_m=2, splits=4
    ),
    "tf32": _few_bits(*_LARGE, **_WGMMA, ping_pong=True, cluster_m=2, epilogue_smem=True),
    "tf32 split": _few_bits(*_LONG, **_PARTS),
    "across K": _across(2304, 2312, 136, **_WGMMA, ping_pong=False, cluster_m=2),
    "slices": _product(*_LONG, **_PARTS, split_method="slices"),
    "serial_tma": _product(*_LONG, **_PARTS, split_method="serial_tma"),
    "serial": _product(*_LONG, **_PARTS, split_method="serial"),
    "two_pass": _product(*_LONG, **_PARTS, split_method="two_pass"),
    "pairs and fragments": _product(
        *_LONG, **_SPLIT, splits=16, cluster_m=2, split_method="two_pass"
    ),
    "half partials": _product(*_LONG, **_PARTS, split_method="two_pass", workspace_dtype="half"),
    "parallel": replace(_product(*_LONG, **_PARTS, split_method="parallel"), ordered=False),
    "cluster_k": _product(*_LONG, **_SPLIT, cluster_k=8, splits=1),
    "swap_ab": _product(43, *_LONG[1:], **{**_PARTS, "tile_m": 48}),
    "gemv": _product(5, 520, 4104, kernel="gemv", tile_m=8, tile_n=32, stages=1, splits=3),
    "computed stream": _normalised(5, 520, 4104, kernel="gemv", tile_m=8, tile_n=16, splits=2),
    "computed ring": _normalised(
        27, 264, 8200, **{**_SPLIT, "tile_m": 32, "cluster_k": 2, "splits": 3}
    ),
    "mma": _product(200, 136, 520, kernel="mma"),
    "simt": _product(257, 127, 67, "f32", kernel="simt"),
    "fp8": _scaled(1100, 1160, 656, "f8e4m3", "f8e5m2", **_WGMMA, ping_pong=False, cluster_m=2),
    "fp8 split": _scaled(
        60, 264, 8208, "f8e4m3", "f8e4m3", **{**_PARTS, "tile_m": 64, "splits": 2}
    ),
    "int8": _weighted(60, 264, 8208, **{**_PARTS, "tile_m": 64}),
    "int8 of many rows": _weighted(
        250, 264, 8208, **{**_SPLIT, "tile_m": 256}, splits=16, split_method="slices"
    ),
    "int8 in ranges": _weighted(
        150, 17000, 400, **{**_SPLIT, "tile_m": 160}, splits=2, split_method="stream_k"
    ),
    "joined": _joined(2300, 1160, 72, **_WGMMA, ping_pong=False, epilogue_smem=True, cluster_m=2),
    "joined ping-pong": _joined(
        1100, 1160, 72,
        **{**_WGMMA, "tile_m": 64, "tile_n": 256}, ping_pong=True, epilogue_smem=True,
    ),
    "joined split": _joined(45, 264, 4104, **{**_PARTS, "tile_m": 64}),
    "attention": _attention(
        *PLAIN, m=300, n=360, exact=lambda d: _pointed(d, copies=4), wanted=_full,
        tile_keys=128, stages=2, warpgroups=2, ping_pong=True,
    ),
    "attention causal": _attention(
        *CAUSAL, m=600, n=600, exact=lambda d: _pointed(d, shifted=1), wanted=_causal, heads=40,
    ),
    "attention alibi": _attention(
        *ALIBI, m=600, n=600, exact=_exact_alibi, wanted=_alibi, random=_random_alibi,
        inputs="  slopes: f32[{heads}, 1, 1]\n", warpgroups=3, tile_keys=64,
    ),
    "backward": _backward(*PLAIN_BACKWARD, wanted=_full_gradients, shifted=0),
    "backward causal": _backward(*CAUSAL_BACKWARD, wanted=_causal_gradients, shifted=1),
    "decode": _attention(
        "s = mul({scores}, 0.125)", SOFTMAX, m=2, n=4000, scheduler="attention_decode",
        exact=lambda d: _pointed(d, copies=2), wanted=_full, tile_keys=16, warps=8, stages=2,
        splits=5,
    ),
    "decode paged": Variant(
        DECODES["paged cache"], "attention_decode", {"splits": 3, "tile_keys": 16}, _exact_pages,
        _paged, _tables,
    ),
}  # fmt: skip
"""By the name of the kernel, and of what is particular to it."""
