"""Expressions: each prints only the parentheses that it needs."""

from __future__ import annotations

from collections.abc import Iterable
from math import copysign

from fusec.dataclasses import dataclass, field, replace
from fusec.kernel.device import device_name
from fusec.kernel.nodes.node import Node
from fusec.properties import cached_property

PRIMARY, UNARY, SELECT = 16, 15, 2
# Source: the C++ operator precedence table, counted upwards.
BINARY = {
    "*": 13, "/": 13, "%": 13, "+": 12, "-": 12, "<<": 11, ">>": 11, "<": 9, "<=": 9, ">": 9,
    ">=": 9, "==": 8, "!=": 8, "&": 7, "^": 6, "|": 5, "&&": 4, "||": 3,
}  # fmt: skip
_IN_ANY_ORDER = frozenset(["&&", "||", "&", "|"])
"""Operators that need no parentheses around a right operand of their own kind: others round."""


class Expression(Node):
    """A value, or the name of a type; precedence: that of its outermost operator."""

    @property
    def precedence(self) -> int:
        """Return how tightly the outermost operator binds."""
        return PRIMARY

    @cached_property
    def text(self) -> str:
        """Return the expression as C."""
        return self._printed()

    def _printed(self) -> str:
        raise NotImplementedError

    @property
    def opposite(self) -> Expression | None:
        """Return the expression without its leading minus; None if it has none.

        In a sum, the minus belongs to its first term alone.
        """
        return None

    def at_least(self, precedence: int) -> str:
        """Return the text, in parentheses if it binds less tightly than `precedence`."""
        return self.text if self.precedence >= precedence else f"({self.text})"

    def __str__(self) -> str:
        return self.text

    def __add__(self, other: Operand) -> Binary:
        return Binary("+", self, operand(other))

    def __sub__(self, other: Operand) -> Binary:
        return Binary("-", self, operand(other))

    def __mul__(self, other: Operand) -> Binary:
        return Binary("*", self, operand(other))

    def __truediv__(self, other: Operand) -> Binary:
        return Binary("/", self, operand(other))

    def __mod__(self, other: Operand) -> Binary:
        return Binary("%", self, operand(other))


@dataclass(frozen=True)
class Name(Expression):
    """A variable, a constant or a parameter of the kernel; fusec's own begin with `fusec::`."""

    name: str

    def _printed(self) -> str:
        return self.name


class Literal(Expression):
    """A constant."""


@dataclass(frozen=True)
class Word(Literal):
    """A constant that is a word: `true`, `INFINITY`."""

    word: str

    def _printed(self) -> str:
        return self.word


@dataclass(frozen=True)
class Integer(Literal):
    """An integer constant; suffix: of its type, empty for int; is_hex: written with 8 digits."""

    value: int
    suffix: str = ""
    is_hex: bool = False

    @property
    def precedence(self) -> int:
        return UNARY if self.value < 0 else PRIMARY

    @property
    def opposite(self) -> Integer | None:
        return replace(self, value=-self.value) if self.value < 0 else None

    def _printed(self) -> str:
        return f"{self.value:#010x}{self.suffix}" if self.is_hex else f"{self.value}{self.suffix}"


@dataclass(frozen=True)
class Real(Literal):
    """A floating-point constant by its decimal digits; suffix: `f` of a float."""

    digits: str
    suffix: str = ""

    @cached_property
    def value(self) -> float:
        """Return the number, with -0.0 distinct from 0.0."""
        return float(self.digits)

    @property
    def _is_negative(self) -> bool:
        return copysign(1.0, self.value) < 0

    @property
    def precedence(self) -> int:
        return UNARY if self._is_negative else PRIMARY

    @property
    def opposite(self) -> Real | None:
        return replace(self, digits=self.digits[1:]) if self._is_negative else None

    def _printed(self) -> str:
        return f"{self.digits}{self.suffix}"


@dataclass(frozen=True)
class Type(Expression):
    """A type: its name, and the arguments of its template."""

    name: str
    arguments: tuple[Expression, ...] = ()

    def _printed(self) -> str:
        return self.name + _template(self.arguments)


AUTO, BOOL, INT, I64 = (Type(name) for name in ("auto", "bool", "int", "fusec::i64"))
ZERO = Integer(0)
TRUE, FALSE = Word("true"), Word("false")


@dataclass(frozen=True)
class Unary(Expression):
    """An operator before its operand."""

    operator: str
    operand: Expression

    @property
    def precedence(self) -> int:
        return UNARY

    @property
    def opposite(self) -> Expression | None:
        if self.operator != "-":
            return None
        inside = self.operand
        return inside if inside.precedence >= PRIMARY else Grouped(inside)

    def _printed(self) -> str:
        return self.operator + self.operand.at_least(PRIMARY)


