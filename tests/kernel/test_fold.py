"""Folding: what is computed stays the same to the bit, and what may matter stays where it is."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusec.ir.dtype import BF16
from fusec.kernel.ctext import storage_type
from fusec.kernel.fold import folded
from fusec.kernel.formulas import parsed
from fusec.kernel.nodes import (
    FALSE,
    INT,
    TRUE,
    Assign,
    Binary,
    Call,
    Element,
    Expression,
    Grouped,
    If,
    Integer,
    Item,
    Let,
    Loop,
    Name,
    Node,
    Real,
    Select,
    Statement,
    Sum,
    Type,
    Unary,
    Widened,
    Word,
    call,
    operand,
    walk,
)

FLOAT, HALF = Type("float"), storage_type(BF16)
F32 = np.float32


def widened(value: Expression) -> Widened:
    """Return a bf16 in memory as a float."""
    return Widened.of(value, HALF)


def stored(value: Expression) -> Call:
    """Return a float as a bf16 in memory."""
    return Call("fusec::convert", (value,), (HALF,))


def rounded(value: Expression) -> Call:
    """Return a float rounded to a bf16."""
    return Call("fusec::round_to", (value,), (HALF,))


# An evaluator of expressions: integers and bools are Python's, floats NumPy's, a bf16 in memory is
# its 16 bits.


@dataclass(frozen=True)
class Half:
    """A bf16 in memory."""

    bits: int

    @property
    def value(self) -> np.float32:
        """Return it as a float."""
        return np.frombuffer(struct.pack("<I", self.bits << 16), F32)[0]

    @classmethod
    def of(cls, value: np.float32) -> Half:
        """Return the nearest one, ties to even; any NaN is one."""
        if math.isnan(value):
            return cls(0x7FFF)
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        return cls((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


OPERATORS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "<": lambda a, b: bool(a < b), "<=": lambda a, b: bool(a <= b), ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b), "==": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
}  # fmt: skip


def extreme(a: Any, b: Any, *, largest: bool) -> Any:
    """Return the larger or the smaller of two; NaN passes, and -0 is smaller than 0."""
    if math.isnan(a) or math.isnan(b):
        return F32(math.nan)
    if a == b == 0 and not isinstance(a, int):
        negative = np.signbit(a) and np.signbit(b) if largest else np.signbit(a) or np.signbit(b)
        return F32(-0.0 if negative else 0.0)
    return (max if largest else min)(a, b)


def evaluate(node: Expression, values: Mapping[str, Any]) -> Any:
    """Return what an expression is, of what its names are."""

    def of(part: Expression) -> Any:
        return evaluate(part, values)

    match node:
        case Name():
            return values[node.name]
        case Word("true" | "false"):
            return node == TRUE
        case Integer():
            return node.value
        case Real():
            return F32(node.value)
        case Grouped():
            return of(node.inside)
        case Unary("!"):
            return not of(node.operand)
        case Binary("&&"):
            return bool(of(node.left) and of(node.right))
        case Binary("||"):
            return bool(of(node.left) or of(node.right))
        case Binary():
            return OPERATORS[node.operator](of(node.left), of(node.right))
        case Sum():
            found = of(node.terms[0])
            for term in node.terms[1:]:
                found = found + of(term)
            return found
        case Select():
            return of(node.yes if of(node.test) else node.no)
        case Widened():
            return of(node.arguments[0]).value
        case Call("fusec::convert"):
            return Half.of(of(node.arguments[0]))
        case Call("fusec::round_to"):
            return Half.of(of(node.arguments[0])).value
        case Call():
            a, b = map(of, node.arguments)
            return extreme(a, b, largest="max" in node.function)
        case Element():
            return values[f"{node.buffer}[{of(node.index)}]"]
        case Item():
            return of(node.index)
        case _:
            raise AssertionError(f"{node} is none of these")


def bits(value: Any) -> object:
    """Return a value such that it equals what is the same to the bit; all NaN are one."""
    if isinstance(value, Half):
        return ("half", "nan" if math.isnan(value.value) else value.bits)
    if isinstance(value, np.floating):
        return "nan" if math.isnan(value) else struct.pack("<f", value)
    return (type(value), value)


class Draw:
    """Random expressions: `m` and `n` are integers, `x` and `y` floats, `h` a bf16 in memory."""

    LEAVES: Mapping[str, tuple[Expression, ...]] = {
        "integer": (Name("m"), Name("n"), *map(Integer, (0, 0, 1, 1, 2, 7))),
        "float": (Name("x"), Name("y"), *(Real(d, "f") for d in ("0.0", "-0.0", "2.5", "3.0"))),
        "half": (Name("h"),),
        "test": (TRUE, FALSE, Name("is_row")),
    }

    def __init__(self, seed: int) -> None:
        """Begin a sequence."""
        self.random = Random(seed)

    def of(self, kind: str, depth: int) -> Expression:
        """Return an expression of a type."""
        if depth == 0 or self.random.random() < 0.2:
            return self.random.choice(self.LEAVES[kind])
        forms = {
            "integer": (self.arithmetic, self.arithmetic, self.sum, self.select, self.extremes),
            "float": (self.arithmetic, self.select, self.extremes, self.conversion),
            "half": (self.conversion, self.conversion, self.select),
            "test": (self.comparison, self.logical, self.logical, self.opposite),
        }
        found = self.random.choice(forms[kind])(kind, depth - 1)
        return Grouped(found) if kind != "half" and self.random.random() < 0.1 else found

    def arithmetic(self, kind: str, depth: int) -> Expression:
        return Binary(self.random.choice("+-*"), self.of(kind, depth), self.of(kind, depth))

    def sum(self, kind: str, depth: int) -> Expression:
        return Sum(tuple(self.of(kind, depth) for _ in range(3)))

    def select(self, kind: str, depth: int) -> Expression:
        yes = self.of(kind, depth)
        no = yes if self.random.random() < 0.3 else self.of(kind, depth)
        return Select(self.of("test", depth), yes, no)

    def extremes(self, kind: str, depth: int) -> Expression:
        found = self.of(kind, depth)
        name = self.random.choice(["fusec::minimum", "fusec::maximum"])
        for _ in range(2):
            sides = [found, self.random.choice(self.LEAVES[kind])]
            self.random.shuffle(sides)
            found = Call(name, tuple(sides))
        return found

    def conversion(self, kind: str, depth: int) -> Expression:
        if kind == "half":
            return stored(self.of("float", depth))
        if self.random.random() < 0.5:
            return rounded(self.of("float", depth))
        return widened(self.of("half", depth))

    def comparison(self, kind: str, depth: int) -> Expression:
        sides = self.random.choice(["integer", "float"])
        operator = self.random.choice(["<", "<=", ">", ">=", "==", "!="])
        return Binary(operator, self.of(sides, depth), self.of(sides, depth))

    def logical(self, kind: str, depth: int) -> Expression:
        return Binary(self.random.choice(["&&", "||"]), self.of(kind, depth), self.of(kind, depth))

    def opposite(self, kind: str, depth: int) -> Expression:
        return Unary("!", self.of(kind, depth))

    def values(self) -> dict[str, Any]:
        """Return what the names are."""
        special = (0.0, -0.0, 1.0, 2.5, -3.0, math.inf, -math.inf, math.nan, 1e-40)
        return {
            **{name: self.random.randint(-9, 9) for name in "mn"},
            **{name: F32(self.random.choice(special)) for name in "xy"},
            "h": Half(self.random.getrandbits(16)),
            "is_row": self.random.random() < 0.5,
        }


@pytest.mark.parametrize("kind", Draw.LEAVES)
@np.errstate(all="ignore")
def test_what_is_folded_is_the_same_to_the_bit(kind: str) -> None:
    draw, changed = Draw(39), 0
    for _ in range(1000):
        node, values = draw.of(kind, 5), draw.values()
        node = Item(Name("a"), node) if kind == "integer" else node
        found = folded(node)
        assert bits(evaluate(found, values)) == bits(evaluate(node, values)), f"{node} -> {found}"
        assert folded(found) is found, f"{found} -> {folded(found)}"
        changed += found is not node
    assert changed > 200


def read(text: str) -> Expression:
    """Return an expression that is written with `h` and `g` for what lies in memory as a bf16."""

    def typed(node: Node) -> Node:
        node = node.mapped(typed) if node.children else node
        if isinstance(node, Name) and node.name.startswith("fusec::"):
            return Type(node.name)
        if isinstance(node, Call) and node.function == "fusec::to_float":
            return widened(node.arguments[0])
        return node

    found = typed(parsed(text))
    assert isinstance(found, Expression)
    return found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a < 3 ? x : x", "x"),
        ("a < 3 ? x : (a < 4 ? x : x)", "x"),
        ("true ? x : y", "x"),
        ("!true ? x : y", "y"),
        ("3 < 4 && a < 3 ? x : y", "a < 3 ? x : y"),
        ("a < 3 || 4 >= 4 ? x : y", "x"),
        ("a && false", "false"),
        ("fusec::convert<fusec::bf16>(fusec::to_float(h))", "h"),
        ("fusec::convert<fusec::bf16>(a < 3 ? fusec::to_float(h) : fusec::to_float(g))",
         "a < 3 ? h : g"),
        ("fusec::round_to<fusec::bf16>(fusec::to_float(h))", "fusec::to_float(h)"),
        ("fusec::minimum(fusec::minimum(x, 3.0f), 4.0f)", "fusec::minimum(x, 3.0f)"),
        ("fusec::minimum(2.5f, fusec::minimum(3.0f, x))", "fusec::minimum(2.5f, x)"),
        ("fusec::maximum(fusec::maximum(m, 3), 1)", "fusec::maximum(m, 3)"),
        # What stays.
        ("x + 0", "x + 0"),
        ("x * 1", "x * 1"),
        ("a && true", "a && true"),
        ("3 < 4u", "3 < 4u"),
        ("fusec::check_index(a, 3) < 2 ? x : x", "fusec::check_index(a, 3) < 2 ? x : x"),
        ("fusec::atomic_add(p, 1) < 2 && false", "fusec::atomic_add(p, 1) < 2 && false"),
        ("fusec::convert<fusec::f16>(fusec::to_float(h))",
         "fusec::convert<fusec::f16>(fusec::to_float(h))"),
        ("fusec::convert<fusec::bf16>(fusec::to_float(h) + 0.0f)",
         "fusec::convert<fusec::bf16>(fusec::to_float(h) + 0.0f)"),
        ("fusec::minimum(fusec::maximum(x, 3.0f), 4.0f)",
         "fusec::minimum(fusec::maximum(x, 3.0f), 4.0f)"),
        ("fusec::minimum(fusec::minimum(x, 3.0f), NAN)",
         "fusec::minimum(fusec::minimum(x, 3.0f), NAN)"),
    ],
)  # fmt: skip
def test_rules_by_example(before: str, after: str) -> None:
    assert str(folded(read(before))) == after


def test_indices_are_integers() -> None:
    zero, one, a = operand(0), operand(1), Name("a")
    assert str(folded(Element(Name("x"), (a + zero) * one))) == "x[a]"
    assert str(folded(Element(Name("x"), Sum((zero, a, zero))))) == "x[a]"
    assert str(folded(Element(Name("x"), a + Integer(0, "ll")))) == "x[a + 0ll]", "it is wider"
    assert str(folded(Element(Name("x"), call("f", a + zero)))) == "x[f(a + 0)]"
    assert folded((Let(INT, "i", a - zero),)) == (Let(INT, "i", a),)
    assert folded((Let(FLOAT, "v", a - zero),)) == (Let(FLOAT, "v", a - zero),)


def text(lines: tuple[Statement, ...]) -> str:
    return " ".join(map(str, lines))


def element(buffer: str, index: int) -> Element:
    return Element(Name(buffer), operand(index))


NAMES = ("v", "w", "p")
COPY = (
    Let(FLOAT, "v", widened(element("x", 0))),
    Assign(element("y", 0), stored(Name("v"))),
)


def test_a_copy_of_bits_reads_and_stores_them_where_it_did() -> None:
    assert text(folded(COPY, NAMES)) == "const fusec::bf16 v = x[0]; y[0] = v;"


def test_names_that_others_may_use_stay() -> None:
    assert folded(COPY) is COPY
    other = (Assign(element("z", 0), Name("v")),)
    assert folded((COPY, other), NAMES)[0][0] == COPY[0]
    assert "const float v" in text(folded((COPY, "v"), NAMES)[0])
    own = (Let(FLOAT, "v", Name("r") + 1), *other)  # in a block of its own
    assert text(folded((COPY, own), NAMES)[0]) == text(folded(COPY, NAMES))


def test_floats_stay_where_something_else_reads_them() -> None:
    lines = (*COPY, Assign(element("z", 0), Name("v") + Name("v")))
    assert "const float v = fusec::to_float(x[0]);" in text(folded(lines, NAMES))


def test_a_name_in_two_loops_is_two_constants() -> None:
    first, second = (
        Loop(
            "i", Name("kVec"), (Let(FLOAT, "v", value), Assign(element("y", 0), stored(Name("v"))))
        )
        for value in (element("z", 0), widened(element("x", 0)))
    )
    assert folded((first, second), NAMES) == (first, second)


def test_a_constant_may_have_its_uses_in_another_list() -> None:
    (declared,), uses = folded((COPY[:1], COPY[1:]), NAMES)
    assert text((declared, *uses)) == text(folded(COPY, NAMES))


def test_constants_go_that_folding_leaves_unused() -> None:
    test = Binary("<", Name("p"), operand(3))
    lines = (
        Let(INT, "p", Name("a") / 2),
        Let(INT, "w", Name("a") / 4),  # a name of which nothing was read before
        Assign(element("y", 0), Select(test, Name("r"), Name("r"))),
    )
    assert text(folded(lines, NAMES)) == "const int w = a / 4; y[0] = r;"
    checked = (replace_value(lines[0], call("fusec::check_index", "a")), *lines[1:])
    assert "const int p = fusec::check_index(a);" in text(folded(checked, NAMES))


def replace_value(line: Statement, value: Expression) -> Let:
    assert isinstance(line, Let)
    return Let(line.type, line.name, value)


def test_statements_of_a_test_that_holds_need_none() -> None:
    store = Assign(element("y", 0), Name("r"))
    holds, never = (If(Binary("<", operand(a), operand(3)), (store,)) for a in (2, 4))
    assert folded((Loop("i", Name("kVec"), (holds, never)),)) == (
        Loop("i", Name("kVec"), (store,)),
    )
    assert folded((never, store)) == (store,)


NAME, PLACE = st.sampled_from(NAMES), st.integers(0, 1)
LINES = st.lists(
    st.one_of(
        st.builds(lambda n, k: Let(FLOAT, n, widened(element("x", k))), NAME, PLACE),
        st.builds(lambda n, o: Let(FLOAT, n, Name(o)), NAME, NAME),
        st.builds(
            lambda b, k, o: Assign(element(b, k), stored(Name(o))),
            st.sampled_from("xy"),
            PLACE,
            NAME,
        ),
        st.builds(lambda k, o: Assign(element("z", k), Name(o)), PLACE, NAME),
    ),
    max_size=8,
)


def run(lines: tuple[Statement, ...]) -> dict[str, object]:
    """Return what memory holds in the end; `x` is read and written."""
    values: dict[str, Any] = {"x[0]": Half(0x3F80), "x[1]": Half(0x8000)}
    for line in lines:
        if isinstance(line, Let):
            assert line.value is not None
            values[line.name] = evaluate(line.value, values)
        else:
            assert isinstance(line, Assign)
            values[str(line.target)] = evaluate(line.value, values)
    return {name: bits(value) for name, value in values.items() if "[" in name}


@given(LINES)
@settings(max_examples=300)
def test_memory_holds_the_same(lines: list[Statement]) -> None:
    kept: list[Statement] = []
    declared: set[str] = set()
    for line in lines:  # each name is declared once, and before it is used
        uses = {each.name for each in walk([line]) if isinstance(each, Name)} & set(NAMES)
        if uses <= declared and not (isinstance(line, Let) and line.name in declared):
            kept.append(line)
            declared |= {line.name} if isinstance(line, Let) else set()
    assert run(folded(tuple(kept), NAMES)) == run(tuple(kept))
