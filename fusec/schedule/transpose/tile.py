"""The tile of a transpose kernel: its shape, its threads, and what each of them moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from fusec.dataclasses import dataclass
from fusec.schedule.space import WIDTHS, Field, Parameters, power_below
from fusec.segment.protocol import Refusal

THREADS = 256
"""Most threads per block."""
SHARED_LIMIT = 40 << 10
"""Bytes of static shared memory for tiles."""
MOST_WRITTEN = 4
"""Preferred number of peeled vectors that a thread writes."""
MOST_HELD = 32
"""Most words that a thread loads before it stores the first of them to shared memory."""
RUN_BYTES = 128
"""Contiguous bytes in memory that a tile reads: a cache line."""
SHIFTED_LINES = 64
"""Lines of a tile with peeled vectors: 128 of 16-bit floats take 1 to 9 % longer on an H200."""
LINES, COLUMNS = (16, 32, 64, 128), (32, 64, 128)


@dataclass(frozen=True)
class TransposeParameters(Parameters):
    """The schedule parameters of a transpose kernel."""

    tile_lines: int
    tile_columns: int
    read_width: int
    write_width: int
    shifted: bool
    wide_index: bool
    free: ClassVar = (
        Field("tile_lines", LINES, "elements of a tile along the contiguous dim of the input"),
        Field("tile_columns", COLUMNS, "elements of a tile along the contiguous dim of the output"),
        Field("read_width", WIDTHS, "elements per load"),
        Field("write_width", WIDTHS, "elements per store"),
        Field(
            "shifted",
            (False, True),
            "whether vector loads start at aligned addresses, wherever rows begin",
        ),
    )


@dataclass(frozen=True)
class Tile:
    """How a block's threads move a tile; sizes: the bytes per element of each tensor in it."""

    parameters: TransposeParameters
    sizes: tuple[int, ...]

    @property
    def pack(self) -> int:
        """Return the neighbouring columns that a thread loads to fill a word of shared memory.

        Narrower stores would take one access per element. Peeled vectors are kept whole.
        """
        return 1 if self.parameters.shifted else max(1, 4 // min(self.sizes))

    @property
    def reach(self) -> int:
        """Return the columns of a tile, including those of peeled vectors that begin in it."""
        p = self.parameters
        return p.tile_columns + p.shifted * (p.write_width - 1)

    @property
    def read_units(self) -> int:
        """Return the vectors that are read separately, each of `pack` columns."""
        p = self.parameters
        return (p.tile_lines // p.read_width + p.shifted) * (self.reach // self.pack)

    @property
    def write_units(self) -> int:
        """Return the vectors that are written."""
        p = self.parameters
        return p.tile_lines * (p.tile_columns // p.write_width)

    @property
    def threads(self) -> int:
        """Return the threads of a block: all move equally many vectors, or up to one more.

        With peeled vectors each writes few, since it also holds the loads along these.
        """
        most = THREADS
        if self.parameters.shifted and self.write_units >= 2 * MOST_WRITTEN * THREADS:
            most = 2 * THREADS
        return power_below(min(most, self.read_units, self.write_units))

    @property
    def shared_bytes(self) -> int:
        """Return the bytes of shared memory; with peeled vectors, for the widest pitch."""
        p = self.parameters
        if p.shifted:
            pitch = p.tile_lines + 2 * p.read_width - 2
            return sum(self.sizes) * (self.reach * pitch + 2 * p.read_width)
        return sum(self.sizes) * p.tile_lines * p.tile_columns

    @property
    def read_words(self) -> int:
        """Return the registers of a thread's loads before its first store, none if copied."""
        if self.parameters.shifted:
            return 0
        one = sum(-(-size * self.parameters.read_width // 4) for size in self.sizes)
        return one * self.pack * -(-self.read_units // self.threads)

    @property
    def write_words(self) -> int:
        """Return the registers of the elements that a thread reads from the tiles."""
        one = sum(-(-size * self.parameters.write_width // 4) for size in self.sizes)
        return one * (1 if self.parameters.shifted else self.write_units // self.threads)

    @property
    def why_illegal(self) -> Refusal | None:
        """Return why no block can move the tile, or None."""
        p = self.parameters
        if self.shared_bytes > SHARED_LIMIT:
            return Refusal("shared memory", "the tiles of all transposed loads do not fit")
        side = max(p.tile_lines // p.read_width, p.tile_columns // p.write_width, 32)
        if self.threads < (32 if p.shifted else side):
            because = f"{self.threads} threads cannot move {side} adjacent vectors"
            return Refusal("block", because)
        if max(self.read_words, self.write_words) > 2 * MOST_HELD:
            return Refusal("registers", f"a thread would hold {self.read_words} words")
        return None


def shapes(smallest: int, *, shifted: bool = False) -> Iterator[tuple[int, int]]:
    """Yield the lines and columns of tiles, the largest first, with runs of a cache line.

    With at least SHIFTED_LINES if vectors are peeled, since runs begin within a line.
    """
    most = min(max(RUN_BYTES // smallest, SHIFTED_LINES if shifted else LINES[0]), LINES[-1])
    for lines in (n for n in reversed(LINES) if n <= most):
        for columns in reversed(COLUMNS):
            yield lines, columns
