"""Operators in op lines, dims as numbers, and quotients that facts make exact."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from draws import drawn
from hypothesis import given
from hypothesis import strategies as st

from fusec import FusionDefinition
from fusec.diagnostics import FusecError
from fusec.ir.dim import Dim, ceildiv, dim, mod, symbol
from fusec.ir.divisibility import with_exact_quotients
from fusec.ir.graph import Fusion
from fusec.ir.text import to_text
from fusec.parse import read_text
from fusec.reference.evaluate import evaluate

HEAD = """fusion: f
dims: {B: 4, H: {default: 6, multiple_of: 2}, W: 3, K: 2}
inputs: {x: 'f64[B, H]', w: 'f64[H]', u: 'i64[B, H]', p: 'f64[B, 2 * K]', s: f64 = 0.5}
ops:
"""
X = np.random.default_rng(3).uniform(0.5, 2.0, (4, 6))
GIVEN: dict[str, Any] = {
    "x": X, "w": X[0] + 1, "u": np.arange(24).reshape(4, 6) - 7, "p": X[:, :4], "s": 0.5,
}  # fmt: skip
NAMES: dict[str, Any] = {**GIVEN, "B": 4, "H": 6, "W": 3, "K": 2}

FLOATS = {name: np.asarray(value, float) for name, value in NAMES.items()}


def fusion_of(*lines: str, outputs: str = "y") -> Fusion:
    return read_text(HEAD + "".join(f"  - {line}\n" for line in lines) + f"outputs: [{outputs}]\n")


def result(*lines: str, outputs: str = "y") -> Any:
    fusion = fusion_of(*lines, outputs=outputs)
    assert read_text(to_text(fusion)) == fusion
    return evaluate(fusion, GIVEN, fusion.hints)["y"]


LEAVES = st.sampled_from(["x", "w", "s", "B", "H", "W", "K", "2", "0.25", "(x > w)", "1.5e0"])
SIGNS = ("+", "-", "*", "/", "**")


def _compound(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(parts, st.sampled_from(SIGNS), parts).map(" ".join),
        parts.map(lambda t: f"({t})"),
        parts.map(lambda t: f"-{t}"),
    )


@drawn(60)
@given(st.recursive(LEAVES, _compound, max_leaves=6))
def test_expressions_mean_what_they_mean_in_python(text: str) -> None:
    with np.errstate(all="ignore"):
        try:
            python = eval(f"x * 0 + ({text})", {}, FLOATS)
        except (TypeError, ZeroDivisionError, OverflowError):
            return  # arithmetic on bools, which NumPy refuses too
    try:
        found = result(f"y = x * 0 + ({text})")
    except FusecError as error:
        if not any(word in str(error) for word in ("bool", "zero", "fit")):
            raise
        return
    # Powers of integers are integers, as in PyTorch; NumPy's here are floats.
    if "**" not in text:
        np.testing.assert_allclose(found, python, rtol=1e-9)


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("-x ** 2", -(X**2)),
        ("2 ** -1 * x", 0.5 * X),
        ("x - w - 1", X - GIVEN["w"] - 1),
        ("x * (w + 1) / H", X * (GIVEN["w"] + 1) / 6),
        ("x @ w", X @ GIVEN["w"]),
        ("x + w * s + 1.0", X + GIVEN["w"] * 0.5 + 1),
        ("cast(~(x < w) & (u != 0) | (u >= 2 + 3), f64)",
         (~(GIVEN["w"] > X) & (GIVEN["u"] != 0) | (GIVEN["u"] >= 5)).astype(float)),
        ("u / 2", GIVEN["u"] / 2),
        ("u << 1", GIVEN["u"] << 1),
        ("relu(x - 1) * cast(u % 2 == 0, f64)", np.maximum(X - 1, 0) * (GIVEN["u"] % 2 == 0)),
        ("x * (1 / H)", X / 6),
        ("x * H ** -0.5", X * 6**-0.5),
        ("x + min(B, 3) * ceildiv(H, 4)", X + 6),
        ("x + W", X + 3),
        ("x + (W + K) * s", X + 2.5),
    ],
)  # fmt: skip
def test_operators(text: str, python: Any) -> None:
    np.testing.assert_allclose(result(f"y = {text}"), python, rtol=1e-7)


SUBSCRIPTS = (
    "x[0]", "x[-1, 2:]", "x[:, 1:4]", "x[..., None]", "x[None, :, 0]", "x[1:, ::2]", "x[:]",
    "x[..., -2]", "x[:, :H // 2] * x[:, H // 2:]", "x[1:3][0]", "(x + 1)[:, -3:]", "x[B - 1, 2]",
    "-x[0] ** 2", "x[:, W:W + 2]",
)  # fmt: skip


@pytest.mark.parametrize("text", SUBSCRIPTS)
def test_subscripts_are_those_of_python(text: str) -> None:
    python = eval(text, {}, {**NAMES, "x": X})
    found = result("y = " + text.replace("None", "none"))
    assert found.shape == python.shape
    np.testing.assert_allclose(found, python)


@pytest.mark.parametrize(
    ("text", "column", "told"),
    [
        ("x[0, 0, 0]", 9, "3 indices for a tensor of 2 dims"),
        ("x[..., ...]", 9, "more than one `...`"),
        ("x[x > 1]", 9, "where(x > 1, x, 0)"),
        ("x[]", 11, "expected an index"),
        ("x[0", 12, "expected `]`"),
        ("x[w:]", 11, "not a size"),
        ("...", 9, "expected a value"),
        ("s[0]", 9, "1 indices for a tensor of 0 dims"),
    ],
)
def test_subscripts_that_are_none(text: str, column: int, told: str) -> None:
    with pytest.raises(FusecError) as caught:
        fusion_of(f"y = {text}")
    span = caught.value.diagnostic.span
    assert span is not None
    assert span.column == column
    assert told in caught.value.render()


def test_numbers_and_sizes_have_lines() -> None:
    half = ("half = H // 2", "c = 1 / 8", "n = W * 2", "m = max(B, 9)")
    found = result(*half, "y = slice(x, [0, half], [B, H]) * c + n + m")
    np.testing.assert_allclose(found, X[:, 3:] / 8 + 15)


def test_the_results_of_an_operator_are_named() -> None:
    fusion = fusion_of("d = x - w", "y = d * d")
    assert [n.output.name for n in fusion.nodes if n.op.is_elementwise] == ["d", "y"]


def test_a_long_sum_is_no_deep_recursion() -> None:
    assert result("y = " + " + ".join(["x"] * 150)).shape == (4, 6)
    assert result("y = " + "-" * 501 + "x").shape == (4, 6)


def test_dims_of_no_input_are_constants() -> None:
    """They are built in, and other sizes are set where the file is read."""
    lines = HEAD + "  - y = where(iota(H) < W, x, 0.0)\n  - v, _ = topk(x, W, 1)\noutputs: [y, v]\n"
    fusion = read_text(lines)
    assert "W" not in fusion.hints
    assert fusion.outputs[1].value.shape[1] == 3
    assert read_text(lines, overrides={"W": 5}).outputs[1].value.shape[1] == 5
    groups = read_text(
        "fusion: f\ndims: {N: 2, C: 8, S: 3, G: 4}\ninputs: {x: 'f32[N, C, S]'}\n"
        "ops:\n  - y = group_norm(x, G)\noutputs: [y]\n"
    )
    assert "G" not in groups.hints


def test_a_dim_of_an_input_is_no_constant() -> None:
    with pytest.raises(FusecError, match="a compile-time constant, and `H` is a size"):
        fusion_of("y = var(x, [1], correction=H)")
    buckets = HEAD.replace("W: 3", "W: {default: 3, buckets: [4]}")
    with pytest.raises(FusecError, match="cannot have buckets"):
        read_text(buckets + "  - y = x + W\noutputs: [y]\n")


def test_half_of_an_even_dim() -> None:
    """`D // 2` with `multiple_of: 2` gives two equal halves, in files and in scripts."""
    found = result(
        "half = H // 2", "a = slice(x, [0, 0], [B, half])", "b = slice(x, [0, half], [B, H])",
        "y = cat([a * b, a - b], dim=1) + x",
    )  # fmt: skip
    a, b = X[:, :3], X[:, 3:]
    np.testing.assert_allclose(found, np.concatenate([a * b, a - b], axis=1) + X)
    with FusionDefinition() as fd:
        d = fd.define_dim("D", 8, multiple_of=4)
        x = fd.define_tensor(shape=[4, d], contiguity=True)
        left = fd.ops.mul(x[:, : d // 2], x[:, d // 2 :])
        fd.add_output(fd.ops.add(fd.ops.cat([left, left], dim=1), x))
    assert fd.fusion().outputs[0].value.shape[1] == d
    with pytest.raises(FusecError, match="do not broadcast"):
        read_text(
            HEAD.replace("multiple_of: 2", "multiple_of: 1")
            + "  - y = slice(x, [0, 0], [B, H // 2]) + slice(x, [0, H // 2], [B, H])\n"
            "outputs: [y]\n"
        )


FACTS = {"D": 12, "E": 6, "F": 1}


@st.composite
def sizes(draw: st.DrawFn) -> Dim:
    """Return a size with quotients, some of them exact."""
    size = dim(draw(st.integers(0, 4)))
    for _ in range(draw(st.integers(1, 4))):
        name = symbol(draw(st.sampled_from(sorted(FACTS))))
        by = draw(st.sampled_from([1, 2, 3, 4, 6, 12]))
        divide = draw(st.sampled_from([Dim.__floordiv__, ceildiv, mod]))
        factor = draw(st.sampled_from([dim(1), symbol("F"), symbol("E") // 2]))
        size = size + divide(name * draw(st.integers(1, 3)), by) * factor * draw(st.integers(-3, 3))
    return size


@st.composite
def sums(draw: st.DrawFn) -> Dim:
    """Return a sum of products of quotients that are all exact, in any order."""
    total = dim(0)
    for _ in range(draw(st.integers(1, 6))):
        d, e = draw(st.sampled_from([1, 2, 3, 4, 6, 12])), draw(st.sampled_from([0, 1, 2, 3, 6]))
        factor = symbol("E") // e if e else dim(1)
        total = total + (symbol("D") // d) * factor * draw(st.integers(-4, 4))
    return with_exact_quotients(total, FACTS)


@drawn(60)
@given(st.lists(sums(), min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_a_normal_form_is_the_sum_of_its_terms(parts: list[Dim], random: Random) -> None:
    total = sum(parts, dim(0))
    terms = [Dim((term,)) for term in total.terms]
    random.shuffle(terms)
    assert sum(terms, dim(0)) == total
    assert with_exact_quotients(total, FACTS) == total
    at = {"D": 24, "E": 18}
    assert total.evaluate(at) == sum(part.evaluate(at) for part in parts)


def test_divisors_of_one_size_have_a_common_multiple() -> None:
    d, e = symbol("D"), symbol("E")
    half, third = (with_exact_quotients(d // k, FACTS) for k in (2, 3))
    sixth = with_exact_quotients(d // 6, FACTS)
    assert half + third == sixth * 5
    assert d + half + third == sixth * 11
    of_e = with_exact_quotients(e // 3, FACTS)
    assert half * e + d * of_e + d * e == d * e + (d * of_e + half * e)


@drawn(60)
@given(sizes(), sizes(), st.integers(1, 5), st.integers(1, 5), st.integers(1, 9))
def test_facts_change_no_size(one: Dim, other: Dim, d: int, e: int, f: int) -> None:
    at = {"D": 12 * d, "E": 6 * e, "F": f}
    left, right = (with_exact_quotients(size, FACTS) for size in (one, other))
    for made in (left, left + right, left - right, -left):
        assert with_exact_quotients(made, FACTS) == made
    assert left.evaluate(at) == one.evaluate(at)
    assert (left - right).evaluate(at) == (one - other).evaluate(at)
    assert (left * right).evaluate(at) == (one * other).evaluate(at)
    assert left.substitute({"D": symbol("E") * 2}).evaluate({"E": 6 * e, "F": f}) == one.evaluate(
        {"D": 12 * e, "E": 6 * e, "F": f}
    )
    bound = left.lower_bound()
    assert bound is None or bound <= left.evaluate(at)
    quotient = left.divide(right)
    assert quotient is None or (quotient * right).evaluate(at) == left.evaluate(at)


def test_equal_sizes_are_equal() -> None:
    d, f = symbol("D"), symbol("F")
    half, quarter = (with_exact_quotients(d // k, FACTS) for k in (2, 4))
    assert d - half == half
    assert half + half == d
    assert half - quarter == quarter
    assert d - quarter == quarter * 3
    assert half * f * 2 == d * f
    assert d.divide(half) == 2
    assert str(half) == "D // 2"
    assert with_exact_quotients(mod(d, 6), FACTS) == 0
    assert with_exact_quotients(d // 5, FACTS) == d // 5
