"""Chooses where a row is kept between its phases, and how many threads share it."""

from __future__ import annotations

from typing import ClassVar

from fusec.dataclasses import dataclass
from fusec.index.instances import Instance
from fusec.ir.expression import Atom, Quotient, Remainder
from fusec.schedule.blocks import SHIFTED, VECTOR_WIDTH
from fusec.schedule.registers import MOST_EXPENSIVE_DOUBLES, double_words, fits, part, words
from fusec.schedule.rows.domain import Phases, phases_of
from fusec.schedule.rows.parameters import TILE_ROWS, PersistentParameters
from fusec.schedule.rows.problem import RowsProblem
from fusec.schedule.rows.tiles import tile_shape, tile_width
from fusec.schedule.space import THREADS, Field, power_above, power_below
from fusec.target import Target

REGISTER_BYTES = 128
"""Bytes of a row that a thread keeps in registers: a quarter of what 128 registers hold."""
KEPT_ELEMENTS = 64
"""Elements of a row that a thread keeps: the compiler holds the values that each phase computes
from them, one register each, rather than recompute them."""
MANY_THREADS = 256
"""Threads of a row beyond which more than 8 vectors each, at least a word wide, are preferred.

Softmax of rows of 5135 f32, word by word, reached 0.63 of the limit with 1024 threads, 0.79 with
512, 0.85 with 256 (H200).
"""
MAX_THREADS = 1024
MOST_IN_LARGE_BLOCKS = 3 / 8
"""The fraction of its registers that a thread fills with a row in blocks of MAX_THREADS."""
MOST_IN_A_BLOCK_ALONE = 5 / 8
"""The same for a block that has an SM to itself; another block would have half of the memory.

Softmax of 38645 floats, 76 per thread: 51 us on an H200, and 66 us from shared memory; 86 spill.
"""
LEAST_ACCESS = 8
"""Least bytes per access to the largest elements: narrower ones read memory slowly."""
KEPT_VALUES = 32
"""Values of special functions that a thread keeps in registers between phases."""


@dataclass(frozen=True, kw_only=True)
class InnerPersistentParameters(PersistentParameters):
    """The schedule parameters of a row-persistent kernel."""

    keep_values: bool = False
    online: bool = False
    slots: int = 0
    groups: int = 1
    cluster: int = 1
    keep_columns: bool = False
    free: ClassVar = (
        Field(
            "storage",
            ("registers", "shared", "ring", "none"),
            "where a row is kept between phases: `ring` prefetches rows into shared memory, "
            "`none` reads the row again",
        ),
        VECTOR_WIDTH,
        Field("threads_x", THREADS, "threads per row"),
        Field("threads_y", THREADS, "rows per block"),
        Field(
            "keep_values",
            (False, True),
            "whether results of special functions are kept in registers, not recomputed in "
            "each phase",
        ),
        Field(
            "online",
            (False, True),
            "whether a maximum and the sum of its exponentials are computed in one phase",
        ),
        Field("slots", range(33), "rows in the ring"),
        Field(
            "groups",
            range(1, 16),
            "groups of `threads_x` threads of a block with a ring, one row each",
        ),
        Field("cluster", (1, 2, 4, 8, 16), "blocks of a cluster that share a row"),
        Field(
            "keep_columns",
            (False, True),
            "whether tensors that depend on the column only are kept in shared memory, with a ring",
        ),
        SHIFTED,
        TILE_ROWS,
    )


