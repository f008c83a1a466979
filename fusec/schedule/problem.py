"""The analysis of a segment by a scheduler, computed once and valid for all parameters."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.index.domain import Domain
from fusec.ir.graph import Fusion
from fusec.properties import cached_property
from fusec.schedule.common import needs_wide_index
from fusec.schedule.plan import Guard
from fusec.schedule.rows.domain import Rows, vector_width


@dataclass(frozen=True, eq=False)
class Problem:
    """A segment, and the fusion that its kernels compute: specialized, and possibly rewritten."""

    segment: Fusion
    fusion: Fusion

    @cached_property
    def structure(self) -> Hashable:
        """Return a key that is equal for segments that differ only in names."""
        own = self.segment.structure()
        return own, own if self.fusion is self.segment else self.fusion.structure()

    @property
    def in_memory(self) -> bool:
        """Return whether only accesses to global memory need wide indices, not those of tiles."""
        return False

    @cached_property
    def specialised(self) -> Mapping[str, int]:
        """Return the specialized sizes by the name of their dim."""
        kept = self.fusion.hints
        return {d.name: d.default for d in self.segment.dims if d.name not in kept}

    @cached_property
    def index(self) -> tuple[bool, tuple[Guard, ...]]:
        """Return whether indices need 64 bits, and the guards under which 32 bits suffice."""
        return needs_wide_index(self.fusion, in_memory=self.in_memory)

    @property
    def wide(self) -> bool:
        """Return whether indices need 64 bits."""
        return self.index[0]

    @property
    def hints(self) -> Mapping[str, int]:
        """Return the default sizes of the dynamic dims."""
        return self.fusion.hints


def vector_guards(facts: Facts) -> tuple[Guard, ...]:
    """Return the guards for the divisibility of sizes that vectorized accesses rely on."""
    return tuple(Guard(value, "%", by, "vectors") for value, by in facts.assumed)


def widest_vectors(
    problem: Problem, domain: Domain, rows: Rows, *, inner: bool, stores: bool = True
) -> tuple[int, tuple[Guard, ...]]:
    """Return the widest vectors along the contiguous axis, in elements, and the guards they need.

    inner: whether the columns are contiguous, else the rows are; stores: as for `vector_width`.
    """
    facts = Facts(problem.hints)
    along = rows.along(inner=inner)
    return vector_width(problem.fusion, domain, along, facts, stores=stores), vector_guards(facts)
