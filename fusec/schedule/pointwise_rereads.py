"""What the blocks of a pointwise kernel read again: operands that are broadcast to what is stored.

The rows of a block that share an operand load it once, and so do the blocks of an SM as long as L1
holds it; the rest comes from L2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product as pairs

from fusec.diagnostics import FusecError
from fusec.index.access import Facts
from fusec.index.instances import Instance, instances_under
from fusec.index.windows import find_pick
from fusec.ir.dim import product
from fusec.ir.expression import Atom, Index, Loaded, Quotient, Var, index, variables_of
from fusec.ir.graph import Fusion
from fusec.schedule.pointwise_choice import (
    MOST_OPERATIONS,
    FlatProblem,
    PointwiseParameters,
    bind,
    lowered_flat,
    operations,
)
from fusec.schedule.pointwise_loads import LEAST_THREADS, loads_of, most_turns
from fusec.schedule.space import POWERS
from fusec.schedule.strides import axis_lowering
from fusec.segment.protocol import Estimate
from fusec.target import Target

TURNS = POWERS[:4]
At = Mapping[Var, int]


def with_rereads(
    estimate: Estimate, problem: FlatProblem, p: PointwiseParameters, target: Target
) -> Estimate:
    """Return an estimate that knows what comes from L2 once more."""
    return replace(estimate, l2_bytes=int(target.reread * reread_bytes(problem, p)))


def may_be_bound(estimate: Estimate, problem: FlatProblem, target: Target) -> bool:
    """Return whether L2 may take longer than memory, if each element is loaded by itself."""
    most = int(target.reread * _most_bytes(problem))
    return most > 0 and is_bound(replace(estimate, l2_bytes=most), target)


def is_bound(estimate: Estimate, target: Target) -> bool:
    """Return whether L2 takes longer than memory."""
    parts = estimate.parts(target)
    return parts["L2"] > parts["memory"]


def with_fewest_rereads(problem: FlatProblem, p: PointwiseParameters) -> PointwiseParameters:
    """Return parameters whose threads take as many rows, or vectors, as reads the fewest bytes."""
    if p.shifted:
        return p
    fusion, width = problem.fusion, p.vector_width
    about = problem.domain, p.break_point, width
    loads = loads_of(lowered_flat(fusion, *about), bind(*about)[1], p.break_point)
    threads = product(a.extent for a in problem.domain.axes).evaluate(fusion.hints) // width
    most = min(most_turns(loads), threads // LEAST_THREADS)
    most = min(most, MOST_OPERATIONS // max(1, int(width * operations(fusion))))
    tried = (replace(p, unroll=u) for u in TURNS if p.unroll < u <= most)
    return min((p, *tried), key=lambda each: reread_bytes(problem, each))


def reread_bytes(problem: FlatProblem, p: PointwiseParameters) -> int:
    """Return the bytes that all blocks load beyond the first time, by the block in the middle."""
    fusion, sizes = problem.fusion, problem.hints
    if p.shifted:
        return 0  # their rows are apart from each other
    about = problem.domain, p.break_point, p.vector_width
    lowering, (_, (row, chunk, lane)) = lowered_flat(fusion, *about), bind(*about)
    rows, chunks = row.extent.evaluate(sizes), -(-_columns(problem, p) // p.vector_width)
    turns = p.unroll if p.break_point else 1
    down = _middle(rows, p.threads_y * turns)
    across = _middle(chunks, p.threads_x * (1 if p.break_point else p.unroll))
    blocks = -(-rows // len(down)) * -(-chunks // len(across))
    places: dict[str, dict[Index, int]] = {}
    roots = [lowering.at_home(o.value) for o in fusion.outputs]
    for load in instances_under(roots):
        if load.kind == "load" and load.address is not None and not load.gathered:
            base, size = _run(fusion, load, lane, p.vector_width)
            places.setdefault(load.name, {})[base] = size
    again = 0
    held = {i.value.name: product(i.value.shape) * i.value.dtype.size for i in fusion.inputs}
    for name, runs in places.items():
        try:
            compiled = [_compiled(base, sizes) for base in runs]
        except FusecError:
            continue  # places in an empty part are divided by its extents
        atoms = (variables_of(atom) for base in runs for atom, _ in base.terms)
        if len(runs) > 1 or any({row, chunk} <= v for v in atoms):
            points = [{row: r, chunk: c} for r, c in pairs(down, across)]
            count = len({at(point) for at in compiled for point in points})
        else:
            (at,) = compiled
            count = len({at({row: r, chunk: across[0]}) for r in down})
            count *= len({at({row: down[0], chunk: c}) for c in across})
        loaded = count * max(runs.values())
        again += max(0, loaded * blocks - held[name].evaluate(sizes))
    return again


def _most_bytes(problem: FlatProblem) -> int:
    """Return the bytes that are loaded again where each point loads what it needs by itself."""
    sizes, domain = problem.segment.hints, problem.segment_domain
    points = product(domain.reference.shape).evaluate(sizes)
    most: dict[str, int] = {}
    for load in dict.fromkeys(axis_lowering(problem.segment, domain).made.values()):
        if load.kind == "load" and load.value is not None:
            held = product(load.value.shape).evaluate(sizes)
            most[load.name] = max(0, points - held) * load.dtype.size
    return sum(most.values())


def _columns(problem: FlatProblem, p: PointwiseParameters) -> int:
    axes = problem.domain.axes[p.break_point :]
    return product(a.extent for a in axes).evaluate(problem.hints)


def _middle(extent: int, count: int) -> range:
    """Return the places along an axis of the block in the middle, one at least."""
    start = extent // 2 // count * count
    return range(start, max(start + 1, min(start + count, extent)))


def _run(fusion: Fusion, load: Instance, lane: Var, width: int) -> tuple[Index, int]:
    """Return where what a thread loads at a time begins, and its bytes."""
    assert load.address is not None
    if lane not in load.variables:
        return load.address, load.dtype.size
    pick = None
    if load.address.coefficient(lane) != 1:
        pick = find_pick(fusion, load, lane, width, Facts(fusion.hints))
    if pick is not None:
        return pick.window.base, pick.window.width * load.dtype.size
    return load.address.substitute({lane: index(0)}), width * load.dtype.size


def _compiled(value: Index, sizes: Mapping[str, int]) -> Callable[[At], int]:
    """Return what computes an index from loop variables; integers that are loaded count as 0."""
    constant = value.constant.evaluate(sizes)
    terms = [(_compiled_atom(a, sizes), c.evaluate(sizes)) for a, c in value.terms]
    return lambda at: constant + sum(c * atom(at) for atom, c in terms)


def _compiled_atom(atom: Atom, sizes: Mapping[str, int]) -> Callable[[At], int]:
    if isinstance(atom, Var):
        return lambda at: at[atom]
    if isinstance(atom, Loaded):
        return lambda at: 0
    inner, by = _compiled(atom.inner, sizes), max(1, atom.divisor.evaluate(sizes))
    if isinstance(atom, Quotient):
        return lambda at: inner(at) // by
    return lambda at: inner(at) % by
