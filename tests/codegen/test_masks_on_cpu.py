"""Masks of attention kernels, on the host: positions of every type, and fills far from 0."""

from __future__ import annotations

from pathlib import Path

import pytest
from nightly import mostly_nightly
from segments_on_cpu import kernels_of, planned, wrong
from test_regressions import FOLDER

REGRESSIONS = (
    "attention_backward_of_one_length",
    "attention_backward_window_of_a_cache",
    "attention_decode_padding_of_lowest",
    "attention_lse_of_empty_rows",
    "attention_rows_of_lowest",
    "attention_strided_mask",
    "attention_window_in_unsigned",
)
FORWARD = """fusion: masked
inputs:
  q: {dtype}[1, 2, {m}, 64]
  k: {dtype}[1, 2, {n}, 64]
  v: {dtype}[1, 2, {n}, 64]
{inputs}ops:
  - s = mul(cast(matmul(q, permute(k, [0, 1, 3, 2])), f32), 0.125)
  - i = broadcast(iota({m}, dtype={places}), [true, true, false, true])
  - j = broadcast(iota({n}, dtype={places}), [true, true, true, false])
  - t = where({mask}, s, {fill})
{tail}"""
SOFTMAX = "  - o = matmul(cast(softmax(t, 3), {dtype}), v)\noutputs: [o]\n"
BACKWARD = """  - p = exp(sub(t, broadcast(lse, [false, false, false, true])))
  - dp = cast(matmul(g, permute(v, [0, 1, 3, 2])), f32)
  - ds = cast(mul(mul(p, sub(dp, dl)), 0.125), {dtype})
  - dq = matmul(ds, k)
  - dk = matmul(permute(ds, [0, 1, 3, 2]), q)
  - dv = matmul(permute(cast(p, {dtype}), [0, 1, 3, 2]), g)
outputs: [dq, dk, dv]
"""
GRADIENTS = """  g: {dtype}[1, 2, {m}, 64]
  dl: f32[1, 2, {m}, 1]
  lse: {{type: 'f32[1, 2, {m}]', range: [4, 5]}}
"""


def masked(
    mask: str,
    m: int,
    n: int,
    *,
    places: str = "i64",
    fill: str = "-inf",
    dtype: str = "bf16",
    tail: str = SOFTMAX,
    inputs: str = "",
) -> str:
    """Return the text of an attention whose scores are `fill` where a mask of i and j is false."""
    sizes = {"m": m, "n": n, "dtype": dtype}
    return FORWARD.format(
        **sizes, mask=mask, fill=fill, places=places,
        tail=tail.format(**sizes), inputs=inputs.format(**sizes),
    )  # fmt: skip


def backward(mask: str, m: int, n: int, fill: str = "-inf", inputs: str = "") -> str:
    """Return the same as a backward of the attention."""
    return masked(mask, m, n, fill=fill, tail=BACKWARD, inputs=GRADIENTS + inputs)


@pytest.mark.parametrize("name", mostly_nightly(REGRESSIONS, 4))
def test_an_attention_that_was_wrong(name: str, tmp_path: Path) -> None:
    text = (FOLDER / f"{name}.yaml").read_text()
    assert kernels_of(planned(text))[-1].startswith("attention")
    assert wrong(text, tmp_path) == ""


PLACES = {
    "a difference in u64": ("u64", "lt(sub(i, j), 16)"),
    "a difference in u16": ("u16", "lt(sub(i, j), 16)"),
    "a sum in u8": ("u8", "le(j, add(i, 200))"),
    "numbers in i8": ("i8", "le(j, i)"),
    "numbers in bf16": ("bf16", "le(j, i)"),
    "a sum beyond i32": ("i32", "ge(add(j, 2147483600), i)"),
    "a limit beyond i32": ("i64", "le(j, add(i, 3000000000))"),
    "a cast to u32": ("i64", "lt(cast(sub(i, j), u32), 16)"),
    "a product": ("i64", "le(mul(j, 2), i)"),
    "products beyond i32": ("i64", "le(mul(mul(i, j), mul(i, mul(j, j))), 30000000000)"),
    "shifts": ("i64", "eq(bitwise_right_shift(i, 4), bitwise_right_shift(j, 4))"),
    "a maximum": ("i64", "le(j, maximum(i, 12))"),
    "a remainder": ("i64", "eq(remainder(add(i, j), 3), 0)"),
}
"""Types of positions, and masks of them."""


@pytest.mark.parametrize("name", mostly_nightly(PLACES, 5))
def test_positions(name: str, tmp_path: Path) -> None:
    m, n = ((150, 180), (9, 300))[list(PLACES).index(name) % 2]
    places, mask = PLACES[name]
    text = masked(mask, m, n, places=places)
    assert kernels_of(planned(text)) == ["attention" if m > 16 else "attention_decode"]
    assert wrong(text, tmp_path) == ""


def test_a_number_that_all_share_may_be_far(tmp_path: Path) -> None:
    text = masked("le(j, add(i, n))", 50, 90, inputs="  n: i64 = 5000000000\n")
    assert wrong(text, tmp_path) == ""
    text = masked("le(j, n)", 9, 90, places="i32", inputs="  n: i32 = 2147483647\n")
    assert wrong(text, tmp_path) == ""


