"""Products of halves and of weights of 8 and 4 bits, in the forms that checkpoints have."""

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
    zeros: `bytes`, `halves`, `packed` along groups (where there is one, along columns), or none;
    half: the type of x.
    """

    along: str = "k"
    packed: str = ""
    group: int = 0
    zeros: str = ""
    half: str = "bf16"


def _spread(dim: int) -> str:
    return "[" + ", ".join("true" if k == dim else "false" for k in range(3)) + "]"


def _unpacked(name: str, dim: int, shape: list[int]) -> str:
    """Return the lines that make integers `name`_q of bytes, each of two along a dim."""
    new = _spread(dim + 1)
    return (
        f"  - {name}_low = broadcast(bitwise_and({name}, 15), {new})\n"
        f"  - {name}_high = broadcast(bitwise_right_shift({name}, 4), {new})\n"
        f"  - {name}_both = cast(cat([{name}_low, {name}_high], dim={dim + 1}), i32)\n"
        f"  - {name}_q = reshape({name}_both, {shape})\n"
    )


def _halved(shape: list[int], dim: int) -> list[int]:
    return [e // 2 if k == dim else e for k, e in enumerate(shape)]


def _zeros(form: Form, shape: list[int], parts_at: int) -> tuple[str, str, str]:
    """Return the input of zero points, the lines before, and what is taken off `g`, if anything."""
    if form.zeros == "halves":
        low, high = (6, 9) if form.packed else (100, 140)
        return f"  z:\n    type: {form.half}{shape}\n    range: [{low}, {high}]\n", "", "z"
    if form.zeros == "bytes":
        return f"  z:\n    type: u8{shape}\n    range: [0, 255]\n", "", "cast(z, i32)"
    if form.zeros == "packed":
        dim = parts_at if shape[parts_at] > 1 else 1 - parts_at
        return f"  z: u8{_halved(shape, dim)}\n", _unpacked("z", dim, shape), "z_q"
    return "", "", "8" if form.packed else ""


@cache
def weights_of(form: Form, m: int, n: int, k: int) -> Fusion:
    """Return the product y = x @ w, of w = (q - z) * s, rounded to halves at each step."""
    return read_text(text_of(form, m, n, k))


def text_of(form: Form, m: int, n: int, k: int) -> str:
    """Return the text of such a product."""
    along_k, half = form.along == "k", form.half
    parts = k // form.group if form.group else 1
    extents, vectors = ([n, k], [n, parts]) if along_k else ([k, n], [parts, n])
    grouped = [n, parts, k // parts] if along_k else [parts, k // parts, n]
    spread = _spread(2 if along_k else 1)
    unsigned = bool(form.packed or form.zeros)
    kind, low = ("u8", 0) if unsigned else ("i8", -127)
    ops, codes, whole = "", "w", extents
    if form.packed:
        dim = int((form.packed == "k") == along_k)
        whole, codes = _halved(extents, dim), "w_q"
        ops += _unpacked("w", dim, extents)
    elif form.zeros:
        codes = "cast(w, i32)"
    zeros, lines, less = _zeros(form, vectors, int(along_k))
    ops += f"{lines}  - g = reshape({codes}, {grouped})\n"
    if form.zeros == "halves":
        ops += f"  - c = sub(cast(g, {half}), broadcast(z, {spread}))\n"
    elif form.zeros:
        ops += f"  - c = cast(sub(g, broadcast({less}, {spread})), {half})\n"
    else:
        ops += f"  - c = cast({f'sub(g, {less})' if less else 'g'}, {half})\n"
    ops += f"  - v = reshape(mul(c, broadcast(s, {spread})), {extents})\n"
    ops += "  - y = linear(x, v)\n" if along_k else "  - y = matmul(x, v)\n"
    return (
        f"fusion: product\ninputs:\n  x: {half}[{m}, {k}]\n  w:\n    type: {kind}{whole}\n"
        f"    range: [{low}, {low + 254}]\n{zeros}  s: {half}{vectors}\nops:\n{ops}outputs: [y]\n"
    )
