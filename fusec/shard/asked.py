"""Which shardings of each value are requested, and the order in which a rank computes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fusec.ir.graph import Value
from fusec.ir.sharding import STREAM, Sharding

Plan = Mapping[Value, tuple[Sharding, ...]]
"""The requested shardings of each value, in the order in which they are computed."""


class Asked:
    """Records requested shardings; a sharding that follows others in a plan waits for them.

    Of each value, the shardings over the fewest ranks come first: any other sharding is a slice of
    a replicated copy, so it needs no communication of its own. Thus a rank's program depends on
    which shardings are requested, not on which one is requested first.
    """

    def __init__(self, plan: Plan | None = None) -> None:
        """Use the plan of an earlier walk over the same fusion, if any."""
        self._given: Plan = {} if plan is None else plan
        self._noted: dict[Value, dict[Sharding, bool]] = {}
        self.counts = True
        """Whether the current requests are needed: requests that no output needs do not affect the
        plan."""

    def of(self, value: Value, wanted: Sharding) -> Iterator[Sharding]:
        """Record that a sharding is requested, and yield those to compute now; it is the last."""
        wanted = Sharding(wanted.dims)
        noted = self._noted.setdefault(value, {})
        noted[wanted] = noted.get(wanted, False) or self.counts
        for sharding in self._given.get(value, ()):
            if sharding == wanted:
                break
            yield sharding
        yield wanted

    @property
    def plan(self) -> Plan | None:
        """Return the required order of shardings; None if they were computed in this order."""
        found, same = dict[Value, tuple[Sharding, ...]](), True
        for value, noted in self._noted.items():
            order = tuple(sorted((s for s, counts in noted.items() if counts), key=_ranks_first))
            found[value] = order
            same = same and tuple(noted)[: len(order)] == order
        return None if same else found


def _ranks_first(sharding: Sharding) -> tuple[int, int, str]:
    """Return a sort key of shardings: the number of mesh axes, then of slices."""
    slices = len(sharding.streamed)
    ranks = sum(1 for axis, _ in sharding.axes if axis != STREAM)
    return ranks, slices, repr(sharding.dims)
