"""Chooses the shape of blocks that reduce rows or columns, and how many share a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from fusec.dataclasses import dataclass, field, replace
from fusec.ir.roles import Combine
from fusec.schedule.blocks import SHIFTED, VECTOR_WIDTH
from fusec.schedule.common import access
from fusec.schedule.grid_methods import BULK, PARTIALS, REDUCTION_METHODS, GridMethod
from fusec.schedule.registers import partial_words
from fusec.schedule.rows.parameters import TILE_ROWS, RowsParameters
from fusec.schedule.rows.problem import RowsProblem
from fusec.schedule.rows.reduction.grid import GridReduction, fan_of, quickest
from fusec.schedule.rows.reduction.rows import UNROLLED, threads_of_row, unrolled_rows
from fusec.schedule.rows.tiles import tile_shape
from fusec.schedule.space import COUNTS, THREADS, Field, power_above, power_below
from fusec.segment.traffic import traffic
from fusec.target import Target

FIRST_METHOD = next(iter(REDUCTION_METHODS))
"""The value for results that are not shared."""
MIN_VECTORS_PER_SPLIT = 512
"""Vectors of the reduced axes below which another block does not pay for its partial result."""
MOST_UNROLLED = 16
FLIGHT = 64
"""Bytes in flight per thread with UNROLLED of the widest vectors."""
THREADS_PER_SM = 1024
"""Threads with FLIGHT bytes each in flight that saturate an SM's share of the bandwidth."""
STATE_WORDS = 8
"""Most words of partial results per thread that has several columns.

With 8 columns that have a mean and a variance each, too few threads fit on an SM: those of 200704 x
256 16-bit floats take 47 us on an H200 by 2 columns and 56 by 8; the maxima and sums of
exponentials of 1889 x 45288 16-bit floats 65 us by 4 and 83 by 8.
"""
THREADS_OF_MOMENTS = 2048
"""`THREADS_PER_SM` for Welford states, whose division per vector a thread waits for."""
RUN = 128
"""Least bytes of columns of a row that a block reads: two blocks share the sector at each end."""
BLOCK = 256
"""Threads per block that reduces columns, if there are many."""
LARGER_BLOCKS = (512, 1024)
LARGER = 0.03
"""The least fraction of its time that a larger block has to save: fewer blocks balance worse."""
ROWS_OF_A_THREAD = 8
"""Rows per thread below which the combine across threads does not pay."""
STREAMED = 3
"""Times the bytes of L2 up to which inputs are loaded with evict-first.

Otherwise the results of other kernels are evicted for them: sums of 65 to 190 MB take 3 us less on
an H200 if 60 MB in L2 have to be written back. For more bytes that is little, and neighbours that
share sectors miss. Data that fit in L2 are better left there for the next kernel.
"""
FEW_ROWS = 16
"""Most rows of static number that one thread reduces if columns fill the GPU."""


@dataclass(frozen=True, kw_only=True)
class ReductionParameters(RowsParameters):
    """The schedule parameters of a reduction; inner: whether it is over the contiguous axis."""

    inner: bool
    splits: int = 1
    grid_reduce: str = FIRST_METHOD
    unrolled: int = UNROLLED
    streaming: bool = False
    workspace_dtype: str = field(default=PARTIALS[0], metadata={"omitted": True})
    free: ClassVar = (
        VECTOR_WIDTH,
        Field("threads_x", THREADS, "threads along the contiguous dim"),
        Field(
            "threads_y",
            THREADS,
            "rows per block if the reduction is over the contiguous dim, else rows at a time",
        ),
        Field(
            "unrolled",
            (1, 2, UNROLLED, 8, MOST_UNROLLED),
            "rows that a thread loads before it uses them, if the kept dims are contiguous",
        ),
        Field("splits", COUNTS, "blocks that share one result"),
        Field(
            "grid_reduce",
            tuple(REDUCTION_METHODS),
            "how these blocks combine their partial results (`docs/grid-reduce.md`)",
        ),
        SHIFTED,
        TILE_ROWS,
        Field("streaming", (False, True), "whether inputs are evicted from L2 first"),
        Field(
            "workspace_dtype",
            PARTIALS,
            "type of partial results in the workspace: `f32` (f64 for f64), or `half`, the "
            "16-bit type of the result",
        ),
    )

    @property
    def fan(self) -> int:
        """Return how many blocks' partial results one block combines."""
        return fan_of(self.grid_reduce, self.splits)

    @property
    def method(self) -> GridMethod:
        """Return how blocks combine their partial results."""
        return REDUCTION_METHODS[self.grid_reduce]

    @property
    def shares_memory(self) -> bool:
        """Return whether the blocks of a result combine their parts in the same memory."""
        return self.method.is_serial or self.method.in_memory

    @property
    def in_bulk(self) -> bool:
        """Return whether they do so with cp.reduce.async.bulk."""
        return self.method.instruction == BULK

    @property
    def turns(self) -> bool:
        """Return whether they do so serially."""
        return self.method.is_serial

    @property
    def requested(self) -> frozenset[str]:
        """Return the fields whose values are selected only by a user's schedule."""
        fields = [
            ("grid_reduce", self.method.on_request),
            ("workspace_dtype", self.workspace_dtype == "half"),
        ]
        return frozenset(name for name, asked in fields if asked)

    @property
    def block_results(self) -> int:
        """Return the results per block."""
        return self.threads_y if self.inner else self.threads_x * self.vector_width

    @property
    def side_by_side(self) -> int:
        """Return how many threads load partial results of one column in parallel."""
        return self.threads_x if self.inner else self.threads_y


