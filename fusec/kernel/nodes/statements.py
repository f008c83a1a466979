"""Statements: each prints its lines; the layout indents them."""

from __future__ import annotations

from collections.abc import Iterator

from fusec.dataclasses import dataclass
from fusec.kernel.nodes.expressions import INT, ZERO, Expression, Type
from fusec.kernel.nodes.node import Node

MOST_ON_A_LINE = 96
"""Maximum number of columns of a closure on one line."""


@dataclass(frozen=True)
class Parameter(Node):
    """A parameter of a closure."""

    type: Type
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


@dataclass(frozen=True)
class Listed(Node):
    """Arguments or parameters that a template's own text lists; further: they follow others."""

    parts: tuple[Expression | Parameter, ...] = ()
    further: bool = False

    def __str__(self) -> str:
        listed = ", ".join(map(str, self.parts))
        return f", {listed}" if self.further and listed else listed


class Statement(Node):
    """A statement of a kernel; it prints as lines."""

    @property
    def lines(self) -> Iterator[str]:
        """Yield the lines as C, without indentation."""
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
    """A statement of one line with a comment after it."""

    statement: Statement
    comment: str

    @property
    def lines(self) -> Iterator[str]:
        (only,) = self.statement.lines
        yield f"{only}  // {self.comment}"


@dataclass(frozen=True)
class Using(Statement):
    """A type alias."""

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
    """A compile-time constant; is_member: of a struct."""

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
    """A variable, or an array, of the thread; value: its initial value."""

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
    """An assignment to a variable, or a store to an element of a buffer.

    operator: `=`, or a compound assignment: `+=`.
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
    """Statements that are executed if a test holds; braces: whether they are in a block."""

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
    """A loop from `start` up to `end`; unroll: the unroll pragma, None for none.

    unroll: "" for full unrolling, or a number.
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
    """An early exit: `return`, `continue` or `break`."""

    word: str

    @property
    def lines(self) -> Iterator[str]:
        yield f"{self.word};"
