"""Alternative definitions of a fusion's results: programs that keep 16-bit values in f32.

A framework's fused kernel does not round what it has no need to store: scores of attention stay in
f32, and weights are rounded to the 16-bit type before they are divided by their sum.
"""

from __future__ import annotations

from collections.abc import Iterator

from fusec.dataclasses import dataclass
from fusec.ir.graph import Fusion, Node, Value
from fusec.ops.pointwise.binary import div
from fusec.reference.errors.nodes import Model

LISTED = 3
"""Maximum number of values that a definition names."""


@dataclass(frozen=True)
class Definition:
    """A definition that differs from the file's: its model, and a description in words."""

    model: Model
    text: str


def other_definitions(fusion: Fusion) -> Iterator[Definition]:
    """Yield definitions that keep more and more 16-bit floats in f32."""
    products = [n.output for n in fusion.nodes if _is_product(n) and _is_inside(fusion, n.output)]
    inside = [v for n in fusion.nodes for v in n.outputs if _is_inside(fusion, v)]
    weights = [v for v in inside if _is_quotient(fusion, v) and _is_factor(fusion, v)]
    kept = [v for v in inside if not _is_factor(fusion, v)]
    seen = [frozenset[Value]()]
    for values in (products, kept):
        names = frozenset(v for v in values if v not in weights)
        if names in seen:
            continue
        seen.append(names)
        wide = frozenset(v.name for v in names)
        text = f"{_listed(values)} kept in f32"
        yield Definition(Model(wide=wide), text)
        if weights:
            early = dict.fromkeys((v.name for v in weights), 0)  # number of keys unknown
            text += f", {_listed(weights)} rounded before the division"
            yield Definition(Model(wide=wide, early=early), text)


def _is_inside(fusion: Fusion, value: Value) -> bool:
    """Return whether a value is a 16-bit float tensor and not an output of the fusion."""
    return value.dtype.is_half and value not in fusion.output_of and not value.is_scalar


def _is_product(node: Node) -> bool:
    return node.op.family == "contraction"


def _is_factor(fusion: Fusion, value: Value) -> bool:
    """Return whether a GEMM reads a value, directly or moved, as tensor cores do."""
    return any(
        _is_product(user)
        or (user.op.family == "movement" and any(_is_factor(fusion, v) for v in user.outputs))
        for user in fusion.users.get(value, ())
    )


def _is_quotient(fusion: Fusion, value: Value) -> bool:
    """Return whether a value is a quotient, possibly converted, as softmax weights are."""
    node = fusion.producer.get(value)
    if node is not None and node.op.converts and node.inputs:
        node = fusion.producer.get(node.inputs[0])
    return node is not None and node.op is div


def _listed(values: list[Value]) -> str:
    """Return values by name, the first few of many."""
    names = [f"`{v.name}`" for v in values[:LISTED]]
    more = len(values) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
