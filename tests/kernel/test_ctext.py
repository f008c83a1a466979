"""C text says what was meant: NVRTC itself evaluates expressions put together at random."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusec.diagnostics import InternalError
from fusec.ir.dim import Dim, ceildiv, dim, floordiv, maximum, minimum, mod, symbol
from fusec.ir.dtype import BF16, BOOL, F32, F64, I32, I64, U32
from fusec.kernel.ctext import dim_text, identifier, is_reciprocal, literal
from fusec.kernel.formulas import fill
from fusec.kernel.names import Names
from fusec.kernel.nodes import (
    ZERO,
    Binary,
    Call,
    Element,
    Expression,
    Integer,
    Name,
    Pointer,
    Real,
    Select,
    Sum,
    Unary,
)
from fusec.run.binary.nvrtc import compile_ptx

QUICK = settings(max_examples=200, deadline=None, derandomize=True)
VALUES = {"alpha": 7, "beta": 3, "gamma": 2, "delta": 11}
COUNT = 400


def divide(x: int, y: int) -> int:
    """Return C's quotient, cut towards zero."""
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


OPERATIONS: dict[str, Callable[..., int]] = {
    "{x} + {y}": lambda x, y: x + y,
    "{x} - {y}": lambda x, y: x - y,
    "{x} * {y}": lambda x, y: x * y,
    "{x} / 3": lambda x: divide(x, 3),
    "{x} % 5": lambda x: x - divide(x, 5) * 5,
    "1000 / ({y} * {y} + 1)": lambda y: divide(1000, y * y + 1),
    "-{x}": lambda x: -x,
    "~{x}": lambda x: ~x,
    "!{x}": lambda x: int(not x),
    "{x} >> 1": lambda x: x >> 1,
    "{x} < {y}": lambda x, y: int(x < y),
    "{x} >= {y}": lambda x, y: int(x >= y),
    "{x} == {y}": lambda x, y: int(x == y),
    "{x} != {y}": lambda x, y: int(x != y),
    "{x} & {y}": lambda x, y: x & y,
    "{x} | {y}": lambda x, y: x | y,
    "{x} ^ {y}": lambda x, y: x ^ y,
    "{x} && {y}": lambda x, y: int(bool(x and y)),
    "{x} || {y}": lambda x, y: int(bool(x or y)),
    "{z} ? {x} : {y}": lambda z, x, y: x if z else y,
    "least({x}, {y})": min,
    "{x} * {x} - {y} * 2": lambda x, y: x * x - y * 2,
    "{x} - ({y} - {x})": lambda x, y: x - (y - x),
    "least({x}, 5) + 1": lambda x: min(x, 5) + 1,
}


def tree(generator: random.Random, depth: int) -> tuple[Expression, int]:
    """Return a random expression and its value."""
    if depth == 0 or generator.random() < 0.15:
        if generator.random() < 0.3:
            number = generator.randrange(-9, 10)
            return literal(number, I64), number
        name = generator.choice(list(VALUES))
        return Name(name), VALUES[name]
    template = generator.choice(list(OPERATIONS))
    operation = OPERATIONS[template]
    names = [n for n in ("z", "x", "y") if "{" + n + "}" in template]
    made = {n: tree(generator, depth - 1) for n in names}
    text = fill(template, {n: t for n, (t, _) in made.items()})
    return text, operation(**{n: v for n, (_, v) in made.items()}) if template != (
        "least({x}, {y})"
    ) else min(v for _, v in made.values())


def assert_equal_in_c(claims: list[tuple[str, int]]) -> None:
    """Let NVRTC prove that each expression has its value."""
    nvrtc = pytest.importorskip("fusec.run.binary.nvrtc")
    pytest.importorskip("cuda.bindings.nvrtc")
    lines = [f"constexpr long long {n} = {v};" for n, v in VALUES.items()]
    lines.append(
        "__device__ constexpr long long least(long long x, long long y) { return x < y ? x : y; }"
    )
    for text, value in claims:
        shown = text.replace('"', "'")
        lines.append(f'static_assert(({text}) == {value}ll, "{shown} is not {value}");')
    nvrtc.compile_ptx("\n".join(lines) + "\n", name="claims", arch="sm_90a", headers={})