def by_rows(
    problem: RowsProblem, target: Target, resident: Callable[[ReductionParameters], int]
) -> ReductionParameters:
    """Return the parameters of a kernel that processes rows, or columns, separately."""
    whole = _of_rows(problem) if problem.inner else _of_columns(problem, target)
    blocks = problem.blocks(whole).evaluate(problem.hints)
    if _most(problem, whole) <= 1:
        return whole
    alone = blocks >= _busy(problem, whole) * target.sms
    if problem.inner and alone:
        return whole
    best, least = _shared(problem, whole, target, resident(whole), alone=alone)
    if problem.inner or (best.splits == 1 and not alone) or _has_moments(problem):
        return best
    for threads in LARGER_BLOCKS:
        larger = replace(whole, threads_y=threads // whole.threads_x)
        if problem.check_block(larger) is None and _most(problem, larger) > 1:
            found, seconds = _shared(problem, larger, target, resident(larger), alone=alone)
            if seconds < least * (1 - LARGER):
                best, least = found, seconds
    return best


def _of_rows(problem: RowsProblem) -> ReductionParameters:
    """Return the threads for the length of a row, and the rows that fill a block."""
    shifted = problem.takes_shifted()
    width = problem.shifted if shifted else problem.vectors[0]
    results, length = _extents(problem)
    threads = max(2 * width if shifted else 1, threads_of_row(-(-length // width)))
    at_once = max(1, 32 // threads, min(BLOCK // threads, power_below(results)))
    return ReductionParameters(
        inner=True,
        vector_width=width,
        threads_x=threads,
        threads_y=at_once,
        wide_index=problem.wide,
        shifted=shifted,
    )


def by_tiles(
    problem: RowsProblem, target: Target, *, shifted: bool | None = None
) -> ReductionParameters | None:
    """Return tiles of rows, or None if unsupported.

    shifted: whether rows would be peeled; if given, tiles are used only for rows that benefit.
    """
    shape = tile_shape(problem, problem.vectors[0], target.sms, shifted=shifted)
    return None if shape is None else ReductionParameters(inner=True, **shape)


def _of_columns(problem: RowsProblem, target: Target) -> ReductionParameters:
    """Return the threads for whole sectors of columns and for parallel rows.

    Fewer of the latter, down to one, for small row counts with enough columns for all SMs.
    """
    shifted = problem.takes_shifted() and not _has_moments(problem)
    width = problem.shifted if shifted else problem.vectors[0]
    states = max(partial_words(n) for n in problem.fusion.nodes if n in problem.domain.reduced)
    if states > 1:
        width = min(width, power_below(STATE_WORDS // states))
    results, length = _extents(problem)
    vectors = -(-results // width)
    threads = min(32, power_above(vectors))
    each = width * _row(problem)
    wide = min(BLOCK, RUN // each)
    busy = wide * THREADS_PER_SM // BLOCK * target.sms
    if wide > threads and vectors >= busy and unrolled_rows(problem.rows, BLOCK // wide, each):
        threads = wide
    whole = ReductionParameters(
        inner=False,
        vector_width=width,
        threads_x=threads,
        threads_y=BLOCK // threads,
        wide_index=problem.wide,
        unrolled=_unrolled(problem, width),
        shifted=shifted,
    )
    side_by_side = power_below(length // ROWS_OF_A_THREAD)
    busy = THREADS_PER_SM * target.sms
    if side_by_side < whole.threads_y and vectors * side_by_side >= busy:
        return replace(whole, threads_x=BLOCK // side_by_side, threads_y=side_by_side)
    return whole


def _unrolled(problem: RowsProblem, width: int) -> int:
    """Return how many rows a thread loads at a time: more if its vectors are narrow."""
    if _has_moments(problem):
        return UNROLLED
    rows = min(MOST_UNROLLED // width, FLIGHT // (width * _row(problem)))
    return max(UNROLLED, power_below(rows))


def _shared(
    problem: RowsProblem,
    whole: ReductionParameters,
    target: Target,
    resident: int,
    *,
    alone: bool,
) -> tuple[ReductionParameters, float]:
    """Return a kernel with the best number of blocks per result, and its approximate seconds.

    alone: whether there are enough results for each block to have its own.
    """
    _, length = _extents(problem)
    read = traffic(problem.segment) / target.bandwidth
    rows = whole.threads_x * whole.vector_width if problem.inner else whole.threads_y
    vain = rows if problem.inner else rows + _partial_rows(problem)
    cost, step = target.cost.grid_reduce, step_of(problem, whole, target)
    sharing = GridReduction(
        blocks=max(1, problem.blocks(whole).evaluate(problem.hints)),
        busy=min(resident, _busy(problem, whole)),
        resident=resident,
        sms=target.sms,
        draw=target.draw,
        stream=read / target.reach("reduction", access(whole.vector_width)),
        vain=vain / length,
        threads=whole.side_by_side,
        step=step,
        cost=cost,
    )
    splits = 1 if alone else sharing.splits(_most(problem, whole))
    method = quickest(splits, whole.side_by_side, step, cost)
    return replace(whole, splits=splits, grid_reduce=method), sharing.seconds(splits)


def _most(problem: RowsProblem, whole: ReductionParameters) -> int:
    """Return the blocks per result beyond which each has too little work."""
    _, length = _extents(problem)
    if problem.inner:
        return -(-length // whole.vector_width) // MIN_VECTORS_PER_SPLIT
    return length // (ROWS_OF_A_THREAD * whole.threads_y)


def _busy(problem: RowsProblem, whole: ReductionParameters) -> int:
    """Return the blocks that saturate an SM."""
    if problem.inner or _has_moments(problem):
        wanted = THREADS_OF_MOMENTS if _has_moments(problem) else THREADS_PER_SM
        return max(1, wanted // whole.threads)
    flight = min(FLIGHT, max(FLIGHT // 2, whole.unrolled * whole.vector_width * _row(problem)))
    return max(1, THREADS_PER_SM * FLIGHT // (flight * whole.threads))


def _extents(problem: RowsProblem) -> tuple[int, int]:
    """Return the number of results and the elements reduced to each, at hint sizes."""
    rows, hints = problem.rows, problem.hints
    return max(1, rows.rows.evaluate(hints)), max(1, rows.columns.evaluate(hints))


def _has_moments(problem: RowsProblem) -> bool:
    return any(n.op.combine is Combine.MOMENTS for n in problem.fusion.nodes)


def _row(problem: RowsProblem) -> int:
    """Return the bytes of the inputs per element of a row."""
    return max(1, sum(i.value.dtype.size for i in problem.fusion.inputs if i.value.rank))


def _partial_rows(problem: RowsProblem) -> float:
    """Return how many rows of the inputs equal the traffic of a partial result."""
    nodes = (n for n in problem.fusion.nodes if n in problem.domain.reduced)
    return 8 * sum(partial_words(n) for n in nodes) / _row(problem)


def step_of(problem: RowsProblem, parameters: ReductionParameters, target: Target) -> float:
    """Return the seconds in which a thread adds one partial result to each of its columns."""
    states = 1 if parameters.inner else parameters.vector_width
    cost = target.cost.grid_reduce
    return cost.moments_part_seconds * states if _has_moments(problem) else cost.part_seconds
