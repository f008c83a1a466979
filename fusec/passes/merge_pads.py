"""Merge nested pads, also through elementwise operations that preserve the fill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusec.ir.dim import Dim
from fusec.ir.graph import Const, Fusion, Node, Operand, Value
from fusec.passes.rewrite import Rewriter, rewrite

_EXACT = (0.0, 1.0, -1.0)
"""Fills that every implementation maps exactly, if an operation maps one of them to another."""


def merge_pads(fusion: Fusion) -> Fusion:
    """Move a pad before the unary operations that follow another pad, and merge the two.

    A pad moves only if it meets another: padding earlier makes the operations in between work on
    more elements. It passes an operation only if that maps the inner fill to the outer one exactly.
    """
    return rewrite(fusion, _rule)


def _rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
    if node.op.name != "pad":
        return None
    outer: tuple[Dim, ...] = node.attributes["pad_widths"]
    if all(width == 0 for width in outer):
        return (node.operands[0],)
    between, inner = _chain(node, work)
    if inner is None:
        return None
    widths: tuple[Dim, ...] = inner.attributes["pad_widths"]
    if not all(width.at_least(0) for width in (*widths, *outer)):
        return None
    if not _same_fill(inner, between, node):
        return None
    merged = {"pad_widths": tuple(a + b for a, b in zip(widths, outer, strict=True))}
    origin, fill = inner.operands
    if not between:
        return work.become(node, "pad", [origin, fill], merged)
    value = work.add(node, "pad", [origin, fill], merged)
    for step in between[:-1]:
        value = work.add(node, step.op.name, _operands(step, value), step.attributes)
    last = between[-1]
    return work.become(node, last.op.name, _operands(last, value), last.attributes)


def _chain(node: Node, work: Rewriter) -> tuple[list[Node], Node | None]:
    """Return (the unary operations between two pads, first to last; the inner pad or None)."""
    between: list[Node] = []
    value = node.operands[0]
    while isinstance(value, Value):
        maker = work.producer.get(value)
        if maker is None:
            break
        if maker.op is node.op:
            return between[::-1], maker
        if not _is_unary(maker) or not work.used_once(value):
            break
        between.append(maker)
        value = maker.inputs[0]
    return between[::-1], None


def _is_unary(node: Node) -> bool:
    """Return whether a node is elementwise on one tensor."""
    alone = node.op.family == "pointwise" and len(node.outputs) == 1 and len(node.inputs) == 1
    return alone and node.inputs[0].type.shape == node.output.type.shape is not None


def _operands(node: Node, value: Value) -> list[Operand]:
    return [value if isinstance(o, Value) else o for o in node.operands]


def _same_fill(inner: Node, between: Sequence[Node], outer: Node) -> bool:
    """Return whether the operations map the inner fill to the outer fill."""
    first, last = inner.operands[1], outer.operands[1]
    if not between and first == last:
        return True
    if not isinstance(first, Const) or not isinstance(last, Const):
        return False
    fill = _stored(first.value, inner.output)
    if fill is None or _stored(last.value, outer.output) is None:
        return False
    for node in between:
        fill = _mapped(node, fill)
        if fill is None:
            return False
    # repr distinguishes 0.0 from -0.0.
    return repr(fill.item()) == repr(_stored(last.value, outer.output).item())


def _stored(number: Any, value: Value) -> Any:
    """Return a fill as an element of `value`; None if it is not exactly representable."""
    import numpy as np

    from fusec.ir.evaluate import round_to, storage

    array = np.asarray(number).astype(storage(value.dtype))
    if value.dtype.is_float:
        array = round_to(array, value.dtype)
    return array if array.item() == number else None


def _mapped(node: Node, fill: Any) -> Any:
    """Return an operation's result for a fill; None if a kernel might compute another value."""
    from fusec.ir.evaluate import (
        apply_reference,
        constant,
        convert_operand,
        evaluate_attributes,
        settle,
    )

    operands = [
        convert_operand(o, constant(o) if isinstance(o, Const) else fill, dtype)
        for o, dtype in zip(node.operands, node.compute_dtypes, strict=True)
    ]
    raw = apply_reference(node.op, operands, evaluate_attributes(node.attributes, {}))[0]
    result = settle(node, node.output, raw)
    exact = node.op.accuracy == 0 or node.op.converts
    return result if exact or {float(fill), float(result)} <= set(_EXACT) else None
