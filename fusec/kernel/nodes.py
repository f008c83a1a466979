"""Expressions and statements of a kernel: frozen nodes that print as CUDA.

An expression prints just the parentheses that it needs. A statement prints its lines; how far they
are moved in, and where long ones are broken, is the layout's. Facts about a kernel are found by
walking its nodes (`walk`), never in what they print.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from math import copysign
from typing import Any, Self, cast

from fusec.kernel.device import device_name

PRIMARY, UNARY, SELECT = 16, 15, 2
# Source: the C++ operator precedence table, counted upwards.
BINARY = {
    "*": 13, "/": 13, "%": 13, "+": 12, "-": 12, "<<": 11, ">>": 11, "<": 9, "<=": 9, ">": 9,
    ">=": 9, "==": 8, "!=": 8, "&": 7, "^": 6, "|": 5, "&&": 4, "||": 3,
}  # fmt: skip
MOST_ON_A_LINE = 96
"""Columns of a closure that stands on one line."""
_IN_ANY_ORDER = frozenset(["&&", "||", "&", "|"])
"""Operators that need no parentheses around a right operand of their own kind: others round."""


@dataclass(frozen=True)
class Node:
    """A part of a kernel."""

    @cached_property
    def children(self) -> tuple[Node, ...]:
        """The nodes that this one is made of, in the order of the text."""
        found: list[Node] = []
        for name in field_names(type(self)):
            value = getattr(self, name)
            if isinstance(value, Node):
                found.append(value)
            elif isinstance(value, tuple):
                parts = cast("tuple[object, ...]", value)
                found += [each for each in parts if isinstance(each, Node)]
        return tuple(found)

    def mapped(self, change: Callable[[Node], Node], **fields: Any) -> Self:
        """Return this node with others in the place of its children, in order, and other fields."""
        changed: dict[str, Any] = {}
        for name in field_names(type(self)):
            value = getattr(self, name)
            if name in fields:
                changed[name] = fields[name]
            elif isinstance(value, Node):
                changed[name] = change(value)
            elif isinstance(value, tuple):
                parts = cast("tuple[object, ...]", value)
                changed[name] = tuple(change(p) if isinstance(p, Node) else p for p in parts)
        return replace(self, **changed) if changed else self


@cache
def field_names(kind: type[Node]) -> tuple[str, ...]:
    """Return the names of a node's fields, in the order of the text."""
    return tuple(field.name for field in fields(kind))


