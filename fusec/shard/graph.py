"""The nodes of a rank's fusion during construction: loops in order, names at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Any

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import InternalError, Span
from fusec.ir.dim import Dim, Shape, dim
from fusec.ir.graph import Node, Operand, Value, needed_nodes
from fusec.ir.op import REQUIRED, OpDef
from fusec.ir.sharding import Sharding
from fusec.ops.communication import LEAVE, STREAM_SLICE, STREAM_STACK, Ranks, held_by
from fusec.ops.find import find_op
from fusec.ops.names import fresh_name
from fusec.shard.slices import Cuts, count, cuts_of, split, stacked, turns

NO_ATTRIBUTES: Mapping[str, Any] = {}


@dataclass(frozen=True)
class _Made:
    """Where a value is computed.

    level: the number of loops that precede it. parts: the number of slices of the loop that
    computes it, None outside of loops. cuts: how these are divided.
    """

    level: int = 0
    parts: Dim | None = None
    cuts: Cuts = ()


OUTSIDE = _Made()


class LocalGraph:
    """Nodes on local values, each with a position after loops or in one."""

    def __init__(self) -> None:
        """Start without nodes."""
        self._nodes: list[Node] = []
        self._made: dict[Value, _Made] = {}
        self._maker: dict[Value, Node] = {}
        self._stacks: dict[Value, Value] = {}
        self._again: dict[Value, Value] = {}
        self._held: dict[Value, Ranks] = {}
        self.span: Span | None = None

    def varies(self, value: Operand) -> bool:
        """Return whether the value differs between iterations of a loop."""
        return isinstance(value, Value) and self._at(value).parts is not None

    def lies(self, value: Value, sharding: Sharding) -> None:
        """Record which dims of a value are divided by the loop that computes it."""
        made = self._at(value)
        if made.parts is not None:
            self._made[value] = replace(made, cuts=cuts_of(sharding))

    def lies_as(self, value: Value, other: Value) -> None:
        """Record that a loop divides a value in the same way as another one."""
        made = self._at(other)
        if made.parts is not None:
            self._made[value] = replace(self._at(value), cuts=made.cuts)

    def _at(self, value: Value) -> _Made:
        return self._made.get(value, OUTSIDE)

    def add(
        self,
        op: OpDef,
        operands: Sequence[Operand],
        attributes: Mapping[str, Any] = NO_ATTRIBUTES,
        names: Sequence[str] = (),
        *,
        begins: Dim | None = None,
    ) -> tuple[Value, ...]:
        """Add a node, and return its results, named or after the first operand.

        begins: the number of slices of the loop that the node begins, if it does.
        """
        made = [self._at(o) for o in operands if isinstance(o, Value)]
        level = max((m.level for m in made), default=0)
        operands = [self._carried(o, level) if isinstance(o, Value) else o for o in operands]
        parts = next((m.parts for m in made if m.parts is not None), begins)
        if any(m.parts not in (None, parts) for m in made):
            raise InternalError(f"`{op.name}` reads slices of different loops", span=self.span)
        types = op.infer(tuple(operands), attributes)
        base = next((o.name for o in operands if isinstance(o, Value)), op.name)
        given = [*names, *(f"{base}_{op.name}" for _ in types[len(names) :])]
        outputs = tuple(Value(n, t) for n, t in zip(given, types, strict=True))
        node = Node(op, tuple(operands), MappingProxyType(dict(attributes)), outputs, self.span)
        self._nodes.append(node)
        after = _Made(level + 1) if op in LEAVE else _Made(level, parts)
        held = held_by(op, attributes, (self.held(v) for v in node.inputs))
        for value in outputs:
            self._made[value], self._maker[value] = after, node
            if held is not None and not value.is_scalar:
                self._held[value] = held
        return outputs

    def held(self, value: Value) -> Ranks | None:
        """Return the ranks that hold a value, None for all."""
        return self._held.get(value)

    def hold(self, value: Value, ranks: Iterable[int]) -> None:
        """Record the ranks that hold an input."""
        self._held[value] = frozenset(ranks)

    def apply(self, op: OpDef | str, operand: Value, name: str = "", **attributes: Any) -> Value:
        """Add an application to one operand with one result, and return that."""
        definition = find_op(op) if isinstance(op, str) else op
        begins = attributes.pop("begins", None)
        names = [name] if name else ()
        own = {p.name: p.default for p in definition.attributes if p.default is not REQUIRED}
        given = attributes | {k: v for k, v in own.items() if k not in attributes}
        return self.add(definition, [operand], given, names, begins=begins)[0]

    def sliced(self, value: Value, cuts: Cuts, name: str) -> Value:
        """Return the slice of a value that an iteration has."""
        shape, places = split(value.shape, cuts)
        value, times = self.reshaped(value, shape, f"{name}_split"), count(cuts)
        for cut, at in zip(cuts, places, strict=True):
            how: dict[str, Any] = {"dim": at, "parts": cut.parts}
            if cut.of is not None:
                how["uneven"] = True
            if cut.turn is not None:
                how |= {"inner": cut.turn.inner, "times": cut.turn.times}
            value = self.apply(STREAM_SLICE, value, f"{name}_slice", **how, begins=times)
        own = list(value.shape)
        for at, cut in sorted(zip(places, cuts, strict=True), key=itemgetter(0), reverse=True):
            if cut.outer != 1:
                own[at - 1 : at + 1] = [own[at - 1] * own[at]]
        value = self.reshaped(value, tuple(own), f"{name}_slice")
        self._made[value] = replace(self._at(value), cuts=cuts)
        return value

    def stacked(self, value: Value, name: str) -> Value:
        """Return all slices of a value stacked, after its loop."""
        if value not in self._stacks:
            self._stacks[value] = self._stacked(value, self._at(value).cuts, name)
        return self._stacks[value]

    def _stacked(self, value: Value, cuts: Cuts, name: str) -> Value:
        factors, order, whole = stacked(value.shape, cuts)
        if len(cuts) == 1 and cuts[0].turn is None:
            shape, (at,) = split(value.shape, cuts)
            of = None if cuts[0].of is None else (cuts[0].of,)
            parts = {"dim": at, "parts": cuts[0].parts, "of": of}
            value = self.reshaped(value, shape, f"{name}_split")
            found = self.apply(STREAM_STACK, value, name, **parts)
            return found if cuts[0].outer == 1 else self.reshaped(found, whole, name)
        parts = {"dim": 0, "parts": count(cuts)}
        blocks = self.apply(STREAM_STACK, value, f"{name}_blocks", **parts)
        iterations, places = turns(cuts)
        if any(e != 1 for k, e in enumerate(iterations) if k not in places):
            blocks = self.reshaped(blocks, (*iterations, *value.shape), f"{name}_split")
            ends = [e if k in places else dim(1) for k, e in enumerate(iterations)]
            rank = blocks.rank
            how = {"start_indices": (dim(0),) * rank, "end_indices": (*ends, *value.shape)}
            how |= {"strides": (1,) * rank, "manual_normalization": False}
            blocks = self.apply("slice", blocks, f"{name}_first", **how)
        return self.reordered(blocks, factors, order, whole, name)

    def reordered(
        self, value: Value, split: Shape, order: tuple[int, ...], after: Shape, name: str
    ) -> Value:
        """Return a tensor split into dims, these in another order, and joined again."""
        moved = [k for k in order if split[k] != 1]
        left = sorted(moved)
        if moved != left:
            value = self.reshaped(value, tuple(split[k] for k in left), f"{name}_split")
            dims = tuple(left.index(k) for k in moved)
            value = self.apply("permute", value, f"{name}_turned", dims=dims)
        return self.reshaped(value, after, f"{name}_joined")

    def reshaped(self, value: Value, shape: Shape, name: str) -> Value:
        """Return a tensor's elements in another shape; the tensor itself if it has that shape."""
        if value.shape == shape:
            return value
        return self.apply("reshape", value, name, new_shape=shape)

    def _carried(self, value: Value, level: int) -> Value:
        """Return a value as a later loop reads it: as slices of an earlier loop's stacked result.

        Slices of values from before all loops are taken in each loop, when nodes are put in order.
        """
        made = self._at(value)
        if made.parts is None or made.level == level or self._maker[value].op is STREAM_SLICE:
            return value
        if value not in self._again:
            name = value.name.removesuffix("_slice")
            whole = self.stacked(value, f"{name}_full")
            self._again[value] = self.sliced(whole, made.cuts, name)
        return self._again[value]

    # -- at the end

    def finish(
        self,
        named: Mapping[Value, str],
        taken: Iterable[str],
        wanted: Sequence[Value],
        order: Sequence[Value] = (),
    ) -> tuple[tuple[Node, ...], dict[Value, Value]]:
        """Return (the nodes that compute `wanted`, the new value of each value).

        named: the values that have names to keep. taken: the names already in use. order: values in
        the order of the nodes that compute them; nodes for other values come before their first
        reader. Without it, nodes stay in the order in which they were added.
        """
        names = {*taken, *named.values()}
        now = {v: Value(n, v.type) if v.name != n else v for v, n in named.items()}
        nodes = list[Node]()
        needed = needed_nodes(self._nodes, wanted)
        for node in in_order(needed, order) if order else needed:
            for value in node.outputs:
                if value not in now:
                    now[value] = Value(fresh_name(names, value.name), value.type)
            operands = tuple(now.get(o, o) if isinstance(o, Value) else o for o in node.operands)
            outputs = tuple(now[v] for v in node.outputs)
            nodes.append(replace(node, operands=operands, outputs=outputs))
        return tuple(nodes), now


def in_order(nodes: Sequence[Node], values: Iterable[Value]) -> Iterator[Node]:
    """Yield the nodes that compute some values, each after those whose results it reads."""
    maker, placed = {v: node for node in nodes for v in node.outputs}, set[Node]()
    for value in values:
        waiting = [maker[value]] if value in maker else []
        while waiting:
            node = waiting[-1]
            before = [maker[v] for v in node.inputs if v in maker and maker[v] not in placed]
            if before and node not in placed:
                waiting += reversed(before)
                continue
            waiting.pop()
            if node not in placed:
                placed.add(node)
                yield node
