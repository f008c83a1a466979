"""Families that take, of some records, the one whose predicted time is the least."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from fusec.ir.annotations import Setting
from fusec.schedule.family import NOTHING_SET, Family, L, P, R
from fusec.segment.protocol import Refusal
from fusec.target import Target


class ComparedFamily(Family[P, R, L]):
    """A family that compares records by their predicted time."""

    @abstractmethod
    def compared(self, problem: P, target: Target) -> Iterable[R]:
        """Yield the records to compare; some may be no kernel."""

    @abstractmethod
    def seconds(self, problem: P, parameters: R, target: Target) -> float:
        """Return the predicted time of a record."""

    @abstractmethod
    def no_kernel(self, problem: P, target: Target) -> Refusal:
        """Return why none of the records that are compared is a kernel."""

    def likeliest(self, problem: P, target: Target) -> R | Refusal:
        """Return the cheapest parameters."""
        found = self._by_price(problem, target, NOTHING_SET)
        return found[0] if found else self.no_kernel(problem, target)

    def candidates(
        self, problem: P, likeliest: R, target: Target, settings: Mapping[str, Setting]
    ) -> Iterator[R]:
        """Yield the parameters that are compared by price, then others near the likeliest."""
        yield from self._by_price(problem, target, settings)
        yield from super().candidates(problem, likeliest, target, settings)

    def _by_price(self, problem: P, target: Target, settings: Mapping[str, Setting]) -> list[R]:
        named = self.compared(problem, target)
        made = (self.completed(problem, replace(p, **settings)) for p in named)
        legal = (p for p in dict.fromkeys(made) if self.legal(problem, p, target) is None)
        return sorted(legal, key=lambda p: self.seconds(problem, p, target))
