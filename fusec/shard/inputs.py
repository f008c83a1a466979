"""Shardings of inputs that affect other values: outputs written into them, and their readers."""

from __future__ import annotations

from fusec.diagnostics import Unsupported
from fusec.ir.graph import Fusion, Node, Value
from fusec.ir.sharding import STREAM, Sharding
from fusec.shard.axes import Axes
from fusec.shard.choose import carried_dependence, ends_loop


def said_of_aliases(fusion: Fusion, said: dict[str, Sharding]) -> None:
    """Give outputs the shardings of the inputs that they are written into.

    said: the declared shardings by name; those of outputs are added. Unsupported if the file
    declares another sharding for an output.
    """
    shapes = {i.value.name: i.value for i in fusion.inputs}
    for output in fusion.outputs:
        if output.alias is None:
            continue
        name, target = output.value.name, shapes[output.alias]
        given = said.get(target.name) or Sharding.whole(target.rank)
        own = said.setdefault(name, given.without(STREAM))
        where = fusion.shardings.get(name)
        span = output.span if where is None or where.span is None else where.span
        if own.along(STREAM) is not None:
            raise Unsupported(
                f"output `{name}` is written to `{output.alias}` slice by slice",
                span=span,
                help="declare no `stream` of it",
            )
        if own.dims != given.without(STREAM).dims:
            raise Unsupported(
                f"output `{name}` is written to `{output.alias}`, which is divided otherwise",
                span=span,
                notes=[f"`{name}`: {own}", f"`{output.alias}`: {given}"],
                help="declare the same sharding of both, or only that of the input",
            )


class InputLoops:
    """The readers of inputs that the file divides into slices."""

    def __init__(self, fusion: Fusion) -> None:
        """Start without readers."""
        self._fusion = fusion
        self._readers: dict[Value, list[tuple[Node, bool]]] = {}

    def note(self, node: Node, axes: Axes) -> None:
        """Record whether a node follows the slices of inputs that it reads, or needs them all."""
        for k, value in enumerate(node.operands):
            if not isinstance(value, Value) or value not in self._fusion.input_of:
                continue
            said = self._fusion.shardings.get(value.name)
            if said is not None and said.streamed:
                readers = self._readers.setdefault(value, [])
                readers.append((node, any(ends_loop(node, axes, k, at) for at in said.streamed)))

    def check(self) -> None:
        """Raise FusecError for slices of an input if all its readers need them all at once."""
        for value, readers in self._readers.items():
            said, (first, _) = self._fusion.shardings[value.name], readers[0]
            at = said.along(STREAM)
            if at is not None and all(ends for _, ends in readers):
                raise carried_dependence(first, at, value.name, said)
