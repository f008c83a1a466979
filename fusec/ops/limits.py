"""Sizes and strides: none is negative or beyond 64 bits, and what is read is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fusec.diagnostics import FusecError, Span
from fusec.ir.dim import shape_text
from fusec.ir.graph import Fusion, Input, Node, Value


def check_sizes(fusion: Fusion) -> None:
    """Raise FusecError for the first value that no memory can hold at the default sizes."""
    for value, span in _values(fusion):
        total = value.dtype.size
        for axis, extent in enumerate(value.shape):
            size = extent.evaluate(fusion.hints)
            if size < 0:
                raise FusecError(
                    f"dim {axis} of `{value.name}` is {extent}, which is {size} at default sizes",
                    span=span,
                )
            total *= max(size, 1)
        if total >= 2**63:
            raise FusecError(
                f"`{value.name}` is too large: {value.type} holds {total} bytes at default sizes",
                span=span,
            )
    check_layouts(fusion, fusion.hints)


def check_layouts(fusion: Fusion, sizes: Mapping[str, int]) -> None:
    """Raise FusecError for the first input whose strides cannot be, at some sizes."""
    for entry in fusion.inputs:
        try:
            check_layout(entry, sizes)
        except FusecError as error:
            raise error.at(entry.span) from None


def check_layout(entry: Input, sizes: Mapping[str, int]) -> None:
    """Raise FusecError where an input reaches backwards, or further than 64 bits, at some sizes."""
    name, reach = entry.value.name, 1
    for axis, (extent, stride) in enumerate(zip(entry.value.shape, entry.strides, strict=True)):
        step = stride.evaluate(sizes)
        if step < 0:
            raise FusecError(
                f"the stride of dim {axis} of `{name}` is negative: "
                + (f"{step}" if stride.is_const else f"{stride} is {step}"),
                help="tensors are read forwards; `flip` turns one around",
            )
        reach += max(extent.evaluate(sizes) - 1, 0) * step
    if reach * entry.value.dtype.size >= 2**63:
        raise FusecError(
            f"`{name}` is too large: it reaches over {reach * entry.value.dtype.size} bytes with "
            f"its strides {shape_text(entry.strides)}",
            help="no memory is as large: strides count elements, not bytes",
        )


def check_fits(fusion: Fusion) -> None:
    """Raise FusecError where a row or an index is too small or too large at the default sizes."""
    for node in fusion.nodes:
        try:
            _check_fit(node, fusion.hints)
        except FusecError as error:
            raise error.at(node.span) from None


def _check_fit(node: Node, hints: Mapping[str, int]) -> None:
    if node.op.name == "topk":
        axis, k = int(node.attributes["dim"]), node.attributes["k"].evaluate(hints)
        extent = node.operands[0].shape[axis].evaluate(hints)
        if not 0 <= k <= extent:
            raise FusecError(
                f"`topk`: k is {k}, larger than the extent {extent} of dim {axis}, at default sizes"
            )
    if node.op.name not in ("gather", "scatter", "scatter_add"):
        return
    tensors = [o for o in node.operands if isinstance(o, Value) and not o.is_scalar]
    shapes = [tuple(e.evaluate(hints) for e in t.shape) for t in tensors]
    for outer in (0, 2)[: len(tensors) - 1]:
        for axis, (small, large) in enumerate(zip(shapes[1], shapes[outer], strict=True)):
            if small > large and (outer == 2 or axis != node.attributes["dim"]):
                raise FusecError(
                    f"`{node.op.name}`: the index has {small} elements in dim {axis}, "
                    f"`{tensors[outer].name}` {large}, at default sizes"
                )


def _values(fusion: Fusion) -> Iterable[tuple[Value, Span | None]]:
    for entry in fusion.inputs:
        yield entry.value, entry.span
    for node in fusion.nodes:
        for value in node.outputs:
            yield value, node.span
