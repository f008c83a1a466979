"""The registry of methods that combine the partial results of blocks that share a result.

Each scheduler's schedule field offers the methods of its rows, in their order: `split_method` of
`matmul`, `grid_reduce` of `reduction` and of `inner_outer_persistent`. docs/grid-reduce.md shows
the table (tests/schedule/test_grid_methods.py compares them).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from fusec.dataclasses import dataclass
from fusec.ir.dtype import F32, F64, I32, I64, U32, U64, DType
from fusec.ir.roles import Combine


class CombineOrder(Enum):
    """The order in which the partial results of one result are combined."""

    FIXED = "fixed"
    """The same in every run: results are bitwise reproducible."""
    ARRIVAL = "arrival"
    """That in which blocks finish: sums of floats may differ in their last bits between runs.
    """


class HalfPartials(Enum):
    """How often `workspace_dtype: half` rounds to the 16-bit type of the result."""

    NEVER = "no"
    """The method has no 16-bit partial results."""
    ONCE = "each part once"
    """Blocks store 16-bit partial results, which are summed in f32."""
    EACH_ADD = "each addition"
    """The instruction adds in 16 bits."""


BULK = "cp.reduce.async.bulk"
"""The instruction that combines shared memory into global memory in L2 (PTX ISA 8.0, sm_90)."""
BULK_CAPABILITY = 90
_WORDS = (F32, F64, I32, I64, U32, U64)
BULK_OPERATIONS: Mapping[Combine, tuple[DType, ...]] = {
    Combine.SUM: _WORDS,
    Combine.MAXIMUM: _WORDS,
    Combine.MINIMUM: _WORDS,
}
"""The types in which the instruction combines the parts of each operation.

It has max of u32 and u64, not of floats or of minima whose memory starts as zeros: parts are stored
as unsigned integers of the same order (device/combine_in_bulk.cuh). It has no products.
"""


@dataclass(frozen=True)
class GridMethod:
    """A method of one scheduler.

    family: the scheduler's name. name: the value of its schedule field. about: what the blocks do.
    instruction: combines partial results in memory, empty if threads do it in registers. is_serial:
    whether blocks wait for each other. order: that in which partial results are combined. halves:
    how often `workspace_dtype: half` rounds. capability: the least compute capability of the method
    itself, 90 for 9.0. operations: those that the instruction combines, and in which types; None:
    all of the scheduler. compared: whether the cost model selects it.
    """

    family: str
    name: str
    about: str
    instruction: str = ""
    is_serial: bool = False
    order: CombineOrder = CombineOrder.FIXED
    halves: HalfPartials = HalfPartials.NEVER
    capability: int = 0
    operations: Mapping[Combine, tuple[DType, ...]] | None = None
    compared: bool = False

    @property
    def in_memory(self) -> bool:
        """Return whether an instruction combines parts in memory."""
        return bool(self.instruction)

    @property
    def on_request(self) -> bool:
        """Return whether it is used only if a schedule names it: bits may vary between runs."""
        return self.order is CombineOrder.ARRIVAL

    def combines(self, combine: Combine | None, dtype: DType) -> bool:
        """Return whether it combines partial results of an operation that accumulates in a type."""
        if self.operations is None:
            return True
        return combine is not None and dtype in self.operations.get(combine, ())


PARTIALS = ("f32", "half")
"""The values of field `workspace_dtype`: the type in which the reduction accumulates, or the 16-bit
type of the result, which is used only on request."""
MATMUL, REDUCTION, COLUMN_SUMS = "matmul", "reduction", "inner_outer_persistent"
_ARRIVAL = CombineOrder.ARRIVAL
METHODS = (
    GridMethod(
        MATMUL, "slices", "the last CTA cluster to arrive adds all slices, in order",
        halves=HalfPartials.ONCE, compared=True,
    ),
    GridMethod(
        MATMUL, "serial_tma", "clusters add to one buffer serially, by reducing bulk copies",
        BULK, is_serial=True, halves=HalfPartials.EACH_ADD, capability=BULK_CAPABILITY,
        compared=True,
    ),
    GridMethod(
        MATMUL, "serial", "clusters add to one buffer serially, by loads and stores",
        is_serial=True,
    ),
    GridMethod(
        MATMUL, "two_pass", "a second kernel adds the slices of all clusters, in order",
        halves=HalfPartials.ONCE, compared=True,
    ),
    GridMethod(
        MATMUL, "parallel", "clusters add to one buffer as they end, by vector atomics",
        "atom.global.add.v4.f32", order=_ARRIVAL, capability=90,
    ),
    GridMethod(
        MATMUL, "stream_k", "stream-K: SMs have equal ranges of K; two that share a tile add up",
    ),
    GridMethod(
        REDUCTION, "last_block", "the last block to arrive combines all partial results, in order",
        compared=True,
    ),
    GridMethod(
        REDUCTION, "tree", "tree: the last block of each group combines it, the last group all",
        compared=True,
    ),
    GridMethod(
        REDUCTION, "serial_tma", "blocks combine into one buffer serially, by reducing bulk copies",
        BULK, is_serial=True, halves=HalfPartials.EACH_ADD, capability=BULK_CAPABILITY,
        operations=BULK_OPERATIONS,
    ),
    GridMethod(
        REDUCTION, "parallel", "blocks combine into one buffer as they end by reducing bulk copies",
        BULK, order=_ARRIVAL, halves=HalfPartials.EACH_ADD, capability=BULK_CAPABILITY,
        operations=BULK_OPERATIONS,
    ),
    GridMethod(
        REDUCTION, "serial", "blocks combine into one buffer serially, by loads and stores",
        is_serial=True,
    ),
    GridMethod(
        COLUMN_SUMS, "kernel", "a second kernel adds the partial rows of all ranges, in order",
        compared=True,
    ),
    GridMethod(
        COLUMN_SUMS, "overlap", "the same, overlapping the end of the row kernel",
        capability=90, compared=True,
    ),
)  # fmt: skip
"""All methods, those of a scheduler in the order of its field's values."""


def methods_of(family: str) -> Mapping[str, GridMethod]:
    """Return the methods of a scheduler by name."""
    return {m.name: m for m in METHODS if m.family == family}


MATMUL_METHODS = methods_of(MATMUL)
REDUCTION_METHODS = methods_of(REDUCTION)
COLUMN_METHODS = methods_of(COLUMN_SUMS)
