"""Keeps sizes dynamic that no element of a loop needs as constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import TypeVar

from fusec.dataclasses import dataclass
from fusec.diagnostics import Unsupported
from fusec.index.domain import Refusal
from fusec.index.instances import Lowering
from fusec.ir.dim import Dim
from fusec.ir.expression import Atom, Index, Loaded, Quotient, Remainder, Var, variables_of
from fusec.ir.graph import Fusion
from fusec.properties import cached_property
from fusec.schedule.common import specialise
from fusec.schedule.problem import Problem

P = TypeVar("P", bound=Problem)
TRIES = 4
"""Most attempts, each specializing the sizes that the previous one needs as constants."""


@dataclass(frozen=True)
class Loops:
    """The loops in which a segment is computed.

    inner: the variables that vary per element; steps: those of them whose strides may be dynamic,
    because a loop accumulates them; widths: elements per access, and anything else that must not
    change; numbers: extents that are always constants.
    """

    lowering: Lowering
    inner: frozenset[Var]
    steps: frozenset[Var] = frozenset()
    widths: tuple[object, ...] = ()
    numbers: tuple[Dim, ...] = ()

    @cached_property
    def needed(self) -> frozenset[str]:
        """Return the symbols that per-element code would divide by, or use as strides."""
        found = frozenset[str]().union(*(n.symbols for n in self.numbers))
        return found.union(*(self._of(i) for i in self._indices()))

    @property
    def form(self) -> tuple[object, ...]:
        """Return the properties that must be equal with dynamic and with constant sizes."""
        made = self.lowering.made.values()
        conditions = sum(len(i.conditions) + sum(map(len, i.branches)) for i in made)
        stored = (self.lowering.home(o.value)[1] for o in self.lowering.fusion.outputs)
        return self.widths, len(made), conditions, sum(map(len, stored))

    def _indices(self) -> Iterable[Index]:
        for instance in self.lowering.made.values():
            if instance.address is not None:
                yield instance.address
            for conditions in (instance.conditions, *instance.branches):
                yield from (c.position for c in conditions)
        fusion = self.lowering.fusion
        for output in fusion.outputs:
            if not output.value.is_scalar:
                yield self.lowering.address(output.value, fusion.effects.strides(output.value))
                yield from (c.position for c in self.lowering.home(output.value)[1])

    def _of(self, index: Index) -> frozenset[str]:
        found = frozenset[str]()
        for atom, coefficient in index.terms:
            if variables_of(atom) & self.inner:
                found |= self._of_atom(atom)
                found |= frozenset() if atom in self.steps else coefficient.symbols
        return found

    def _of_atom(self, atom: Atom) -> frozenset[str]:
        if isinstance(atom, Quotient | Remainder):
            return atom.divisor.symbols | self._of(atom.inner)
        if isinstance(atom, Loaded):
            return frozenset[str]().union(*(self._of(c) for c in atom.coordinates))
        return frozenset()


def with_run_time_sizes(
    strict: P,
    make: Callable[[Fusion], P | Refusal],
    loops: Callable[[P], Loops],
    fixed: Iterable[Dim] = (),
) -> P:
    """Return a problem with more dynamic sizes, or the given one if that slows down elements.

    make: the problem of the segment with some sizes specialized; fixed: extents that stay
    constants.
    """
    segment = strict.segment
    numbers = frozenset[str]().union(*(e.symbols for e in fixed))
    wanted = {d.name for d in segment.dims if d.default > 0} - numbers - strict.hints.keys()
    for _ in range(TRIES):
        if not wanted:
            break
        found = _made(segment, strict.hints.keys() | wanted, make, loops)
        if found is None:
            break
        problem, made = found
        needed = made.needed & wanted
        if not needed:
            return problem if made.form == loops(strict).form else strict
        wanted -= needed
    return strict


def _made(
    segment: Fusion,
    kept: Set[str],
    make: Callable[[Fusion], P | Refusal],
    loops: Callable[[P], Loops],
) -> tuple[P, Loops] | None:
    """Return the problem that keeps some symbols, and its loops; None if there is none."""
    try:
        problem = make(specialise(segment, kept)[0])
        return None if isinstance(problem, Refusal) else (problem, loops(problem))
    except Unsupported:
        return None


def innermost(shape: Iterable[Dim]) -> tuple[Dim, ...]:
    """Return the last extent of a shape that is not 1, if any."""
    return tuple(e for e in shape if e != 1)[-1:]