def walk(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield nodes and all that they are made of, each before its parts."""
    stack = [*nodes]
    stack.reverse()
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


class Expression(Node):
    """A value, a type's name among them; precedence: that of its outermost operator."""

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
        """Return the expression without the minus that it begins with; None without one.

        Of a sum, the minus is of its first term alone.
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
    """An integer constant; suffix: of its type, none of an int; is_hex: written with 8 digits."""

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
        """Return the number, -0.0 and 0.0 apart."""
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
    """Terms that are added; those that begin with a minus are subtracted."""

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
    """A call of a function of C, or of a device function of fusec's: `fusec::NAME`.

    template: the arguments of its template.
    """

    function: str
    arguments: tuple[Expression, ...] = ()
    template: tuple[Expression, ...] = ()

    def _printed(self) -> str:
        return f"{self.function}{_template(self.template)}({_listed(self.arguments)})"


@dataclass(frozen=True)
class Widened(Call):
    """A value that memory holds in 16 bits or fewer, as a float; stored: its type in memory."""

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
    """A value of a type, or of none that is named, from its parts; zero without any."""

    type: Type | None
    parts: tuple[Expression, ...] = ()

    def _printed(self) -> str:
        return f"{self.type or ''}{{{_listed(self.parts)}}}"


@dataclass(frozen=True)
class Item(Expression):
    """An element of an array or a vector of the thread's own."""

    array: Expression
    index: Expression

    def _printed(self) -> str:
        return f"{self.array.at_least(PRIMARY)}[{self.index}]"


@dataclass(frozen=True)
class Element(Expression):
    """An element of a buffer in memory: a parameter of the kernel, or a tile in shared memory."""

    buffer: Expression
    index: Expression

    def _printed(self) -> str:
        return f"{self.buffer.at_least(PRIMARY)}[{self.index}]"


@dataclass(frozen=True)
class Pointer(Expression):
    """Where an element of a buffer lies."""

    buffer: Expression
    index: Expression

    @property
    def precedence(self) -> int:
        return self.buffer.precedence if self._is_first else BINARY["+"]

    @property
    def _is_first(self) -> bool:
        return self.index == ZERO

    def _printed(self) -> str:
        if self._is_first:
            return self.buffer.text
        return f"{self.buffer.at_least(BINARY['+'])} + {self.index.at_least(BINARY['+'])}"


@dataclass(frozen=True)
class Anywhere(Expression):
    """A pointer to elements that may lie anywhere: the template looks where vectors begin."""

    pointer: Pointer

    @property
    def precedence(self) -> int:
        return self.pointer.precedence

    def _printed(self) -> str:
        return self.pointer.text


@dataclass(frozen=True)
class Grouped(Expression):
    """An expression in parentheses that it does not need: a reader does."""

    inside: Expression

    def _printed(self) -> str:
        return f"({self.inside})"


THREAD_X, THREAD_Y = (Member(Name("threadIdx"), axis) for axis in ("x", "y"))
BLOCK_Y = Member(Name("blockIdx"), "y")


@dataclass(frozen=True)
class Parameter(Node):
    """A parameter of a closure."""

    type: Type
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


@dataclass(frozen=True)
class Listed(Node):
    """Arguments or parameters that a template's own text lists; further: behind others of its."""

    parts: tuple[Expression | Parameter, ...] = ()
    further: bool = False

    def __str__(self) -> str:
        listed = ", ".join(map(str, self.parts))
        return f", {listed}" if self.further and listed else listed


def _listed(parts: Iterable[Expression]) -> str:
    return ", ".join(part.text for part in parts)


def _template(arguments: tuple[Expression, ...]) -> str:
    # A `>` in an argument would end the list.
    listed = ", ".join(argument.at_least(BINARY["+"]) for argument in arguments)
    return f"<{listed}>" if arguments else ""


def vector_of(kind: Type, width: Operand = "kVec") -> Type:
    """Return the type of a vector."""
    return Type("fusec::Vec", (kind, operand(width)))


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


def call(function: str, *arguments: Operand, about: Iterable[Operand] = ()) -> Call:
    """Return a call of a function; about: the arguments of its template."""
    return Call(function, tuple(map(operand, arguments)), tuple(map(operand, about)))


def item(array: Operand, *indices: Operand) -> Expression:
    """Return an element of an array of the thread's own, or of a vector in it."""
    found = operand(array)
    for each in indices:
        found = Item(found, operand(each))
    return found


def grouped(value: Expression, least: int) -> Expression:
    """Return a value that a reader sees in parentheses if it binds less tightly than `least`."""
    return value if value.precedence >= least else Grouped(value)


def negated(value: Expression) -> Expression:
    """Return the opposite of a test."""
    return Unary("!", value)


def both(tests: Iterable[Expression]) -> Expression | None:
    """Return a test that holds where all do; None without any."""
    return _chained("&&", tests)


def either(tests: Iterable[Expression]) -> Expression | None:
    """Return a test that holds where any does; None without any."""
    return _chained("||", tests)


def total(terms: Iterable[Expression]) -> Expression | None:
    """Return a sum; None without any terms."""
    return _chained("+", terms)


def _chained(operator: str, terms: Iterable[Expression]) -> Expression | None:
    found: Expression | None = None
    for term in terms:
        found = term if found is None else Binary(operator, found, term)
    return found


class Statement(Node):
    """What a kernel does; it prints as lines."""

    @property
    def lines(self) -> Iterator[str]:
        """Yield the lines as C, not moved in."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join(self.lines)


@dataclass(frozen=True)
class Blank(Statement):
    """An empty line between statements."""

    @property
    def lines(self) -> Iterator[str]:
        yield ""


@dataclass(frozen=True)
class Comment(Statement):
    """A comment on a line of its own."""

    comment: str

    @property
    def lines(self) -> Iterator[str]:
        yield f"// {self.comment}"


@dataclass(frozen=True)
class Noted(Statement):
    """A statement of one line with a comment behind it."""

    statement: Statement
    comment: str

    @property
    def lines(self) -> Iterator[str]:
        (only,) = self.statement.lines
        yield f"{only}  // {self.comment}"


@dataclass(frozen=True)
class Using(Statement):
    """Another name of a type."""

    name: str
    type: Type

    @property
    def lines(self) -> Iterator[str]:
        yield f"using {self.name} = {self.type};"


@dataclass(frozen=True)
class Let(Statement):
    """A constant of the thread and its value; None: the only one of its type."""

    type: Type
    name: str
    value: Expression | None

    @property
    def lines(self) -> Iterator[str]:
        value = "" if self.value is None else f" = {self.value}"
        yield f"const {self.type} {self.name}{value};"


@dataclass(frozen=True)
class Constexpr(Statement):
    """A constant that the compiler knows; is_member: of a struct."""

    type: Type
    name: str
    value: Expression
    is_member: bool = False

    @property
    def lines(self) -> Iterator[str]:
        static = "static " if self.is_member else ""
        yield f"{static}constexpr {self.type} {self.name} = {self.value};"


@dataclass(frozen=True)
class Declare(Statement):
    """A variable, or an array, of the thread; value: what it begins with."""

    type: Type
    name: str
    extents: tuple[Expression, ...] = ()
    value: Expression | None = None

    @property
    def lines(self) -> Iterator[str]:
        extents = "".join(f"[{each}]" for each in self.extents)
        value = "" if self.value is None else f" = {self.value}"
        yield f"{self.type} {self.name}{extents}{value};"


@dataclass(frozen=True)
class Assign(Statement):
    """A value is put into a variable, or stored to an element of a buffer.

    operator: `=`, or what combines the value with that before: `+=`.
    """

    target: Expression
    value: Expression
    operator: str = "="

    @property
    def lines(self) -> Iterator[str]:
        yield f"{self.target} {self.operator} {self.value};"


@dataclass(frozen=True)
class Evaluate(Statement):
    """A call for its effects."""

    call: Expression

    @property
    def lines(self) -> Iterator[str]:
        yield f"{self.call};"


@dataclass(frozen=True)
class If(Statement):
    """Statements that are executed where a test holds; braces: whether they stand in a block."""

    test: Expression
    body: tuple[Statement, ...]
    braces: bool = True

    @property
    def lines(self) -> Iterator[str]:
        if not self.braces:
            (only,) = self.body
            (line,) = only.lines
            yield f"if ({self.test}) {line}"
            return
        yield f"if ({self.test}) {{"
        for each in self.body:
            yield from each.lines
        yield "}"


@dataclass(frozen=True)
class Loop(Statement):
    """A loop over the numbers from `start` up to `end`; unroll: how often, None not to say.

    unroll: "" as often as it turns, or a number.
    """

    variable: str
    end: Expression
    body: tuple[Statement, ...]
    start: Expression = ZERO
    step: Expression | None = None
    type: Type = INT
    unroll: str | None = ""

    @property
    def lines(self) -> Iterator[str]:
        name = self.variable
        if self.unroll is not None:
            yield f"#pragma unroll {self.unroll}" if self.unroll else "#pragma unroll"
        step = f"++{name}" if self.step is None else f"{name} += {self.step}"
        yield f"for ({self.type} {name} = {self.start}; {name} < {self.end}; {step}) {{"
        for each in self.body:
            yield from each.lines
        yield "}"


@dataclass(frozen=True)
class Closure(Statement):
    """A function of the kernel's own: the result of its parameters, after some statements."""

    name: str
    parameters: Listed
    body: tuple[Statement, ...]
    result: Expression

    @property
    def lines(self) -> Iterator[str]:
        head, result = (
            f"const auto {self.name} = [&]({self.parameters}) {{",
            f"return {self.result};",
        )
        whole = f"{head} {result} }};"
        if not self.body and len(whole) <= MOST_ON_A_LINE:
            yield whole
            return
        yield head
        for each in self.body:
            yield from each.lines
        yield from (result, "};")


@dataclass(frozen=True)
class Leave(Statement):
    """An early end: `return`, `continue` or `break`."""

    word: str

    @property
    def lines(self) -> Iterator[str]:
        yield f"{self.word};"
