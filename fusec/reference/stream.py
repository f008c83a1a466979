"""Evaluation of a fusion in double precision in parts, each along one band, in bounded memory.

What has nothing in common but inputs is evaluated apart, each along its own axes. Where slices are
to be sampled, so are outputs that have a band without sums over it when they stand alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy

from fusec.ir.arrays import host, np
from fusec.ir.evaluate import Array, Sizes, extents
from fusec.ir.graph import Fusion, Node, Value, needed_nodes
from fusec.processors import usable_processors
from fusec.reference.cost import Costs
from fusec.reference.estimate import Estimate
from fusec.reference.evaluate import find_values
from fusec.reference.gpu import chosen, on_the_host
from fusec.reference.nodes import PLAIN, Model
from fusec.reference.part import Consume, Coverage, Index, Part
from fusec.reference.sweeps import Plan, choose_plan, streamed


@dataclass(frozen=True, eq=False)
class _Group:
    """Values that are evaluated together, and how."""

    values: tuple[Value, ...]
    nodes: Sequence[Node]
    plan: Plan


class Stream:
    """One evaluation of wanted values, in parts.

    groups: the values that are evaluated together, and how.
    """

    def __init__(
        self, fusion: Fusion, inputs: Mapping[str, Any], sizes: Sizes, wanted: list[Value],
        model: Model, limit: float = float("inf"),
    ) -> None:  # fmt: skip
        """Divide the evaluation of `wanted`; limit: seconds beyond which slices are sampled."""
        self._given, self._limit = (fusion, inputs, sizes), limit
        self._model, self._costs = model, Costs(fusion, sizes)
        self.groups = [self._planned(values) for values in _apart(fusion, wanted)]
        if sum(map(self._seconds, self.groups)) > limit:
            self.groups = [part for group in self.groups for part in self._divided(group)]

    def run(self, consume: Consume, seed: int = 0) -> Coverage:
        """Evaluate, giving every wanted value or block of it to `consume`; return the coverage."""
        fusion, inputs, sizes = self._given
        seconds = {group: self._seconds(group) for group in self.groups}
        sampled = [group for group in self.groups if _has_slices(group)]
        left = self._limit - sum(s for group, s in seconds.items() if group not in sampled)
        # The same share of each is evaluated.
        share = left / max(sum(seconds[group] for group in sampled), 1e-9)
        coverage = Coverage()
        for group in self.groups:
            part = Part(fusion, inputs, sizes, list(group.values), self._model, group.plan)
            found = part.run(consume, share * seconds[group], seed)
            coverage = Coverage(coverage.sampled + found.sampled)
        return coverage

    def _planned(self, values: Sequence[Value], *, sums: bool = True) -> _Group:
        fusion, _, sizes = self._given
        nodes = needed_nodes(fusion.nodes, values)
        plan = choose_plan(fusion, nodes, sizes, self._model.hops, sums=sums)
        return _Group(tuple(values), nodes, plan)

    def _seconds(self, group: _Group) -> float:
        """Return the predicted seconds of a group, evaluated in full."""
        inside = [n for n in group.nodes if _is_in_blocks(group.plan, n)]
        whole = [n for n in group.nodes if not _is_in_blocks(group.plan, n)]
        shared = self._costs.evaluated(inside) + self._costs.judged(group.values)
        return self._costs.evaluated(whole) + shared / usable_processors()

    def _divided(self, group: _Group) -> list[_Group]:
        """Return values in groups that can be sampled, then all others together.

        Or as they are, where that does not help.
        """
        if _has_slices(group):
            return [group]
        free, others = list[_Group](), list[Value]()
        for value in group.values:
            for number, known in enumerate(free):
                both = self._planned((*known.values, value), sums=False)
                if _can_be_sampled(both):
                    free[number] = both
                    break
            else:
                alone = self._planned((value,), sums=False)
                if _can_be_sampled(alone):
                    free.append(alone)
                else:
                    others.append(value)
        if not others:
            return free
        rest = self._planned(others)
        return [*free, rest] if self._seconds(rest) < self._seconds(group) / 2 else [group]


def _is_in_blocks(plan: Plan, node: Node) -> bool:
    return streamed(plan, node) or (plan.band is not None and node in plan.band.summing)


def _has_slices(group: _Group) -> bool:
    """Return whether a group can be evaluated in part: no sum needs all of its band."""
    return group.plan.band is not None and not group.plan.band.summing


def _can_be_sampled(group: _Group) -> bool:
    """Return whether all of a group's values lie along its band."""
    band = group.plan.band
    return band is not None and all(value in band.axes for value in group.values)


def _apart(fusion: Fusion, wanted: Iterable[Value]) -> Iterator[list[Value]]:
    """Yield values in groups of which no two need the same tensor but inputs, in order."""
    groups: list[tuple[list[Value], set[Value]]] = []
    for value in wanted:
        nodes = needed_nodes(fusion.nodes, (value,))
        needed = {v for n in nodes for v in n.outputs if not v.is_scalar} or {value}
        met = [g for g in groups if not needed.isdisjoint(g[1])]
        rest = [g for g in groups if needed.isdisjoint(g[1])]
        if met:
            first = met[0]
            for values, others in met[1:]:
                first[0].extend(values)
                first[1].update(others)
            first[0].append(value)
            first[1].update(needed)
            groups = [g for g in groups if g is first or g in rest]
        else:
            groups.append(([value], needed))
    yield from (values for values, _ in groups)


def estimate(
    fusion: Fusion, inputs: Mapping[str, Any], sizes: Sizes, wanted: Iterable[str] | None = None,
    model: Model | None = None,
) -> dict[str, Estimate]:  # fmt: skip
    """Return the values named `wanted` (the outputs for None) with their errors, in full."""
    values, found = find_values(fusion, wanted), dict[str, Estimate]()
    lock = Lock()

    def consume(value: Value, index: Index, part: Estimate) -> None:
        part = on_the_host(part)
        if not index:
            found[value.name] = part
            return
        with lock:
            if value.name not in found:
                found[value.name] = _empty(extents(value.type, sizes), part)
        whole = found[value.name]
        whole.value[index] = part.value
        pairs = ((whole.independent, part.independent), (whole.common, part.common))
        for array, piece in (*pairs, (whole.part, part.part)):
            assert array is not None
            array[index] = 0.0 if piece is None else piece

    with chosen():
        Stream(fusion, inputs, sizes, values, model or Model()).run(consume)
    return found


def outputs_of(fusion: Fusion, inputs: Mapping[str, Any], sizes: Sizes) -> dict[str, Array]:
    """Return the outputs of the reference in their own types, evaluated in bounded memory."""
    values, found, lock = find_values(fusion, None), dict[str, Array](), Lock()

    def consume(value: Value, index: Index, part: Estimate) -> None:
        with lock:
            if value.name not in found:
                shape: Any = extents(value.type, sizes)
                found[value.name] = numpy.empty(shape, value.dtype.numpy)
        with np.errstate(all="ignore"):
            found[value.name][index] = host(part.settled.value).astype(value.dtype.numpy)

    with chosen():
        Stream(fusion, inputs, sizes, values, PLAIN).run(consume)
    return found


def _empty(shape: tuple[int, ...], like: Estimate) -> Estimate:
    """Return an estimate to be filled block by block."""
    value, *zeros = (numpy.zeros(shape, kind) for kind in (like.value.dtype, *"ddd"))
    return Estimate(value, zeros[0], zeros[1], like.ancestors, zeros[2], like.rounds_to)
