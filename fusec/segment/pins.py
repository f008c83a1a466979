"""Segments that the file pins: the nodes of named values, and the nodes that only they use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusec.codes.segments import SEGMENT_CYCLE, SEGMENT_INPUT, SEGMENT_VALUE, UNKNOWN_SCHEDULER
from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.ir.annotations import Pin
from fusec.ir.graph import Fusion, Node, Value
from fusec.segment.cheap import find_copied, is_injective
from fusec.segment.graph import Graph, Group
from fusec.segment.groups import Groups
from fusec.segment.segmented import Decision


@dataclass(frozen=True)
class Pinned:
    """The graph under pins: the fixed groups, each with its pin."""

    graph: Graph
    groups: tuple[tuple[Group, Pin], ...]
    decisions: tuple[Decision, ...] = ()


def named_values(
    fusion: Fusion, gone: Iterable[str] = ()
) -> tuple[dict[Value, list[Pin]], tuple[Decision, ...]]:
    """Return the pins of each pinned value; `gone` names the values that a pass removed."""
    removed = set(gone)
    named: dict[Value, list[Pin]] = {}
    decisions: list[Decision] = []
    inputs = {i.value.name for i in fusion.inputs}
    results = {v.name: v for n in fusion.nodes for v in n.outputs}
    for pin in fusion.pins:
        for name in pin.values:
            if name in inputs:
                message = f"segment `{pin.name}` names the input `{name}`"
                raise FusecError(
                    message,
                    span=pin.span,
                    help="name results of operations",
                    code=SEGMENT_INPUT,
                )
            if name in results:
                named.setdefault(results[name], []).append(pin)
            elif name in removed:
                because = f"a pass removed it, or no output needs it (segment `{pin.name}`)"
                decisions.append(Decision("unpin", (name,), because))
            else:
                raise _unknown(pin, name, results)
    return named, tuple(decisions)


def _unknown(pin: Pin, name: str, known: Iterable[str]) -> FusecError:
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1)
    help = f"did you mean `{close[0]}`?" if close else "name values of `ops:`"
    message = f"segment `{pin.name}` names `{name}`, which no operation produces"
    return FusecError(message, span=pin.span, help=help, code=SEGMENT_VALUE)


def fix(fusion: Fusion, schedulers: Sequence[str], gone: Iterable[str] = ()) -> Pinned:
    """Return the graph and the groups that the pins of `fusion` fix."""
    for pin in fusion.pins:
        if pin.scheduler is not None and pin.scheduler not in schedulers:
            message = f"segment `{pin.name}`: unknown scheduler `{pin.scheduler}`"
            raise FusecError(
                message,
                span=pin.span,
                help="one of " + ", ".join(schedulers),
                code=UNKNOWN_SCHEDULER,
            )
    named, decisions = named_values(fusion, gone)
    shared = {v for v, pins in named.items() if len({p.name for p in pins}) > 1}
    graph = Graph(fusion, find_copied(fusion, kept=named.keys() - shared))
    for value in sorted(shared, key=lambda v: v.name):
        if fusion.producer[value] not in graph.copied:
            names = " and ".join(f"`{p.name}`" for p in named[value])
            raise FusecError(
                f"`{value.name}` is pinned to segments {names}",
                span=named[value][-1].span,
                notes=["only values that are cheap to recompute may be in several segments"],
            )
    groups: list[tuple[Group, Pin]] = []
    for pin in fusion.pins:
        own = [v for v, pins in named.items() if pins[0] is pin and v not in shared]
        chosen = {fusion.producer[v] for v in own} & set(graph.owned)
        if chosen:
            groups.append((frozenset(chosen), pin))
    return Pinned(graph, tuple(_completed(graph, groups)), decisions)


def _completed(graph: Graph, groups: list[tuple[Group, Pin]]) -> Iterable[tuple[Group, Pin]]:
    """Yield the groups with nodes that only they use or that lie on paths between their nodes."""
    taken = {node: pin for group, pin in groups for node in group}
    final = graph.final
    for group, pin in groups:
        grown = set(group)
        # An open segment includes what pays; only nodes on paths between its values are required.
        for node in () if pin.open else reversed(graph.fusion.nodes):
            if node in taken or node not in graph.owned or not is_injective(node):
                continue
            if node.op.ends_segment or any(v in final for v in node.outputs):
                continue
            users = [u for v in node.outputs for u in graph.fusion.users.get(v, ())]
            if users and all(_ends_in(graph, u, grown) for u in users):
                grown.add(node)
                taken[node] = pin
        yield _convex(graph, frozenset(grown), pin, taken), pin


def _ends_in(graph: Graph, user: Node, group: set[Node]) -> bool:
    """Return whether a user belongs to the group, or is a copy that only the group uses."""
    if user in group:
        return True
    if user not in graph.copied or any(v in graph.final for v in user.outputs):
        return False
    later = [u for v in user.outputs for u in graph.fusion.users.get(v, ())]
    return bool(later) and all(_ends_in(graph, u, group) for u in later)


def _convex(graph: Graph, group: Group, pin: Pin, taken: dict[Node, Pin]) -> Group:
    rest = (frozenset({n}) for n in graph.owned if n not in group)
    groups = Groups(graph, (group, *rest))
    closed = groups.cycles(groups.owner(next(iter(group))))
    nodes = frozenset[Node]().union(*(p.nodes for p in closed))
    foreign = [n for n in graph.fusion.nodes if n in nodes and taken.get(n, pin) is not pin]
    if foreign:
        other = taken[foreign[0]]
        raise FusecError(
            f"segments `{pin.name}` and `{other.name}` depend on each other",
            span=pin.span,
            notes=[f"`{foreign[0].output.name}` lies on a path out of and back into `{pin.name}`"],
            help=f"list the values between in `{pin.name}` too, or divide `{pin.name}` there",
            code=SEGMENT_CYCLE,
        )
    for node in nodes:
        taken[node] = pin
    if groups.crosses_boundary(closed):
        message = f"segment `{pin.name}` holds a segment_set together with its user"
        raise FusecError(message, span=pin.span)
    return nodes