def test_operands_get_the_parentheses_that_they_need() -> None:
    generator = random.Random(5)
    claims = [tree(generator, 3) for _ in range(COUNT)]
    assert_equal_in_c([(text.text, value) for text, value in claims])


def test_the_precedence_that_a_text_claims_is_its_own() -> None:
    """Used as an operand of each operator, once more."""
    generator = random.Random(6)
    claims: list[tuple[str, int]] = []
    for _ in range(COUNT // 4):
        text, value = tree(generator, 2)
        claims.append((f"2 * {text.at_least(14)}", 2 * value))
        claims.append((f"100 - {text.at_least(13)}", 100 - value))
        claims.append((f"{text.at_least(13)} * 3", 3 * value))
        claims.append((f"-{text.at_least(16)}", -value))
    assert_equal_in_c(claims)


SUM = Binary("+", Name("x"), Name("y"))


@pytest.mark.parametrize(
    ("template", "operand", "expected"),
    [
        ("{a} * {b}", SUM, "(x + y) * (x + y)"),
        ("{a} + {b}", SUM, "x + y + (x + y)"),
        ("{a} - {b}", SUM, "x + y - (x + y)"),
        ("{a} * {b}", Name("x"), "x * x"),
        ("-{a}", Real("-1.0", "f"), "-(-1.0f)"),
        ("fmaxf({a}, {b})", SUM, "fmaxf(x + y, x + y)"),
        ("{a} < {b} ? {a} : {b}", SUM, "x + y < x + y ? x + y : x + y"),
    ],
)
def test_no_parentheses_that_are_not_needed(
    template: str, operand: Expression, expected: str
) -> None:
    assert fill(template, {"a": operand, "b": operand}).text == expected


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (Integer(-2), "a - 2"),
        (Real("-0.0", "f"), "a - 0.0f"),
        (Unary("-", Name("b")), "a - b"),
        (Unary("-", SUM), "a - (x + y)"),
        (Unary("-", Integer(-2)), "a - (-2)"),
        (Unary("!", Name("b")), "a + !b"),
        (Integer(-2) * Name("b"), "a - 2 * b"),
        (Unary("-", Name("b")) * "c", "a - b * c"),
        (Name("b") * Integer(-2), "a + b * -2"),
        (Binary("*", Sum((Integer(-2), Name("b"))), Name("c")), "a + (-2 + b) * c"),
        (Sum((Integer(-2), Name("b"))), "a - 2 + b"),
        (Binary(">>", Integer(-2), Name("b")), "a + (-2 >> b)"),
        (Select(Integer(-2), Name("b"), Name("c")), "a + (-2 ? b : c)"),
    ],
)
def test_a_sum_subtracts_what_begins_with_a_minus(term: Expression, expected: str) -> None:
    assert Sum((Name("a"), term)).text == expected


def test_numbers_and_types_in_formulas() -> None:
    assert fill("{x} + 1e-5f", {"x": Name("a")}).text == "a + 1e-5f"
    assert fill("fusec::Vec<{t}, 2>", {"t": Name("half")}).text == "fusec::Vec<half, 2>"
    with pytest.raises(InternalError, match="static_cast"):
        fill("static_cast<float>({x})", {"x": Name("a")})


def test_pointers_and_template_arguments_bind_as_tightly_as_they_must() -> None:
    a, b, c = map(Name, "abc")
    chosen = Select(a, b, c)
    assert Pointer(chosen, Name("i")).text == "(a ? b : c) + i"
    assert Element(Pointer(chosen, ZERO), Name("i")).text == "(a ? b : c)[i]"
    assert Call("f", (a,), (Binary(">", a, b),)).text == "f<(a > b)>(a)"


DIMS = st.recursive(
    st.one_of(st.integers(1, 9).map(dim), st.sampled_from(list(VALUES)).map(symbol)),
    lambda inner: st.one_of(
        st.builds(lambda x, y: x + y, inner, inner),
        st.builds(lambda x, y: x * y, inner, inner),
        st.builds(lambda x, y: x * y - x, inner, inner),
        st.builds(floordiv, inner, st.integers(1, 9)),
        st.builds(mod, inner, st.integers(1, 9)),
        st.builds(ceildiv, inner, st.integers(1, 9)),
        st.builds(minimum, inner, inner),
        st.builds(maximum, inner, inner),
    ),
    max_leaves=5,
)


