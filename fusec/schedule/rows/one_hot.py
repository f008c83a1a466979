"""Sums over one-hot rows, which a scatter computes with one atomic per row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusec.dataclasses import dataclass
from fusec.ir.dim import Dim, product
from fusec.ir.dtype import I64
from fusec.ir.graph import Const, Fusion, Node, Operand, Value
from fusec.ir.roles import Combine
from fusec.ops.table import TABLE
from fusec.passes.rewrite import Rewriter, Rule
from fusec.segment.protocol import Redefinition

LEAST_COMPARED = 1 << 22
"""Least comparisons of an index with positions that make another definition worthwhile."""


@dataclass(frozen=True)
class OneHot:
    """Rows with one element each: its position `index` [rows, 1] among `classes`, and its value."""

    index: Value
    classes: Dim
    value: Operand


def sums_of_one_hot(segment: Fusion) -> tuple[Redefinition, ...]:
    """Return the sums over one-hot rows that a scatter can compute.

    Comparing costs rows times classes operations, a scatter one atomic per row. Integers only:
    floats would be added in another order.
    """
    found: list[Redefinition] = []
    for node in segment.nodes:
        if _one_hot(node, segment.producer) is None:
            continue
        compared = product(node.inputs[0].shape).evaluate(segment.hints)
        if compared >= LEAST_COMPARED:
            name = node.output.name
            because = f"one atomic per row replaces {compared} comparisons"
            found.append(Redefinition("scatter", name, because, _rule(name)))
    return tuple(found)


def _one_hot(node: Node, producer: Mapping[Value, Node]) -> OneHot | None:
    """Return the rows that an integer sum over dim 0 adds; None if they are not one-hot."""
    if node.op.combine is not Combine.SUM or node.op.family != "reduction":
        return None
    rows = node.inputs[0]
    if tuple(node.attributes["dims"]) != (0,) or rows.rank != 2 or not node.output.dtype.is_integer:
        return None
    made, value = _before_casts(rows, producer), Const(1, I64)
    if made is not None and _is(made, "where"):
        if made.output is not rows:
            return None  # a cast may truncate the values
        chosen, value, other = made.operands
        if not (isinstance(other, Const) and other.value == 0 and isinstance(chosen, Value)):
            return None
        made = producer.get(chosen)
    if made is None or not _is(made, "eq"):
        return None
    if isinstance(value, Value) and value.shape[1:] != (1,):
        return None
    for index, places in (made.operands, made.operands[::-1]):
        if isinstance(index, Value) and index.shape[1:] == (1,) and _is_ramp(places, producer):
            return OneHot(index, places.shape[-1], value) if places.shape[-1].is_const else None
    return None


def _is(node: Node, name: str) -> bool:
    return node.op in TABLE.imported(name)


def _before_casts(value: Value, producer: Mapping[Value, Node]) -> Node | None:
    """Return the node that computes a value, skipping casts of it; None for an input."""
    made = producer.get(value)
    while made is not None and made.op.converts:
        made = producer.get(made.inputs[0])
    return made


def _is_ramp(places: Operand, producer: Mapping[Value, Node]) -> bool:
    """Return whether a tensor [1, n] holds 0, 1, ... n - 1."""
    if not isinstance(places, Value):
        return False
    spread = producer.get(places)
    if spread is None or not _is(spread, "broadcast") or places.shape[:-1] != (1,):
        return False
    made = _before_casts(spread.inputs[0], producer)
    if made is None or not _is(made, "iota"):
        return False
    return [o.value for o in made.operands if isinstance(o, Const)] == [0, 1]


def _rule(name: str) -> Rule:
    def rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
        found = _one_hot(node, work.producer) if node.output.name == name else None
        if found is None:
            return None
        flat, dtype = {"new_shape": found.index.shape[:1]}, {"dtype": node.output.dtype}
        index = work.add(node, "reshape", [found.index], flat)
        if index.dtype != I64:
            index = work.add(node, "cast", [index], {"dtype": I64})
        # A row whose index is out of range adds nothing.
        first, last = Const(0, I64), Const(found.classes.value - 1, I64)
        place = work.add(node, "clamp", [index, first, last])
        value = found.value
        if isinstance(value, Value):
            value = work.add(node, "reshape", [value], flat)
        is_class = work.add(node, "eq", [place, index])
        kept = work.add(node, "where", [is_class, value, Const(0, I64)])
        if kept.dtype != node.output.dtype:
            kept = work.add(node, "cast", [kept], dtype)
        zeros = work.add(node, "full", [Const(0, I64)], {"shape": node.output.shape, **dtype})
        return work.become(node, "scatter_add", [zeros, place, kept], {"dim": 0})

    return rule
