"""Attention that no attention kernel computes: the GEMMs that it consists of, and the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fusec.dataclasses import dataclass
from fusec.ops.acts import Act, act_of
from fusec.segment.merge import Merges
from fusec.segment.piece import Chosen
from fusec.segment.segmented import Decision, Refusals, SegmentedFusion

SCHEDULERS: Mapping[int, tuple[str, ...]] = {
    2: ("attention", "attention_decode"),
    5: ("attention_backward",),
}
"""Schedulers that accept so many GEMMs with a softmax, or its saved values, between them."""


@dataclass(frozen=True)
class Softmax:
    """GEMMs with a softmax between them, by the names of the first and the last one's results.

    refusals: why no attention scheduler accepts them, with the views around them if there are any.
    seconds: the prediction of one that accepts them, None if there is none.
    """

    products: tuple[str, str]
    refusals: Refusals
    seconds: float | None


def find_softmaxes(merges: Merges, regions: list[Chosen]) -> list[Softmax]:
    """Return the softmaxes of the regions that `softmax_regions` found, before they are merged."""
    found: dict[tuple[str, str], Softmax] = {}
    for region in regions:
        nodes = merges.groups.members(region)
        products = [n.output.name for n in nodes if n.op.family == "contraction"]
        schedulers = SCHEDULERS.get(len(products), ())
        if not schedulers or not any(act_of(n.op) is Act.EXPONENTIATE for n in nodes):
            continue
        key = products[0], products[-1]
        offer = merges.named_offer(region)
        taken = offer.scheduler in schedulers
        if key in found and not taken:
            continue  # the first region includes the views around it
        refusals = tuple(r for r in offer.refusals if r[0] in schedulers)
        found[key] = Softmax(key, refusals, offer.seconds if taken else None)
    return list(found.values())


def separate_softmaxes(softmaxes: list[Softmax], found: SegmentedFusion) -> Iterator[Decision]:
    """Yield the reason for each softmax whose GEMMs are in several segments."""
    owners: dict[str, set[int]] = {}
    for segment in found.segments:
        for node in segment.nodes:
            owners.setdefault(node.output.name, set()).add(segment.id)
    for softmax in softmaxes:
        first, last = (owners.get(name, set[int]()) for name in softmax.products)
        if not first or not last or first & last:
            continue
        if softmax.seconds is None:
            yield Decision("attention", softmax.products, "", softmax.refusals)
        else:
            took = f"one kernel would take {softmax.seconds * 1e6:.2f} us"
            yield Decision("attention", softmax.products, f"{took}; separate kernels are faster")
