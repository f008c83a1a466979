"""Instructions of a kernel by class and loop level, as data."""

from __future__ import annotations

from collections.abc import Iterator

from fusec.dataclasses import dataclass, field
from fusec.kernel.counting.instructions import Counts, added, times
from fusec.kernel.nodes import Expression


@dataclass(frozen=True)
class LevelCounts:
    """Instructions of one trip of a loop, or of the kernel outside of loops, and of loops in it.

    trips: on average over threads, each time that the loop is reached, None where data decides;
    shown: the same as an expression; copies: how many trips machine code has one after the other.
    """

    name: str
    trips: float | None
    shown: str
    copies: float
    counts: Counts
    inner: tuple[LevelCounts, ...] = ()

    def total(self) -> dict[str, float]:
        """Return the instructions of one trip with those of loops in it; of unknown trips one."""
        inner = (times(1 if i.trips is None else i.trips, i.total()) for i in self.inner)
        return added(self.counts, *inner)

    def text(self) -> dict[str, float]:
        """Return the instructions of machine code, in which loops stand once or unrolled."""
        return added(self.counts, *(times(i.copies, i.text()) for i in self.inner))

    def levels(self, depth: int = 0) -> Iterator[tuple[int, LevelCounts]]:
        """Yield this level and those in it, outermost first, with how deep they lie."""
        yield depth, self
        for each in self.inner:
            yield from each.levels(depth + 1)


@dataclass(frozen=True)
class KernelCounts:
    """Instructions of a thread of a kernel; not_counted: device functions that are not in them."""

    kernel: LevelCounts
    not_counted: tuple[str, ...]


@dataclass
class OpenLevel:
    """A level whose nodes are walked; known: the integers that it has computed."""

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
        """Return whether machine code has all trips one after the other."""
        return self.around is not None and self.trips is not None and self.copies >= self.trips

    @property
    def rolled(self) -> OpenLevel:
        """Return the innermost level around it, or itself, that is not unrolled."""
        return self.around.rolled if self.around is not None and self.is_unrolled else self

    def add(self, counts: Counts) -> None:
        """Count instructions of each trip."""
        self.counts = added(self.counts, counts)

    def done(self) -> LevelCounts:
        """Return what was counted; levels without instructions are left out."""
        counts = {name: n for name, n in sorted(self.counts.items()) if n}
        inner = tuple(i for i in (each.done() for each in self.inner) if i.counts or i.inner)
        return LevelCounts(self.name, self.trips, self.shown, self.copies, counts, inner)

    def is_inside(self, outer: OpenLevel) -> bool:
        """Return whether this level is another one, or lies in it."""
        return self is outer or (self.around is not None and self.around.is_inside(outer))
