"""Instructions of a kernel by class and loop level, as data."""

from __future__ import annotations

from collections.abc import Iterator

from fusec.dataclasses import dataclass, field
from fusec.kernel.counting.instructions import Counts, added, times
from fusec.kernel.nodes import Expression


@dataclass(frozen=True)
class LevelCounts:
    """Instructions of one iteration of a loop, or of the kernel outside of loops; and inner loops.

    trips: average over threads, each time that the loop is reached, None if it depends on data;
    shown: the same as an expression; copies: how often machine code repeats the unrolled body.
    """

    name: str
    trips: float | None
    shown: str
    copies: float
    counts: Counts
    inner: tuple[LevelCounts, ...] = ()

    def total(self) -> dict[str, float]:
        """Return the instructions of one iteration with inner loops; unknown trips count once."""
        inner = (times(1 if i.trips is None else i.trips, i.total()) for i in self.inner)
        return added(self.counts, *inner)

    def text(self) -> dict[str, float]:
        """Return the instructions in machine code, where loop bodies occur once or unrolled."""
        return added(self.counts, *(times(i.copies, i.text()) for i in self.inner))

    def levels(self, depth: int = 0) -> Iterator[tuple[int, LevelCounts]]:
        """Yield this level and its inner ones, outermost first, with their depth."""
        yield depth, self
        for each in self.inner:
            yield from each.levels(depth + 1)


@dataclass(frozen=True)
class KernelCounts:
    """Instructions of a thread of a kernel; not_counted: device functions that are not included."""

    kernel: LevelCounts
    not_counted: tuple[str, ...]


@dataclass
class OpenLevel:
    """A level that is being walked; known: the integers that it has computed."""

    name: str
    trips: float | None
    shown: str
    copies: float
    around: OpenLevel | None = None
    counts: dict[str, float] = field(default_factory=dict[str, float])
    inner: list[OpenLevel] = field(default_factory=list["OpenLevel"])
    known: set[Expression] = field(default_factory=set[Expression])

    @property
    def is_unrolled(self) -> bool:
        """Return whether machine code contains all iterations unrolled."""
        return self.around is not None and self.trips is not None and self.copies >= self.trips

    @property
    def rolled(self) -> OpenLevel:
        """Return the innermost enclosing level, including itself, that is not unrolled."""
        return self.around.rolled if self.around is not None and self.is_unrolled else self

    def add(self, counts: Counts) -> None:
        """Count instructions of each iteration."""
        self.counts = added(self.counts, counts)

    def done(self) -> LevelCounts:
        """Return the counts; levels without instructions are omitted."""
        counts = {name: n for name, n in sorted(self.counts.items()) if n}
        inner = tuple(i for i in (each.done() for each in self.inner) if i.counts or i.inner)
        return LevelCounts(self.name, self.trips, self.shown, self.copies, counts, inner)

    def is_inside(self, outer: OpenLevel) -> bool:
        """Return whether this level is `outer` or nested in it."""
        return self is outer or (self.around is not None and self.around.is_inside(outer))
