"""Attention that no attention kernel computes: which GEMMs it consists of, and why."""

from __future__ import annotations

from collections.abc import Iterator

from fusec.dataclasses import dataclass
from fusec.segment.merge import Merges
from fusec.segment.piece import Chosen
from fusec.segment.segmented import Decision, Refusals, SegmentedFusion

SCHEDULERS = ("attention", "attention_decode")
"""Those that take two GEMMs with a softmax between them."""


@dataclass(frozen=True)
class Softmax:
    """Two GEMMs with a softmax between them, by the names of their results.

    refusals: why no scheduler of attention takes them, with the views around them if there are any.
    seconds: what one that takes them predicts, None where none does.
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
        if len(products) != 2:
            continue
        key = products[0], products[1]
        offer = merges.named_offer(region)
        taken = offer.scheduler in SCHEDULERS
        if key in found and not taken:
            continue  # the first region has the views around it
        refusals = tuple(r for r in offer.refusals if r[0] in SCHEDULERS)
        found[key] = Softmax(key, refusals, offer.seconds if taken else None)
    return list(found.values())


def separate_softmaxes(softmaxes: list[Softmax], found: SegmentedFusion) -> Iterator[Decision]:
    """Yield why GEMMs around a softmax are in several segments, for each that is."""
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
