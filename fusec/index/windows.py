"""Windows: aligned runs of elements that hold all that the lanes of a vector load.

If lanes are not contiguous but close to each other, as every second element, repeated pairs, or in
reverse, one wide access loads them all, and each lane selects its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.index.instances import Instance
from fusec.ir.access import Condition, Conditions
from fusec.ir.dim import Dim, product
from fusec.ir.dtype import DType
from fusec.ir.expression import Index, Var, contiguous_strides, index
from fusec.ir.graph import Fusion, Input

MOST_BYTES = 32
"""Maximum bytes of a window: two accesses, with every second element needed."""


@dataclass(frozen=True)
class Window:
    """An aligned run of `width` elements of a buffer starting at `base`, loaded under conditions.

    base and conditions are the same for all lanes.
    """

    buffer: str
    dtype: DType
    base: Index
    width: int
    conditions: Conditions


@dataclass(frozen=True)
class Pick:
    """The element of a window that each lane takes, as an index in the lane.

    wraps: whether it must be taken modulo the window's width: in lanes that need no element it may
    be outside.
    """

    window: Window
    offset: Index
    wraps: bool


def find_pick(
    fusion: Fusion, load: Instance | None, lane: Var, width: int, facts: Facts
) -> Pick | None:
    """Return a window that holds all elements that the lanes of a load need, or None.

    Also None for loads at loaded integers, parts of complex numbers, and tensors that the kernel
    overwrites: a thread must not read elements of these that others own.
    """
    if width == 1 or load is None or load.address is None or load.value is None:
        return None
    entry = fusion.input_of[load.value]
    if load.gathered or entry.part is not None or load.name in fusion.effects.overwritten:
        return None
    same = tuple(c for c in load.conditions if lane not in c.position.variables)
    tested = tuple(c for c in load.conditions if lane in c.position.variables)
    if not tested and lane not in load.address.variables:
        return None
    places = _places(load.address, tested, lane, width)
    if not places:
        return None
    first = next(iter(places.values()))
    steps = [_constant(place - first) for place in places.values()]
    known = [s for s in steps if s is not None]
    if len(known) < len(steps):
        return None
    least, needed = first + min(known), {step - min(known) for step in known}
    count = 1 << max(needed).bit_length()
    while count * load.dtype.size <= MOST_BYTES:
        trial = Facts(facts.hints)
        base = _aligned(least, count, trial)
        if base is not None and _is_inside(load, entry, base, least, needed, count, trial):
            offset = load.address - base
            if offset.variables <= {lane}:
                facts.assumed.update(trial.assumed)
                found = (_constant(offset.substitute({lane: index(v)})) for v in range(width))
                wraps = any(o is None or not 0 <= o < count for o in found)
                window = Window(load.name, load.dtype, base, count, same)
                return Pick(window, offset, wraps)
        count *= 2
    return None


def _is_inside(
    load: Instance,
    entry: Input,
    base: Index,
    least: Index,
    needed: AbstractSet[int],
    count: int,
    facts: Facts,
) -> bool:
    """Return whether a window holds all needed elements, and is inside its tensor.

    needed: their offsets from `least`. A window is inside if all of it is needed, or if the tensor
    has no gaps and is a whole number of windows.
    """
    ahead = _constant(least - base)
    if ahead is None or ahead + max(needed) >= count:
        return False
    assert load.value is not None
    dense = entry.strides == contiguous_strides(load.value.shape)
    return len(needed) == count or (dense and facts.multiple(product(load.value.shape), count))


def _places(address: Index, tested: Conditions, lane: Var, width: int) -> Mapping[int, Index]:
    """Return the addresses of the lanes that need an element; nothing if unknown."""
    places: dict[int, Index] = {}
    for v in range(width):
        at = {lane: index(v)}
        held = [_holds(c, at) for c in tested]
        if None in held:
            return {}
        if all(held):
            places[v] = address.substitute(at)
    return places


def _holds(condition: Condition, at: Mapping[Var, Index]) -> bool | None:
    """Return whether a condition holds in a lane, or None if that depends on more."""
    position = condition.position.substitute(at)
    if position.within(condition.low, condition.end):
        return True
    least, most = position.bounds
    below = most is not None and (condition.low - 1).at_least(most)
    beyond = least is not None and least.at_least(condition.end)
    return False if below or beyond else None


def _constant(value: Index) -> int | None:
    return value.constant.value if value.is_const and value.constant.is_const else None


def _aligned(place: Index, count: int, facts: Facts) -> Index | None:
    """Return the last multiple of `count` that is not above a position, if known."""
    base = place - index(_number(place.constant) % count)
    return base if facts.index_multiple(base, count) else None


def _number(value: Dim) -> int:
    """Return the constant term of a size."""
    return sum(c for monomial, c in value.terms if not monomial)
