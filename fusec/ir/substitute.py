"""Replaces symbols by dims in a whole fusion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from fusec.dataclasses import replace
from fusec.ir.dim import Dim
from fusec.ir.graph import Fusion, Operand, Type, Value


def substitute_dims(fusion: Fusion, values: Mapping[str, Dim]) -> Fusion:
    """Return the fusion with the symbols in `values` replaced, in types, strides and attributes."""
    if not values:
        return fusion
    new: dict[Value, Value] = {}

    def renewed(value: Value) -> Value:
        if value not in new:
            new[value] = Value(value.name, substitute_type(value.type, values))
        return new[value]

    def operand(item: Operand) -> Operand:
        return renewed(item) if isinstance(item, Value) else item

    inputs = tuple(
        replace(i, value=renewed(i.value), strides=tuple(s.substitute(values) for s in i.strides))
        for i in fusion.inputs
    )
    nodes = tuple(
        replace(
            n,
            operands=tuple(operand(o) for o in n.operands),
            attributes={k: _substitute_attribute(v, values) for k, v in n.attributes.items()},
            outputs=tuple(renewed(v) for v in n.outputs),
        )
        for n in fusion.nodes
    )
    outputs = tuple(
        replace(
            o,
            value=renewed(o.value),
            strides=o.strides and tuple(s.substitute(values) for s in o.strides),
        )
        for o in fusion.outputs
    )
    dims = tuple(d for d in fusion.dims if d.name not in values)
    return replace(fusion, inputs=inputs, nodes=nodes, outputs=outputs, dims=dims)


def substitute_type(old: Type, values: Mapping[str, Dim]) -> Type:
    """Return a type with symbols replaced."""
    shape = None if old.shape is None else tuple(d.substitute(values) for d in old.shape)
    return Type(old.dtype, shape, None if old.dim is None else old.dim.substitute(values))


def _substitute_attribute(value: Any, values: Mapping[str, Dim]) -> Any:
    if isinstance(value, Dim):
        return value.substitute(values)
    if isinstance(value, tuple):
        items = cast("tuple[Any, ...]", value)
        return tuple(_substitute_attribute(v, values) for v in items)
    return value
