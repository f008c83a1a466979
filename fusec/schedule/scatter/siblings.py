"""Elementwise outputs fused with a scatter: additional blocks of its kernel compute them."""

from __future__ import annotations

from fusec.dataclasses import dataclass, replace
from fusec.index.access import Facts, access_class
from fusec.index.domain import Domain, find_domain
from fusec.ir.dim import product
from fusec.ir.graph import Fusion, Output
from fusec.schedule.common import INT32_MAX
from fusec.schedule.pointwise.nest import FlatNest, nest_of
from fusec.schedule.sort.parts import needed
from fusec.segment.protocol import Refusal


@dataclass(frozen=True, eq=False)
class Siblings:
    """Outputs of one domain, with static sizes, in one flat loop by vectors of `width` elements."""

    fusion: Fusion
    domain: Domain
    width: int

    @property
    def elements(self) -> int:
        """Return the number of elements."""
        return product(a.extent for a in self.domain.axes).value

    @property
    def nest(self) -> FlatNest:
        """Return the loop."""
        return nest_of(self.fusion, self.domain, 0, self.width)


def siblings(fusion: Fusion, outputs: tuple[Output, ...]) -> Siblings | Refusal:
    """Return some outputs of a fusion with static sizes, or why no flat loop computes them."""
    if any(o.value in fusion.effects.into for o in outputs):
        return Refusal("in_place", "a fused pointwise output of a scatter must have its own memory")
    part = needed(fusion, outputs)
    read = {v for n in part.nodes for v in n.inputs} | {o.value for o in part.outputs}
    part = replace(part, inputs=fusion.effects.inputs_for(read, outputs))
    domain = find_domain(part)
    if isinstance(domain, Refusal):
        return domain
    flat = Siblings(part, domain, 1)
    if not 0 < flat.elements <= INT32_MAX // 2:
        return Refusal("size", f"{flat.elements} elements are computed in addition to the scatter")
    size = min(v.dtype.size for v in (*(i.value for i in part.inputs), *(o.value for o in outputs)))
    wider = (replace(flat, width=w) for w in (8, 4, 2) if w * size <= 16)
    return next((b for b in wider if _has_vectors(b)), flat)


def _has_vectors(part: Siblings) -> bool:
    """Return whether vectors are whole accesses and cover all elements."""
    if part.elements % part.width:
        return False
    facts, about = Facts(part.fusion.hints), (part.nest.loops[2], part.width)
    found = part.nest.accesses
    kinds = {access_class(a.address, a.conditions, *about, facts) for a in found}
    return "scalar" not in kinds and not facts.assumed
