"""Random operations that a script may write without a seed: the front end adds the same."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.generator import PARTS
from fusec.ir.graph import Const, Fusion, Node, Operand, Value


@dataclass(frozen=True)
class Draws:
    """Random operations without a seed, and the nodes that only add their numbers to the offset."""

    nodes: frozenset[Node] = frozenset()
    numbers: frozenset[Node] = frozenset()


def unseeded_draws(fusion: Fusion) -> Draws:
    """Return the random operations if seeds and offsets are those of the front end; else none.

    That is: the n-th random operation adds n to the offset, and no other node reads seed or offset.
    """
    state = {i.generator: i.value for i in fusion.inputs if i.generator}
    if set(state) != set(PARTS):
        return Draws()
    seed, offset = state["seed"], state["offset"]
    nodes: list[Node] = []
    numbers: list[Node] = []
    for node in fusion.nodes:
        if node.op.family != "random" or node.operands[2] is not seed:
            continue
        if len(nodes):
            number = _adding(fusion, node.operands[3], offset, len(nodes))
            if number is None:
                return Draws()
            numbers.append(number)
        elif node.operands[3] is not offset:
            return Draws()
        nodes.append(node)
    readers = {*fusion.users.get(seed, ()), *fusion.users.get(offset, ())}
    pinned = {name for pin in fusion.pins for name in pin.values}
    named = any(n.output.name in pinned for n in numbers)
    if named or not readers <= {*nodes, *numbers}:
        return Draws()
    return Draws(frozenset(nodes), frozenset(numbers))


def _adding(fusion: Fusion, value: Operand, offset: Value, number: int) -> Node | None:
    """Return the node that adds a random operation's number to the offset for it alone."""
    node = fusion.producer.get(value) if isinstance(value, Value) else None
    if node is None or node.op.name != "add" or node.operands[0] is not offset:
        return None
    added = node.operands[1]
    right = isinstance(added, Const) and added.value == number
    alone = len(fusion.users[node.output]) == 1 and node.output not in fusion.output_of
    return node if right and alone else None
