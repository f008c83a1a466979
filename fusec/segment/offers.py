"""What schedulers offer for a segment, each structure asked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fusec.ir.graph import Fusion
from fusec.passes.protect_inputs import reads_in_place
from fusec.segment.protocol import Estimate, Refusal, Scheduler
from fusec.target import Target

REFUSED_SECONDS = 1e6
"""The price of a segment that nobody accepts: any accepted merge of it is a gain."""


@dataclass(frozen=True)
class Offer:
    """The cheapest accepted proposal, if any, and what the other schedulers said."""

    scheduler: str | None
    estimate: Estimate | None
    seconds: float
    refusals: tuple[tuple[str, Refusal], ...]
    dearer: tuple[tuple[str, float], ...] = ()

    @property
    def accepted(self) -> bool:
        """Return whether some scheduler takes the segment."""
        return self.scheduler is not None

    def reasons(self) -> str:
        """Return every refusal as text."""
        return "; ".join(f"{name}: {refusal.because}" for name, refusal in self.refusals)


class Offers:
    """Asks schedulers and remembers by structure, so that a repeated layer is priced once."""

    def __init__(self, schedulers: Sequence[Scheduler], target: Target) -> None:
        """Remember whom to ask, in order of preference at equal price."""
        self.schedulers = tuple(schedulers)
        self.target = target
        self.asked = 0
        self._known: dict[Any, Offer] = {}

    def of(self, segment: Fusion, mutable: frozenset[str], only: str | None = None) -> Offer:
        """Return the offer for a segment; `mutable` names the inputs that segments write into."""
        key = (segment.structure(), self._written(segment, mutable), only)
        if key not in self._known:
            self._known[key] = self.ask(segment, mutable, only)
        return self._known[key]

    def ask(self, segment: Fusion, mutable: frozenset[str], only: str | None = None) -> Offer:
        """Ask the schedulers, or the one called `only`."""
        refusals: list[tuple[str, Refusal]] = []
        accepted: list[tuple[float, str, Estimate]] = []
        hazard = in_place_hazard(segment)
        written = self._written(segment, mutable)
        for scheduler in self.schedulers:
            if only is not None and scheduler.name != only:
                continue
            if hazard is not None:
                refusals.append((scheduler.name, hazard))
                continue
            self.asked += 1
            proposal = scheduler.propose(segment, self.target)
            if isinstance(proposal, Refusal):
                refusals.append((scheduler.name, proposal))
            elif proposal.kernels == 0 and written:
                because = f"a view of `{written[0]}` would see what is written into it"
                refusals.append((scheduler.name, Refusal("alias", because)))
            else:
                accepted.append((proposal.seconds(self.target), scheduler.name, proposal))
        if not accepted:
            return Offer(None, None, REFUSED_SECONDS, tuple(refusals))
        best = min(accepted, key=lambda a: a[0])
        dearer = tuple((name, seconds) for seconds, name, _ in accepted if name != best[1])
        return Offer(best[1], best[2], best[0], tuple(refusals), dearer)

    def _written(self, segment: Fusion, mutable: frozenset[str]) -> tuple[str, ...]:
        return tuple(i.value.name for i in segment.inputs if i.value.name in mutable)


def in_place_hazard(segment: Fusion) -> Refusal | None:
    """Return why a kernel for the segment must not write into its input, or None.

    It may where every element of the input is read for the element that overwrites it alone.
    """
    for output in segment.outputs:
        if output.alias is None:
            continue
        target = next(i.value for i in segment.inputs if i.value.name == output.alias)
        if not reads_in_place(segment, target, output.value):
            names = f"`{output.value.name}` is written into `{target.name}`"
            return Refusal("in_place", f"{names}, which is read for other elements too")
    return None
