"""Which divisions of each value are asked for, and in which order a rank makes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fusec.ir.graph import Value
from fusec.ir.sharding import STREAM, Sharding

Plan = Mapping[Value, tuple[Sharding, ...]]
"""The divisions of each value that are asked for, in the order in which they are made."""


class Asked:
    """Notes the divisions that are asked for; one that others precede in a plan waits for them.

    Of each value the divisions by the fewest ranks come first: of a copy that all ranks have any
    other is a slice, so none is exchanged beside it. Thus what a rank runs depends on which
    divisions are asked for, not on which one is asked for first.
    """

    def __init__(self, plan: Plan | None = None) -> None:
        """Take the plan that an earlier walk over the same fusion has made, if any."""
        self._given: Plan = {} if plan is None else plan
        self._noted: dict[Value, dict[Sharding, bool]] = {}
        self.counts = True
        """Whether what asks is needed: what no output needs decides nothing."""

    def of(self, value: Value, wanted: Sharding) -> Iterator[Sharding]:
        """Note that a division is asked for, and yield what is made now: it comes last."""
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
        """Return the order in which divisions are to be made; None where they were made so."""
        found, same = dict[Value, tuple[Sharding, ...]](), True
        for value, noted in self._noted.items():
            order = tuple(sorted((s for s, counts in noted.items() if counts), key=_ranks_first))
            found[value] = order
            same = same and tuple(noted)[: len(order)] == order
        return None if same else found


def _ranks_first(sharding: Sharding) -> tuple[int, int, str]:
    """Return a key that orders divisions by their number of mesh axes, then of slices."""
    slices = len(sharding.streamed)
    ranks = sum(1 for axis, _ in sharding.axes if axis != STREAM)
    return ranks, slices, repr(sharding.dims)
