"""Families that take, of some records, the one whose predicted time is the least."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from fusec.dataclasses import replace
from fusec.ir.annotations import Setting
from fusec.ir.recent import Recent
from fusec.schedule.family import NOTHING_SET, Family, L, P, R
from fusec.schedule.space import MOST_RECORDS
from fusec.segment.protocol import Refusal
from fusec.target import Target


class ComparedFamily(Family[P, R, L]):
    """A family that compares records by their predicted time."""

    def __init__(self) -> None:
        """Know no segment yet."""
        super().__init__()
        self._cheapest: Recent[R | None] = Recent()

    @abstractmethod
    def compared(self, problem: P, target: Target, settings: Mapping[str, Setting]) -> Iterable[R]:
        """Yield the records to compare, to which settings are put; some may be no kernel."""

    @abstractmethod
    def seconds(self, problem: P, parameters: R, target: Target) -> float:
        """Return the predicted time of a record."""

    @abstractmethod
    def no_kernel(self, problem: P, target: Target) -> Refusal:
        """Return why none of the records that are compared is a kernel."""

    def likeliest(self, problem: P, target: Target) -> R | Refusal:
        """Return the cheapest parameters: once for all problems of the same structure."""

        def found() -> R | None:
            return next(self._by_price(problem, target, NOTHING_SET), None)

        about = problem.structure, target
        return self._cheapest.of(None, about, found) or self.no_kernel(problem, target)

    def candidates(
        self, problem: P, likeliest: R, target: Target, settings: Mapping[str, Setting]
    ) -> Iterator[R]:
        """Yield the parameters that are compared by price, then others near the likeliest."""
        yield from islice(self._by_price(problem, target, settings), MOST_RECORDS // 2)
        yield from super().candidates(problem, likeliest, target, settings)

    def _by_price(self, problem: P, target: Target, settings: Mapping[str, Setting]) -> Iterator[R]:
        found = self.compared(problem, target, settings)
        if not settings:  # most often only the first is asked for: what is dearer need not be legal
            return self._sorted(problem, found, target)
        made = (self.completed(problem, replace(p, **settings)) for p in found)
        legal = (p for p in dict.fromkeys(made) if self.legal(problem, p, target) is None)
        return iter(sorted(legal, key=lambda p: self.seconds(problem, p, target)))

    def _sorted(self, problem: P, found: Iterable[R], target: Target) -> Iterator[R]:
        by_price = sorted(found, key=lambda p: self.seconds(problem, p, target))
        made = (self.completed(problem, p) for p in by_price)
        return (p for p in made if self.legal(problem, p, target) is None)
