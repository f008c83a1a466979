"""The implementation of each stage, from a fusion as given to the host program, in order."""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import FusecError
from fusec.ir.identity_cache import IdentityCache
from fusec.left_out import asked_for, last_passes, left_out
from fusec.options import (
    LOOPS_BY_COST,
    PUSHED_ROWS,
    SCATTERED_SUMS,
    CompileOptions,
    ShouldMerge,
)

if TYPE_CHECKING:
    from fusec.codegen.source import KernelSource
    from fusec.hostir.program import HostProgram
    from fusec.ir.graph import Fusion
    from fusec.schedule.plan import KernelPlan
    from fusec.segment.resume import Resume
    from fusec.segment.segmented import Decision, SegmentedFusion
    from fusec.shard.divided import Partition

Plans = tuple["KernelPlan", ...]
Sources = tuple[tuple["KernelSource", ...], ...]

LOOP_SAVES = 0.03
"""Fraction of a collective's time that a loop must be predicted to save: predictions err."""
ROWS_SAVE = 0.07
"""The same for a fused all-reduce and reader: for one row they take 26 % less than predicted."""
FRAMES_PER_NODE = 20
"""Maximum depth of calls for each operation of a chain."""


def _allow_depth(fusion: Fusion) -> None:
    """Raise the recursion limit to follow chains of as many operations as the fusion has."""
    wanted = 1000 + FRAMES_PER_NODE * len(fusion.nodes)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), min(wanted, 200_000)))


def divide(fusion: Fusion, options: CompileOptions) -> Fusion:
    """Return the per-rank fusion; the fusion itself where nothing is sharded."""
    return division(fusion, options).local


@dataclass(frozen=True)
class Division:
    """The per-rank fusion, and the decisions about its loops, if any.

    divided: None where nothing is sharded. decisions: about its loops, and sums over ranks.
    """

    local: Fusion
    divided: Partition | None = None
    decisions: tuple[Decision, ...] = ()

    @property
    def partition(self) -> Partition:
        """Return how the fusion is partitioned."""
        from fusec.shard.partition import partitioned

        return self.divided or partitioned(self.local)


_divisions = IdentityCache[Division]()


def division(fusion: Fusion, options: CompileOptions) -> Division:
    """Return the per-rank fusion: with ring loops, or without.

    The cost model selects whether sums over ranks are reduce-scattered as their readers are
    sharded. If the file requires no loops other than ring loops, the cost model also selects among
    them, loops over pieces of each rank's part, and one collective over the whole.
    """
    if not fusion.shardings:
        return Division(fusion)
    return _divisions.of(fusion, repr(options), lambda: _division(fusion, options))


def _division(fusion: Fusion, options: CompileOptions) -> Division:
    placed, decisions = _with_scattered_sums(fusion, options)
    found = _with_scattered_outputs(placed, _looped(placed, options), options)
    return replace(found, decisions=(*decisions, *found.decisions))


def _with_scattered_sums(
    fusion: Fusion, options: CompileOptions
) -> tuple[Fusion, tuple[Decision, ...]]:
    """Return the fusion with sums over ranks sharded like their readers, if predicted faster.

    Inputs, outputs and sizes of the per-rank fusion stay the same.
    """
    from fusec.segment.segmented import Decision
    from fusec.shard.partition import partitioned
    from fusec.shard.propagate import with_readers_shardings

    named = fusion.pins or fusion.schedules or fusion.phases  # they name values of one partition
    if named or SCATTERED_SUMS in left_out(options)[2]:
        return fusion, ()
    _allow_depth(fusion)
    scattered = with_readers_shardings(fusion, outputs=False)
    subject = tuple(n for n in scattered.shardings if n not in fusion.shardings)
    if not subject:
        return fusion, ()
    plain = partitioned(fusion)
    try:
        other = partitioned(scattered)
    except FusecError:
        return fusion, ()  # extents that the ranks do not divide
    if plain.fusion.dims != other.fusion.dims:
        return fusion, ()  # its sizes would have to be other multiples
    before, after = (_timed(each, options)[0] for each in (plain, other))
    is_worth = after < before
    because = (
        f"{'reduce-scatter' if is_worth else 'all-reduce'}: {1e6 * after:.2f} us with "
        f"reduce-scatter, {1e6 * before:.2f} us with all-reduce"
    )
    chosen = scattered if is_worth else fusion
    return chosen, (Decision("sums over ranks", subject, because),)


