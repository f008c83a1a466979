"""The schedulers' offers for segments: each scheduler is called once per structure."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import Unsupported
from fusec.ir.dim import product
from fusec.ir.graph import Fusion, Node, Value
from fusec.ops.communication import FAMILY, PLACEMENT, stands_alone
from fusec.options import HOST_SCHEDULER
from fusec.segment.length import is_too_long
from fusec.segment.limits import MOST_AGAIN, MOST_LENGTH
from fusec.segment.protocol import (
    Estimate,
    Proposal,
    Refusal,
    Scheduler,
    has_limited_length,
    is_bounded_in_parts,
    moves_compulsory_traffic,
)
from fusec.segment.split import Splits
from fusec.segment.traffic import with_writes
from fusec.segment.views import view_of
from fusec.target import Target

QUOTED = r"`(\w+)`"
NVRTC = "nvrtc"
"""The rule that rejects a kernel whose NVRTC compile time is too long."""
HOST = (FAMILY, PLACEMENT)
"""The schedulers of host operations between kernels; each one handles only its own."""
REFUSED_SECONDS = 1e6
"""Predicted seconds of a segment that no scheduler accepts: any accepted merge of it is a gain."""


Structure = tuple[Any, tuple[str, ...]]
"""The structure of a segment, and the names of its values in canonical order."""


@dataclass(frozen=True)
class Offer:
    """The cheapest accepted proposal, if any, and the answers of the other schedulers."""

    scheduler: str | None
    estimate: Estimate | None
    seconds: float
    refusals: tuple[tuple[str, Refusal], ...]
    dearer: tuple[tuple[str, float], ...] = ()

    @property
    def accepted(self) -> bool:
        """Return whether some scheduler accepts the segment."""
        return self.scheduler is not None

    def reasons(self) -> str:
        """Return every refusal as text."""
        return "; ".join(f"{name}: {refusal.because}" for name, refusal in self.refusals)


@dataclass(frozen=True)
class Surroundings:
    """Context of a segment that its own fusion does not contain.

    mutable: the names of the inputs that some segment writes into. crossing: the values that other
    segments read, as dense tensors. pinned: whether a pin requires exactly this segment.
    """

    mutable: frozenset[str]
    crossing: frozenset[Value]
    pinned: bool = False

    def written(self, segment: Fusion) -> tuple[str, ...]:
        """Return the names of the segment's inputs that some segment writes into."""
        return tuple(i.value.name for i in segment.inputs if i.value.name in self.mutable)

    def no_view(self, segment: Fusion) -> Refusal | None:
        """Return why the outputs must not be views, or None."""
        if all(product(o.value.shape).evaluate(segment.hints) == 0 for o in segment.outputs):
            return None
        for name in self.written(segment):
            because = f"a view of `{name}` would see later writes to it"
            return Refusal("alias", because)
        bases = frozenset(i.value for i in segment.inputs)
        for output in segment.outputs:
            value = output.value
            layout = view_of(segment, value, bases) if value in self.crossing else None
            # Readers assume a separate buffer: dense, and aligned for vector accesses.
            dense = layout is None or layout.strides == segment.effects.strides(value)
            if layout is not None and not (dense and layout.offset == 0):
                because = f"`{value.name}` is read by another segment, but is not a dense view"
                return Refusal("layout", because)
        return None


class ByStructure:
    """Cached results for groups by their structure (`Structures`).

    numbers: of nodes and values by their properties; asked: offers by all nodes of a group, with
    its values.
    """

    def __init__(self) -> None:
        """Start with empty caches."""
        self.numbers: dict[Hashable, int] = {}
        self.asked: dict[Hashable, tuple[Offer, list[Value]]] = {}


