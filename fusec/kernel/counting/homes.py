"""Where compilers compute integers: outside of the loops on which they do not depend."""

from __future__ import annotations

from fusec.dataclasses import dataclass, field, replace
from fusec.kernel.counting.level_counts import OpenLevel
from fusec.kernel.nodes import Binary, Declare, Expression, Let, Name, Sum, walk
from fusec.kernel.values import Values

_OF_CUDA = frozenset(["threadIdx", "blockIdx", "gridDim", "blockDim"])


@dataclass(frozen=True)
class Home:
    """The level in which a value is computed; varies: with the iteration of an unrolled loop."""

    level: OpenLevel
    varies: bool = False


@dataclass(frozen=True)
class Homes:
    """The homes of variables; pointers: parameters, whose home is the outermost level."""

    values: Values
    pointers: frozenset[str]
    outermost: OpenLevel
    _known: dict[str, Home] = field(default_factory=dict[str, Home])

    def declare(self, node: Let | Declare, level: OpenLevel) -> None:
        """Record the home of a variable that is declared in a level."""
        found = Home(level.rolled) if node.value is None else self.of(node.value, level)
        self._known[node.name] = found

    def inside(self, variable: str, level: OpenLevel) -> Homes:
        """Return a copy of the homes for a loop, including its variable; dropped after the loop."""
        own = Home(level.rolled, level.is_unrolled)
        return replace(self, _known={**self._known, variable: own})

    def of(self, node: Expression, level: OpenLevel) -> Home:
        """Return the level in which an expression is computed.

        A variable that the template's own text declares is assumed to vary with the level.
        """
        home, varies = self.outermost, False
        for each in walk([node]):
            if not isinstance(each, Name) or self.values.number(each) is not None:
                continue
            found = self._known.get(each.name)
            if found is None and each.name not in self.pointers | _OF_CUDA:
                found = Home(level.rolled, level.is_unrolled)
            if found is not None:
                home = found.level if found.level.is_inside(home) else home
                varies |= found.varies
        return Home(home, varies)


def is_affine(node: Expression, values: Values) -> bool:
    """Return whether an expression changes by a constant per iteration of an unrolled loop."""
    if isinstance(node, Sum):
        return True
    if not isinstance(node, Binary) or node.operator not in ("+", "-", "*"):
        return False
    factors = (node.left, node.right)
    return node.operator != "*" or any(values.number(each) is not None for each in factors)


def is_shift(node: Expression, values: Values) -> bool:
    """Return whether a quotient or a remainder is by a power of two."""
    number = values.number(node.right) if isinstance(node, Binary) else None
    return number is not None and number > 0 and int(number) & (int(number) - 1) == 0
