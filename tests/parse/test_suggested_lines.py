"""Lines that help says to write: each is tried, and none is the line that it is about."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fusec.diagnostics import FusecError
from fusec.parse import read_file, read_text

ROWS = (
    "fusion: f\ndims: {{T: 8, V: 16, E: 5}}\ninputs:\n  x: f32[T, V]\n  i: i64[T]\n  j: i64[T, E]\n"
)
ROWS += "  s: f32[T, V]\nops:\n  - {}\noutputs: {}\n"
TRIED = {
    "an index of rows, in PyTorch's order": (
        "y = -gather(x, 1, i)", "write `y = -gather(x, unsqueeze(i, 1), 1)`"
    ),
    "an index of rows in a call": (
        "y = gather(x, 1, argmax(x, -1))", "write `y = gather(x, unsqueeze(argmax(x, -1), 1), 1)`"
    ),
    "a sum of rows": ("y = scatter_add(x, 0, i, s)", "write `y = index_add(x, i, s, 0)`"),
    "rows written": (
        "y = scatter(x, 0, i, s)", "write `y = scatter(x, expand(i[:, none], [T, V]), s, 0)`"
    ),
    "rows of rows": ("y = x.index_select(0, j)", "write `y = x[j]`"),
}  # fmt: skip


@pytest.mark.parametrize("name", TRIED)
def test_a_suggested_line_is_not_the_line_and_is_valid(name: str) -> None:
    line, told = TRIED[name]
    with pytest.raises(FusecError) as caught:
        read_text(ROWS.format(line, "[y]"))
    assert told in caught.value.render()
    read_text(ROWS.format(re.findall("write `(.*)`", told)[0], "[y]"))


def test_all_undefined_names_are_reported_at_once_and_numbers_with_a_value() -> None:
    text = ROWS.format("h = x * rsqrt(mean(x * x) + eps)\n  - y = h * wieght + lr", "[y, z]")
    with pytest.raises(FusecError) as caught:
        read_text(text)
    names = [d.message.split("`")[1] for d in caught.value.diagnostics]
    assert names == ["eps", "wieght", "lr", "z"]
    assert "`eps: f32 = 1e-5`" in caught.value.render()
    assert "add `- z = ...`" in caught.value.render()


@pytest.mark.parametrize(
    ("dtype", "meant"),
    [("bfp16", "`bf16` or `f16`"), ("flaot32", "`f32`"), ("fp23", "`f32`"), ("i46", "`i64`")],
)
def test_dtypes_that_may_be_meant_are_all_named(dtype: str, meant: str) -> None:
    with pytest.raises(FusecError, match=f"did you mean {meant}"):
        read_text(ROWS.replace("i64[T]", f"{dtype}[T]").format("y = exp(x)", "[y]"))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_text_of_another_encoding_is_recognised(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(ROWS.format("y = exp(x)", "[y]"), encoding=encoding)
    with pytest.raises(FusecError, match=f"is {encoding.upper()} text"):
        read_file(file)


SAID = {
    "y = maximum(x, -Inf)": ["write `inf`"],
    "y = where(x > 0, x, np.NaN)": ["write `nan`"],
    "y = einsum(tv,tv->t, x, s)": ["an equation is quoted"],
    "y = softmax(x, **kw)": ["as `name=value`"],
    "y = x |> relu": ["call it, as in `relu(x)`"],
    "y = F.interpolate(x, bilinear)": ["has no equivalent"],
    "y = x[0, 200]": ["the last one is 15"],
}


@pytest.mark.parametrize("line", SAID)
def test_what_other_languages_write_is_said_once(line: str) -> None:
    with pytest.raises(FusecError) as caught:
        read_text(ROWS.replace("[T, V]", "[T, 16]").format(line, "[y]"))
    helps = [d.render() for d in caught.value.diagnostics]
    assert len(helps) == len(SAID[line])
    assert all(told in help for told, help in zip(SAID[line], helps, strict=True))


def test_a_stack_of_halves_of_a_slice_says_which_dim_is_less() -> None:
    text = "fusion: f\ndims: {D: 40, R: 16}\ninputs: {x: 'f32[4, D]'}\nops:\n  - a = x[:, :R]\n"
    text += "  - y = stack([a[:, 1::2], a[:, ::2]], -1)\noutputs: [y]\n"
    with pytest.raises(FusecError) as caught:
        read_text(text)
    assert "write `D: R + P` with `P: 24` before it" in caught.value.render()


def test_results_are_named_in_their_order() -> None:
    """`mean` is never written where the variance stands."""
    text = (
        "fusion: f\ninputs: {x: 'f32[4, 16]'}\nops:\n  - mean, var, n = var_mean(x, [1])\n"
        "outputs: [mean]\n"
    )
    with pytest.raises(FusecError, match=r"write `var, mean = var_mean\(x, \[1\]\)`"):
        read_text(text)
