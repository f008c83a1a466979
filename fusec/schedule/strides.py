"""Which loads run along the domain's innermost axis, and which along another one."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import pairwise
from math import prod

from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.index.domain import Domain
from fusec.index.instances import Instance, Lowering
from fusec.index.places import compile_index
from fusec.ir.dim import product
from fusec.ir.expression import Index, Var, linearize, of_var
from fusec.ir.graph import Fusion, Value
from fusec.ir.identity_cache import IdentityCache
from fusec.schedule.rows.domain import Rows
from fusec.segment.limits import MOST_MAPS
from fusec.segment.traffic import LINE, SECTOR

_CACHE: IdentityCache[Lowering] = IdentityCache()
PLACES = 65
"""Places along an axis that are looked at where no formula tells how an address grows."""
WARP = 32
"""Threads that load at a time: of a strided load each another line of the cache, at most."""
PROBED = 2
"""Bytes of the elements that the probes `strided` load."""


@dataclass(frozen=True)
class Strided:
    """A load not along the innermost axis; `axis` is the one that it runs along, if any."""

    load: Instance
    axis: Var | None
    bytes: int  # of the elements that are loaded


def innermost(domain: Domain) -> Var | None:
    """Return the last axis with more than one element."""
    return next((a for a in reversed(domain.axes) if a.extent != 1), None)


def axis_lowering(fusion: Fusion, domain: Domain) -> Lowering:
    """Return a lowering with all outputs made and every axis a loop variable of its own.

    Unsupported is raised where they are made of too many values at different places.
    """

    def made() -> Lowering:
        lowering = Lowering(fusion, domain, {a: of_var(a) for a in domain.axes}, MOST_MAPS)
        for output in fusion.outputs:
            lowering.at_home(output.value)
        return lowering

    return _CACHE.of(fusion, id(domain), made)


def strided_loads(fusion: Fusion, domain: Domain) -> list[Strided]:
    """Return the loads that do not run along the innermost axis."""
    last = innermost(domain)
    found: list[Strided] = []
    if last is None or any(a.extent.evaluate(fusion.hints) == 0 for a in domain.axes):
        return found
    # A value and what it was moved from may be one load.
    for load in dict.fromkeys(axis_lowering(fusion, domain).made.values()):
        if load.kind != "load" or load.address is None or load.value is None:
            continue
        places = product(a.extent for a in domain.axes if a in load.address.variables)
        count = min(each.evaluate(fusion.hints) for each in (product(load.value.shape), places))
        step = load.address.coefficient(last)
        if not count or (step is not None and step in (0, side_by_side(fusion, load.value))):
            continue
        if step is None and _in_pieces(load.address, last, fusion.hints):
            continue
        unit = (a for a in domain.axes if a.extent != 1 and load.address.coefficient(a) == 1)
        found.append(Strided(load, next(unit, None), count * load.dtype.size))
    return found


def lines_of_warp(load: Strided, domain: Domain, sizes: Mapping[str, int]) -> int:
    """Return how many lines of the cache a warp reads from that goes along the domain's axes.

    Those of a load that runs along an axis near the end, like that of a matrix of a few columns
    that is stored by columns, are as many as there are places on the axes after it. Where the step
    from one place on the last axis to the next is short, as in a matrix of a few rows that is
    stored by columns, several places share a line. Of an address that no formula describes along
    the last axis, as of pairs that take turns, a warp's lines are counted.
    """
    last, address = innermost(domain), load.load.address
    if last is None or address is None:
        return WARP
    step = address.coefficient(last)
    if step is None:
        return _counted_lines(address, domain, sizes, load.load.dtype.size)
    shared = -(-WARP * abs(step.evaluate(sizes)) * load.load.dtype.size // LINE)
    lines = min(WARP, max(1, shared))
    if load.axis is None:
        return lines
    after = domain.axes[domain.axes.index(load.axis) + 1 :]
    across = product(a.extent for a in after if a in address.variables)
    return min(lines, across.evaluate(sizes))


def _counted_lines(address: Index, domain: Domain, sizes: Mapping[str, int], size: int) -> int:
    """Return from how many lines the warp in the middle of the domain reads; WARP if unknown."""
    if address.loaded:
        return WARP  # where integers lead that are data
    extents = [a.extent.evaluate(sizes) for a in domain.axes]
    start = prod(extents) // 2 // WARP * WARP
    try:
        place = compile_index(address, sizes)
    except FusecError:
        return WARP  # places in an empty part are divided by its extents
    lines: set[int] = set()
    for point in range(start, min(start + WARP, prod(extents))):
        at: dict[Var, int] = {}
        for axis, extent in zip(reversed(domain.axes), reversed(extents), strict=True):
            point, at[axis] = divmod(point, extent)
        lines.add(place(at) * size // LINE)
    return max(1, len(lines))


def reach_by_lines(along: float, strided: float, lines: int, size: int) -> float:
    """Return the part of the bandwidth of loads that read from several lines at a time.

    along: that of loads from one; strided: that from WARP of them, of elements of PROBED bytes.
    size: of an element. A line takes a turn, whatever is read of it.
    """
    turns = (lines - 1) / (WARP - 1) * min(1.0, PROBED / size)
    return 1 / (1 / along + turns * max(0.0, 1 / strided - 1 / along))


def as_one(fusion: Fusion, domain: Domain, inner: Var, others: Container[Var]) -> tuple[Var, ...]:
    """Return an axis behind those that continue it wherever anything is read or written.

    others: axes that do not count.
    """
    found = (inner,)
    lowering = axis_lowering(fusion, domain)
    places = [i.address for i in lowering.made.values() if i.kind == "load"]
    for output in fusion.outputs:
        strides = fusion.effects.strides(output.value)
        places.append(linearize(lowering.home(output.value)[0], strides))
    rest = [a for a in domain.axes if a.extent != 1 and a is not inner and a not in others]
    while True:
        before = next((a for a in rest if _continues(places, a, found[0])), None)
        if before is None:
            return found
        rest.remove(before)
        found = (before, *found)


def _continues(places: Iterable[Index | None], outer: Var, inner: Var) -> bool:
    """Return whether a step on one axis is everywhere as many on another as that has places."""
    for place in places:
        far, near = (None if place is None else place.coefficient(a) for a in (outer, inner))
        if far is None or near is None or far != near * inner.extent:
            return False
    return True


def nearest(address: Index, axes: Iterable[Var], size: int, sizes: Mapping[str, int]) -> set[Var]:
    """Return the axes along which the next element is nearest, in either direction.

    size: of an element. None where it lies in another sector, or where no formula says.
    """
    steps: dict[Var, int] = {}
    for axis in axes:
        step = address.coefficient(axis) if axis.extent != 1 else None
        if step is not None and 0 < abs(step.evaluate(sizes)) * size < SECTOR:
            steps[axis] = abs(step.evaluate(sizes))
    return {a for a, step in steps.items() if step == min(steps.values())}


def side_by_side(fusion: Fusion, value: Value) -> int:
    """Return the step between neighbours of an input: parts of complex numbers alternate."""
    return 1 if fusion.input_of[value].part is None else 2


def _in_pieces(address: Index, axis: Var, sizes: Mapping[str, int]) -> bool:
    """Return whether most steps along an axis are steps in memory, as in parts put together."""
    if address.loaded:
        return False
    try:
        place = compile_index(address, sizes)
    except FusecError:
        return False  # places in an empty part are divided by its extents
    at = {v: v.extent.evaluate(sizes) // 2 for v in address.variables}
    places = range(min(PLACES, axis.extent.evaluate(sizes)))
    steps = [b - a for a, b in pairwise([place({**at, axis: k}) for k in places])]
    return 4 * steps.count(1) >= 3 * len(steps)


def is_inner(fusion: Fusion, domain: Domain, rows: Rows) -> bool:
    """Return whether the reduction is over the contiguous axis in the largest input."""
    axis = _contiguous_axis(fusion, domain)
    return axis is None or axis in rows.reduced or not rows.kept


def in_order_of_memory(fusion: Fusion, domain: Domain, rows: Rows) -> Rows:
    """Return rows whose kept axes follow each other as in the largest tensors that run along them.

    Threads side by side then read, or write, side by side; what is smaller is taken as it lies.
    """
    weights = dict.fromkeys(rows.kept, 0)
    largest: dict[Var, tuple[int, Index]] = {}
    for address, count, element in _read_and_written(fusion, domain):
        size = count * element
        for axis in nearest(address, domain.axes, element, fusion.hints) & weights.keys():
            weights[axis] += size
            if size > largest.get(axis, (0, address))[0]:
                largest[axis] = size, address
    last = max(reversed(rows.kept), key=lambda a: weights[a], default=None)
    if last is None or last is rows.kept[-1] or last not in largest:
        return rows
    strides: dict[Var, int] = {}
    for axis in rows.kept:
        step = largest[last][1].coefficient(axis)
        if step is None:
            return rows
        strides[axis] = abs(step.evaluate(fusion.hints))
    # An axis along which everything is the same comes first.
    kept = sorted(rows.kept, key=lambda a: (strides[a] != 0, -strides[a]))
    return Rows(tuple(kept), rows.reduced)


def _read_by_reductions(fusion: Fusion, domain: Domain) -> list[tuple[Instance, Index, Value]]:
    """Return the loads of what reductions read, by axes, each after what it is gathered with."""
    lowering = axis_lowering(fusion, domain)
    found: dict[Instance, None] = {}
    stack = [(lowering.at_home(n.inputs[0]), False) for n in reversed([*domain.reduced])]
    seen: set[Instance] = set()
    while stack:
        instance, is_done = stack.pop()
        if is_done:
            found[instance] = None
        elif instance not in seen:
            seen.add(instance)
            stack.append((instance, True))
            stack += [(o, False) for o in reversed(instance.operands)]
    return [
        (i, i.address, i.value)
        for i in found
        if i.kind == "load" and i.address is not None and i.value is not None
    ]


def _read_and_written(fusion: Fusion, domain: Domain) -> Iterator[tuple[Index, int, int]]:
    """Yield where reductions read and outputs are written: address, elements, bytes of one."""
    lowering = axis_lowering(fusion, domain)
    for load, address, value in _read_by_reductions(fusion, domain):
        yield address, product(value.shape).evaluate(fusion.hints), load.dtype.size
    for output in fusion.outputs:
        count = product(output.value.shape).evaluate(fusion.hints)
        strides = fusion.effects.strides(output.value)
        place = linearize(lowering.home(output.value)[0], strides)
        yield place, count, output.value.dtype.size


def _contiguous_axis(fusion: Fusion, domain: Domain) -> Var | None:
    """Return the axis along which the largest load reads neighbours, in either direction."""
    best: tuple[int, Var] | None = None
    reduced = domain.reduced_axes
    for load, address, value in _read_by_reductions(fusion, domain):
        size = product(value.shape).evaluate(fusion.hints) * load.dtype.size
        near = nearest(address, domain.axes, load.dtype.size, fusion.hints)
        for axis in domain.axes:
            # Where places along a kept axis are apart, reading along the reduced one is no worse.
            beside = axis in near and (axis in reduced or address.coefficient(axis) in (1, -1))
            if beside and (best is None or size > best[0]):
                best = (size, axis)
    return None if best is None else best[1]
