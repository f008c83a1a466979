"""The loads of a thread of a pointwise kernel: for each of its rows, and once for all of them."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import dataclass, field, replace
from fusec.index.access import Facts, runs_along, vector_base
from fusec.index.instances import Instance, Lowering, instances_under, reading_order
from fusec.index.windows import Pick, Window, find_pick
from fusec.ir.expression import Index, Var
from fusec.schedule.pressure import Pressure, flat_pressure
from fusec.schedule.registers import words
from fusec.schedule.space import power_below

MOST_HELD = 64
"""Most words that a thread prefetches, so that an SM has room for 512 threads or more."""
ROWS = (4, 2)
"""Rows per thread if operands are the same for them: 8 gain nothing over 4."""


LEAST_BYTES = 4
"""Least bytes of vectors that are combined from two others, which moves whole words."""
LEAST_THREADS = 1 << 17
"""Threads that leave no part of a GPU idle: with fewer, each thread takes a single row."""


@dataclass(frozen=True)
class Loads:
    """The loads of a thread, whose loop iterates over several rows or, if it is flat, vectors.

    vectors: per iteration; two loads share an entry if each element needs exactly one of them.
    across: per iteration, unaligned vectors if vectors are peeled to another alignment. elements:
    per iteration, loads that cannot be vectorized. once: loads that are the same in all iterations,
    along the columns. late: per iteration, loads that are issued where they are used: gathered by a
    loaded index, or parts of a complex number, both by one access. picks: elements that each lane
    picks from a window, per iteration if the window is among `windows`, else once.
    """

    vectors: tuple[tuple[Instance, ...], ...]
    across: tuple[Instance, ...]
    elements: tuple[Instance, ...]
    once: tuple[Instance, ...]
    late: tuple[Instance, ...]
    lane: Var
    width: int
    windows: tuple[Window, ...] = ()
    picks: Mapping[Instance, Pick] = field(default_factory=dict[Instance, Pick])

    @property
    def turn_words(self) -> int:
        """Return the registers of the loads of one iteration."""
        held = sum(words(together[0].dtype, self.width) for together in self.vectors)
        held += sum(words(i.dtype, self.width) for i in self.across)
        held += sum(words(w.dtype, w.width) for w in self.windows)
        return held + sum(self.width if self.lane in i.variables else 1 for i in self.elements)

    @property
    def once_words(self) -> int:
        """Return the registers of the values that are loaded once, in compute precision."""
        plain = (i for i in self.once if i not in self.picks)
        wide = ((i.dtype.compute, self.lane in i.variables) for i in plain)
        held = sum(words(dtype, self.width if by_lane else 1) for dtype, by_lane in wide)
        return held + sum(words(w.dtype, w.width) for w in self.once_windows)

    @property
    def once_windows(self) -> tuple[Window, ...]:
        """Return the windows that are the same in all iterations."""
        picked = (pick.window for pick in self.picks.values())
        return tuple(w for w in dict.fromkeys(picked) if w not in self.windows)


def loads_of(
    lowering: Lowering, loops: tuple[Var, Var, Var], break_point: int, start: Index | None = None
) -> Loads:
    """Return the loads of a thread.

    loops: the variables of rows, chunks and lanes. start: the first address of peeled vectors.
    """
    row, chunk, lane = loops
    turn = row if break_point else chunk
    width, facts = lane.extent.value, Facts(lowering.fusion.hints, start)
    roots = [lowering.at_home(o.value) for o in lowering.fusion.outputs]
    found = (i for i in instances_under(roots) if i.kind == "load")
    vectors, elements = list[tuple[Instance, ...]](), list[Instance]()
    across = list[Instance]()
    once, late = list[Instance](), list[Instance]()
    windows, picks = dict[Window, None](), dict[Instance, Pick]()
    for load in sorted(found, key=reading_order):
        assert load.value is not None
        assert load.address is not None
        pick = None if start is not None else find_own_pick(lowering, load, lane, width, facts)
        if pick is not None:
            picks[load] = pick
            if turn in load.variables:
                windows[pick.window] = None
            else:
                once.append(load)
        elif turn not in load.variables:
            once += [load] if load.variables else []
        elif load.gathered or lowering.fusion.input_of[load.value].part is not None:
            late.append(load)
        elif vector_base(load.address, load.conditions, lane, width, facts) is not None:
            _join(vectors, load)
        elif start is not None and is_across(load, lane, width):
            across.append(load)
        else:
            elements.append(load)
    return Loads(
        tuple(vectors),
        tuple(across),
        tuple(elements),
        tuple(once),
        tuple(late),
        lane,
        width,
        tuple(windows),
        picks,
    )


def find_own_pick(
    lowering: Lowering, load: Instance, lane: Var, width: int, facts: Facts
) -> Pick | None:
    """Return the window that a load picks from, or None; a vector needs no window."""
    assert load.address is not None
    if vector_base(load.address, load.conditions, lane, width, facts) is not None:
        return None
    return find_pick(lowering.fusion, load, lane, width, facts)


def is_across(load: Instance, lane: Var, width: int) -> bool:
    """Return whether a load is a vector of any alignment, at least one word wide."""
    assert load.address is not None
    if load.gathered or load.conditions or width * load.dtype.size < LEAST_BYTES:
        return False
    return runs_along(load.address, load.conditions, lane, width)


def rows_of_thread(loads: Loads, rows: int, threads: int) -> int:
    """Return how many rows a thread computes: 1 if none share data or not all are prefetched.

    rows: the total, for `threads` threads with one row each.
    """
    if not loads.once or loads.late:
        return 1
    held, once = loads.turn_words, loads.once_words
    most = min(rows, threads // LEAST_THREADS)
    return next((n for n in ROWS if n <= most and n * held + once <= MOST_HELD), 1)


def most_turns(loads: Loads) -> int:
    """Return the most iterations that a thread has registers to prefetch, a power of 2 or 0."""
    most = (MOST_HELD - loads.once_words) // max(1, loads.turn_words)
    return power_below(most) if most > 0 else 0


def pressure_of(loads: Loads, lowering: Lowering, loops: tuple[Var, ...], unroll: int) -> Pressure:
    """Return the register pressure of a thread that computes `unroll` rows or vectors at a time."""
    one = flat_pressure(lowering, loops, loads.width, 1)
    if loads.picks:
        one = replace(one, flight=loads.turn_words + loads.once_words)
    if unroll == 1:
        return one
    return replace(one, flight=0, staged=unroll * loads.turn_words + loads.once_words)


def _join(groups: list[tuple[Instance, ...]], load: Instance) -> None:
    """Add a load to the entry of its complement, or to a new one."""
    for k, others in enumerate(groups):
        if len(others) == 1 and _is_else(load, others[0]):
            groups[k] = (*others, load)
            return
    groups.append((load,))


def _is_else(load: Instance, other: Instance) -> bool:
    """Return whether every element needs exactly one of two loads of a tensor."""
    if load.name != other.name or len(load.conditions) != 1 or len(other.conditions) != 1:
        return False
    (a,), (b,) = load.conditions, other.conditions
    first, second = (a, b) if b.low == a.end else (b, a)
    borders = first.end == second.low and first.position == second.position
    return borders and first.position.within(first.low, second.end)
