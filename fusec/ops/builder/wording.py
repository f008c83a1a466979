"""The wording of declarations in errors: as in a file, or as in a Python definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd, lcm
from typing import TYPE_CHECKING, Protocol

from fusec.dataclasses import dataclass
from fusec.ir.dim import Call, Dim, Symbol, symbol
from fusec.ir.divisibility import with_exact_quotients

if TYPE_CHECKING:
    from fusec.ir.graph import DimFact, Value

_SPARE = ("G", "P", "R", "P_2", "P_3")
"""Names for a size that an error introduces."""


class Wording(Protocol):
    """The language that a graph is written in, which errors use to suggest declarations."""

    def dim(self, name: str, default: int, multiple_of: int) -> str:
        """Return how to declare a dim with a default that is a multiple of a number."""
        ...

    def product(self, name: str, factor: Dim, spare: str, default: int, below: str = "") -> str:
        """Return how to declare a dim as a size times a new dim, `spare`.

        below: a dim of the factor that is declared further down.
        """
        ...

    def derived(self, name: str, size: Dim, below: str = "") -> str:
        """Return how to declare a dim as an expression of others; below: as in `product`."""
        ...

    def input(self, value: Value, shape: Sequence[str]) -> str:
        """Return the declaration of an input with another shape."""
        ...

    def sum(self, name: str, least: Dim, spare: str, default: int) -> str:
        """Return how to declare a dim as a size plus a new dim, `spare`."""
        ...

    def spare(self, name: str, default: int) -> str:
        """Return the declaration of a new dim that an input's declaration needs."""
        ...


class FileWording:
    """The wording of files."""

    def dim(self, name: str, default: int, multiple_of: int) -> str:
        """Return the declaration under `dims:`."""
        return f"declare `{name}: {{default: {default}, multiple_of: {multiple_of}}}` under `dims:`"

    def product(self, name: str, factor: Dim, spare: str, default: int, below: str = "") -> str:
        """Return the two declarations under `dims:`."""
        place = f", below `{below}`" if below else ""
        return (
            f"declare `{name}: {_factor(factor)} * {spare}` with `{spare}: {default}` before it "
            f"under `dims:`{place}"
        )

    def derived(self, name: str, size: Dim, below: str = "") -> str:
        """Return the declaration under `dims:`."""
        place = f", below `{below}`" if below else ""
        return f"declare `{name}: {size}` under `dims:`{place}"

    def input(self, value: Value, shape: Sequence[str]) -> str:
        """Return the declaration under `inputs:`."""
        return f"`{value.name}: {value.dtype}[{', '.join(shape)}]` under `inputs:`"

    def sum(self, name: str, least: Dim, spare: str, default: int) -> str:
        """Return the two declarations under `dims:`."""
        return (
            f"write `{name}: {least} + {spare}` with `{spare}: {default}` before it under `dims:`"
        )

    def spare(self, name: str, default: int) -> str:
        """Return the declaration under `dims:`."""
        return f"`{name}: {default}` under `dims:`"


class PythonWording:
    """The wording of Python definitions."""

    def dim(self, name: str, default: int, multiple_of: int) -> str:
        """Return the call of `define_dim`."""
        return f'write `{name} = fd.define_dim("{name}", {default}, multiple_of={multiple_of})`'

    def product(self, name: str, factor: Dim, spare: str, default: int, below: str = "") -> str:
        """Return the call of `define_dim` and the product."""
        place = f", below `{below}`" if below else ""
        return (
            f'write `{spare} = fd.define_dim("{spare}", {default})` and '
            f"`{name} = {_factor(factor)} * {spare}`{place}"
        )

    def derived(self, name: str, size: Dim, below: str = "") -> str:
        """Return the assignment."""
        return f"write `{name} = {size}`" + (f", below `{below}`" if below else "")

    def input(self, value: Value, shape: Sequence[str]) -> str:
        """Return the argument of `define_tensor`."""
        return f"`shape=[{', '.join(shape)}]` in the definition of `{value.name}`"

    def sum(self, name: str, least: Dim, spare: str, default: int) -> str:
        """Return the call of `define_dim` and the sum."""
        return (
            f'write `{spare} = fd.define_dim("{spare}", {default})` and '
            f"`{name} = {least} + {spare}`"
        )

    def spare(self, name: str, default: int) -> str:
        """Return the call of `define_dim`."""
        return f'`{name} = fd.define_dim("{name}", {default})` before it'