def _with_scattered_outputs(fusion: Fusion, plain: Division, options: CompileOptions) -> Division:
    """Return a division that sends outputs which are sums over ranks as they are computed.

    Each rank adds its rows, and all gather them, where that is predicted to be faster.
    """
    from fusec.segment.segmented import Decision
    from fusec.shard.scattered_outputs import with_scattered_outputs

    named = fusion.pins or fusion.schedules or fusion.phases
    if named or {SCATTERED_SUMS, LOOPS_BY_COST} & {*left_out(options)[2]}:
        return plain
    scattered = with_scattered_outputs(fusion)
    if scattered is None:
        return plain
    looped = _looped(scattered.fusion, options)
    before, after = (_timed(each.partition, options)[0] for each in (plain, looped))
    is_worth = after <= (1 - LOOP_SAVES) * before
    because = (
        f"{'added by rows and gathered' if is_worth else 'all-reduce'}: {1e6 * after:.2f} us by "
        f"rows that are sent as they are computed, {1e6 * before:.2f} us with all-reduce"
    )
    decision = Decision("sums over ranks", tuple(scattered.rows), because)
    if not is_worth:
        return replace(plain, decisions=(*plain.decisions, decision))
    divided = scattered.named(looped.partition)
    return Division(looped.local, divided, (decision,))


def _timed(divided: Partition, options: CompileOptions) -> tuple[float, SegmentedFusion]:
    """Return (the predicted seconds of a call, its segments) of a per-rank fusion."""
    from fusec import target
    from fusec.hostir.overlap import program_time

    gpu = target.find(options.target, options.rates)
    segmented = segment(optimise(divided.fusion, options), options)
    return program_time(segmented, gpu, options.streams).call, segmented


def _looped(fusion: Fusion, options: CompileOptions) -> Division:
    from fusec.hostir.overlap import has_rings
    from fusec.ir.sharding import STREAM
    from fusec.segment.segmented import Decision
    from fusec.shard.partition import partitioned
    from fusec.shard.pieces import in_pieces, slices_around

    _allow_depth(fusion)
    looped = partitioned(fusion)
    around = slices_around(looped.fusion)
    if not around or LOOPS_BY_COST in left_out(options)[2]:
        return Division(looped.fusion, looped)
    first = _timed(looped, options)
    if not has_rings(first[1]):
        return Division(looped.fusion, looped)
    loops = {around: (first[0], looped)}
    for pieces in range(2, 1 + _most_pieces(looped.fusion, around, options.streams)):
        finer = in_pieces(fusion, pieces, around)
        if finer is not None:
            loops[around * pieces] = _timed(finer, options)[0], finer
    plain = {name: said.without(STREAM) for name, said in fusion.shardings.items()}
    whole = partitioned(replace(fusion, shardings=plain))
    whole = replace(whole, fusion=replace(whole.fusion, dims=looped.fusion.dims))
    seconds, other = _timed(whole, options)
    slices = min(loops, key=lambda count: loops[count][0])
    best, chosen = loops[slices]
    is_worth = best <= (1 - LOOP_SAVES) * seconds
    chosen = chosen if is_worth else whole
    text = f"a loop of {slices} slices" if is_worth else "no loop"
    kinds = {s.nodes[0].op.name for s in other.segments if s.scheduler == "communication"}
    times = ", ".join(f"{1e6 * t:.2f} us with {n} slices" for n, (t, _) in loops.items())
    because = (
        f"{text}: {times} whose communication overlaps kernels, {1e6 * seconds:.2f} us with "
        f"{' and '.join(sorted(kinds)) or 'no collective'} of the whole"
    )
    subject = tuple(n for n, said in fusion.shardings.items() if said.along(STREAM) is not None)
    return Division(chosen.fusion, chosen, (Decision("loop", subject, because),))


