"""Schedulers that select the candidate with the least predicted time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from fusec.ir.annotations import Setting
from fusec.ir.identity_cache import IdentityCache
from fusec.schedule.family import NOTHING_SET, Family, L, P, R
from fusec.schedule.space import MOST_RECORDS
from fusec.segment.protocol import Refusal
from fusec.target import Target


class ComparedFamily(Family[P, R, L]):
    """A scheduler that compares candidate parameters by their predicted time."""

    def __init__(self) -> None:
        """Start with an empty cache."""
        super().__init__()
        self._cheapest: IdentityCache[R | None] = IdentityCache()

    @abstractmethod
    def compared(self, problem: P, target: Target, settings: Mapping[str, Setting]) -> Iterable[R]:
        """Yield candidates, before settings are applied; some may be illegal."""

    @abstractmethod
    def seconds(self, problem: P, parameters: R, target: Target) -> float:
        """Return the predicted time of a candidate in seconds."""

    def ranked(self, problem: P, found: Iterable[R], target: Target) -> Iterable[R]:
        """Return candidates in the order of their predicted time, the fastest first."""
        return sorted(found, key=lambda p: self.seconds(problem, p, target))

    @abstractmethod
    def no_kernel(self, problem: P, target: Target) -> Refusal:
        """Return why none of the candidates is legal."""

    def default_parameters(self, problem: P, target: Target) -> R | Refusal:
        """Return the fastest parameters, computed once for problems of the same structure."""

        def found() -> R | None:
            return next(self._by_seconds(problem, target, NOTHING_SET), None)

        about = problem.structure, target
        return self._cheapest.of(None, about, found) or self.no_kernel(problem, target)

    def candidates(
        self, problem: P, default_parameters: R, target: Target, settings: Mapping[str, Setting]
    ) -> Iterator[R]:
        """Yield the compared candidates, fastest first, then others near the defaults."""
        yield from islice(self._by_seconds(problem, target, settings), MOST_RECORDS // 2)
        yield from super().candidates(problem, default_parameters, target, settings)

    def _by_seconds(
        self, problem: P, target: Target, settings: Mapping[str, Setting]
    ) -> Iterator[R]:
        found = self.compared(problem, target, settings)
        if not settings:  # usually only the first is used: the others are not checked
            return self._sorted(problem, found, target)
        made = (self.with_settings(p, settings) for p in found)
        whole = (self.with_derived(problem, p) for p in made if not isinstance(p, Refusal))
        legal = (p for p in dict.fromkeys(whole) if self.legal(problem, p, target) is None)
        return iter(sorted(legal, key=lambda p: self.seconds(problem, p, target)))

    def _sorted(self, problem: P, found: Iterable[R], target: Target) -> Iterator[R]:
        by_seconds = self.ranked(problem, found, target)
        made = (self.with_derived(problem, p) for p in by_seconds)
        return (p for p in made if self.legal(problem, p, target) is None)
