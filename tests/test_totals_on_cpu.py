"""Products whose kernel reduces rows and columns of the result, on the host, and wrong ones."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from test_hopper_on_cpu import wrong
from test_persistent_on_cpu import PLAIN, TURNS, plan_of

from fusec.ir.graph import Fusion
from fusec.parse import read_text

COLUMNS, ROWS = 32, 16


def _blocks(value: str, m: int, n: int, block: int, name: str, by: str) -> str:
    """Return lines that reduce rows of [m, n] by `block` columns, or columns by 16 rows if 0."""
    extent, step = (n, block) if block else (m, ROWS)
    count = -(-extent // step)
    more = count * step - extent
    widths = [0, more, 0, 0] if block else [0, 0, 0, more]
    shape = [m, count, step] if block else [count, step, n]
    at = 2 if block else 1
    fill = {"sum": "0.0", "max": "-inf"}[by]
    filled = f"pad({value}, {widths}, {fill})" if more else value
    return f"  - {name} = {by}(reshape({filled}, new_shape={shape}), dims=[{at}])\n"


@cache
def totals(m: int, n: int, k: int, outputs: str, by: str = "sum") -> Fusion:
    """Return a product, what is made of it, and reductions of that: rows `s`, `q`, columns `c`."""
    return read_text(
        f"fusion: product\ninputs:\n  a: bf16[{m}, {k}]\n  b: bf16[{n}, {k}]\n  bias: bf16[{n}]\n"
        f"  r: bf16[{m}, {n}]\nops:\n  - p = linear(a, b, bias)\n  - z = relu(add(p, r))\n"
        "  - y = cast(z, bf16)\n  - f = cast(y, f32)\n  - g = mul(f, f)\n"
        + _blocks("f", m, n, COLUMNS, "s", by)
        + _blocks("g", m, n, COLUMNS, "q", by)
        + _blocks("f", m, n, 0, "c", by)
        + f"outputs: {outputs}\n"
    )


@pytest.mark.parametrize(
    ("fusion", "changes"),
    [
        (totals(136, 72, 136, "[y, s, q, c]"), PLAIN),
        (totals(300, 200, 72, "[y, c]"), {**TURNS, "tile_m": 128, "tile_n": 80}),
        (totals(136, 144, 136, "[s]"), {**PLAIN, "tile_m": 256, "tile_n": 128}),
        (totals(80, 72, 72, "[c, s]", "max"), {**TURNS, "multicast": "a"}),
    ],
)  # fmt: skip
def test_reduced_results(fusion: Fusion, changes: dict[str, object], tmp_path: Path) -> None:
    assert wrong(fusion, plan_of(fusion, **changes), tmp_path) == ""
