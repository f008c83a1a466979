"""Loops over slices: which nodes run in them, and how often."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fusec.diagnostics import FusecError, InternalError
from fusec.ir.dim import Dim
from fusec.ir.graph import Fusion, Node, Value
from fusec.ops.communication import LEAVE, slices_begun


def loops(fusion: Fusion) -> Mapping[Node, Dim]:
    """Return the number of iterations of each node that runs once per slice of a loop.

    A loop begins where slices are taken or received and ends with the node that stacks or sends
    them; its result is available after the loop. InternalError if slices of different counts are
    combined.
    """
    found: dict[Node, Dim] = {}
    varying: dict[Value, Dim] = {}
    for node in fusion.nodes:
        parts = {varying[v] for v in node.inputs if v in varying}
        begun = slices_begun(node)
        if begun is not None:
            parts.add(begun)
        if not parts:
            continue
        if len(parts) > 1:
            counts = " and ".join(sorted(map(str, parts)))
            raise InternalError(f"`{node}` reads slices of loops of {counts}", span=node.span)
        (found[node],) = parts
        if node.op not in LEAVE:
            varying.update(dict.fromkeys(node.outputs, found[node]))
    return found


def times(counts: Mapping[Node, Dim], nodes: Iterable[Node]) -> str:
    """Return how often some nodes run, as text: `once and 4 times`."""
    found = {counts.get(node) for node in nodes}
    return " and ".join(sorted("once" if n is None else f"{n} times" for n in found))


def of_several(counts: Mapping[Node, Dim], nodes: Iterable[Node]) -> FusecError:
    """Return the error of a pinned segment whose nodes do not run equally often."""
    first, *rest = nodes
    other = next(n for n in rest if counts.get(n) != counts.get(first))
    names = f"`{first.output.name}` and `{other.output.name}`"
    return FusecError(
        f"a pinned segment contains {names}, which run {times(counts, (first, other))}",
        span=other.span,
        notes=["operations in a loop over slices cannot share a kernel with operations outside it"],
    )
