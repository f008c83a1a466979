"""Evaluation of a fusion in double precision in parts, each along one band, in bounded memory.

Values that share only inputs are evaluated separately, each along its own axes. When slices are
sampled, so are outputs for which this allows more sampling (decision 223).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any

import numpy

from fusec.dataclasses import dataclass
from fusec.ir.arrays import host, np
from fusec.ir.evaluate import Array, Sizes, extents
from fusec.ir.graph import Fusion, Node, Value, needed_nodes
from fusec.processors import usable_processors
from fusec.reference.cost import Costs, speedup
from fusec.reference.errors.estimate import Estimate
from fusec.reference.errors.nodes import PLAIN, Model
from fusec.reference.evaluate import find_values
from fusec.reference.gpu import chosen, on_the_host
from fusec.reference.part import Consume, Coverage, Index, Part
from fusec.reference.sweeps import Plan, choose_plan, find_sweeps, sampled_sweep, streamed

LEAST_SAMPLED = 1 / 4
"""Fraction of the limit that samples may take, regardless of the time of the rest."""


@dataclass(frozen=True, eq=False)
class _Group:
    """Values that are evaluated together, with their plan and its predicted time.

    in_full: seconds on all processors of what cannot be sampled; sampled: of the sweep that can.
    """

    values: tuple[Value, ...]
    plan: Plan
    in_full: float
    sampled: float

    @property
    def seconds(self) -> float:
        """Return the predicted seconds of the whole evaluation."""
        return self.in_full + self.sampled


class Stream:
    """One evaluation of wanted values, in parts.

    groups: the values that are evaluated together, with their plans.
    """

    def __init__(
        self, fusion: Fusion, inputs: Mapping[str, Any], sizes: Sizes, wanted: list[Value],
        model: Model, limit: float = float("inf"),
    ) -> None:  # fmt: skip
        """Divide the evaluation of `wanted`; limit: seconds beyond which slices are sampled."""
        self._given, self._limit = (fusion, inputs, sizes), limit
        self._model, self._costs = model, Costs(fusion, sizes)
        self.groups = [self._planned(values) for values in _groups(fusion, wanted)]
        if sum(group.seconds for group in self.groups) > limit:
            self.groups = [part for group in self.groups for part in self._divided(group)]

    def run(self, consume: Consume, seed: int = 0) -> Coverage:
        """Evaluate, passing every wanted value or block of it to `consume`; return the coverage."""
        fusion, inputs, sizes = self._given
        left = self._limit - sum(group.in_full for group in self.groups)
        left = max(left, LEAST_SAMPLED * self._limit)
        # The same fraction of each is evaluated.
        share = left / max(sum(group.sampled for group in self.groups), 1e-9)
        coverage = Coverage()
        for group in self.groups:
            part = Part(fusion, inputs, sizes, list(group.values), self._model, group.plan)
            found = part.run(consume, share * group.sampled, seed)
            coverage = Coverage(coverage.sampled + found.sampled)
        return coverage

    def _planned(self, values: Sequence[Value], *, samples: bool = False) -> _Group:
        """Return how values are evaluated; samples: with as little as possible in full."""
        fusion, _, sizes = self._given
        nodes = needed_nodes(fusion.nodes, values)

        def in_full(plan: Plan) -> float:
            return self._predicted(nodes, values, plan)[0]

        given = in_full if samples else None
        plan = choose_plan(fusion, nodes, sizes, self._model.hops, in_full=given)
        return _Group(tuple(values), plan, *self._predicted(nodes, values, plan))

    def _predicted(
        self, nodes: Sequence[Node], values: Sequence[Value], plan: Plan
    ) -> tuple[float, float]:
        """Return the predicted seconds of parts evaluated in full, and of the sampled part."""
        band, times = plan.band, speedup(usable_processors())
        if band is None:
            return self._costs.evaluated(nodes) + self._costs.judged(values) / times, 0.0
        sweeps = find_sweeps(nodes, values, plan)
        last = sampled_sweep(sweeps)
        seconds = self._costs.judged([v for v in values if v not in band.axes])
        seconds += sum(self._costs.of_sweep(s) for s in sweeps if s is not last)
        whole = [n for n in nodes if not streamed(plan, n) and n not in band.summing]
        sampled = 0.0 if last is None else self._costs.of_sweep(last)
        return self._costs.evaluated(whole) + seconds / times, sampled / times

    def _divided(self, group: _Group) -> list[_Group]:
        """Partition the values of a group into groups that can be sampled as much as possible.

        A value joins a group if this evaluates no more in full than separate groups would. Return
        the group unchanged if partitioning does not help.
        """
        found = list[_Group]()
        for value in group.values:
            alone = self._planned((value,), samples=True)
            for number, known in enumerate(found):
                both = self._planned((*known.values, value), samples=True)
                if both.in_full <= known.in_full + alone.in_full:
                    found[number] = both
                    break
            else:
                found.append(alone)
        return found if sum(part.in_full for part in found) < group.in_full else [group]


def _groups(fusion: Fusion, wanted: Iterable[Value]) -> Iterator[list[Value]]:
    """Yield values in groups that share no tensors except inputs, in order."""
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
    """Return the values named `wanted` (the outputs if None) with their errors, in full."""
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
