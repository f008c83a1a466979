"""Rebuild a fusion node by node: the basis of every rewriting pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fusec.dataclasses import replace
from fusec.diagnostics import FusecError, InternalError
from fusec.ir.annotations import Pin
from fusec.ir.graph import Const, Fusion, Node, Operand, Type, Value
from fusec.ir.op import OpDef
from fusec.ops.builder.arguments import attributes_of
from fusec.ops.find import find_op
from fusec.ops.literals import typed_literals
from fusec.ops.names import fresh_name
from fusec.properties import cached_property

NO_ATTRIBUTES: Mapping[str, Any] = {}


class Rewriter:
    """A partially rebuilt fusion: nodes before the current one are new, those after it are old.

    A value whose type does not change is kept as an object, so that its users need no rebuilding.
    The names of outputs and pinned values survive: if a rule replaces such a value by another one,
    a `set` of that value takes the name.
    """

    def __init__(self, fusion: Fusion) -> None:
        """Start without nodes."""
        self.fusion = fusion
        self.producer: dict[Value, Node] = {}
        self._nodes: list[Node] = []
        self._now: dict[Value, Operand] = {}
        self._dropped: set[str] = set()
        self._joined: dict[str, str] = {}
        self._changed = False

    @cached_property
    def finals(self) -> frozenset[Value]:
        """Return the output values of the old fusion."""
        return frozenset(o.value for o in self.fusion.outputs)

    @cached_property
    def pin_of(self) -> Mapping[str, str]:
        """Return the pin that names each pinned value."""
        return {name: pin.name for pin in self.fusion.pins for name in pin.values}

    @cached_property
    def _names(self) -> set[str]:
        return self.fusion.names

    def current(self, operand: Operand) -> Operand:
        """Return the replacement of an operand of the old fusion."""
        return self._now.get(operand, operand) if isinstance(operand, Value) else operand

    def source(self, operand: Operand, op: str) -> Node | None:
        """Return the node that computes `operand` if it is an application of `op`."""
        node = self.producer.get(operand) if isinstance(operand, Value) else None
        return node if node is not None and node.op.name == op else None

    def used_once(self, value: Value) -> bool:
        """Return whether exactly one node reads the value, not an output and not pinned."""
        alone = len(self.fusion.users.get(value, ())) == 1
        return alone and value not in self.finals and value.name not in self.pin_of

    # -- what rules call

    def add(
        self,
        near: Node,
        op: str,
        operands: Sequence[Operand],
        attributes: Mapping[str, Any] = NO_ATTRIBUTES,
    ) -> Value:
        """Append a helper of `near`: named after it, with its source location, in its segment."""
        return self.add_all(near, op, operands, attributes)[0]

    def add_all(
        self,
        near: Node,
        op: OpDef | str,
        operands: Sequence[Operand],
        attributes: Mapping[str, Any] = NO_ATTRIBUTES,
    ) -> tuple[Value, ...]:
        """Append a helper of `near` and return all of its results."""
        definition = find_op(op) if isinstance(op, str) else op
        complete, types = typed(definition, operands, attributes)
        pin = self.pin_of.get(near.output.name)
        values: list[Value] = []
        for each in types:
            name = fresh_name(self._names, f"{near.output.name}_{definition.name}")
            if pin is not None:
                self._joined[name] = pin
            values.append(Value(name, each))
        origin = near.origin or near.output.name
        self._append(Node(definition, tuple(operands), complete, tuple(values), near.span, origin))
        return tuple(values)

    def become(
        self,
        node: Node,
        op: str,
        operands: Sequence[Operand],
        attributes: Mapping[str, Any] = NO_ATTRIBUTES,
    ) -> tuple[Operand, ...]:
        """Append a node that takes the position, name and type of `node`."""
        definition = find_op(op)
        complete, types = typed(definition, operands, attributes)
        outputs, given = _retyped(node, types), tuple(operands)
        self._append(
            replace(node, op=definition, operands=given, attributes=complete, outputs=outputs)
        )
        return self._nodes[-1].outputs

    def put(self, near: Node, nodes: Iterable[Node]) -> tuple[Value, ...]:
        """Append nodes that together compute the results of `near`, and return these."""
        pin = self.pin_of.get(near.output.name)
        for node in nodes:
            for value in node.outputs:
                if pin is not None and value not in near.outputs:
                    self._joined[value.name] = pin
            self._append(replace(node, origin=near.origin or near.output.name))
        return near.outputs

    def fresh(self, name: str) -> str:
        """Return an unused name similar to `name`."""
        return fresh_name(self._names, name)

    # -- the walk

    def visit(self, node: Node, rule: Rule) -> None:
        """Rebuild one node, or replace it by the result of `rule`."""
        current = self._rebuilt(node) if self._now else node
        results = rule(current, self)
        if results is None:
            self._append(current)
            if current is node:
                return
            results = current.outputs
        else:
            self._changed = True
        for old, new in zip(node.outputs, results, strict=True):
            self._settle(current, old, new)

    def _rebuilt(self, node: Node) -> Node:
        if not any(v in self._now for v in node.inputs):
            return node
        operands = tuple(self.current(o) for o in node.operands)
        if node.output.dim is None:
            operands = typed_literals(node.op, operands, node.output.dtype)
        outputs = _retyped(node, node.op.infer(operands, node.attributes))
        return replace(node, operands=operands, outputs=outputs)

    def _settle(self, node: Node, old: Value, new: Operand) -> None:
        if isinstance(new, Const):
            if old.name in self.pin_of:
                self._append(node)
            self._now[old] = new
        elif new is old:
            return
        elif new.name == old.name or not self._keeps(old, new):
            self._now[old] = new
            if new.name != old.name:
                self._dropped.add(old.name)
        else:
            kept = Value(old.name, new.type)
            self._append(Node(find_op("set"), (new,), NO_ATTRIBUTES, (kept,), node.span))
            self._now[old] = kept

    def _keeps(self, old: Value, new: Value) -> bool:
        """Return whether the name of `old` must be kept although `new` replaces it."""
        pin = self.pin_of.get(old.name)
        return old in self.finals or (pin is not None and pin != self.pin_of.get(new.name))

    def _append(self, node: Node) -> None:
        self._nodes.append(node)
        for value in node.outputs:
            self.producer[value] = node

    def finish(self) -> Fusion:
        """Return the rebuilt fusion; the old one itself if no rule applied."""
        if not self._changed:
            return self.fusion
        outputs = list(self.fusion.outputs)
        for k, output in enumerate(outputs):
            value = self.current(output.value)
            assert isinstance(value, Value)
            outputs[k] = output if value is output.value else replace(output, value=value)
        pins = edit_pins(self.fusion.pins, self._dropped, self._joined)
        return replace(self.fusion, nodes=tuple(self._nodes), outputs=tuple(outputs), pins=pins)


Rule = Callable[[Node, Rewriter], "Sequence[Operand] | None"]
"""Returns the operands that replace a node's results, or None to keep the node."""


