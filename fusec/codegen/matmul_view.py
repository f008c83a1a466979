"""The frozen views that the matrix product templates read."""

from __future__ import annotations

from dataclasses import dataclass

from fusec.codegen.views import KernelView
from fusec.kernel.nest import StoreKind
from fusec.kernel.nodes import Closure, Element, Expression, Listed, Pointer, Statement, Type
from fusec.schedule.matmul_epilogue import SUMS


@dataclass(frozen=True)
class OperandView:
    """One operand of the product.

    name: its pointer in the kernel; map: its tensor map; batch: the coordinates along the batch
    axes of that, from `tile.batch`.
    """

    name: str
    map: str
    batch: Listed


@dataclass(frozen=True)
class GroupsView:
    """What cuts the product into groups.

    ends: the pointer to the end of the first group; stride: from one end to the next, in elements.
    """

    ends: Pointer
    stride: Expression


@dataclass(frozen=True)
class ComputedView:
    """What makes neighbouring elements of row `m` of A, from column `k` on.

    name: what they are called; loads: lines that run once; statements: those of each element `i`,
    which is `value`, in tensor cores' type.
    """

    name: str
    loads: tuple[Statement, ...]
    statements: tuple[Statement, ...]
    value: Expression


@dataclass(frozen=True)
class StagedView:
    """A tensor whose rows pass through shared memory, before (fetched) or after the epilogue.

    rows: this warp's rows there, of `type`, at constant `slot` of the Config; at: the function that
    points to an element, `pointer` after `lines`, with the parameters of the epilogue; here: the
    same with the place in the warp's rows. shifted: whether rows begin anywhere in memory.
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
class TotalView:
    """A reduction of results along rows, by 32 columns, or down columns, by 16 rows.

    name: what gathers it, of `type`; terms: what is reduced of a pair of results, which the
    epilogue fills; inside: which of these count; target: where it is stored.
    """

    name: str
    type: Type
    terms: str
    inside: Expression
    target: Element


@dataclass(frozen=True)
class EpilogueView:
    """What happens to `width` neighbouring sums of one row, held in `acc`.

    The lines may use the row `m`, the first column `n`, the sums `acc[i]`, and `batch` where there
    are several: `parameters` declares them, `position` gives them. Loads and stores run once;
    statements run for each i < width, where the column is `n + i`. A width above 1 divides N.
    staged: tensors whose pairs lie `place` elements behind the warp's rows in shared memory; sums:
    the names of the sums, two where products are joined; totals: what is reduced tile by tile.
    store_kinds: of each output that is stored, how its store stays inside the result; stored_under:
    the test for those that are guarded.
    """

    width: int
    parameters: Listed
    position: Listed
    loads: tuple[Statement, ...]
    statements: tuple[Statement, ...]
    stores: tuple[Statement, ...]
    staged: tuple[StagedView, ...] = ()
    sums: tuple[str, ...] = (SUMS,)
    totals: tuple[TotalView, ...] = ()
    store_kinds: tuple[StoreKind, ...] = ()
    stored_under: Expression | str = ""

    @property
    def is_empty(self) -> bool:
        """Return whether sums stay as they are."""
        return not (self.loads or self.statements or self.stores)

    @property
    def fetched(self) -> tuple[StagedView, ...]:
        """Return the tensors whose rows are read."""
        return tuple(s for s in self.staged if s.fetched)

    @property
    def stored(self) -> tuple[StagedView, ...]:
        """Return the tensors whose rows are written."""
        return tuple(s for s in self.staged if not s.fetched)

    @property
    def visits(self) -> str:
        """Return the function that goes over what is staged of a tile."""
        if len(self.sums) > 1:
            return "visit_joined_pairs"
        return "visit_elements" if self.width == 1 else "visit_pairs"


@dataclass(frozen=True, kw_only=True)
class MatmulView(KernelView):
    """What every matrix product kernel has.

    loop: the function of a Hopper kernel that multiplies the stages of a tile; pipeline: in what
    its stages differ from the plain ones; policy: the struct of that, a further template argument
    of what loads and multiplies them; zero_points: in what these differ from plain ones; scales:
    lines that define the scales of both operands along K, if there are any; scaled: further
    arguments with these; apart: further template arguments of what leaves sums in shared memory;
    columns: the constant of the Config with a tile's columns.
    config: the members of its `Config`; has_layout: whether they say what lies where in shared
    memory. constants: declarations of M, N, K and of what else of the sizes and strides is no
    parameter. offsets: lines that define `a_offset` and `b_offset`, in elements, from `tile.batch`
    or the group. computed: what makes A, where it does not lie in memory. groups: what cuts the
    product into groups, by rows or by elements of K; with them the constants are `all_rows` or
    `all_depth` in place of M or K, and `groups` with those of rows.
    """

    loop: str
    pipeline: tuple[Statement, ...]
    policy: Listed
    zero_points: tuple[Statement, ...]
    scales: tuple[Statement, ...]
    scaled: Listed
    apart: Listed
    columns: str
    config: tuple[Statement, ...]
    has_layout: bool
    constants: tuple[Statement, ...]
    offsets: tuple[Statement, ...]
    computed: ComputedView | None
    index_type: Type
    sums_type: Type
    a: OperandView
    b: OperandView
    epilogue: EpilogueView
    has_batches: bool
    groups: GroupsView | None
    cuts_rows: bool
    cuts_depth: bool


@dataclass(frozen=True, kw_only=True)
class PersistentView(MatmulView):
    """The kernel with one CTA per SM over all tiles.

    second_map: the map of the B of a joined product, if there is one; consumers: warpgroups that
    multiply.
    ping_pong: whether each warpgroup has tiles of its own; swapped: whether columns of the result
    are the rows of wgmma; in_pairs: whether the CTAs of a cluster
    take neighbouring tiles; ctas: how many; splits: parts of tiles of the last wave; partials,
    arrivals: where their sums are, and how many. is_guarded: whether the epilogue runs for elements
    of the result alone: it has a guarded store, or a tile may have no step of K (wgmma was
    serialised else); has_rest: whether the last columns that are staged are fewer than others.
    """

    second_map: str
    consumers: int
    ping_pong: bool
    swapped: bool
    in_pairs: bool
    ctas: int
    splits: int
    is_guarded: bool
    has_rest: bool
    partials: str = ""
    arrivals: str = ""


@dataclass(frozen=True, kw_only=True)
class VectorView(MatmulView):
    """The kernel that streams over B.

    has_slices: whether several blocks share K of a tile; partials, arrivals: then the names of the
    work buffer and of the counters of blocks that have left their sums there.
    """

    has_slices: bool
    partials: str = ""
    arrivals: str = ""


@dataclass(frozen=True, kw_only=True)
class SplitKView(MatmulView):
    """The kernel with K split over CTAs, and how several clusters of a tile sum.

    takes_turns: in turn, in_bulk: by bulk reductions, else by loads and stores; in_arrival_order:
    each adds to the sums as it comes; otherwise whoever arrives last adds the slices of all up, or
    a kernel of its own without has_epilogue. leaves_fragments: whether CTAs leave their sums for it
    as wgmma has them; moves_registers: whether a thread that loads gives registers to those that
    multiply, and then returns; fetches_factors: whether warps beside it fetch scales and zero
    points into L2; part: the type of four sums in a slice.
    second_map: the map of the B of a joined product, if there is one.
    in_clusters: whether several CTAs sum in shared memory; in_pairs: whether two CTAs take
    neighbouring tiles, and share what they load; has_partials: whether there are several clusters.
    tickets, turns, partials, arrivals: the names of the ticket counter, the semaphores, the work
    buffer and the counters of slices; empty where there are none.
    """

    second_map: str
    takes_turns: bool
    in_bulk: bool
    in_arrival_order: bool
    in_clusters: bool
    in_pairs: bool
    has_partials: bool
    has_epilogue: bool
    leaves_fragments: bool
    moves_registers: bool
    fetches_factors: bool
    part: Type
    tickets: str = ""
    turns: str = ""
    partials: str = ""
    arrivals: str = ""
