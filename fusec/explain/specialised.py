"""Which sizes are specialized in kernels, what requires each, and how to keep them dynamic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from fusec.explain.facts import Specialised
from fusec.ir.dim import Dim, symbol
from fusec.ir.graph import Fusion, Node, Value
from fusec.schedule.plan import KernelPlan
from fusec.segment.segmented import Segment

NAMES = 3
"""Maximum number of tensors that one reason lists."""


def specialised_sizes(segment: Segment, plan: KernelPlan) -> tuple[Specialised, ...]:
    """Return the dims that are specialized in a plan, each with the rule that requires it."""
    found = list[Specialised]()
    for name, size in plan.specialised.items():
        if "." not in name:
            rule, because = _rule(segment, name)
            found.append(Specialised(name, size, rule, because, _way_out(name, rule)))
    return tuple(found)


def _rule(segment: Segment, name: str) -> tuple[str, str]:
    """Return the rule that requires a specialized dim, and the reason with the values concerned."""
    fusion = segment.fusion
    for node in fusion.nodes:
        if any(name in extent.symbols for extent in _summed(node)):
            because = f"`{node.output.name}` ({node.op.name}) reduces over it"
            return "reduced", f"{because}, in a loop whose length is compiled in"
    inner = _with_inner(fusion, name)
    if inner:
        listed = ", ".join(f"`{tensor}`" for tensor in inner[:NAMES])
        more = f" and {len(inner) - NAMES} more" if len(inner) > NAMES else ""
        because = f"it is an inner extent or a stride of {listed}{more}"
        return "inner", f"{because}, used to compute addresses and vector widths"
    for node in fusion.nodes:
        if any(name in d.symbols for d in _arguments(node)):
            return "argument", f"`{node.op.name}` (`{node.output.name}`) takes it as an argument"
    return "scheduler", f"{segment.scheduler} divides all dims among its blocks when it is compiled"


def _summed(node: Node) -> tuple[Dim, ...]:
    """Return the extents that an operation reduces over."""
    if node.op.family == "reduction":
        axes: tuple[int, ...] = node.attributes.get("dims", ())
        return tuple(node.inputs[0].shape[axis] for axis in axes)
    if node.op.family == "contraction":
        return node.operands[0].shape[-1:]
    return ()


def _with_inner(fusion: Fusion, name: str) -> list[str]:
    """Return the tensors in memory with a dim in a stride, or not as the leading extent."""
    given = [*((i.value, i.strides) for i in fusion.inputs),
             *((o.value, o.strides) for o in fusion.outputs)]  # fmt: skip
    return [
        value.name
        for value, strides in given
        if _is_inner(value, name) or any(name in stride.symbols for stride in strides or ())
    ]


def _is_inner(value: Value, name: str) -> bool:
    """Return whether a shape uses a dim anywhere except as the whole leading extent."""
    return any(
        name in extent.symbols and (position > 0 or extent != symbol(name))
        for position, extent in enumerate(value.shape)
    )


def _arguments(node: Node) -> Iterator[Dim]:
    for attribute in node.attributes.values():
        single = (attribute,)
        items = cast("tuple[object, ...]", attribute if isinstance(attribute, tuple) else single)
        yield from (item for item in items if isinstance(item, Dim))


def _way_out(name: str, rule: str) -> str:
    """Return how to keep a dim dynamic, or compile for more sizes of it."""
    several = f"`buckets:` in the file or `compile --set {name}=SIZE,SIZE` build several sizes"
    if rule == "inner":
        return f"dynamic where it is the leading dim of every tensor that has it; {several}"
    return several