def _factor(size: Dim) -> str:
    return f"({size})" if len(size.terms) > 1 else str(size)


FILE_WORDING = FileWording()


@dataclass(frozen=True)
class Declaration:
    """A suggested declaration of a dim: as a multiple of a number, or as a product of another size.

    spare: the other factor of a product, a new dim. below: a dim of the factor that is declared
    further down.
    """

    name: str
    default: int
    multiple_of: int = 1
    factor: Dim | None = None
    spare: str = ""
    spare_default: int = 1
    below: str = ""

    def text(self, words: Wording) -> str:
        """Return how to declare it."""
        if self.factor is None:
            return words.dim(self.name, self.default, self.multiple_of)
        return words.product(self.name, self.factor, self.spare, self.spare_default, self.below)

    def applied(self, size: Dim) -> Dim:
        """Return a size under this declaration."""
        if self.factor is not None:
            return size.substitute({self.name: self.factor * symbol(self.spare)})
        return with_exact_quotients(size, {self.name: self.multiple_of})


def multiple(dims: Mapping[str, DimFact], extent: Dim, count: int) -> Declaration | None:
    """Return how to declare a dim so that a product of sizes is a multiple of `count`.

    None if the extent is not a product with a dim. If several dims qualify, it is the last one
    whose default size fits, or the last one.
    """
    if len(extent.terms) != 1:
        return None
    (atoms, coefficient) = extent.terms[0]
    named = [dims[a.name] for a in atoms if isinstance(a, Symbol) and a.name in dims]
    if not named:
        return None
    share = count // gcd(coefficient, count)
    fact = ([f for f in named if f.default % share == 0] or named)[-1]
    whole = lcm(share, fact.multiple_of)
    return Declaration(fact.name, -(-fact.default // whole) * whole, whole)


def multiple_of(dims: Mapping[str, DimFact], extent: Dim, factor: Dim) -> Declaration | None:
    """Return how to declare a dim as a multiple of a size; None if the extent is not one dim."""
    fact = dims.get(str(extent))
    if fact is None or fact.name in factor.symbols:
        return None
    sizes = {f.name: f.default for f in dims.values()}
    times = max(fact.default // max(factor.evaluate(sizes), 1), 1)
    spare = next(n for n in _SPARE if n not in dims)
    later = [*dims][[*dims].index(fact.name) :]
    below = [n for n in later if n in factor.symbols]
    return Declaration(fact.name, fact.default, 1, factor, spare, times, "".join(below[-1:]))


def equating(dims: Mapping[str, DimFact], left: Dim, right: Dim) -> Declaration | None:
    """Return how to declare a dim so that two sizes with quotients are equal, if possible."""
    for atom in (a for size in (left, right) for a in size.atoms() if isinstance(a, Call)):
        if atom.function not in ("floordiv", "ceildiv", "mod"):
            continue
        whole = atom.left - sum(c for monomial, c in atom.left.terms if not monomial)
        found = (
            multiple(dims, whole, atom.right.value)
            if atom.right.is_const and atom.right.value > 0
            else multiple_of(dims, atom.left, atom.right)
        )
        if found is not None and found.applied(left) == found.applied(right):
            return found
    return None


def multiple_help(
    words: Wording,
    dims: Mapping[str, DimFact],
    extent: Dim,
    count: int,
    *,
    already_reported: bool = False,
) -> str:
    """Return how to declare a dim so that an extent is a multiple of `count`.

    told_already: the error itself says that the default size of the extent is not a multiple.
    """
    found = multiple(dims, extent, count)
    if found is None:
        return f"declare the sizes in {extent} so that it is a multiple of {count}"
    fact, told = dims[found.name], found.text(words)
    if found.default == fact.default or (already_reported and str(extent) == fact.name):
        return told
    return f"{fact.name} is {fact.default}, not a multiple of {found.multiple_of}: {told}"
