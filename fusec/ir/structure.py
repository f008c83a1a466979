"""Structural equality of fusions: values numbered by first use, spans and value names left out."""

from __future__ import annotations

from typing import Any

from fusec.ir.graph import Fusion, Operand, Value


def structure_of(fusion: Fusion, *, constants: bool = True) -> tuple[Any, ...]:
    """Return a hashable form of the graph in which names of values do not occur.

    Nodes are numbered in a canonical topological order (a depth-first walk from the outputs), so
    that independent nodes may stand in any order; nodes without use do not count. constants:
    whether the numbers that elementwise operations take count.
    """
    number: dict[Value, int] = {i.value: k for k, i in enumerate(fusion.inputs)}
    nodes: list[Any] = []

    def visit(root: Value) -> None:
        stack = [root]
        while stack:
            value = stack[-1]
            if value in number:
                stack.pop()
                continue
            node = fusion.producer[value]
            missing = [v for v in node.inputs if v not in number]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            for result in node.outputs:
                number[result] = len(number)
            nodes.append(
                (
                    node.op.name,
                    tuple(
                        _operand(o, number, constants or node.op.family != "pointwise")
                        for o in node.operands
                    ),
                    tuple((k, _freeze(v)) for k, v in sorted(node.attributes.items())),
                    tuple(str(v.type) for v in node.outputs),
                )
            )

    for output in fusion.outputs:
        visit(output.value)
    position = {i.value.name: k for k, i in enumerate(fusion.inputs)}
    inputs = tuple(
        (
            str(i.value.type),
            tuple(str(s) for s in i.strides),
            repr(i.default),
            i.low,
            i.high,
            i.on_cpu,
            i.part and i.part.index,
            i.generator,
        )
        for i in fusion.inputs
    )
    outputs = tuple(
        (
            number[o.value],
            None if o.alias is None else position.get(o.alias),
            o.stride_order,
            o.part and o.part.index,
        )
        for o in fusion.outputs
    )
    dims = tuple(sorted((d.name, d.default, d.multiple_of) for d in fusion.dims))
    return inputs, tuple(nodes), outputs, dims


def _operand(operand: Operand, number: dict[Value, int], constants: bool) -> Any:
    if isinstance(operand, Value):
        return number[operand]
    return ("const", repr(operand.value) if constants else None, operand.dtype.name)


def _freeze(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(v) for v in value)  # pyright: ignore[reportUnknownVariableType]
    return str(value)
