"""Expressions of sizes: dims, integers, integer scalars and arithmetic on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from fusec import ops
from fusec.codes.shapes import NOT_A_SIZE, ZERO_DIVISION
from fusec.diagnostics import FusecError, Span
from fusec.ir.dim import Dim, ceildiv, dim, floordiv, maximum, minimum, mod
from fusec.ir.graph import Operand, Value
from fusec.ops.builder.build import GraphBuilder
from fusec.parse.scope import Scope
from fusec.parse.source import Source
from fusec.parse.syntax.trees import CallTree, Infix, Literal, Name, Prefix, Tree

MAX_TERMS, MAX_ATOMS, MAX_DEPTH = 256, 1024, 32
"""Limits of a size: its terms, the dims and functions in it, and functions of functions."""
FUNCTIONS: Mapping[str, Callable[[Dim, Dim], Dim]] = {
    "min": minimum, "max": maximum, "ceildiv": ceildiv, "floordiv": floordiv, "mod": mod,
}  # fmt: skip
_OPERATORS: Mapping[str, Callable[[Dim, Dim], Dim]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "//": floordiv, "%": mod,
}  # fmt: skip
_DIVIDES = ("//", "%", "ceildiv", "floordiv", "mod")


def check_terms(sizes: Iterable[Dim], span: Span) -> None:
    """Raise FusecError for sizes that grow out of bounds: each square doubles the degree."""
    help = "declare a dim of its own for a part of it under `dims:`"
    for size in sizes:
        if len(size.terms) > MAX_TERMS or size.count > MAX_ATOMS:
            raise FusecError("the size has too many terms", span=span, help=help)
        if size.depth > MAX_DEPTH:
            message = f"the size has functions nested deeper than {MAX_DEPTH} levels"
            raise FusecError(message, span=span, help=help)


class NotASize(FusecError):
    """An operand of arithmetic, or an argument, is not a size."""


class Sizes:
    """Turns trees into Dims."""

    def __init__(
        self,
        source: Source,
        builder: GraphBuilder,
        scope: Scope,
        nested: Callable[[CallTree], Operand],
    ) -> None:
        """Bind trees of `source` to names of `scope`; `nested` builds a call of an operation."""
        self._source, self._builder, self._scope, self._nested = source, builder, scope, nested

    def _span(self, tree: Tree) -> Span:
        return self._source.span(tree.start, tree.end)

    def of(self, tree: Tree) -> Dim:
        """Return the Dim of an expression of sizes."""
        if isinstance(tree, Literal) and type(tree.value) is int:
            if not -(2**63) <= tree.value < 2**63:
                raise FusecError("the size does not fit in 64 bits", span=self._span(tree))
            return dim(tree.value)
        if isinstance(tree, Name):
            return self._named(tree)
        if isinstance(tree, Infix):
            left, right = self.of(tree.left), self.of(tree.right)
            if tree.operator not in _OPERATORS:
                end = tree.place + len(tree.operator)
                raise NotASize(
                    f"`{tree.operator}` is not a size",
                    span=self._source.span(tree.place, end),
                    help="sizes are divided with `//`" if tree.operator == "/" else None,
                    code=NOT_A_SIZE,
                )
            return self._apply(tree.operator, _OPERATORS[tree.operator], left, right, tree)
        if isinstance(tree, Prefix) and tree.operator == "-":
            return -self.of(tree.operand)
        if isinstance(tree, CallTree):
            return self._call(tree)
        raise NotASize(
            "expected a size: an integer or a dim", span=self._span(tree), code=NOT_A_SIZE
        )

    def is_size(self, tree: Tree) -> bool:
        """Return whether an expression is arithmetic on sizes alone."""
        if isinstance(tree, Literal):
            return type(tree.value) is int
        if isinstance(tree, Name):
            if "." in tree.text and not self._scope.knows(tree.text):
                return False
            meaning = self._scope.find(tree.text, self._span(tree))
            return isinstance(meaning, Dim) or meaning.type.dim is not None
        if isinstance(tree, Infix):
            known = tree.operator in _OPERATORS
            return known and self.is_size(tree.left) and self.is_size(tree.right)
        if isinstance(tree, Prefix):
            return tree.operator == "-" and self.is_size(tree.operand)
        return isinstance(tree, CallTree) and self.is_function(tree)

    def is_function(self, tree: CallTree) -> bool:
        """Return whether a call is a function of two sizes, not an operation of that name."""
        values = [a.value for a in tree.arguments if a.keyword is None]
        known = tree.name.text in FUNCTIONS and len(values) == len(tree.arguments) == 2
        return known and all(map(self.is_size, values))

    def _named(self, tree: Name) -> Dim:
        declare = f"declare the size under `dims:`, as in `{tree.text}: 64`"
        meaning = self._scope.find(tree.text, self._span(tree), declare)
        if isinstance(meaning, Dim):
            return meaning
        if isinstance(meaning, Value):
            meaning = self._builder.resolve(meaning)
        if meaning.type.dim is None:
            raise NotASize(
                f"`{tree.text}` is {meaning.type}, not a size",
                span=self._span(tree),
                help="sizes are dims, integers and integer scalars computed from them",
                code=NOT_A_SIZE,
            )
        return meaning.type.dim

    def _apply(
        self, name: str, function: Callable[[Dim, Dim], Dim], left: Dim, right: Dim, tree: Tree
    ) -> Dim:
        if name in _DIVIDES and right.evaluate(self._builder.hints) == 0:
            at = "" if right == 0 else f": `{right}` is 0 at the default sizes"
            raise FusecError(f"division by zero{at}", span=self._span(tree), code=ZERO_DIVISION)
        span = self._span(tree)
        check_terms((left, right), span)
        if name == "*" and len(left.terms) * len(right.terms) > 16 * MAX_TERMS:
            raise FusecError("the size has too many terms", span=span)
        made = function(left, right)
        check_terms((made,), span)
        return made

    def _call(self, tree: CallTree) -> Dim:
        name = tree.name.text
        values = [a.value for a in tree.arguments if a.keyword is None]
        if name in FUNCTIONS and len(values) == len(tree.arguments) == 2:
            left, right = self.of(values[0]), self.of(values[1])
            return self._apply(name, FUNCTIONS[name], left, right, tree)
        if name not in ops.TABLE:
            raise NotASize(
                f"unknown size function `{name}`",
                span=self._span(tree.name),
                help="one of " + ", ".join(FUNCTIONS),
                code=NOT_A_SIZE,
            )
        known = self._nested(tree).type.dim
        if known is None:
            raise NotASize(
                f"`{name}` is not a size here",
                span=self._span(tree),
                help="sizes are dims, integers and integer scalars computed from them",
                code=NOT_A_SIZE,
            )
        return known
