"""Anonymous sizes: unified with the extents they meet, as nvFuser assumes of a script's `-1`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fusec.ir.dim import Dim, Symbol, dim, symbol
from fusec.ir.divisibility import with_exact_quotients
from fusec.ir.graph import Type
from fusec.ops.builder.wording import Declaration


class Bindings:
    """The sizes that anonymous symbols are unified with."""

    def __init__(self) -> None:
        """Start without anonymous symbols."""
        self._order: dict[str, int] = {}
        self._values: dict[str, Dim] = {}
        self.multiples: dict[str, int] = {}
        """The number that each dim is declared to be a multiple of, if more than 1."""
        self._assumes = False
        """Whether a dim is assumed equal to one declared differently, so that sizes are inferred
        again."""

    def add(self, name: str) -> None:
        """Declare an anonymous symbol."""
        self._order[name] = len(self._order)

    @property
    def bound(self) -> Mapping[str, Dim]:
        """Return the size that each unified symbol stands for."""
        return self._values

    def unify(self, left: Dim, right: Dim) -> bool:
        """Make two extents equal by binding an anonymous symbol; return whether they now are."""
        left, right = self.size(left), self.size(right)
        if left == right:
            return True
        first, second = self._anonymous(left), self._anonymous(right)
        if first is not None and second is not None and self._order[first] < self._order[second]:
            first = None
        for name, side, other in ((first, left, right), (second, right, left)):
            if name is not None and name not in other.symbols:
                quotient = other.divide(dim(side.terms[0][1]))
                if quotient is not None:
                    self._bind(name, quotient)
                    return True
        return False

    def _anonymous(self, size: Dim) -> str | None:
        """Return the free anonymous symbol if a size is one, or a multiple of one."""
        if len(size.terms) != 1 or len(size.terms[0][0]) != 1:
            return None
        atom = size.terms[0][0][0]
        return atom.name if isinstance(atom, Symbol) and atom.name in self._order else None

    def _bind(self, name: str, value: Dim) -> None:
        self._values = {k: v.substitute({name: value}) for k, v in self._values.items()}
        self._values[name] = value

    def fix(self, name: str, value: int) -> None:
        """Make a symbol a constant."""
        self._bind(name, dim(value))

    def assume(self, declared: Declaration | None) -> Callable[[], None]:
        """Assume that a dim is declared differently; return a function that undoes this."""
        values, multiples, assumed = self._values, self.multiples, self._assumes
        if declared is not None and declared.factor is not None:
            self._bind(declared.name, declared.factor * symbol(declared.spare))
        elif declared is not None:
            self.multiples = {**multiples, declared.name: declared.multiple_of}
        self._assumes = assumed or declared is not None

        def undo() -> None:
            self._values, self.multiples, self._assumes = values, multiples, assumed

        return undo

    def size(self, size: Dim) -> Dim:
        """Return a size with unified symbols replaced, and with quotients known to be exact."""
        return with_exact_quotients(size.substitute(self._values), self.multiples)

    def type(self, type: Type) -> Type:
        """Return a type with unified symbols replaced; its sizes are the inferred ones."""
        values, shape = self._values, type.shape
        if self._assumes and shape is not None:
            return Type(type.dtype, tuple(map(self.size, shape)), type.dim)
        if shape is not None:
            shape = tuple(d.substitute(values) for d in shape)
        known = None if type.dim is None else type.dim.substitute(values)
        if shape == type.shape and known == type.dim:
            return type
        return Type(type.dtype, shape, known)

    def attribute(self, value: Any) -> Any:
        """Return an attribute with unified symbols replaced in its sizes."""
        if isinstance(value, Dim):
            return self.size(value)
        if isinstance(value, tuple):
            return tuple(self.attribute(v) for v in value)  # pyright: ignore[reportUnknownVariableType]
        return value