def row_bytes(problem: RowsProblem, width: int, *, registers: bool = False) -> int:
    """Return the bytes of the loads of one row that more than one phase reads.

    `registers`: as vectors in registers, at least one for each.
    """
    cached = problem.loops(width)[1].cached
    columns = -(-problem.rows.columns.value // 16) * 16
    least = 4 if registers else 0
    return sum(columns // width * max(least, i.dtype.size * width) for i in cached)


@dataclass(frozen=True)
class Held:
    """The words that a thread holds with vectors of a width.

    row: per vector of the row that stays between phases; again: the same if values of special
    functions stay, too, 0 if there are none; passing: other vectors that one phase reads or writes;
    doubles: for special functions of doubles.
    """

    width: int
    row: int
    again: int
    passing: int
    doubles: int

    def fits(self, threads: int, columns: int, registers: int, *, values: bool = False) -> bool:
        """Return whether a row stays in registers, with or without values computed from it.

        registers: those of an SM.
        """
        vectors = -(-columns // (self.width * threads))
        kept = vectors * (self.again if values else self.row)
        if values:
            most = vectors * self.width <= KEPT_VALUES
        else:
            most = threads < MAX_THREADS or kept <= MOST_IN_LARGE_BLOCKS * registers / threads
        return most and fits(threads, kept + self.passing + self.doubles, registers)

    def fits_alone(self, threads: int, columns: int, registers: int) -> bool:
        """Return whether a row fits in the registers of a block that has an SM to itself."""
        kept = -(-columns // (self.width * threads)) * self.row
        most = MOST_IN_A_BLOCK_ALONE * registers / threads
        return kept <= most and self.fits(threads, columns, registers)


def held_with(problem: RowsProblem, width: int) -> Held:
    """Return the words that a thread holds with vectors of a width.

    Between phases it keeps loads, and quotients and remainders of positions and conditions that
    several phases need: the compiler keeps them rather than divide again.
    """
    fusion = problem.fusion
    lowering, phases, (_, chunk, lane) = problem.loops(width)
    keeping = phases_of(fusion, lowering, (chunk, lane), keep=True)
    passing = [sum(words(i.dtype, width) for i in p - {*phases.cached}) for p in phases.loads]
    used: list[tuple[Atom, int]] = []
    for number, loads in enumerate(phases.loads):
        first = (i for i in loads if not any(i in p for p in phases.loads[:number]))
        used += [(atom, number) for i in first if i.address for atom, _ in i.address.terms]
        tested = (c.position for i in loads for c in i.conditions)
        used += [(atom, number) for position in tested for atom, _ in position.terms]
    for output in fusion.outputs:
        address = lowering.address(output.value, fusion.effects.strides(output.value))
        number = lowering.at_home(output.value).depth
        used += [(atom, number) for atom, _ in address.terms]
        if {chunk, lane} & address.variables:
            passing[number] += words(output.value.dtype, width)
    places: dict[Atom, set[int]] = {}
    for atom, number in used:
        if isinstance(atom, (Quotient, Remainder)) and chunk in atom.inner.variables:
            places.setdefault(atom, set()).add(number)
    again = sum(len(numbers) > 1 for numbers in places.values())
    doubles = double_words(fusion, problem.domain, problem.rows.reduced)
    return Held(
        width,
        row=again + _most_kept(phases, width),
        again=again + _most_kept(keeping, width) if keeping.kept else 0,
        passing=max(passing),
        doubles=doubles * width // MOST_EXPENSIVE_DOUBLES,
    )


def _most_kept(phases: Phases, width: int) -> int:
    """Return the most words per vector that stay between any two phases."""
    most = 0
    for after in range(1, phases.count):
        before = frozenset[Instance]().union(*phases.loads[:after])
        later = frozenset[Instance]().union(*phases.loads[after:])
        values = (i for i, first in phases.kept if first < after)
        kept = sum(words(i.dtype, width) for i in before & later)
        most = max(most, kept + sum(words(i.dtype.compute, width) for i in values))
    return most


def default_parameters(problem: RowsProblem, target: Target) -> InnerPersistentParameters:
    """Return the parameters for a row length and a target: tiles of rows if these are short."""
    whole = by_rows(problem, target)
    shifted, registers = whole.shifted, whole.storage == "registers"
    return (by_tiles(problem, target, shifted=shifted) if registers else None) or whole


def by_tiles(
    problem: RowsProblem, target: Target, *, shifted: bool | None = None
) -> InnerPersistentParameters | None:
    """Return the parameters of tiles, or None if unsupported.

    shifted: whether rows would be peeled; if given, tiles are used only for rows that benefit.
    """
    width = tile_width(problem)
    shape = tile_shape(problem, width, target.sms, shifted=shifted)
    if shape is None:
        return None
    return InnerPersistentParameters(
        storage="registers",
        chunks=-(-problem.rows.columns.value // (width * shape["threads_x"])),
        keep_values=held_with(problem, width).again > 0,
        **shape,
    )


def by_rows(problem: RowsProblem, target: Target) -> InnerPersistentParameters:
    """Return the parameters for a row length and a target, with separate rows.

    Threads per row grow with the row so that each keeps at most REGISTER_BYTES and KEPT_ELEMENTS of
    it. If a thread has too few registers for that it gets narrower vectors, or the row is kept
    elsewhere.
    """
    fusion, rows = problem.fusion, problem.rows
    columns = rows.columns.value
    shifted = problem.takes_shifted()
    width = widest = problem.shifted if shifted else problem.vectors[0]
    largest = max((v.dtype.size for v in fusion.values if v.shape), default=0)
    while True:
        held = held_with(problem, width)
        threads = _threads(problem, width, target.registers)
        fit = held.fits(threads, columns, target.registers)
        if fit or width == 1 or width * largest <= LEAST_ACCESS:
            break
        width //= 2
    storage, keep = "registers", fit and held.again > 0
    if not fit:
        width, threads = widest, MAX_THREADS // 2
        alone = held_with(problem, width).fits_alone(threads, columns, target.registers)
        small = row_bytes(problem, width) <= target.shared
        storage = "registers" if alone else "shared" if small else "none"
    if keep:
        least = power_above(-(-columns // KEPT_VALUES))
        roomier = min(MAX_THREADS, max(threads, least))
        keep = held.fits(roomier, columns, target.registers, values=True)
        threads = roomier if keep else threads
    shifted &= width > 1
    threads = max(threads, 2 * width) if shifted else threads
    chunks = -(-(columns // width if shifted else -(-columns // width)) // threads)
    unrolled_rows = max(1, min(128 // threads, rows.rows.evaluate(fusion.hints) or 1))
    unrolled_rows = max(power_below(unrolled_rows), 32 // threads)  # whole warps
    return InnerPersistentParameters(
        storage=storage,
        vector_width=width,
        threads_x=threads,
        threads_y=unrolled_rows,
        chunks=chunks,
        wide_index=problem.wide,
        keep_values=keep,
        # If exponentials stay on chip, the other form computes each of them only once.
        online=not fit and storage != "shared" and problem.online is not None,
        shifted=shifted,
    )


def _threads(problem: RowsProblem, width: int, registers: int) -> int:
    """Return the threads per row that keep it in registers in vectors of a width.

    registers: those of an SM.
    """
    columns = problem.rows.columns.value
    per_row = row_bytes(problem, width, registers=True)
    vectors = -(-columns // width)
    wanted = max(
        -(-per_row // part(REGISTER_BYTES, registers)),
        -(-columns // part(KEPT_ELEMENTS, registers)),
        min(-(-vectors // 8), max(MANY_THREADS, -(-4 * vectors // REGISTER_BYTES))),
    )
    threads = min(MAX_THREADS, max(8 if columns > 32 else 4, power_above(wanted)))
    return min(threads, max(4, power_above(vectors)))
