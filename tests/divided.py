"""Fusions that one rank runs, made by hand: a file's operations, and exchanges between them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fusec.diagnostics import InternalError
from fusec.ir.dim import dim
from fusec.ir.evaluate import Array
from fusec.ir.graph import Fusion, Node, Output, Value
from fusec.ir.op import OpDef
from fusec.ir.sharding import Mesh
from fusec.ir.verify import verify
from fusec.ops.communication import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    RANK_SLICE,
    RECEIVE_SLICE,
    REDUCE_SCATTER,
    SEND_SLICE,
    STREAM_SLICE,
    STREAM_STACK,
    make_node,
)
from fusec.ops.find import find_op
from fusec.ops.names import fresh_name
from fusec.parse import read_text
from tools.draw import draw_fusion


@dataclass(frozen=True)
class Between:
    """An operation that no file names, on the value called `operand`."""

    op: OpDef
    operand: str
    attributes: Mapping[str, Any]


def between(op: OpDef, operand: str, **attributes: Any) -> Between:
    """Return an operation to put into a fusion."""
    return Between(op, operand, attributes)


def divided(text: str, mesh: Mesh | None = None, **found: Between) -> Fusion:
    """Return the fusion of a file in which some inputs are results of operations between ranks.

    The inputs by these names go. A name that is no input of the file becomes an output; the value
    that the operation takes is none then.
    """
    fusion = read_text(text)
    values = {v.name: v for v in fusion.values}
    inputs = tuple(i for i in fusion.inputs if i.value.name not in found)
    outputs = list(fusion.outputs)
    made: list[Node] = []
    for name, what in found.items():
        node = make_node(what.op, values[what.operand], name, **what.attributes)
        if name in values:
            assert node.output.type == values[name].type, f"{node.output} is not {values[name]}"
            node = replace(node, outputs=(values[name],))
        else:
            outputs = [o for o in outputs if o.value is not values[what.operand]]
            outputs.append(Output(node.output))
            values[name] = node.output
        made.append(node)
    nodes = in_order((*made, *fusion.nodes), (i.value for i in inputs))
    given = replace(fusion, inputs=inputs, outputs=tuple(outputs), nodes=nodes, mesh=mesh)
    verify(given)
    return given


def in_order(nodes: Iterable[Node], given: Iterable[Value]) -> tuple[Node, ...]:
    """Return nodes with operands first, otherwise in the order in which they come."""
    known, left, done = set(given), list(nodes), list[Node]()
    while left:
        node = next((n for n in left if known.issuperset(n.inputs)), None)
        if node is None:
            raise InternalError(f"a cycle: {left}")
        left.remove(node)
        done.append(node)
        known.update(node.outputs)
    return tuple(done)


# -- drawn: exchanges between the operations of any fusion


def _doubled(array: Array) -> Array:
    return array + array[::-1]


def _part(array: Array, axis: int, parts: int) -> Array:
    return np.split(array, parts, axis)[parts // 2]


AS_IF: Mapping[OpDef, Callable[..., Array]] = {
    ALL_GATHER: lambda arg, axis, ranks: np.concatenate([arg] * (ranks - 1) + [arg[::-1]]),
    ALL_REDUCE: lambda arg, axis, ranks, reduction: _doubled(arg),
    REDUCE_SCATTER: lambda arg, axis, ranks, reduction: _part(_doubled(arg), 0, ranks),
    ALL_TO_ALL: lambda arg, axis, ranks: np.roll(arg, len(arg) // ranks, 0),
    RECEIVE_SLICE: lambda arg, axis, ranks, pieces: _part(arg[::-1], 0, pieces),
    SEND_SLICE: lambda arg, axis, ranks, pieces: np.concatenate([arg] * ranks * pieces),
    RANK_SLICE: lambda arg, dim, parts, axis, aligned: _part(arg, dim, parts),
    STREAM_SLICE: lambda arg, dim, parts, uneven, inner, times, aligned: _part(arg, dim, parts),
    STREAM_STACK: lambda arg, dim, parts, of, aligned: np.concatenate([arg] * parts, dim),
}
"""Functions that stand for exchanges: of their operands alone, and of no other operation's kind."""


@contextmanager
def evaluated_as_if() -> Iterator[None]:
    """Let the reference evaluate exchanges as these functions."""
    known = {op: op.reference for op in AS_IF}
    for op, function in AS_IF.items():
        object.__setattr__(op, "reference", function)
    try:
        yield
    finally:
        for op, function in known.items():
            object.__setattr__(op, "reference", function)


