"""Rows that a producer warp loads into a ring in shared memory, several of them in flight.

A group of warps processes a row; a cluster of blocks may split rows, one part per block.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import gcd, inf

from fusec.dataclasses import dataclass
from fusec.index.instances import Instance, reading_order
from fusec.ir.dim import ceildiv
from fusec.ir.expression import Var, index
from fusec.ir.graph import Node
from fusec.schedule.orders import PlannedOrder, PlannedStage
from fusec.schedule.plan import Staged, staged_in_turn
from fusec.schedule.registers import sum_words
from fusec.schedule.rows.inner_persistent.choice import InnerPersistentParameters
from fusec.schedule.rows.inner_persistent.pieces import ALIGNED, piece_of
from fusec.schedule.rows.problem import RowsProblem
from fusec.schedule.space import power_below
from fusec.segment.protocol import Refusal
from fusec.target import Target

BULK_COPIES = 90
"""The least compute capability with bulk copies and clusters."""
LARGE_ROW = 32 << 10
"""Bytes of a row above which a block that keeps it in registers is alone on its SM."""
MOST_CLUSTER = 16
MOST_PORTABLE = 8
"""Most blocks of a cluster that every GPU with clusters supports."""
MOST_GROUPS = 3
"""Most groups of a block; one, if two stages per group do not fit and a row is reduced once.

One group with three stages is then as fast as three with one stage each, or faster: softmax of 32
K, 128 K and 256 K 16-bit floats on an H200 by 1, 4 and 8 %. For rows that are reduced twice (layer
norm of 128 K in clusters of 8, group norm) it is 11 % slower, because no row is reduced while one
waits.
"""
GROUP_THREADS = (256, 192)
"""Softmax of 32 K to 256 K 16-bit floats on an H200: groups of 256 to 512 threads match a copy.

Fewer threads have fewer partial results, if shared memory is nearly full.
"""
LEAST_SLOTS = 3
MOST_SLOTS = 4
"""Stages per group: more rows in flight gain nothing."""
LEAST_PIECE = 1 << 10
"""Bytes per bulk copy below which the producer thread may limit rows in several chunks.

An SM of an H200 reaches its share of the bandwidth with 1 KB per 50 cycles.
"""
NEAR = 64
"""Columns per element of a load from which on each phase finds it in the L1 cache."""
IDLE = 1.1
"""Most predicted time relative to the best cluster size that still lets the preferred size win."""
LEAST_SHARE = 16 << 10
"""Bytes of a block's part of a row below which cluster reductions may cost more than idle blocks.
"""
LEAST_PART = 8 << 10
"""Least bytes of a block's part of a row, which limit how many blocks split it."""
SMALL = 2 << 10
"""Bytes of shared memory reserved for the partial results of reductions, and barriers."""
BARRIER = 8
"""Bytes of an mbarrier."""


@dataclass(frozen=True)
class Parts:
    """The partial results of a reduction in shared memory: offset in bytes, and words of each.

    Each group is double-buffered, with one partial result per warp of all blocks in each buffer.
    """

    offset: int
    words: int


@dataclass(frozen=True)
class Layout:
    """The shared memory layout: rows, persistent columns, partial results, then barriers.

    bytes: in all.
    """

    rows: tuple[Staged, ...]
    columns: tuple[Staged, ...]
    parts: tuple[Parts, ...]
    bytes: int


def rows_in_ring(problem: RowsProblem, width: int) -> tuple[Instance, ...] | Refusal:
    """Return the loads for bulk copies, or why a load that phases share cannot be one."""
    _, phases, (row, _, _) = problem.loops(width)
    found = {i for loads in phases.loads for i in loads if row in i.variables}
    brought = {i for i in found if piece_of(problem, i, width)}
    for load in phases.cached:
        if row in load.variables and load not in brought and not _stays_near(problem, load, row):
            return Refusal("ring", f"the rows of `{load.name}` are not chunks aligned to 16 bytes")
    if not brought:
        return Refusal("ring", "no row is loaded from memory")
    return tuple(sorted(brought, key=reading_order))


def _stays_near(problem: RowsProblem, load: Instance, row: Var) -> bool:
    """Return whether a row has so few elements of a load that each phase may reload them."""
    if load.address is None or load.conditions or load.gathered:
        return False
    if load.name in problem.fusion.effects.overwritten:
        return False
    _, last = load.address.substitute({row: index(0)}).bounds
    return last is not None and NEAR * (last.evaluate(problem.hints) + 1) <= (
        problem.rows.columns.value
    )