def _most_pieces(local: Fusion, slices: int, streams: int) -> int:
    """Return the maximum number of pieces into which a ring loop may divide each slice.

    Loops that send pieces to several ranks were slower on all of five shapes, which the cost model
    does not explain (decision 175).
    """
    from fusec.ops.communication import RECEIVE_SLICE

    receives = any(node.op is RECEIVE_SLICE for node in local.nodes)
    return max(streams // slices, 2 if receives else 1)


def optimise(fusion: Fusion, options: CompileOptions, observer: Any = None) -> Fusion:
    """Return the fusion after the pre-segmentation passes."""
    from fusec.passes import APPROXIMATIONS, run_pipeline
    from fusec.shard.aligned import with_aligned_parts
    from fusec.shard.loops import settle_loops

    _allow_depth(fusion)
    without = (*left_out(options)[0], *(APPROXIMATIONS if options.precise else ()))
    if options.check_bounds:
        without = (*without, "scatters_as_selects")  # a comparison has no bound to check
    fusion = run_pipeline(
        fusion, without=without, stop_after=last_passes(options)[0], observer=observer
    )
    fusion = with_aligned_parts(settle_loops(fusion))
    if not options.check_bounds:
        return fusion
    from fusec.passes.check_indices import check_indices

    return check_indices(fusion)


def verify(fusion: Fusion) -> None:
    """Raise InternalError where passes produced a fusion that is not well formed."""
    from fusec.ir.verify import verify

    verify(replace(fusion, pins=(), schedules=()))  # the values that these name may be gone


def segment(fusion: Fusion, options: CompileOptions) -> SegmentedFusion:
    """Return the segments of an optimised fusion."""
    with no_collection():
        return _segment(fusion, options)


@contextmanager
def no_collection() -> Generator[None]:
    """Disable Python's cyclic garbage collector in the block.

    A search creates millions of trees that reference counting frees, and keeps many: scanning the
    latter repeatedly takes a sixth of its time, and frees a few megabytes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _segment(fusion: Fusion, options: CompileOptions) -> SegmentedFusion:
    from fusec import target
    from fusec.schedule.registry import host_schedulers, schedulers
    from fusec.schedule.settings.overrides import with_overrides
    from fusec.schedule.settings.tuned import with_tuned
    from fusec.segment.offers import Offers
    from fusec.segment.redefine import plan_definitions, redefine
    from fusec.segment.repeat import segment_blocks
    from fusec.segment.search import segment as search
    from fusec.tuned import store_for

    gpu = target.find(options.target, options.rates)
    all = (*schedulers(), *host_schedulers())
    offers, plans = Offers(all, gpu), plan_definitions(all, gpu)
    should_merge = _should_merge(options)
    whole = should_merge is None and fusion.boundaries != "explicit"

    def searched(part: Fusion, resume: Resume | None = None) -> SegmentedFusion:
        return search(
            part,
            all,
            gpu,
            offers=offers,
            should_merge=should_merge,
            rematerialise=not options.as_written,
            copies=not options.as_written,
            resume=resume if whole else None,
            keep_schedulers="keep_schedulers" in asked_for(options),
        )

    def redefined(part: Fusion) -> SegmentedFusion:
        when = "never" if options.as_written else options.redefine
        return redefine(part, searched, all, gpu, when, left_out(options)[2], plans)

    def resumed(part: Fusion, resume: Resume) -> SegmentedFusion:
        return plans.with_cheaper(searched(part, resume), bool(part.schedules), [])

    found = segment_blocks(fusion, redefined, resumed) if whole else None
    found = found or redefined(fusion)
    stores = [] if options.untuned else store_for(gpu.arch, options.tuned)
    if found.fusion.mesh is not None:
        from fusec.schedule.gathered_outputs import with_gathered_outputs

        found = with_gathered_outputs(found, gpu)
    chosen = with_tuned(with_overrides(found, gpu), gpu, stores)
    if "reuse_in_place" not in asked_for(options):
        return chosen
    from fusec.schedule.reuse import reuse_in_place

    return reuse_in_place(chosen, gpu)


def groups(fusion: Fusion, options: CompileOptions) -> SegmentedFusion:
    """Return the groups of an optimised fusion that segments never span, of kind `none`.

    FusecError where nothing makes groups.
    """
    from fusec import target
    from fusec.segment.search import segment as search

    should_merge = _should_merge(options)
    if should_merge is None and fusion.boundaries != "explicit":
        raise FusecError(
            f"`{fusion.name}` has no groups that contain segments",
            help="set `boundaries: explicit` in the file, or pass `should_merge=f` in Python",
        )
    gpu = target.find(options.target, options.rates)
    return search(fusion, (), gpu, should_merge=should_merge, copies=not options.as_written)


def _should_merge(options: CompileOptions) -> ShouldMerge | None:
    return options.should_merge or (_never if options.as_written else None)


def _never(_first: Fusion, _second: Fusion) -> bool:
    """Return False: never merge two groups."""
    return False


def schedule(segmented: SegmentedFusion, options: CompileOptions) -> Plans:
    """Return each segment's kernel plan, whose kernels have all parameters they might read."""
    from fusec import target
    from fusec.ops.communication import FAMILY
    from fusec.schedule.segments import plan_segment

    gpu = target.find(options.target, options.rates)
    plans = tuple(plan_segment(s, gpu) for s in segmented.segments)
    if options.overlap:
        from fusec.schedule.overlap import overlap_launches

        plans = overlap_launches(plans, gpu)
    exchanges = any(s.scheduler == FAMILY for s in segmented.segments)
    if not exchanges or PUSHED_ROWS in left_out(options)[2]:
        return plans
    from fusec.schedule.host.pushed_rows import with_pushed_rows

    return with_pushed_rows(segmented, plans, gpu, ROWS_SAVE)


def render(plans: Plans, options: CompileOptions) -> Sources:
    """Return the CUDA source of each plan's kernels."""
    from fusec.codegen.dispatch import plan_sources

    return tuple(plan_sources(plan) for plan in plans)


def lower(
    segmented: SegmentedFusion,
    plans: Plans,
    original: Fusion,
    options: CompileOptions,
    observer: Any = None,
) -> HostProgram:
    """Return the host program after its passes: the segments that run, and their memory."""
    from fusec import target
    from fusec.hostir.lower import lower
    from fusec.hostir.passes import run_pipeline
    from fusec.hostir.passes.known import known_of

    program = lower(segmented, plans, original, options.streams, as_written=options.as_written)
    without, asked = left_out(options)[1], asked_for(options)
    gpu = target.find(options.target, options.rates)
    known = known_of(segmented, plans, gpu, options.streams)
    return run_pipeline(
        program, known, without=without, asked=asked, stop_after=last_passes(options)[1],
        observer=observer,
    )  # fmt: skip


def check(program: HostProgram) -> None:
    """Raise FusecError where passes produced a host program that cannot run."""
    from fusec.hostir.program import check_program

    check_program(program)


def expand(
    posts: HostProgram,
    segmented: SegmentedFusion,
    plans: Plans,
    sources: Sources,
    options: CompileOptions,
) -> HostProgram:
    """Return the program with the launches of its segments, passing what the sources read."""
    from fusec.hostir.expand import expand

    printed = zip(plans, sources, strict=True)
    read = [replace(plan, kernels=tuple(s.kernel for s in each)) for plan, each in printed]
    return expand(posts, segmented, read, sources)
