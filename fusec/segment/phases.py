"""Joint graphs: a minimum cut selects what the forward pass saves for the backward pass.

A value that a later phase needs is either saved, or recomputed there from saved values. Saving
costs a write and a read; inputs and outputs of the earlier phase cost only the read, since they are
in memory anyway. Reductions, GEMMs, scans and sorts are never recomputed. Random numbers are: the
later phase receives the seed and the offset that the earlier one read.
"""

from __future__ import annotations

from collections.abc import Collection

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import FusecError
from fusec.ir.annotations import Phase
from fusec.ir.graph import Fusion, Input, Node, Value, needed_nodes
from fusec.ir.overrides import check_overrides
from fusec.options import SCHEDULERS
from fusec.segment.cheap import is_injective
from fusec.segment.flow import Flow, Unbounded
from fusec.segment.segmented import extract, tensor_bytes


@dataclass(frozen=True)
class Phased:
    """A joint graph split into parts, in order; `saved` has the values that each part saves."""

    parts: tuple[Fusion, ...]
    saved: tuple[tuple[Value, ...], ...]

    def saved_bytes(self, sizes: dict[str, int]) -> int:
        """Return the total bytes of the values that the parts save."""
        return sum(tensor_bytes(v, sizes) for values in self.saved for v in values)


def split(fusion: Fusion) -> Phased:
    """Return the fusion's phases, each a separate fusion named after both.

    Raise FusecError if a phase needs an input of a later one.
    """
    check_overrides(fusion, fusion.schedules)
    parts: list[Fusion] = []
    saved: list[tuple[Value, ...]] = []
    rest, phases = fusion, fusion.phases
    for k, phase in enumerate(phases[:-1]):
        first, rest, kept = _cut(rest, phase, phases[k + 1 :])
        parts.append(first)
        saved.append(kept)
    parts.append(replace(rest, name=f"{fusion.name}_{phases[-1].name}", phases=()))
    return Phased(tuple(parts), tuple(saved))


def _cut(
    fusion: Fusion, phase: Phase, later: tuple[Phase, ...]
) -> tuple[Fusion, Fusion, tuple[Value, ...]]:
    """Return the part of a phase, the rest, and the values that the part saves for the rest."""
    own = tuple(o.value for o in fusion.outputs if o.value.name in phase.outputs)
    needed = set(own)
    for node in needed_nodes(fusion.nodes, own):
        needed |= {*node.inputs, *node.outputs}
    late = _dependent(fusion, [n for p in later for n in p.inputs])
    for entry in fusion.inputs:
        if entry.value in needed and entry.value in late:
            owner = next(p for p in later if entry.value.name in p.inputs)
            raise FusecError(
                f"phase `{phase.name}` needs `{entry.value.name}`, an input of the later phase "
                f"`{owner.name}`",
                span=phase.span,
                help="a phase uses its own inputs and results of earlier phases",
            )
    for after in later:
        for name in after.outputs:
            value = next(o.value for o in fusion.outputs if o.value.name == name)
            node = fusion.producer[value]
            if value in needed and not is_injective(node):
                raise FusecError(
                    f"output `{name}` of phase `{after.name}` is computed in phase `{phase.name}`",
                    span=after.span,
                    help=f"list it in `{phase.name}`",
                )
    kept = _minimum_cut(fusion, phase, needed, late, [n for p in later for n in p.outputs])
    made = [v for v in kept if v in fusion.producer and v not in own]
    first = _part(fusion, needed_nodes(fusion.nodes, (*own, *made)), (*own, *made))
    results = tuple(o.value for o in fusion.outputs if o.value.name not in phase.outputs)
    rest = _part(fusion, needed_nodes(fusion.nodes, results, kept), results)
    rest = replace(rest, inputs=tuple(_taken(i, first) for i in rest.inputs))
    held = {v.name for v in kept} - {i.value.name for i in rest.inputs if i.generator}
    before = {n for n in fusion.saved if n in {i.value.name for i in rest.inputs}}
    first = replace(
        first,
        name=f"{fusion.name}_{phase.name}",
        phases=(),
        saved=tuple(i.value.name for i in first.inputs if i.value.name in fusion.saved)
        + tuple(o.value.name for o in first.outputs if o.value.name in held),
    )
    rest = replace(
        rest,
        name=fusion.name,
        phases=later,
        saved=tuple(i.value.name for i in rest.inputs if i.value.name in held | before),
    )
    return first, rest, kept


def _taken(entry: Input, first: Fusion) -> Input:
    """Return an input of a later phase: random numbers use the state that the first phase read."""
    drawn = entry.generator and any(i.value is entry.value for i in first.inputs)
    return replace(entry, generator="") if drawn else entry


def _dependent(fusion: Fusion, inputs: Collection[str]) -> set[Value]:
    """Return the values that depend on some inputs, these included."""
    found = {i.value for i in fusion.inputs if i.value.name in inputs}
    for node in fusion.nodes:
        if any(v in found for v in node.inputs):
            found |= {*node.outputs}
    return found


def _minimum_cut(
    fusion: Fusion,
    phase: Phase,
    needed: Collection[Value],
    late: Collection[Value],
    results: Collection[str],
) -> tuple[Value, ...]:
    """Return the values to save: the cheapest that separate earlier inputs from later results."""
    graph = Flow()
    in_memory = {i.value for i in fusion.inputs} | {
        o.value for o in fusion.outputs if o.value.name in phase.outputs
    }
    overwritten = {i.value for v, i in fusion.effects.into.items() if v.name in phase.outputs}
    for value in fusion.values:
        if value in late:
            graph.add_edge((value, "made"), "later")
            continue
        size = max(1, tensor_bytes(value, fusion.hints))
        # Of two cuts that move equally many bytes, choose the one that saves less memory.
        cost = (size if value in in_memory else 2 * size) * 1024 + min(size, 1023)
        must_cross = value.name in results or value in overwritten
        graph.add_edge((value, "made"), (value, "read"), None if must_cross else cost)
        node = fusion.producer.get(value)
        if node is None or (value in needed and not is_injective(node)):
            graph.add_edge("earlier", (value, "made"))
        if value.name in results:
            graph.add_edge((value, "read"), "later")
    for node in fusion.nodes:
        for value in dict.fromkeys(node.inputs):
            for result in node.outputs:
                if value not in late:
                    graph.add_edge((value, "read"), (result, "made"))
    if "later" not in graph or "earlier" not in graph:
        return ()
    try:
        _, before = graph.minimum_cut("earlier", "later")
    except Unbounded:
        name = next(iter(overwritten)).name
        raise FusecError(
            f"a later phase needs `{name}`, which phase `{phase.name}` overwrites", span=phase.span
        ) from None
    return tuple(
        v
        for v in fusion.values
        if v not in late and (v, "made") in before and (v, "read") not in before
    )


def _part(fusion: Fusion, nodes: Collection[Node], results: tuple[Value, ...]) -> Fusion:
    """Return some nodes as a fusion, its outputs in the order of `results`."""
    part = extract(fusion, nodes, fusion.name, frozenset(results))
    made = {v.name for n in nodes for v in n.outputs}
    by_value = {o.value.name: o for o in part.outputs}
    outputs = tuple(by_value[v.name] for v in results)
    pins = (replace(p, values=tuple(v for v in p.values if v in made)) for p in fusion.pins)
    pins = tuple(p for p in pins if p.values)
    kept = {*made, *SCHEDULERS, *(p.name for p in pins)}
    schedules = tuple(o for o in fusion.schedules if o.of in kept)
    return replace(part, outputs=outputs, pins=pins, schedules=schedules)
