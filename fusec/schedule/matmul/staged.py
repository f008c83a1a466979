"""Which tensors of a GEMM's epilogue a warp stages in shared memory, row by row."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.index.instances import Instance, Lowering, instances_under
from fusec.ir.access import Conditions
from fusec.ir.dim import Dim
from fusec.ir.expression import Index, Var, index, linearize
from fusec.ir.graph import Fusion, Output, Value

PAIR = 2
"""Neighbouring columns per thread in the accumulator layout of tensor cores."""
ROW_BYTES = 16
"""Bytes of a row that one lane moves per access."""
ROW = "m"
"""The name of the row index variable."""
LINE = 128
"""Bytes per line, the unit of L2 and memory accesses."""
SHORT = 512
"""Largest K for which storing the results takes longer than computing them."""
PART = 64
"""Columns that fill a memory line, for 2-byte elements."""
SIZES = (2, 4)
"""Element sizes in bytes whose pairs are staged; others are read and written in place."""


@dataclass(frozen=True)
class StagedTensor:
    """A tensor with the rows and columns of the GEMM's result, rows contiguous.

    slot: its place in shared memory, shared with other tensors of its element size: an input with
    an output that is written where it has been read. load: the instance that reads it, or output:
    what is written to `buffer`. shifted: whether rows are unaligned, which those that are read are
    not.
    """

    buffer: str
    value: Value
    address: Index
    slot: int
    load: Instance | None = None
    output: Output | None = None
    shifted: bool = False


@dataclass(frozen=True)
class StagedSlots:
    """The shared memory of staged tensors: bytes per element of each slot.

    fetched: how many are prefetched, whose rows stay there for all columns of the tile; whole:
    whether all columns are there at once.
    """

    sizes: tuple[int, ...] = ()
    fetched: int = 0
    whole: bool = False


@dataclass(frozen=True)
class Pairs:
    """An epilogue in loop variables: column n = chunk * width + lane, row m, of n columns."""

    fusion: Fusion
    lowering: Lowering
    chunk: Var
    lane: Var
    columns: Dim
    width: int = PAIR

    def is_staged(self, address: Index, conditions: Conditions, size: int, facts: Facts) -> bool:
        """Return whether an access to elements of `size` bytes covers whole aligned rows."""
        if not self._has_rows(address, conditions, size):
            return False
        by = ROW_BYTES // size
        return facts.index_multiple(self._begin(address), by) and facts.multiple(self.columns, by)

    def is_shifted(self, address: Index, conditions: Conditions, size: int, facts: Facts) -> bool:
        """Return whether an access covers whole rows whose pairs can each be stored at once."""
        if not self._has_rows(address, conditions, size):
            return False
        return facts.index_multiple(self._begin(address), self.width)

    def _has_rows(self, address: Index, conditions: Conditions, size: int) -> bool:
        if size not in SIZES or conditions or not any(v.name == ROW for v in address.variables):
            return False
        if self.width > 1 and address.coefficient(self.lane) != 1:
            return False
        return address.coefficient(self.chunk) == self.width

    def _begin(self, address: Index) -> Index:
        return address.substitute({self.lane: index(0), self.chunk: index(0)})


def find_staged(
    pairs: Pairs, sums: tuple[Value, ...], facts: Facts, reduced: Sequence[Instance] = ()
) -> tuple[StagedTensor, ...]:
    """Return the staged tensors, those that are read first; reduced: further epilogue roots."""
    fusion, lowering = pairs.fusion, pairs.lowering
    stores: list[tuple[Output, Index, Conditions]] = []
    roots: list[Instance] = []
    for output in fusion.outputs:
        coordinates, conditions = lowering.home(output.value)
        address = linearize(coordinates, fusion.effects.strides(output.value))
        stores.append((output, address, lowering.stored_where(output.value)))
        roots.append(lowering.at(output.value, coordinates, conditions))
    roots += reduced
    found: list[StagedTensor] = []
    free: list[tuple[int, int]] = []
    for load in instances_under(roots):
        if load.kind != "load" or load.value is None or load.address is None or load.gathered:
            continue
        size = load.dtype.size
        if load.value not in sums and pairs.is_staged(load.address, load.conditions, size, facts):
            slot = len(free)
            free.append((size, slot))
            found.append(StagedTensor(load.name, load.value, load.address, slot, load=load))
    slots = len(free)
    for output, address, conditions in stores:
        size = output.value.dtype.size
        buffer = fusion.effects.buffer(output.value)
        if not pairs.is_staged(address, conditions, size, facts):
            if pairs.is_shifted(address, conditions, size, facts):
                # The addresses of pairs depend on the row: they never equal those of an input.
                found.append(
                    StagedTensor(buffer, output.value, address, slots, output=output, shifted=True)
                )
                slots += 1
            continue
        taken = next((pair for pair in free if pair[0] == size), None)
        if taken is not None:
            free.remove(taken)
        slot = slots if taken is None else taken[1]
        slots += taken is None
        found.append(StagedTensor(buffer, output.value, address, slot, output=output))
    return tuple(found)


def slots_of(staged: tuple[StagedTensor, ...], columns: int, depth: int) -> StagedSlots:
    """Return the shared memory of staged tensors with that many columns; depth: extent of K.

    If K is short, stores are the bottleneck, and rows that begin inside memory lines are stored in
    as few segments as possible: each touches one line more than it fills (7 % of 13288 x 13288 x
    32, 20 % of 5404 x 8545 x 20 on an H200; stages are worth more if K is long).
    """
    sizes = {s.slot: s.value.dtype.size for s in staged}
    fetched = sum(s.load is not None for s in staged)
    inside = any(columns * size % LINE for size in sizes.values())
    whole = fetched > 0 or (inside and depth <= SHORT)
    return StagedSlots(tuple(sizes[k] for k in sorted(sizes)), fetched, whole)


def staged_columns(tile_n: int, *, whole: bool, dual: bool = False) -> int:
    """Return the columns that are staged at a time: all of a tile if rows are prefetched.

    Otherwise as few as fill whole memory lines, in equal parts of the tile if these are little more
    and leave room for as many stages. dual: in equal parts, or slightly fewer, since with more
    columns of two GEMMs threads would run out of registers.
    """
    if whole:
        return tile_n
    equal = next(c for c in (*range(PART, tile_n, 8), tile_n) if tile_n % c == 0)
    if dual:
        return next((c for c in (56, 48) if tile_n % PART and tile_n % c == 0), equal)
    return equal if equal <= PART + 8 else PART
