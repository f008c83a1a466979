"""A segment as rows of columns to reduce, which may be read again."""

from __future__ import annotations

from collections.abc import Callable

from fusec.dataclasses import dataclass
from fusec.index.access import Facts, vector_base
from fusec.index.domain import Domain, find_domain
from fusec.index.instances import Instance, Lowering
from fusec.ir.dim import Dim, ceildiv, product
from fusec.ir.expression import Index
from fusec.ir.graph import Fusion
from fusec.ir.identity_cache import IdentityCache
from fusec.properties import cached_property
from fusec.schedule.blocks import check_access, check_column_sums, check_shape
from fusec.schedule.common import dynamic_symbols, specialise
from fusec.schedule.plan import Guard
from fusec.schedule.problem import Problem, widest_vectors
from fusec.schedule.registers import most_elements
from fusec.schedule.rows.domain import (
    Nest,
    Phases,
    Rows,
    in_place_hazard,
    lowered,
    phases_of,
    rows_of,
)
from fusec.schedule.rows.online import in_one_phase
from fusec.schedule.rows.parameters import RowsParameters
from fusec.schedule.rows.shifted import is_read_across, shifted_start
from fusec.schedule.run_time_sizes import Loops, innermost, with_run_time_sizes
from fusec.schedule.strides import in_order_of_memory, is_inner
from fusec.segment.protocol import Refusal

FEW = 4096
"""Elements that a block reads one by one about as fast as with vectors."""
NARROW = 4
"""Bytes per access from which on peeled vectors are preferred only for long rows."""
LEAST_VECTORS = 64
"""Vectors of a row that make its ends, one element in a few threads, negligible."""
LEAST_ROWS = 64
"""Rows of reduced columns that make the first and the last one negligible."""
LEAST_ACROSS = 6
"""Vectors of reduced columns that make the rest of the last one cheaper than narrow accesses.

Sums of f16[291316, 121] over rows take 29 us on an H200, and 34 element by element.
"""
LEAST_VECTORS_OF_WORDS = 512
"""The same if accesses would be of NARROW bytes: on an H200, softmax of f32 rows of 755 reaches
0.94 of a copy this way, of 2787 0.79, of 5135 0.62."""
LEAST_VECTORS_OF_SUMS = 192
"""The same for rows that are only read: sums of f32 rows of 1503 take 37 us this way, else 51."""
_CACHE: IdentityCache[tuple[Lowering, Phases]] = IdentityCache()


