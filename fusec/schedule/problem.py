"""A segment as a family sees it: what is found once, whatever is chosen."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.index.domain import Domain
from fusec.ir.graph import Fusion
from fusec.schedule.common import needs_wide_index
from fusec.schedule.plan import Guard
from fusec.schedule.rows.domain import Rows, vector_width


@dataclass(frozen=True, eq=False)
class Problem:
    """A segment, and the fusion of its kernels: with sizes put in, and maybe written otherwise."""

    segment: Fusion
    fusion: Fusion

    @cached_property
    def structure(self) -> Hashable:
        """Return what is the same of segments that differ in names alone, sizes put in."""
        own = self.segment.structure()
        return own, own if self.fusion is self.segment else self.fusion.structure()

    @property
    def in_memory(self) -> bool:
        """Return whether nothing is counted but elements of memory: what is between is in tiles."""
        return False

    @cached_property
    def specialised(self) -> Mapping[str, int]:
        """Return the sizes that were put in."""
        kept = self.fusion.hints
        return {d.name: d.default for d in self.segment.dims if d.name not in kept}

    @cached_property
    def index(self) -> tuple[bool, tuple[Guard, ...]]:
        """Return whether addresses take 64 bits; if not, the guards that keep it so."""
        return needs_wide_index(self.fusion, in_memory=self.in_memory)

    @property
    def wide(self) -> bool:
        """Return whether addresses take 64 bits."""
        return self.index[0]

    @property
    def hints(self) -> Mapping[str, int]:
        """Return the default sizes that are left."""
        return self.fusion.hints


def vector_guards(facts: Facts) -> tuple[Guard, ...]:
    """Return the guards that keep sizes the multiples that accesses by vectors rely on."""
    return tuple(Guard(value, "%", by, "vectors") for value, by in facts.assumed)


def widest_vectors(
    problem: Problem, domain: Domain, rows: Rows, *, inner: bool, stores: bool = True
) -> tuple[int, tuple[Guard, ...]]:
    """Return the widest vectors along memory, and the guards that they need.

    inner: whether the columns run along memory, else the rows do; stores: as for `vector_width`.
    """
    facts = Facts(problem.hints)
    along = rows if inner else Rows(kept=rows.reduced, reduced=rows.kept)
    return vector_width(problem.fusion, domain, along, facts, stores=stores), vector_guards(facts)
