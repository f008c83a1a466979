"""Call sites of device functions: the arguments of their cost functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from fusec.dataclasses import dataclass, field
from fusec.kernel.counting.instructions import FLOAT, INTEGER, SPECIAL, Counts, times
from fusec.kernel.device import device_name
from fusec.kernel.nodes import Expression, Name, Type

NO_INSTRUCTIONS: Counts = MappingProxyType({})


class UnknownNumber(Exception):
    """A number that a cost depends on is unknown."""


@dataclass(frozen=True)
class Site:
    """A call, with the properties on which its cost depends.

    about: the arguments of the function's template; space, element: of the memory that it accesses,
    and bytes of an element; vector: how many elements its value has; number: of an expression.
    """

    about: tuple[Expression, ...]
    space: str
    element: int
    vector: int
    number: Callable[[Expression], float | None]

    def __getitem__(self, name: str) -> float:
        """Return the value of a constant: `Config::kTileK`."""
        return self._known(Name(name))

    def argument(self, place: int) -> float:
        """Return the value of a template argument; negative indices count from the end."""
        if not -len(self.about) <= place < len(self.about):
            raise UnknownNumber
        return self._known(self.about[place])

    def _known(self, value: Expression) -> float:
        found = self.number(value)
        if found is None:
            raise UnknownNumber
        return found

    @property
    def combine(self) -> dict[str, float]:
        """Return the cost of combining two values, vectors element by element."""
        return times(self.vector, COMBINED.get(self._combiner, {FLOAT: 1}))

    @property
    def words(self) -> int:
        """Return the number of words of a combined value."""
        return self.vector * WORDS.get(self._combiner, 1)

    @property
    def _combiner(self) -> str:
        first = self.about[0] if self.about else None
        return device_name(first.name) if isinstance(first, Type) else ""


COMBINED: Mapping[str, Counts] = {
    "ExpSumMerge": {FLOAT: 6, SPECIAL: 1},
    "WelfordMerge": {FLOAT: 16, SPECIAL: 1},
    "ArgMax": {FLOAT: 2, INTEGER: 4},
    "ArgMin": {FLOAT: 2, INTEGER: 4},
    "All": {INTEGER: 1},
    "Any": {INTEGER: 1},
}
"""The cost of combiners with more than one instruction (combine.cuh, online.cuh, welford.cuh)."""
WORDS: Mapping[str, int] = {"ExpSumMerge": 2, "WelfordMerge": 3, "ArgMax": 2, "ArgMin": 2}
"""The number of words of their values, if more than one."""


@dataclass(frozen=True)
class Cost:
    """Instructions of a call, and of each iteration of a loop in it; trips: how often it runs."""

    once: Counts
    loop: str = ""
    trips: float = 0
    each: Counts = field(default_factory=lambda: NO_INSTRUCTIONS)
