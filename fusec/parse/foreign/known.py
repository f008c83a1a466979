"""Known properties of names and expressions of a file: values, types, shapes and sizes."""

from __future__ import annotations

from collections.abc import Callable

from fusec.diagnostics import Span
from fusec.ir.dim import Dim, dim
from fusec.ir.graph import Type, Value
from fusec.parse.foreign.uses import names_used
from fusec.parse.scope import Scope
from fusec.parse.syntax.trees import Name, Tree, integer_literal


class Known:
    """Looks up values, types and shapes of expressions."""

    def __init__(
        self,
        scope: Scope,
        span: Callable[[Tree], Span],
        inferred: Callable[[Tree], Type | None],
    ) -> None:
        """Look up types of values in `scope`, and locations of expressions with `span`.

        inferred: returns the type of an expression, None if it is unknown.
        """
        self._scope, self._span, self._inferred = scope, span, inferred

    def _value(self, tree: Tree | str) -> Value | None:
        """Return the tensor or scalar with a name."""
        text = tree if isinstance(tree, str) else tree.text if isinstance(tree, Name) else ""
        found = self._scope.meaning(text) if text else None
        return found if isinstance(found, Value) else None

    def _type_of(self, tree: Tree) -> Type | None:
        value = self._value(tree)
        return self._inferred(tree) if value is None else value.type

    def _shape(self, name: Tree | str) -> list[Dim] | None:
        tree = Name(name, 0, 0) if isinstance(name, str) else name
        type = self._type_of(tree)
        return None if type is None or type.shape is None else list(type.shape)

    def _holds_values(self, tree: Tree) -> bool:
        values = [self._value(name.partition(".")[0]) for name in names_used(tree)]
        return any(value is not None and value.type.dim is None for value in values)

    # -- rewriting

    def _size(self, tree: Tree) -> Dim | None:
        """Return the size given by an integer or the name of a dim."""
        number = integer_literal(tree)
        if number is not None:
            return dim(number)
        meaning = self._scope.meaning(tree.text) if isinstance(tree, Name) else None
        return meaning if isinstance(meaning, Dim) else None