def columns_per_copy(problem: RowsProblem, p: InnerPersistentParameters) -> int:
    """Return the columns per bulk copy, which are contiguous and belong to one block."""
    loads = rows_in_ring(problem, p.vector_width)
    assert not isinstance(loads, Refusal), loads
    pieces = (piece_of(problem, i, p.vector_width) for i in loads)
    return gcd(problem.rows.columns.value // p.cluster, *pieces)


def columns_of(problem: RowsProblem, width: int) -> tuple[Instance, ...]:
    """Return the loads that are the same for all rows and that bulk copies can load once."""
    _, phases, (row, _, _) = problem.loops(width)
    found = {i for loads in phases.loads for i in loads if row not in i.variables}
    whole = problem.rows.columns.value
    brought = (i for i in found if piece_of(problem, i, width) == whole)
    return tuple(sorted(brought, key=reading_order))


def layout(problem: RowsProblem, p: InnerPersistentParameters) -> Layout | Refusal:
    """Return the shared memory layout, or why there is none."""
    loads = rows_in_ring(problem, p.vector_width)
    if isinstance(loads, Refusal):
        return loads
    own = problem.rows.columns.value // p.cluster
    columns = columns_of(problem, p.vector_width) if p.keep_columns else ()
    sizes = [(i, p.slots * own * i.dtype.size) for i in loads]
    staged = staged_in_turn([*sizes, *((i, own * i.dtype.size) for i in columns)])
    sums = [n for group in problem.loops(p.vector_width)[1].reductions for n in group]
    parts, at = parts_of(sums, sum(s.bytes for s in staged), p)
    counted = 2 * p.slots + len(columns[:1]) + (2 * p.groups * len(sums) if p.cluster > 1 else 0)
    number = len(loads)
    return Layout(staged[:number], staged[number:], parts, at + counted * BARRIER)


def parts_of(
    sums: Iterable[Node], first: int, p: InnerPersistentParameters
) -> tuple[tuple[Parts, ...], int]:
    """Return the partial results of reductions from byte `first` on, and the byte after them."""
    found, at = list[Parts](), first
    for node in sums:
        words = sum_words(node, wide=p.wide_index)
        found.append(Parts(at, words))
        size = 2 * p.groups * p.cluster * (p.threads_x // 32) * words * 4
        at += -(-size // ALIGNED) * ALIGNED
    return tuple(found), at


def why_illegal(
    problem: RowsProblem, p: InnerPersistentParameters, target: Target
) -> Refusal | None:
    """Return why no kernel has a ring with the given parameters, or None."""
    if target.capability < BULK_COPIES:
        return Refusal("ring", f"{target.arch} has no bulk copies")
    if p.threads_y > 1 or p.threads_x % 32:
        return Refusal("block", "a group has one row and whole warps: threads_y must be 1")
    if p.slots < 1 or p.slots % p.groups:
        # Of two groups that alternate at a stage, one might mistake the previous phase for its own.
        return Refusal("groups", "the slots must be a multiple of the groups")
    if p.threads_x * p.groups + 32 > 1024:
        return Refusal("block", "a block has at most 1024 threads, including 32 that load rows")
    if problem.rows.columns.value % (p.cluster * p.vector_width):
        return Refusal("cluster", f"a row is not divisible into {p.cluster} parts of whole vectors")
    if p.keep_columns and not columns_of(problem, p.vector_width):
        return Refusal("keep_columns", "no bulk-copied input is shared by all rows")
    found = layout(problem, p)
    if isinstance(found, Refusal):
        return found
    if found.bytes > target.shared:
        because = (
            f"{p.slots} slots need {found.bytes} bytes of shared memory, an SM has {target.shared}"
        )
        return Refusal("shared memory", because)
    return None


def default_parameters(
    problem: RowsProblem, target: Target, least: int = LARGE_ROW, piece: int = LEAST_PIECE
) -> InnerPersistentParameters | None:
    """Return parameters for rows of more than `least` bytes, or None if a ring is impossible.

    piece: the least bytes per copy of rows that are not contiguous as a whole. The smallest cluster
    whose blocks have LEAST_SLOTS stages; more blocks for small row counts.
    """
    width = problem.vectors[0]
    loads = rows_in_ring(problem, width) if target.capability >= BULK_COPIES else ()
    if isinstance(loads, Refusal) or not loads:
        return None
    columns, rows = problem.rows.columns.value, problem.rows.rows.evaluate(problem.hints)
    row = columns * sum(i.dtype.size for i in loads)
    kept = columns * sum(i.dtype.size for i in columns_of(problem, width))
    if row <= least:
        return None
    for stays in (kept, 0) if kept else (0,):
        found = dict[int, InnerPersistentParameters]()
        for cluster, most in product(_clusters(row, stays, rows, target), GROUP_THREADS):
            p = _with_cluster(problem, row // cluster, stays // cluster, cluster, most, target)
            alone = rows <= target.resident_clusters(cluster)
            if cluster in found or not (p.slots > 1 or alone):
                continue
            if why_illegal(problem, p, target) is None and _brings(problem, p) >= piece:
                found[cluster] = p
        if found:
            first, *more = found
            large = (each for each in more if row // each >= LEAST_SHARE)
            return found[_least_waiting((first, *large), rows, target)]
    return None


def _least_waiting(clusters: tuple[int, ...], rows: int, target: Target) -> int:
    """Return the first cluster size with few idle blocks in the last wave."""
    busy = [-(-rows // target.resident_clusters(each)) / each for each in clusters]
    return next(c for c, each in zip(clusters, busy, strict=True) if each <= IDLE * min(busy))


def _brings(problem: RowsProblem, p: InnerPersistentParameters) -> float:
    """Return the bytes of the smallest copy, if a block's part of a row needs more than one."""
    columns = columns_per_copy(problem, p)
    if columns == problem.rows.columns.value // p.cluster:
        return inf
    loads = rows_in_ring(problem, p.vector_width)
    assert not isinstance(loads, Refusal), loads
    return columns * min(i.dtype.size for i in loads)


def _clusters(row: int, kept: int, rows: int, target: Target) -> Iterable[int]:
    """Yield cluster sizes, preferred first; those that keep columns are portable ones.

    row, kept: bytes of a row, and of persistent columns.
    """
    most, first = MOST_PORTABLE if kept else MOST_CLUSTER, 1
    while first < most and (LEAST_SLOTS * row + kept) // first > target.shared - SMALL:
        first *= 2
    while (
        first < MOST_PORTABLE
        and 2 * first * rows <= target.sms
        and row // (2 * first) >= LEAST_PART
    ):
        first *= 2
    while first <= most:
        yield first
        first *= 2


def _with_cluster(
    problem: RowsProblem, part: int, kept: int, cluster: int, most: int, target: Target
) -> InnerPersistentParameters:
    """Return parameters with clusters.

    part, kept: bytes of a row, and of columns, per block; most: threads per group if several.
    """
    rows, width = problem.rows.rows.evaluate(problem.hints), problem.vectors[0]
    turns = max(1, -(-rows // target.resident_clusters(cluster)))
    room = (target.shared - SMALL - kept) // part
    several = min(MOST_GROUPS, turns, room)
    waits_twice = _phases(problem.online or problem, width) > 1
    groups = max(1, several) if waits_twice or room >= 2 * several else 1
    vectors = problem.rows.columns.value // (width * cluster)
    threads = max(32, min(most if groups > 1 or room > 1 else 2 * most, power_below(vectors)))
    each = min(MOST_SLOTS, -(-turns // groups), room // groups)
    return InnerPersistentParameters(
        storage="ring",
        vector_width=width,
        threads_x=threads,
        threads_y=1,
        chunks=-(-vectors // threads),
        wide_index=problem.wide,
        online=problem.online is not None,
        slots=max(1, each) * groups,
        groups=groups,
        cluster=cluster,
        keep_columns=kept > 0,
    )


def _phases(problem: RowsProblem, width: int) -> int:
    """Return how many dependent reductions a row has."""
    return sum(map(bool, problem.loops(width)[1].reductions))


def waits(problem: RowsProblem, p: InnerPersistentParameters, target: Target) -> float:
    """Return the seconds in which rows are reduced while no others are loaded from memory.

    For the last row of each block, and for all rows if there is only one stage.
    """
    loads = rows_in_ring(problem, p.vector_width)
    assert not isinstance(loads, Refusal), loads
    rows = problem.rows.rows.evaluate(problem.hints)
    part = problem.rows.columns.value // p.cluster * sum(i.dtype.size for i in loads)
    phases = _phases(problem, p.vector_width)
    alone = -(-rows // target.resident_clusters(p.cluster)) if p.slots == 1 else 1
    cost = target.cost.rows
    exchange = cost.cluster_exchange_seconds if p.cluster > 1 else 0.0
    return alone * phases * (part / cost.smem_rate + exchange)


def order(problem: RowsProblem, p: InnerPersistentParameters) -> PlannedOrder:
    """Return the order of sums: a block's part by its threads, then warps and blocks in a tree."""
    columns = problem.rows.columns
    own = columns.value // p.cluster
    chain = ceildiv(ceildiv(own, p.vector_width), p.threads_x) * p.vector_width
    cut = own if p.cluster > 1 else 0
    first = PlannedStage(chain, 5, p.threads_x, p.vector_width, cut)
    parts = p.cluster * p.threads_x // 32
    if parts == 1:
        return PlannedOrder((first,))
    return PlannedOrder((first, PlannedStage(ceildiv(parts, 32), 5, min(parts, 32))))
