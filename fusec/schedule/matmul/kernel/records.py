"""The view of GEMM kernels: operands, groups, staged rows, and the epilogue."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.kernel.lowering.nest import StoreKind
from fusec.kernel.nodes import Closure, Element, Expression, Listed, Pointer, Statement, Type
from fusec.schedule.matmul.epilogue import SUMS


@dataclass(frozen=True)
class OperandNodes:
    """One operand of the GEMM.

    name: its pointer in the kernel; map: its tensor map; batch: the coordinates along the map's
    batch axes, from `tile.batch`.
    """

    name: str
    map: str
    batch: Listed


@dataclass(frozen=True)
class GroupsNodes:
    """The partition of a GEMM into groups.

    ends: the pointer to the end of the first group; stride: from one end to the next, in elements.
    """

    ends: Pointer
    stride: Expression


@dataclass(frozen=True)
class ComputedNodes:
    """The computation of neighbouring elements of row `m` of A, from column `k` on.

    name: its name; loads: lines that run once; statements: those of each element `i`, which is
    `value`, in the tensor cores' type.
    """

    name: str
    loads: tuple[Statement, ...]
    statements: tuple[Statement, ...]
    value: Expression


@dataclass(frozen=True)
class StagedNodes:
    """A tensor whose rows pass through shared memory, before (fetched) or after the epilogue.

    rows: this warp's rows there, of `type`, at constant `slot` of the Config; at: the function that
    points to an element, `pointer` after `lines`, with the parameters of the epilogue; here: the
    same with the position in the warp's rows. shifted: whether rows are unaligned in memory.
    """

    rows: str
    type: Type
    slot: str
    at: str
    here: str
    lines: tuple[Statement, ...]
    pointer: Pointer
    fetched: bool
    shifted: bool = False

    def function(self, parameters: Listed) -> Closure:
        """Return the declaration of `at`."""
        return Closure(self.at, parameters, self.lines, self.pointer)


@dataclass(frozen=True)
class TotalNodes:
    """A reduction of results along rows, by 32 columns, or down columns, by 16 rows.

    name: the accumulator, of `type`; terms: the reduced terms of a pair of results, which the
    epilogue fills; inside: the bounds test of these; target: where it is stored.
    """

    name: str
    type: Type
    terms: str
    inside: Expression
    target: Element


@dataclass(frozen=True)
class EpilogueNodes:
    """The epilogue of `width` neighbouring accumulators of one row, held in `acc`.

    The lines may use the row `m`, the first column `n`, the accumulators `acc[i]`, and `batch` if
    there are several: `parameters` declares them, `position` passes them. Loads and stores run
    once; statements run for each i < width, where the column is `n + i`. A width above 1 divides N.
    staged: tensors whose pairs are at `place` in the warp's rows in shared memory; sums: the names
    of the accumulators, two for dual GEMMs; totals: reductions within tiles. store_kinds: for each
    stored output, how its store stays in bounds; stored_under: the test for those that are guarded.
    """

    width: int
    parameters: Listed
    position: Listed
    loads: tuple[Statement, ...]
    statements: tuple[Statement, ...]
    stores: tuple[Statement, ...]
    staged: tuple[StagedNodes, ...] = ()
    sums: tuple[str, ...] = (SUMS,)
    totals: tuple[TotalNodes, ...] = ()
    store_kinds: tuple[StoreKind, ...] = ()
    stored_under: Expression | str = ""

    @property
    def is_empty(self) -> bool:
        """Return whether the epilogue has nothing to compute or store."""
        return not (self.loads or self.statements or self.stores)

    @property
    def fetched(self) -> tuple[StagedNodes, ...]:
        """Return the tensors whose rows are read."""
        return tuple(s for s in self.staged if s.fetched)

    @property
    def stored(self) -> tuple[StagedNodes, ...]:
        """Return the tensors whose rows are written."""
        return tuple(s for s in self.staged if not s.fetched)

    @property
    def visits(self) -> str:
        """Return the function that iterates over the staged elements of a tile."""
        if len(self.sums) > 1:
            return "visit_dual_pairs"
        return "visit_elements" if self.width == 1 else "visit_pairs"