@dataclass(frozen=True)
class Binary(Expression):
    """An operator between its operands; another order would round differently."""

    operator: str
    left: Expression
    right: Expression

    @property
    def precedence(self) -> int:
        return BINARY[self.operator]

    @property
    def opposite(self) -> Expression | None:
        first = self.left.opposite if self.left.precedence >= self.precedence else None
        return None if first is None else replace(self, left=first)

    def _printed(self) -> str:
        own = self.precedence
        right = self.right.at_least(own + (self.operator not in _IN_ANY_ORDER))
        return f"{self.left.at_least(own)} {self.operator} {right}"


@dataclass(frozen=True)
class Sum(Expression):
    """Terms that are added; those with a leading minus are subtracted."""

    terms: tuple[Expression, ...]

    @property
    def precedence(self) -> int:
        return BINARY["+"]

    @property
    def opposite(self) -> Expression | None:
        first, *rest = self.terms
        without = first.opposite if first.precedence >= self.precedence else None
        return None if without is None else Sum((without, *rest))

    def _printed(self) -> str:
        own = self.precedence
        first, *rest = self.terms
        printed = first.at_least(own)
        for term in rest:
            without = term.opposite if term.precedence >= own else None
            sign, shown = ("+", term) if without is None else ("-", without)
            printed += f" {sign} {shown.at_least(own)}"
        return printed


@dataclass(frozen=True)
class Select(Expression):
    """One of two values by a test."""

    test: Expression
    yes: Expression
    no: Expression

    @property
    def precedence(self) -> int:
        return SELECT

    def _printed(self) -> str:
        own = SELECT
        return f"{self.test.at_least(own + 1)} ? {self.yes.at_least(own)} : {self.no.at_least(own)}"


@dataclass(frozen=True)
class Call(Expression):
    """A call of a C function, or of a device function of fusec: `fusec::NAME`.

    template: its template arguments.
    """

    function: str
    arguments: tuple[Expression, ...] = ()
    template: tuple[Expression, ...] = ()

    def _printed(self) -> str:
        return f"{self.function}{_template(self.template)}({_listed(self.arguments)})"


@dataclass(frozen=True)
class Widened(Call):
    """A value stored in 16 bits or fewer, as a float; stored: its type in memory."""

    stored: Type = field(kw_only=True)

    @classmethod
    def of(cls, value: Expression, stored: Type) -> Widened:
        """Return a value of a type in memory as a float."""
        return cls("fusec::to_float", (value,), stored=stored)


@dataclass(frozen=True)
class Method(Expression):
    """A call of a member function."""

    object: Expression
    name: str
    arguments: tuple[Expression, ...] = ()

    def _printed(self) -> str:
        return f"{self.object.at_least(PRIMARY)}.{self.name}({_listed(self.arguments)})"


@dataclass(frozen=True)
class Static(Expression):
    """A call of a static member function of a type."""

    type: Type
    name: str
    arguments: tuple[Expression, ...] = ()

    def _printed(self) -> str:
        return f"{self.type}::{self.name}({_listed(self.arguments)})"


@dataclass(frozen=True)
class Member(Expression):
    """A member of a struct."""

    object: Expression
    name: str

    def _printed(self) -> str:
        return f"{self.object.at_least(PRIMARY)}.{self.name}"


@dataclass(frozen=True)
class Cast(Expression):
    """A conversion by `static_cast`."""

    type: Type
    operand: Expression

    def _printed(self) -> str:
        return f"static_cast<{self.type}>({self.operand})"


@dataclass(frozen=True)
class Braced(Expression):
    """A braced value of a named type, or of none, from its parts; zero without any."""

    type: Type | None
    parts: tuple[Expression, ...] = ()

    def _printed(self) -> str:
        return f"{self.type or ''}{{{_listed(self.parts)}}}"


@dataclass(frozen=True)
class Grouped(Expression):
    """An expression in redundant parentheses, for readability."""

    inside: Expression

    def _printed(self) -> str:
        return f"({self.inside})"


THREAD_X, THREAD_Y = (Member(Name("threadIdx"), axis) for axis in ("x", "y"))
BLOCK_Y = Member(Name("blockIdx"), "y")


def _listed(parts: Iterable[Expression]) -> str:
    return ", ".join(part.text for part in parts)


def _template(arguments: tuple[Expression, ...]) -> str:
    # A `>` in an argument would end the list.
    listed = ", ".join(argument.at_least(BINARY["+"]) for argument in arguments)
    return f"<{listed}>" if arguments else ""


Operand = Expression | int | str
"""An expression, a number or a truth value, or the name of a variable."""


def operand(value: Operand) -> Expression:
    """Return an operand as an expression."""
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, str):
        assert (device_name(value) or value).isidentifier(), f"`{value}` is not a name"
        return Name(value)
    return Integer(value) if isinstance(value, int) else value