def test_sizes_are_computed_in_c_as_on_the_host() -> None:
    claims: list[tuple[str, int]] = []

    @QUICK
    @given(DIMS)
    def collect(value: Dim) -> None:
        number = value.evaluate(VALUES)
        if abs(number) < 1 << 40:
            claims.append((dim_text(value).text, number))
            claims.append((f"{dim_text(value).at_least(14)} * 2", number * 2))
            claims.append((f"1 - {dim_text(value).at_least(13)}", 1 - number))

    collect()
    assert len(claims) > 100
    assert_equal_in_c(claims)


@QUICK
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_f32_literals_are_read_back(value: float) -> None:
    for dtype in (F32, BF16):
        text = literal(value, dtype).text
        assert text.endswith("f")
        assert struct.pack("f", float(text[:-1])) == struct.pack("f", value)


@QUICK
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_f64_literals_are_read_back(value: float) -> None:
    text = literal(value, F64).text
    assert float(text) == value
    assert math.copysign(1, float(text)) == math.copysign(1, value)
    assert "." in text or "e" in text


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (0.5, F32, "0.5f"), (1, F32, "1.0f"), (1e-5, F32, "1e-5f"), (-2, I32, "-2"),
        (3, I64, "3ll"), (3, U32, "3u"), (True, BOOL, "true"), (1e39, F32, "INFINITY"),
        (float("-inf"), F64, "double(-INFINITY)"), (float("-inf"), F32, "-INFINITY"),
        (float("nan"), F32, "NAN"),
        (0.1, F64, "0.1"), (1e300, F64, "1e300"), (-(2**63), I64, "(-9223372036854775807ll - 1)"),
    ],
)  # fmt: skip
def test_literals(value: float, dtype: object, expected: str) -> None:
    assert literal(value, dtype).text == expected  # type: ignore[arg-type]


def test_names_are_unique_and_no_keywords() -> None:
    names = Names(["x"])
    made = [names.fresh(n) for n in ("x", "x", "x", "int", "y", "2nd", "threadIdx", "y.a", "y_a")]
    assert len({*made, "x"}) == len(made) + 1
    assert "int" not in made
    assert "threadIdx" not in made
    assert all(n.isidentifier() for n in made)
    assert made[4] == "y"


def test_names_of_one_loop_body_are_free_in_the_next() -> None:
    names = Names(["x"])
    assert [names.fresh("t", block=k) for k in (0, 1, 0)] == ["t", "t", "t_value"]
    assert names.fresh("x", block=0) == "x_value", "what all see is hidden nowhere"
    assert names.fresh("t") == "t_value2", "nor does a body hide what stands around it"


def test_a_quotient_of_one_and_a_size_is_the_constant_that_it_stands_for() -> None:
    drawn = random.Random(5)
    sizes = [3, 7, 4096, 100352, 2**24 + 1, *(drawn.randrange(16, 2**31) for _ in range(200))]
    single = [(n, struct.unpack("f", struct.pack("f", 1.0 / n))[0]) for n in sizes]
    said = [(n, value) for n, value in single if is_reciprocal(value, n, F32)]
    assert {n for n in sizes if n < 2**24} <= {n for n, _ in said}, "all that are floats"
    assert 150 < len(said) < len(sizes), "other sizes are rounded first, some to another quotient"
    lines = [f"static_assert(1.0f / int({n}) == {value.hex()}f);" for n, value in said]
    lines += [f"static_assert(1.0 / int({n}) == {(1.0 / n).hex()});" for n in sizes]
    compile_ptx("\n".join(lines), name="quotients", arch="sm_90a", headers={})
    assert all(is_reciprocal(1.0 / n, n, F64) for n in sizes)
    assert not is_reciprocal(1.0000001 / 4096, 4096, F32)


def test_identifiers_keep_users_names_apart() -> None:
    names = ["x", "x.stride0", "x_stride0", "x_stride0_", "row", "row_", "row__", "rows", "y_row"]
    made = [identifier(n) for n in names]
    assert len(set(made)) == len(names)
    assert made[:2] == ["x", "x_stride0"]
    assert "row" not in made
    assert made[-1] == "y_row"
