"""Which loads are contiguous along the domain's innermost axis, and which along another one."""

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
"""Positions along an axis that are sampled if no formula describes how an address grows."""
WARP = 32
"""Threads that load at a time: a strided load accesses at most one cache line for each."""
PROBED = 2
"""Bytes of the elements that the probes `strided` load."""


@dataclass(frozen=True)
class Strided:
    """A load not along the innermost axis; `axis`: the one along which it is contiguous, if any."""

    load: Instance
    axis: Var | None
    bytes: int  # of the loaded elements


def innermost(domain: Domain) -> Var | None:
    """Return the last axis with more than one element."""
    return next((a for a in reversed(domain.axes) if a.extent != 1), None)


def axis_lowering(fusion: Fusion, domain: Domain) -> Lowering:
    """Return a lowering of all outputs with every axis as its own loop variable.

    Raise Unsupported if they depend on too many values at different positions.
    """

    def made() -> Lowering:
        lowering = Lowering(fusion, domain, {a: of_var(a) for a in domain.axes}, MOST_MAPS)
        for output in fusion.outputs:
            lowering.at_home(output.value)
        return lowering

    return _CACHE.of(fusion, id(domain), made)


def strided_loads(fusion: Fusion, domain: Domain) -> list[Strided]:
    """Return the loads that are not contiguous along the innermost axis."""
    last = innermost(domain)
    found: list[Strided] = []
    if last is None or any(a.extent.evaluate(fusion.hints) == 0 for a in domain.axes):
        return found
    # A value and its source before movement may be one load.
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
    """Return how many cache lines a warp along the domain's innermost axes loads from.

    A load that is contiguous along an axis near the end, like that of a column-major matrix with a
    few columns, has as many as there are positions on the axes after it. If the stride along the
    last axis is short, as in a column-major matrix with a small number of rows, several positions
    share a line. If no formula describes an address along the last axis, as for interleaved pairs,
    a warp's lines are counted.
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
    """Return the lines that the warp in the middle of the domain reads; WARP if unknown."""
    if address.loaded:
        return WARP  # the address depends on integers that are data
    extents = [a.extent.evaluate(sizes) for a in domain.axes]
    start = prod(extents) // 2 // WARP * WARP
    try:
        place = compile_index(address, sizes)
    except FusecError:
        return WARP  # positions in an empty part divide by its extents
    lines: set[int] = set()
    for point in range(start, min(start + WARP, prod(extents))):
        at: dict[Var, int] = {}
        for axis, extent in zip(reversed(domain.axes), reversed(extents), strict=True):
            point, at[axis] = divmod(point, extent)
        lines.add(place(at) * size // LINE)
    return max(1, len(lines))


def reach_by_lines(along: float, strided: float, lines: int, size: int) -> float:
    """Return the fraction of the bandwidth of loads that read several lines at a time.

    along: that of loads from one; strided: that from WARP of them, of elements of PROBED bytes.
    size: of an element. A line takes one access regardless of the bytes used.
    """
    turns = (lines - 1) / (WARP - 1) * min(1.0, PROBED / size)
    return 1 / (1 / along + turns * max(0.0, 1 / strided - 1 / along))


def as_one(fusion: Fusion, domain: Domain, inner: Var, others: Container[Var]) -> tuple[Var, ...]:
    """Return an axis preceded by those that are contiguous with it in all loads and stores.

    others: axes to exclude.
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
    """Return whether a step along one axis always equals a full extent of steps along another."""
    for place in places:
        far, near = (None if place is None else place.coefficient(a) for a in (outer, inner))
        if far is None or near is None or far != near * inner.extent:
            return False
    return True


def nearest(address: Index, axes: Iterable[Var], size: int, sizes: Mapping[str, int]) -> set[Var]:
    """Return the axes along which the next element is nearest, in either direction.

    size: of an element. Empty if it is in another sector, or if no formula is known.
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
    """Return whether most steps along an axis are unit steps in memory, as in concatenations."""
    if address.loaded:
        return False
    try:
        place = compile_index(address, sizes)
    except FusecError:
        return False  # positions in an empty part divide by its extents
    at = {v: v.extent.evaluate(sizes) // 2 for v in address.variables}
    places = range(min(PLACES, axis.extent.evaluate(sizes)))
    steps = [b - a for a, b in pairwise([place({**at, axis: k}) for k in places])]
    return 4 * steps.count(1) >= 3 * len(steps)


def is_inner(fusion: Fusion, domain: Domain, rows: Rows) -> bool:
    """Return whether the reduction is over the contiguous axis in the largest input."""
    axis = _contiguous_axis(fusion, domain)
    return axis is None or axis in rows.reduced or not rows.kept


def in_order_of_memory(fusion: Fusion, domain: Domain, rows: Rows) -> Rows:
    """Return rows with kept axes in the order of the largest tensors that are contiguous in them.

    Adjacent threads then read, or write, adjacent elements; smaller tensors keep their order.
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
    # An axis along which all addresses are the same comes first.
    kept = sorted(rows.kept, key=lambda a: (strides[a] != 0, -strides[a]))
    return Rows(tuple(kept), rows.reduced)


def _read_by_reductions(fusion: Fusion, domain: Domain) -> list[tuple[Instance, Index, Value]]:
    """Return the loads of reductions' operands, by axes, each after its gathered indices."""
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
    """Yield the accesses of reductions' operands and outputs: address, elements, bytes of one."""
    lowering = axis_lowering(fusion, domain)
    for load, address, value in _read_by_reductions(fusion, domain):
        yield address, product(value.shape).evaluate(fusion.hints), load.dtype.size
    for output in fusion.outputs:
        count = product(output.value.shape).evaluate(fusion.hints)
        strides = fusion.effects.strides(output.value)
        place = linearize(lowering.home(output.value)[0], strides)
        yield place, count, output.value.dtype.size


def _contiguous_axis(fusion: Fusion, domain: Domain) -> Var | None:
    """Return the axis along which the largest load is contiguous, in either direction."""
    best: tuple[int, Var] | None = None
    reduced = domain.reduced_axes
    for load, address, value in _read_by_reductions(fusion, domain):
        size = product(value.shape).evaluate(fusion.hints) * load.dtype.size
        near = nearest(address, domain.axes, load.dtype.size, fusion.hints)
        for axis in domain.axes:
            # If a kept axis is strided, reading along the reduced one is just as good.
            beside = axis in near and (axis in reduced or address.coefficient(axis) in (1, -1))
            if beside and (best is None or size > best[0]):
                best = (size, axis)
    return None if best is None else best[1]
