"""Products of halves and of weights of 8 and 4 bits, in the forms in which checkpoints hold them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from fusec.ir.graph import Fusion
from fusec.parse import read_text


@dataclass(frozen=True)
class Form:
    """How weights lie in memory, and what is done to them.

    along: `k` for [N, K], `n` for [K, N], in memory; packed: the axis along which a byte holds two
    weights, or none; group: elements of K with a scale (and a zero point) of their own, 0 for all;
    zeros: `bytes`, `halves`, `packed` along groups or, where there is one, along columns, or none; half: the type of x.
    """

    along: str = "k"
    packed: str = ""
    group: int = 0
    zeros: str = ""
    half: str = "bf16"


def _unpacked(name: str, dim: int, shape: str) -> str:
    """Return the lines that make 4-bit integers `name`_q of the bytes `name`, two along a dim."""
    return (
        f"  - {name}_low = broadcast(bitwise_and({name}, 15), {_mask(dim)})\n"
        f"  - {name}_high = broadcast(bitwise_right_shift({name}, 4), {_mask(dim)})\n"
        f"  - {name}_q = reshape(cast(cat([{name}_low, {name}_high], dim={dim + 1}), i32), {shape})\n"
    )


def _mask(dim: int) -> str:
    return "[" + ", ".join("true" if k == dim + 1 else "false" for k in range(3)) + "]"


@cache
def weights_of(form: Form, m: int, n: int, k: int) -> Fusion:
    """Return the product y = x @ w, of w = (q - z) * s, rounded to halves at each step."""
    along_k, half = form.along == "k", form.half
    parts = k // form.group if form.group else 1
    extents = [n, k] if along_k else [k, n]
    whole, at = list(extents), extents.index(k) if n != k else int(along_k)
    if form.packed:
        halved = at if form.packed == "k" else 1 - at
        whole[halved] //= 2
    kind = "u8" if form.packed or form.zeros else "i8"
    low = 0 if kind == "u8" else -127
    inputs = (
        f"  x: {half}[{m}, {k}]\n  w:\n    type: {kind}{whole}\n    range: [{low}, {low + 254}]\n"
    )
    ops = ""
    if form.packed:
        ops += _unpacked("w", halved, str(extents))
    else:
        ops += "  - w_q = cast(w, i32)\n" if form.zeros else ""
    grouped = [n, parts, k // parts] if along_k else [parts, k // parts, n]
    vectors = [n, parts] if along_k else [parts, n]
    spread = "[false, false, true]" if along_k else "[false, true, false]"
    codes = "w_q" if form.packed or form.zeros else "w"
    ops += f"  - g = reshape({codes}, {grouped})\n"
    if form.zeros == "halves":
        inputs += f"  z:\n    type: {half}{vectors}\n    range: [100, 140]\n"
        if form.packed:
            inputs = inputs.replace("[100, 140]", "[6, 9]")
        ops += f"  - c = sub(cast(g, {half}), broadcast(z, {spread}))\n"
    elif form.zeros == "bytes":
        inputs += f"  z:\n    type: u8{vectors}\n    range: [0, 255]\n"
        ops += f"  - c = cast(sub(g, broadcast(cast(z, i32), {spread})), {half})\n"
    elif form.zeros == "packed":
        inner, halved = list(vectors), vectors.index(n) if parts == 1 else vectors.index(parts)
        inner[halved] //= 2
        inputs += f"  z: u8{inner}\n"
        ops += _unpacked("z", halved, str(vectors))
        ops += f"  - c = cast(sub(g, broadcast(z_q, {spread})), {half})\n"
    elif form.packed:
        ops += f"  - c = cast(sub(g, 8), {half})\n"
    else:
        ops += f"  - c = cast(g, {half})\n"
    inputs += f"  s: {half}{vectors}\n"
    ops += f"  - v = reshape(mul(c, broadcast(s, {spread})), {extents})\n"
    ops += "  - y = linear(x, v)\n" if along_k else "  - y = matmul(x, v)\n"
    return read_text(f"fusion: product\ninputs:\n{inputs}ops:\n{ops}outputs: [y]\n")