class Insertion:
    """Puts exchanges, slices and loops behind values of a fusion; they keep its types."""

    def __init__(self, fusion: Fusion, seed: int) -> None:
        """Take what chooses: evenly, unlike what hypothesis draws."""
        self.fusion, self.rng = fusion, random.Random(seed)
        self.taken = {v.name for v in fusion.values}
        self.now: dict[Value, Value] = {}
        self.nodes: list[Node] = []
        self.varying: dict[Value, int] = {}
        self.known: list[Value] = [i.value for i in fusion.inputs]

    def run(self) -> Fusion:
        """Return the fusion with what was drawn."""
        for entry in self.fusion.inputs:
            self.maybe(entry.value)
        for node in self.fusion.nodes:
            current = self.now.get
            operands = tuple(
                current(o, o) if isinstance(o, Value) and self.likely() else o
                for o in node.operands
            )
            self.nodes.append(replace(node, operands=operands))
            self.known += node.outputs
            for value in node.outputs:
                self.maybe(value)
        outputs = list(self.fusion.outputs)
        for k, output in enumerate(outputs):
            last = self.now.get(output.value)
            if last is not None and output.alias is None and self.likely():
                outputs[k] = replace(output, value=last)
        nodes = tuple(self.nodes)
        found = replace(self.fusion, nodes=nodes, outputs=tuple(outputs), mesh=DRAWN)
        verify(found)
        return found

    def likely(self) -> bool:
        return self.rng.random() < 0.7

    def maybe(self, value: Value) -> None:
        """Put something behind a value, or not: behind no index, which must stay in its bounds."""
        if not value.rank or not value.dtype.is_float or self.rng.random() < 0.4:
            return
        over, parts = {"axis": "a", "ranks": 2}, self.rng.choice((2, 3))
        dims = [k for k, e in enumerate(value.shape) if e.divide(dim(parts)) is not None]
        whole = [k for k in dims if parts == 2 and k == 0]
        kinds = [*(["loop", "loop"] if dims else []), *(["all to all", "rank"] if whole else [])]
        kind = self.rng.choice(["reduce", "gather", "ring", *kinds])
        if kind == "reduce":
            found = self.add(ALL_REDUCE, value, **over)
        elif kind == "gather":
            found = self.add(REDUCE_SCATTER, self.add(ALL_GATHER, value, **over), **over)
        elif kind == "all to all":
            found = self.add(ALL_TO_ALL, value, **over)
        elif kind == "rank":
            part = self.add(RANK_SLICE, value, dim=0, parts=dim(2), axis="a")
            found = self.add(ALL_GATHER, self.computed(part), **over)
        elif kind == "loop":
            how: dict[str, Any] = {"dim": self.rng.choice(dims), "parts": dim(parts)}
            part = self.add(STREAM_SLICE, value, **how)
            self.varying[part] = parts
            found = self.add(STREAM_STACK, self.computed(part), **how)
        else:
            part = self.add(RECEIVE_SLICE, value, **over)
            self.varying[part] = 2
            sent = self.add(SEND_SLICE, self.computed(part), **over)
            found = self.add(RANK_SLICE, sent, dim=0, parts=dim(2), axis="a")
        self.now[value] = found

    def computed(self, value: Value) -> Value:
        """Return what up to three elementwise operations make of a value, and of what is there."""
        for _ in range(self.rng.randint(0, 3)):
            loop = self.varying.get(value)
            near = [
                v for v in self.known
                if v.type == value.type and self.varying.get(v, loop) == loop
            ]  # fmt: skip
            if near and self.likely():
                other = self.rng.choice(near)
                name = fresh_name(self.taken, f"{value.name}_mul")
                made = Value(name, value.type)
                self.nodes.append(Node(find_op("mul"), (value, other), {}, (made,)))
                loop = loop or self.varying.get(other)
            else:
                made = self.add(find_op("neg"), value)
            if loop is not None:
                self.varying[made] = loop
            self.known.append(made)
            value = made
        return value

    def add(self, op: OpDef, value: Value, **attributes: Any) -> Value:
        """Append an operation on a value."""
        node = make_node(op, value, fresh_name(self.taken, f"{value.name}_{op.name}"), **attributes)
        self.nodes.append(node)
        return node.output


DRAWN = Mesh((("a", 2),), (0, 1))


def divided_fusion(seed: int) -> Fusion:
    """Draw a fusion of reals in which ranks exchange values, and loops go over slices."""
    numbers = range(seed, seed + 1000, 100)
    drawn = (draw_fusion(14, n) for n in numbers)
    plain = next(f for f in drawn if not any(v.dtype.is_complex for v in f.values))
    return Insertion(plain, seed).run()