@pytest.mark.parametrize(
    ("fill", "mask", "m", "n"),
    mostly_nightly(
        [
            ("-3.4028234e38", "lt(j, 60)", 9, 400),
            ("-3.4028234e38", "ge(j, 150)", 70, 200),
            ("-3.3895314e38", "ge(i, add(j, 3))", 9, 100),
            ("-1e20", "lt(j, 60)", 70, 200),
            ("-1e20", "ge(i, add(j, 3))", 70, 90),
            ("-1e9", "ge(i, add(j, 3))", 70, 90),
            ("-65504", "ge(j, 350)", 9, 400),
        ],
        2,
    ),
)
def test_fills_far_from_zero(fill: str, mask: str, m: int, n: int, tmp_path: Path) -> None:
    """Padding after and before the keys that are seen, and rows that see none."""
    assert wrong(masked(mask, m, n, fill=fill), tmp_path) == ""


@pytest.mark.nightly
def test_a_fill_far_from_zero_in_f16(tmp_path: Path) -> None:
    assert wrong(masked("le(j, add(i, 50))", 7, 200, fill="-1e9", dtype="f16"), tmp_path) == ""
    assert wrong(masked("lt(j, sub(i, 9))", 70, 90, fill="-1e9", dtype="f16"), tmp_path) == ""


@pytest.mark.nightly
def test_scores_that_are_scaled_before_they_are_subtracted_are_seen(tmp_path: Path) -> None:
    def edit(text: str) -> str:
        return text.replace("kFar = 65536.0f", "kFar = INFINITY")

    text = masked("lt(j, 60)", 9, 400, fill="-1e20")
    assert wrong(text, tmp_path, edit=edit) != ""


MAXIMUM = """  - x = max(t, dims=[3], keepdim=true)
  - e = exp(sub(t, x))
  - l = sum(e, dims=[3], keepdim=true)
"""
ROWS = {
    "the logarithm of the sum": (
        "  - o = matmul(cast(div(e, l), bf16), v)\n  - y = add(x, log(l))\n", "o, y",
    ),
    "sums that are not divided": ("  - o = matmul(cast(e, bf16), v)\n", "o, l"),
    "sums that begin at 1": (
        "  - y = add(l, 1.0)\n  - o = matmul(cast(div(e, y), bf16), v)\n", "o",
    ),
    "a safe maximum": (
        "  - z = where(eq(x, -inf), 0.0, x)\n  - w = exp(sub(t, z))\n"
        "  - y = sum(w, dims=[3], keepdim=true)\n  - o = matmul(cast(div(w, y), bf16), v)\n",
        "o, y",
    ),
}  # fmt: skip


@pytest.mark.parametrize("m", mostly_nightly([40, 9], 2))
@pytest.mark.parametrize("name", ROWS)
def test_rows_without_keys(name: str, m: int, tmp_path: Path) -> None:
    """Which are NaN, unless the graph takes 0 off in place of their maximum."""
    lines, outputs = ROWS[name]
    head = MAXIMUM.splitlines(keepends=True)[0] if name == "a safe maximum" else MAXIMUM
    tail = f"{head}{lines}outputs: [{outputs}]\n"
    text = masked("ge(i, add(j, 3))", m, 90, tail=tail)
    assert kernels_of(planned(text)) == ["attention" if m > 16 else "attention_decode"]
    assert wrong(text, tmp_path) == ""


LIMITS = {
    "a window of fewer queries": ("logical_and(le(j, i), lt(sub(i, j), 16))", 100, 160),
    "a window of more queries": ("logical_and(le(j, i), lt(sub(i, j), 16))", 160, 100),
    "queries far behind": ("ge(i, add(j, 30))", 100, 160),
    "every other key": ("le(mul(j, 2), i)", 100, 160),
}
"""Masks of a backward, whose limits may miss the key of a query's own number."""


@pytest.mark.parametrize("name", mostly_nightly(LIMITS, 4))
@pytest.mark.nightly
def test_masks_of_a_backward(name: str, tmp_path: Path) -> None:
    text = backward(*LIMITS[name])
    assert kernels_of(planned(text)) == ["attention_backward"]
    assert wrong(text, tmp_path) == ""


SHARED = {
    "a length": ("lt(j, broadcast(c, [false, true, true, true]))", "i64[1]", "[1, 100]"),
    "a bias": ("lt(add(s, broadcast(c, [false, true, true, true])), 1.0)", "f32[1]", "[0, 1]"),
}


@pytest.mark.parametrize("name", mostly_nightly(SHARED, 2))
@pytest.mark.nightly
def test_a_number_that_all_scores_of_a_backward_read(name: str, tmp_path: Path) -> None:
    mask, kind, limits = SHARED[name]
    given = f"  c: {{{{type: '{kind}', range: {limits}}}}}\n"
    text = backward(mask, 100, 100, inputs=given)
    assert kernels_of(planned(text)) == ["attention_backward"]
    assert wrong(text, tmp_path) == ""


@pytest.mark.parametrize("fill", mostly_nightly(["-3.4028234e38", "-1e9"], 2))
@pytest.mark.nightly
def test_fills_of_a_backward(fill: str, tmp_path: Path) -> None:
    text = backward("lt(j, 60)", 100, 100, fill)
    assert kernels_of(planned(text)) == ["attention_backward"]
    assert wrong(text, tmp_path) == ""