def rewrite(fusion: Fusion, rule: Rule) -> Fusion:
    """Return the fusion with `rule` applied to every node, producers first."""
    work = Rewriter(fusion)
    for node in fusion.nodes:
        work.visit(node, rule)
    return work.finish()


def typed(
    op: OpDef, operands: Sequence[Operand], attributes: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[Type, ...]]:
    """Return (the attributes with defaults filled, the types of the results) of an application.

    The given attributes must be canonical: a call of pad, for example, takes its widths in another
    order.
    """
    complete = attributes_of(op, operands, attributes)
    complete.pop("keepdim", None)
    return complete, op.infer(tuple(operands), complete)


def fits(
    node: Node, op: str, operands: Sequence[Operand], attributes: Mapping[str, Any] = NO_ATTRIBUTES
) -> bool:
    """Return whether an application is well formed and has the type of `node`'s result."""
    try:
        types = typed(find_op(op), operands, attributes)[1]
    except FusecError:
        return False
    return types[0].dtype == node.output.dtype and types[0].shape == node.output.type.shape


def _retyped(node: Node, types: Sequence[Type]) -> tuple[Value, ...]:
    """Return the results of `node` with other types, which may differ only in known sizes."""
    outputs: list[Value] = []
    for value, new in zip(node.outputs, types, strict=True):
        if new.dtype != value.dtype or new.shape != value.type.shape:
            raise InternalError(f"a pass changed `{value}` to {new}", span=node.span)
        outputs.append(value if new == value.type else Value(value.name, new))
    return tuple(outputs)


def edit_pins(
    pins: tuple[Pin, ...], dropped: Iterable[str], joined: Mapping[str, str]
) -> tuple[Pin, ...]:
    """Return pins without the names in `dropped`, and with those that `joined` adds to a pin."""
    gone = set(dropped)
    if not pins or not (gone or joined):
        return pins
    edited: list[Pin] = []
    for pin in pins:
        kept = [v for v in pin.values if v not in gone]
        more = [name for name, owner in joined.items() if owner == pin.name]
        if kept or more:
            edited.append(replace(pin, values=(*kept, *more)))
    return tuple(edited)
