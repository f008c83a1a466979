"""Rereads by the blocks of a pointwise kernel: operands that are broadcast to the outputs.

The rows of a block that share an operand load it once, and so do the blocks of an SM while L1 holds
it; other rereads come from L2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import FusecError
from fusec.index.access import Facts
from fusec.index.instances import Instance, instances_under
from fusec.index.places import Place, compile_index
from fusec.index.windows import find_pick
from fusec.ir.dim import Dim, dim, product
from fusec.ir.expression import Atom, Index, Var, index, variables_of
from fusec.ir.graph import Fusion
from fusec.properties import cached_property
from fusec.schedule.pointwise.choice import (
    MOST_OPERATIONS,
    FlatProblem,
    PointwiseParameters,
    operations,
)
from fusec.schedule.pointwise.loads import LEAST_THREADS, most_turns
from fusec.schedule.space import POWERS
from fusec.schedule.strides import axis_lowering
from fusec.segment.protocol import Estimate
from fusec.target import Target

TURNS = POWERS[:4]
Along = tuple[Var, range]
"""A loop variable and its values in a block."""


def with_rereads(
    estimate: Estimate, problem: FlatProblem, p: PointwiseParameters, target: Target
) -> Estimate:
    """Return an estimate that includes rereads from L2."""
    return replace(estimate, l2_bytes=int(target.reread * reread_bytes(problem, p)))


def may_be_bound(estimate: Estimate, problem: FlatProblem, target: Target) -> bool:
    """Return whether L2 may take longer than memory if each element is loaded separately."""
    most = int(target.reread * _most_bytes(problem))
    return most > 0 and is_bound(replace(estimate, l2_bytes=most), target)


def is_bound(estimate: Estimate, target: Target) -> bool:
    """Return whether L2 takes longer than memory."""
    parts = estimate.parts(target)
    return parts["L2"] > parts["memory"]


def with_fewest_rereads(problem: FlatProblem, p: PointwiseParameters) -> PointwiseParameters:
    """Return parameters with the rows, or vectors, per thread that minimize rereads."""
    if p.shifted:
        return p
    fusion, width = problem.fusion, p.vector_width
    threads = product(a.extent for a in problem.domain.axes).evaluate(fusion.hints) // width
    most = min(most_turns(problem.nest_with(p).loads), threads // LEAST_THREADS)
    most = min(most, MOST_OPERATIONS // max(1, int(width * operations(fusion))))
    tried = (replace(p, unroll=u) for u in TURNS if p.unroll < u <= most)
    return min((p, *tried), key=lambda each: reread_bytes(problem, each))


def reread_bytes(problem: FlatProblem, p: PointwiseParameters) -> int:
    """Return the bytes that all blocks reread, extrapolated from the block in the middle."""
    fusion, sizes = problem.fusion, problem.hints
    if p.shifted:
        return 0  # their rows are strided
    nest = problem.nest_with(p)
    row, chunk, lane = nest.loops
    rows, chunks = row.extent.evaluate(sizes), chunk.extent.evaluate(sizes)
    turns = p.unroll if p.break_point else 1
    down = _middle(rows, p.threads_y * turns)
    across = _middle(chunks, p.threads_x * (1 if p.break_point else p.unroll))
    blocks = -(-rows // len(down)) * -(-chunks // len(across))
    places: dict[str, dict[Index, int]] = {}
    roots = [nest.lowering.at_home(o.value) for o in fusion.outputs]
    for load in instances_under(roots):
        if load.kind == "load" and load.address is not None and not load.gathered:
            base, size = _run(fusion, load, lane, p.vector_width)
            places.setdefault(load.name, {})[base] = size
    again = 0
    held = {i.value.name: product(i.value.shape) * i.value.dtype.size for i in fusion.inputs}
    for name, runs in places.items():
        try:
            count = _count_places(list(runs), (row, down), (chunk, across), sizes)
        except FusecError:
            continue  # positions in an empty part divide by its extents
        loaded = count * max(runs.values())
        again += max(0, loaded * blocks - held[name].evaluate(sizes))
    return again


def _count_places(
    bases: Sequence[Index], rows: Along, columns: Along, sizes: Mapping[str, int]
) -> int:
    """Return how many distinct values some indices take in a block."""
    offsets: dict[tuple[tuple[Atom, Dim], ...], _Offsets] = {}
    found: set[int] = set()
    for base in bases:
        if base.terms not in offsets:
            offsets[base.terms] = _offsets(base, rows, columns, sizes)
        if len(bases) == 1 and not offsets[base.terms].mixed:
            down, across = offsets[base.terms].alone
            return len(set(down)) * len(set(across))
        constant = base.constant.evaluate(sizes)
        found.update([constant + offset for offset in offsets[base.terms].sums])
    return len(found)


@dataclass(frozen=True)
class _Offsets:
    """The offsets that the terms of an index add within a block.

    alone: by rows and by columns, for terms that depend on one of them; mixed: for each row and
    column, for terms that depend on both, if there are any.
    """

    alone: tuple[list[int], list[int]]
    mixed: list[list[int]]

    @cached_property
    def sums(self) -> set[int]:
        """Return the set of all offsets."""
        down, across = self.alone
        if not self.mixed:
            across = set(across)
            return {a + b for a in set(down) for b in across}
        rows = zip(down, self.mixed, strict=True)
        return {a + b + c for a, both in rows for b, c in zip(across, both, strict=True)}


def _offsets(base: Index, rows: Along, columns: Along, sizes: Mapping[str, int]) -> _Offsets:
    (row, down), (chunk, across) = rows, columns
    kinds = [variables_of(atom) & {row, chunk} for atom, _ in base.terms]

    def part(wanted: frozenset[Var]) -> Place:
        terms = (t for t, kind in zip(base.terms, kinds, strict=True) if kind == wanted)
        return compile_index(Index(tuple(terms), dim(0)), sizes)

    of_row, of_chunk = part(frozenset({row})), part(frozenset({chunk}))
    alone = [of_row({row: r}) for r in down], [of_chunk({chunk: c}) for c in across]
    both = frozenset({row, chunk})
    if both not in kinds:
        return _Offsets(alone, [])
    of_both = part(both)
    return _Offsets(alone, [[of_both({row: r, chunk: c}) for c in across] for r in down])


def _most_bytes(problem: FlatProblem) -> int:
    """Return the reread bytes if each point loads its operands separately."""
    sizes, domain = problem.segment.hints, problem.segment_domain
    points = product(domain.reference.shape).evaluate(sizes)
    most: dict[str, int] = {}
    for load in dict.fromkeys(axis_lowering(problem.segment, domain).made.values()):
        if load.kind == "load" and load.value is not None:
            held = product(load.value.shape).evaluate(sizes)
            most[load.name] = max(0, points - held) * load.dtype.size
    return sum(most.values())


def _middle(extent: int, count: int) -> range:
    """Return the positions along an axis of the block in the middle, at least one."""
    start = extent // 2 // count * count
    return range(start, max(start + 1, min(start + count, extent)))


def _run(fusion: Fusion, load: Instance, lane: Var, width: int) -> tuple[Index, int]:
    """Return the first address of a thread's access, and its bytes."""
    assert load.address is not None
    if lane not in load.variables:
        return load.address, load.dtype.size
    pick = None
    if load.address.coefficient(lane) != 1:
        pick = find_pick(fusion, load, lane, width, Facts(fusion.hints))
    if pick is not None:
        return pick.window.base, pick.window.width * load.dtype.size
    return load.address.substitute({lane: index(0)}), width * load.dtype.size
