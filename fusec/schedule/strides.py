"""Which loads run along the domain's innermost axis, and which along another one."""

from __future__ import annotations

from dataclasses import dataclass

from fusec.index.access import Facts, lane_zero
from fusec.index.domain import Domain
from fusec.index.expression import Index, Var, of_var
from fusec.index.instances import Instance, Lowering
from fusec.ir.dim import ceildiv, dim, product
from fusec.ir.graph import Fusion


@dataclass(frozen=True)
class Strided:
    """A load not along the innermost axis; `axis` is the one that it runs along, if any."""

    load: Instance
    axis: Var | None
    bytes: int


def innermost(domain: Domain) -> Var | None:
    """Return the last axis with more than one element."""
    return next((a for a in reversed(domain.axes) if a.extent != 1), None)


def axis_lowering(fusion: Fusion, domain: Domain) -> Lowering:
    """Return a lowering with all outputs made and every axis a loop variable of its own."""
    lowering = Lowering(fusion, domain, {a: of_var(a) for a in domain.axes})
    for output in fusion.outputs:
        lowering.at_home(output.value)
    return lowering


def strided_loads(fusion: Fusion, domain: Domain) -> tuple[list[Strided], int]:
    """Return the loads that do not run along the innermost axis, and the bytes of all loads."""
    last = innermost(domain)
    found: list[Strided] = []
    total = 0
    # A value and what it was moved from may be one load.
    for load in dict.fromkeys(axis_lowering(fusion, domain).made.values()):
        if load.kind != "load" or load.address is None or load.value is None:
            continue
        size = product(load.value.shape).evaluate(fusion.hints) * load.dtype.size
        total += size
        step = None if last is None else load.address.coefficient(last)
        # The parts of complex numbers lie between each other.
        side_by_side = 1 if fusion.input_of[load.value].part is None else 2
        if last is None or (step is not None and step in (0, side_by_side)):
            continue
        if step is None and _in_pieces(load.address, last, Facts(fusion.hints)):
            continue
        unit = (a for a in domain.axes if a.extent != 1 and load.address.coefficient(a) == 1)
        found.append(Strided(load, next(unit, None), size))
    return found, total


def _in_pieces(address: Index, axis: Var, facts: Facts) -> bool:
    """Return whether an address runs along an axis in aligned pieces, as parts put together do."""
    for width in (8, 4, 2):
        if facts.multiple(axis.extent, width):
            lane = Var("v", dim(width))
            piece = of_var(Var("chunk", ceildiv(axis.extent, width))) * width + of_var(lane)
            if lane_zero(address.substitute({axis: piece}), lane, width, facts) is not None:
                return True
    return False
