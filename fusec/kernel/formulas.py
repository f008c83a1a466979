"""Formulas of operations, `fusec::divide({a}, {b})` or `{a} + {b}`, as nodes with holes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import cast

from fusec.dataclasses import dataclass
from fusec.diagnostics import InternalError
from fusec.kernel.nodes import (
    BINARY,
    SELECT,
    Binary,
    Call,
    Expression,
    Integer,
    Literal,
    Name,
    Node,
    Real,
    Select,
    Type,
    Unary,
    operand,
)

_TOKEN = re.compile(
    r"\s*(?:\{(?P<hole>\w+)\}|(?P<number>\d(?:[eE][-+]|[\w.])*)|(?P<name>(?:::)?[A-Za-z_]\w*(?:::\w+)*)"
    r"|(?P<sign><<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>&^|?:,()!~]))"
)
_NUMBER = r"(?P<digits>\d+(?P<real>\.\d*(?:e-?\d+)?|e-?\d+)?)(?P<suffix>[a-z]*)"


@dataclass(frozen=True)
class Hole(Expression):
    """The placeholder of an operand."""

    operand: str

    def _printed(self) -> str:
        return f"{{{self.operand}}}"


def fill(formula: str, operands: Mapping[str, Expression]) -> Expression:
    """Return an operation's expression with its operands substituted."""

    def filled(node: Node) -> Node:
        return operands[node.operand] if isinstance(node, Hole) else node.mapped(filled)

    return cast("Expression", filled(parsed(formula)))


@cache
def parsed(formula: str) -> Expression:
    """Return a formula as nodes, its operands as holes."""
    reader = _Reader(formula)
    found = reader.select()
    if reader.word:
        raise InternalError(f"the formula `{formula}` continues with `{reader.word}`")
    return found


def _number(word: str) -> Literal:
    match = re.fullmatch(_NUMBER, word)
    if match is None:
        raise InternalError(f"`{word}` is not a decimal number")
    digits, suffix = match["digits"], match["suffix"]
    return Real(digits, suffix) if match["real"] else Integer(int(digits), suffix)


class _Reader:
    """A precedence parser of formulas."""

    def __init__(self, formula: str) -> None:
        self.formula, self.position = formula, 0
        self.kind, self.word = "", ""
        self._next()

    def _next(self) -> str:
        read = self.word
        match = _TOKEN.match(self.formula, self.position)
        if match is None:
            if self.formula[self.position :].strip():
                raise InternalError(f"no formula: `{self.formula}`")
            self.kind, self.word = "", ""
            return read
        self.position = match.end()
        assert match.lastgroup is not None
        self.kind, self.word = match.lastgroup, match[match.lastgroup]
        return read

    def _expect(self, word: str) -> None:
        if self._next() != word:
            raise InternalError(f"the formula `{self.formula}` lacks a `{word}`")

    def select(self) -> Expression:
        test = self.binary(SELECT + 1)
        if self.word != "?":
            return test
        self._next()
        yes = self.select()
        self._expect(":")
        return Select(test, yes, self.select())

    def binary(self, least: int) -> Expression:
        left = self.unary()
        while self.kind == "sign" and BINARY.get(self.word, 0) >= least:
            operator = self._next()
            left = Binary(operator, left, self.binary(BINARY[operator] + 1))
        return left

    def unary(self) -> Expression:
        if self.kind == "sign" and self.word in "-!~":
            return Unary(self._next(), self.unary())
        return self.primary()

    def primary(self) -> Expression:
        kind, word = self.kind, self._next()
        if kind == "hole":
            return Hole(word)
        if kind == "number":
            return _number(word)
        if word == "(":
            inside = self.select()
            self._expect(")")
            return inside
        if kind != "name" or word.endswith("_cast"):
            raise InternalError(f"no formula: `{self.formula}` at `{word}`")
        template: tuple[Expression, ...] = ()
        if self.word == "<" and "::" in word:  # template of a fusec function; C has none
            self._next()
            template = self._list(">")
        if self.word != "(":
            if word in ("true", "false"):
                return operand(word == "true")
            return Type(word, template) if template else Name(word)
        self._next()
        return Call(word, self._list(")"), template)

    def _list(self, end: str) -> tuple[Expression, ...]:
        found = list[Expression]()
        while self.word != end:
            found.append(self.binary(BINARY["<<"]) if end == ">" else self.select())
            if self.word == ",":
                self._next()
        self._next()
        return tuple(found)