class Offers:
    """Calls schedulers and caches offers by structure: a repeated layer is estimated once."""

    def __init__(self, schedulers: Sequence[Scheduler], target: Target) -> None:
        """Take the schedulers to call, in order of preference at equal predicted time."""
        self.schedulers = tuple(schedulers)
        self.target = target
        self.asked = 0
        self._limited = all(map(has_limited_length, schedulers))
        self.bounded = all(map(moves_compulsory_traffic, schedulers))
        self.splits = Splits(target)
        self._known: dict[Any, tuple[tuple[str, ...], Offer]] = {}
        self._by_structure: dict[Hashable, ByStructure] = {}
        self._proposals: dict[Any, tuple[tuple[str, ...], Proposal]] = {}

    def is_too_long(self, nodes: Collection[Node], sizes: Mapping[str, int]) -> bool:
        """Return whether all schedulers would reject the nodes as too long for NVRTC."""
        return self._limited and is_too_long(nodes, sizes, self.target.cost.build)

    def by_structure(self, fusion: Fusion) -> ByStructure:
        """Return the cached results for groups of a fusion, shared between equal sizes."""
        divided = tuple(sorted((name, s.dims) for name, s in fusion.shardings.items()))
        sizes = tuple((d.name, d.default, d.multiple_of) for d in fusion.dims)
        around = sizes, fusion.mesh, divided, tuple(sorted(fusion.as_defined))
        return self._by_structure.setdefault(around, ByStructure())

    def of(self, segment: Fusion, around: Surroundings, only: str | None = None) -> Offer:
        """Return the offer for a segment, from the cache if its structure is known."""
        read = tuple(k for k, o in enumerate(segment.outputs) if o.value in around.crossing)
        # Families match some graphs by their constants, but none by its random number offsets.
        key = (segment.structure(offsets=False), around.written(segment), read, around.pinned, only)
        names = _names(segment)
        if key not in self._known:
            self._known[key] = (names, self._asked(segment, around, only, (key[0], names)))
        asked, offer = self._known[key]
        return offer if asked == names else renamed(offer, dict(zip(asked, names, strict=True)))

    def least_in_parts(self, offer: Offer, segment: Fusion) -> float:
        """Return seconds below which no two or more kernels compute a segment; 0.0 if unknown."""
        taker = next(s for s in self.schedulers if s.name == offer.scheduler)
        return taker.least_in_parts(segment, self.target) if is_bounded_in_parts(taker) else 0.0

    def ask(self, segment: Fusion, around: Surroundings, only: str | None = None) -> Offer:
        """Call all schedulers, or only the one called `only`."""
        structure = segment.structure(offsets=False), _names(segment)
        return self._asked(segment, around, only, structure)

    def _asked(
        self, segment: Fusion, around: Surroundings, only: str | None, structure: Structure
    ) -> Offer:
        refusals: list[tuple[str, Refusal]] = []
        accepted: list[tuple[float, str, Estimate]] = []
        hazard = in_place_hazard(segment)
        no_view = around.no_view(segment)
        alone = {n.op.family for n in segment.nodes if stands_alone(n)}
        for scheduler in self.schedulers:
            if scheduler.name != only and (only or scheduler.name == HOST_SCHEDULER):
                continue
            if scheduler.name not in alone if alone else scheduler.name in HOST:
                continue
            if hazard is not None:
                refusals.append((scheduler.name, hazard))
                continue
            proposal = self._proposal(scheduler, segment, structure)
            if isinstance(proposal, Refusal):
                refusals.append((scheduler.name, proposal))
            elif proposal.kernels == 0 and not proposal.exchange and no_view is not None:
                refusals.append((scheduler.name, no_view))
            elif not around.pinned and takes_long(proposal):
                refusals.append((scheduler.name, _long(proposal)))
            else:
                accepted.append((proposal.seconds(self.target), scheduler.name, proposal))
        if not accepted:
            return Offer(None, None, REFUSED_SECONDS, tuple(refusals))
        best = min(accepted, key=lambda a: a[0])
        dearer = tuple((name, seconds) for seconds, name, _ in accepted if name != best[1])
        return Offer(best[1], best[2], best[0], tuple(refusals), dearer)

    def _proposal(self, scheduler: Scheduler, segment: Fusion, structure: Structure) -> Proposal:
        """Return a scheduler's proposal for a structure, independent of its surroundings."""
        form, names = structure
        key = scheduler.name, form
        if key not in self._proposals:
            self.asked += 1
            self._proposals[key] = names, proposal_of(scheduler, segment, self.target)
        asked, proposal = self._proposals[key]
        if asked == names or not isinstance(proposal, Refusal):
            return proposal
        return _with_own_names(proposal, dict(zip(asked, names, strict=True)))


def _names(segment: Fusion) -> tuple[str, ...]:
    """Return the names of the values of a segment, in the order of its structure."""
    made = (v for n in segment.canonical_order for v in n.outputs)
    return (*(i.value.name for i in segment.inputs), *(v.name for v in made))


def renamed(offer: Offer, names: Mapping[str, str]) -> Offer:
    """Return an offer with its reasons renamed for a segment of the same structure."""
    refusals = ((scheduler, _with_own_names(each, names)) for scheduler, each in offer.refusals)
    return replace(offer, refusals=tuple(refusals))


def _with_own_names(refusal: Refusal, names: Mapping[str, str]) -> Refusal:
    if "`" not in refusal.because:
        return refusal
    return Refusal(refusal.rule, with_names(refusal.because, names))


def with_names(text: str, names: Mapping[str, str]) -> str:
    """Return a reason with the value names of another segment of the same structure."""
    return re.sub(QUOTED, lambda m: f"`{names.get(m.group(1), m.group(1))}`", text)


def proposal_of(scheduler: Scheduler, segment: Fusion, target: Target) -> Proposal:
    """Return a scheduler's proposal; an Unsupported error becomes a refusal."""
    try:
        proposal = scheduler.propose(segment, target)
    except Unsupported as error:
        return Refusal("unsupported", error.diagnostic.message)
    return proposal if isinstance(proposal, Refusal) else with_writes(proposal, segment)


def takes_long(proposal: Estimate) -> bool:
    """Return whether NVRTC takes long for a kernel, or much longer than for its parts."""
    build = proposal.build
    return build.seconds > min(MOST_LENGTH, build.separate + MOST_AGAIN)


def _long(proposal: Estimate) -> Refusal:
    build = proposal.build
    apart = f"{build.separate:.1f} s for its parts"
    limit = apart if build.seconds <= MOST_LENGTH else f"the limit is {MOST_LENGTH} s"
    return Refusal(NVRTC, f"NVRTC would take about {build.seconds:.1f} s, {limit}")


def in_place_hazard(segment: Fusion) -> Refusal | None:
    """Return why a kernel for the segment must not write into its input, or None.

    It may if every element of the input is read only for the element that overwrites it.
    """
    for output in segment.effects.unsafe():
        names = f"`{output.value.name}` is written to `{segment.effects.buffer(output.value)}`"
        return Refusal("in_place", f"{names}, which is also read at other elements")
    return None