@dataclass(frozen=True, eq=False)
class RowsProblem(Problem):
    """A segment as rows of columns to reduce.

    inner: whether the columns are contiguous; stores: whether stored values are contiguous along
    them, too.
    """

    domain: Domain
    rows: Rows
    inner: bool
    stores: bool

    def loops(self, width: int, shifted: bool = False) -> Nest:
        """Return the values in the loops over rows and vectors of a width, phases, and variables.

        The loop variables are row, chunk and lane. If columns are not contiguous, the rows are
        reduced.
        """
        if self.inner:
            about = self.fusion, self.domain, self.rows, width, shifted
            return *lowered(*about), self.rows.variables(width, shifted)
        along = self.rows.along(inner=False)
        variables = along.variables(width)

        def found() -> tuple[Lowering, Phases]:
            lowering = Lowering(self.fusion, self.domain, along.bind(width))
            return lowering, phases_of(self.fusion, lowering, variables)

        return *_CACHE.of(self.fusion, (id(self.domain), self.rows, width), found), variables

    def is_whole(self, load: Instance, width: int, start: Index | None = None) -> bool:
        """Return whether a load's elements of a vector of columns are one access.

        start: the address of peeled vectors.
        """
        assert load.address is not None
        lane = self.rows.variables(width)[2]
        facts = Facts(self.hints, start)
        return width == 1 or (
            vector_base(load.address, load.conditions, lane, width, facts) is not None
        )

    def blocks(self, p: RowsParameters) -> Dim:
        """Return the number of blocks with distinct rows or columns."""
        if self.inner:
            return ceildiv(self.rows.rows, p.tile_rows or p.threads_y)
        return ceildiv(ceildiv(self.rows.rows, p.vector_width), p.threads_x)

    def check_block(self, p: RowsParameters, widest: int = 0) -> Refusal | None:
        """Return why no block with the given threads and accesses reduces the rows.

        widest: the widest vectors of rows that are not in global memory.
        """
        width = p.vector_width
        if p.shifted and (width == 1 or (self.inner and p.threads_x < 2 * width)):
            because = (
                f"the ends of rows need one thread per element with unaligned vectors of {width}"
            )
            return Refusal("access", because)
        widest = widest or (self.shifted if p.shifted else self.vectors[0])
        found = check_access(width, widest) or check_shape(p)
        if found is not None or self.inner:
            return found
        return check_column_sums((n for n in self.fusion.nodes if n in self.domain.reduced), p)

    @cached_property
    def vectors(self) -> tuple[int, tuple[Guard, ...]]:
        """Return the widest vectors along the contiguous axis, and the guards that they need.

        Short rows of dynamic length are processed element by element, which needs no guards.
        """
        length = self.rows.columns
        if self.inner and not length.is_const and length.evaluate(self.hints) <= FEW:
            return 1, ()
        return widest_vectors(self, self.domain, self.rows, inner=self.inner, stores=self.stores)

    @cached_property
    def shifted(self) -> int:
        """Return the widest vectors of unaligned rows, 1 if these cannot be peeled.

        Rows that are whole vectors anyway are not peeled.
        """
        tensors = [i.value for i in self.fusion.inputs] + [o.value for o in self.fusion.outputs]
        smallest = min((v.dtype.size for v in tensors if v.shape), default=4)
        width = min(16 // smallest, most_elements(self.fusion))
        if not self.inner:
            loops = self.loops(width)
            fits = width > self.vectors[0] and is_read_across(self.fusion, loops[0], *loops[2])
            return width if fits else 1
        if not self.rows.columns.is_const or self.rows.columns.value < width:
            return 1
        return width if width > self.vectors[0] and self.start(width) is not None else 1

    @property
    def guards(self) -> tuple[Guard, ...]:
        """Return the guards of indices and of vectors."""
        return *self.index[1], *self.vectors[1]

    def start(self, width: int) -> Index | None:
        """Return the address at which peeled vectors begin, or None if they are impossible."""
        lowering, phases, loops = self.loops(width, True)
        return shifted_start(self.fusion, lowering, phases, loops, stores=self.stores)

    def takes_shifted(self) -> bool:
        """Return whether peeled vectors pay for their ends: for long rows with narrow accesses."""
        tensors = [i.value for i in self.fusion.inputs] + [o.value for o in self.fusion.outputs]
        smallest = min((v.dtype.size for v in tensors if v.shape), default=4)
        if self.shifted == 1:
            return False
        narrow = self.vectors[0] * smallest
        if not self.inner:
            columns = self.rows.rows.evaluate(self.hints)
            enough = self.rows.columns.evaluate(self.hints) >= LEAST_ROWS
            return enough and narrow <= NARROW and columns >= LEAST_ACROSS * self.shifted
        columns = self.rows.columns.value
        of_words = LEAST_VECTORS_OF_WORDS if self.stores else LEAST_VECTORS_OF_SUMS
        least = LEAST_VECTORS if narrow < NARROW else of_words
        return narrow <= NARROW and columns >= least * self.shifted

    @cached_property
    def online(self) -> RowsProblem | None:
        """Return the problem with each maximum and its sum of exponentials in one phase."""
        fusion = in_one_phase(self.fusion)
        if fusion is self.fusion:
            return None
        found = as_rows(self.segment, fusion, stores=self.stores, inner=self.inner)
        return None if isinstance(found, Refusal) else found

    def check_rereading(self, *, on_chip: bool) -> Refusal | None:
        """Return why a kernel must not, or need not, read its rows again after their reductions.

        on_chip: whether it reads from memory only once.
        """
        return self.hazard(on_chip=on_chip) or self.check_reuse()

    def check_reuse(self) -> Refusal | None:
        """Return why a kernel need not, or cannot, read its rows again after their reductions."""
        lowering, phases, (row, chunk, lane) = self.loops(1)
        swept = {chunk, lane} if self.inner else {row}
        if not any(i.variables & swept for loads in phases.loads[1:] for i in loads):
            return Refusal("persistence", "no tensor is reused after the reduction")
        if any(lowering.home(n.inputs[0])[1] for group in phases.reductions for n in group):
            return Refusal("conditions", "a reduction reads only a part of the domain")
        return None

    def hazard(self, *, on_chip: bool) -> Refusal | None:
        """Return why an output must not be written in place, or None.

        Per-column values are computed by all threads after the reduction, without a barrier.
        """
        lowering, phases, _ = self.loops(1)
        return in_place_hazard(
            self.fusion, lowering, phases=phases, on_chip=on_chip, by_all=not self.inner
        )

    def repeated_work(self, phases: Phases) -> tuple[float, float]:
        """Return the operations and special functions that later phases repeat for all elements."""
        elements = product(a.extent for a in self.domain.axes).evaluate(self.hints)
        return elements * phases.repeated[0], elements * phases.repeated[1]


def with_any_rows(
    problem: RowsProblem,
    make: Callable[[Fusion], RowsProblem | Refusal],
    *,
    any_length: bool = False,
) -> RowsProblem:
    """Return the problem with more dynamic sizes: of rows and, if `any_length`, of columns.

    make: the problem of a fusion with some sizes specialized.
    """
    symbolic = find_domain(problem.segment)
    if isinstance(symbolic, Refusal):
        return problem
    fixed = () if any_length else tuple(a.extent for a in symbolic.reduced_axes)
    if not problem.inner or not any_length:
        fixed += innermost(symbolic.reference.shape)

    def loops(found: RowsProblem) -> Loops:
        width = found.vectors[0]
        widths = () if any_length and found.inner else (width, found.shifted)
        lowering, _, (row, chunk, lane) = found.loops(width)
        if found.inner:
            return Loops(lowering, frozenset({chunk, lane}), widths=widths)
        return Loops(lowering, frozenset({row, chunk, lane}), frozenset({row}), widths)

    return with_run_time_sizes(problem, make, loops, fixed)


def with_columns(segment: Fusion) -> Fusion | Refusal:
    """Return the segment with the sizes of reduced axes, and of all axes inside, specialized."""
    domain = find_domain(segment)
    if isinstance(domain, Refusal):
        return domain
    reduced = frozenset[str]().union(*(a.extent.symbols for a in domain.reduced_axes))
    return specialise(segment, dynamic_symbols(segment) - reduced)[0]


def as_rows(
    segment: Fusion, fusion: Fusion, *, stores: bool = False, inner: bool | None = None
) -> RowsProblem | Refusal:
    """Return a segment, specialized as a fusion, as rows.

    stores: whether elements are stored; inner: whether columns are taken as contiguous, regardless
    of their strides.
    """
    domain = find_domain(fusion)
    if isinstance(domain, Refusal):
        return domain
    rows = rows_of(domain)
    if isinstance(rows, Refusal):
        return rows
    inner = is_inner(fusion, domain, rows) if inner is None else inner
    rows = rows if inner else in_order_of_memory(fusion, domain, rows)
    return RowsProblem(segment, fusion, domain, rows, inner, stores=stores or not inner)
