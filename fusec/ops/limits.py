"""Limits of sizes and strides: none is negative or exceeds 64 bits, and reads are in bounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fusec.codes.shapes import ELEMENTS_DIFFER, EMPTY_EXTREMUM, TOO_LARGE
from fusec.diagnostics import FusecError, Span
from fusec.ir.dim import Dim, product, shape_text, symbol
from fusec.ir.graph import Fusion, Input, Node, Value
from fusec.ir.roles import Combine

EXTREMA = (Combine.MAXIMUM, Combine.MINIMUM, Combine.FIRST_MAXIMUM, Combine.FIRST_MINIMUM)


def check_sizes(fusion: Fusion) -> None:
    """Raise FusecError for the first value that exceeds any memory at the default sizes."""
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
                help="reduce sizes under `dims:`, or with `--set`: at most 2**63 - 1 bytes",
                code=TOO_LARGE,
            )
    check_layouts(fusion, fusion.hints)


def check_layouts(fusion: Fusion, sizes: Mapping[str, int]) -> None:
    """Raise FusecError for the first input whose strides are invalid at some sizes."""
    for entry in fusion.inputs:
        try:
            check_layout(entry, sizes)
        except FusecError as error:
            raise error.at(entry.span) from None


def check_layout(entry: Input, sizes: Mapping[str, int]) -> None:
    """Raise FusecError if an input has negative strides or exceeds 64 bits, at some sizes."""
    name, reach = entry.value.name, 1
    for axis, (extent, stride) in enumerate(zip(entry.value.shape, entry.strides, strict=True)):
        step = stride.evaluate(sizes)
        if step < 0:
            raise FusecError(
                f"the stride of dim {axis} of `{name}` is negative: "
                + (f"{step}" if stride.is_const else f"{stride} is {step}"),
                help="strides must be non-negative; use `flip` to reverse a dim",
            )
        reach += max(extent.evaluate(sizes) - 1, 0) * step
    if reach * entry.value.dtype.size >= 2**63:
        raise FusecError(
            f"`{name}` is too large: it spans {reach * entry.value.dtype.size} bytes with strides "
            f"{shape_text(entry.strides)}",
            help="strides are in elements, not bytes",
        )


def check_fits(fusion: Fusion) -> None:
    """Raise FusecError if a row or an index is too small or too large at the default sizes."""
    for node in fusion.nodes:
        try:
            _check_fit(node, fusion.hints)
        except FusecError as error:
            raise error.at(node.span) from None
    check_reshapes(fusion, fusion.hints)
    check_extrema(fusion, fusion.hints)


def needed_sizes(fusion: Fusion) -> Iterator[tuple[Dim, str, str]]:
    """Yield conditions on sizes that prevent out-of-bounds reads.

    A difference of sizes, how it must be related to 0 (`==` or `<=`), and why; without those that
    hold for all sizes that the facts of dims allow.
    """
    multiples = {
        d.name: d.multiple_of * symbol(f"{d.name}.part") for d in fusion.dims if d.multiple_of > 1
    }
    for node in fusion.nodes:
        for small, relation, large, reason in _needs(node):
            left = (small - large).substitute(multiples)
            is_less = relation == "<=" and left.is_const and left.value <= 0
            if left != 0 and not is_less:
                yield small - large, relation, reason


def _needs(node: Node) -> Iterator[tuple[Dim, str, Dim, str]]:
    """Yield pairs of sizes with their required relation, and why."""
    name = node.op.name
    if name == "reshape":
        before, after = _counts(node)
        yield before, "==", after, "`reshape` keeps the number of elements"
    elif name == "topk":
        extent = node.operands[0].shape[int(node.attributes["dim"])]
        yield node.attributes["k"], "<=", extent, "`topk` takes no more elements than there are"
    for tensor, role, axis, small in _index_extents(node):
        why = f"the index of `{name}` is no larger than {role} in dim {axis}"
        yield small, "<=", tensor.shape[axis], why


def _counts(reshape: Node) -> tuple[Dim, Dim]:
    """Return the numbers of elements before and after a reshape."""
    return product(reshape.operands[0].shape), product(reshape.output.shape)


def _index_extents(node: Node) -> Iterator[tuple[Value, str, int, Dim]]:
    """Yield the extents of an index that must match a tensor's; nothing for other operations.

    Each with the tensor, its role in a message, and the dim.
    """
    if node.op.name not in ("gather", "scatter", "scatter_add"):
        return
    tensor, index, *source = (o for o in node.operands if isinstance(o, Value) and not o.is_scalar)
    for axis, extent in enumerate(index.shape):
        if axis != node.attributes["dim"]:
            yield tensor, "the tensor", axis, extent
    for each in source:
        yield from ((each, "the source", axis, e) for axis, e in enumerate(index.shape))


def check_extrema(fusion: Fusion, sizes: Mapping[str, int]) -> None:
    """Raise FusecError for a maximum or minimum of no elements that an output depends on.

    As in PyTorch and NumPy it is undefined. No output of a softmax of no elements depends on its
    maximum.
    """
    for node in fusion.nodes:
        if node.op.combine not in EXTREMA or node.op.family != "reduction":
            continue
        operand, result = node.operands[0], node.output
        dims: tuple[int, ...] = node.attributes["dims"]
        empty = [axis for axis in dims if operand.shape[axis].evaluate(sizes) == 0]
        if empty and _is_read(fusion, result, sizes):
            extent = operand.shape[empty[0]]
            size = "" if extent.is_const else f", which is {extent} at these sizes"
            raise FusecError(
                f"`{node.op.name}` over dim {empty[0]} of extent 0{size}: the maximum and minimum "
                "of no elements are undefined",
                span=node.span,
                help="pad the tensor with the desired identity value",
                code=EMPTY_EXTREMUM,
            )


def check_reshapes(fusion: Fusion, sizes: Mapping[str, int]) -> None:
    """Raise FusecError for the first reshape that changes the number of elements at some sizes."""
    for node in fusion.nodes:
        if node.op.name != "reshape":
            continue
        before, after = _counts(node)
        counts = [] if before == after else [before.evaluate(sizes), after.evaluate(sizes)]
        if counts and counts[0] != counts[1]:
            raise FusecError(
                f"`reshape` to {shape_text(node.output.shape)}: {counts[0]} elements, not "
                f"{counts[1]}, at these sizes",
                notes=[f"`{before}` and `{after}` are equal where quotients leave no remainder"],
                span=node.span,
                code=ELEMENTS_DIFFER,
            )


def _is_read(fusion: Fusion, value: Value, sizes: Mapping[str, int]) -> bool:
    """Return whether an element of an output depends on a value."""
    left, seen = [value], set[Value]()
    while left:
        current = left.pop()
        if current in seen or any(e.evaluate(sizes) == 0 for e in current.shape):
            continue
        seen.add(current)
        if current in fusion.output_of:
            return True
        left += [v for node in fusion.users.get(current, ()) for v in node.outputs]
    return False


def _check_fit(node: Node, hints: Mapping[str, int]) -> None:
    if node.op.name == "topk":
        axis, k = int(node.attributes["dim"]), node.attributes["k"].evaluate(hints)
        extent = node.operands[0].shape[axis].evaluate(hints)
        if not 0 <= k <= extent:
            raise FusecError(
                f"`topk`: k is {k}, larger than the extent {extent} of dim {axis}, at default sizes"
            )
    for tensor, _, axis, extent in _index_extents(node):
        small, large = (e.evaluate(hints) for e in (extent, tensor.shape[axis]))
        if small > large:
            raise FusecError(
                f"`{node.op.name}`: the index has {small} elements in dim {axis}, "
                f"`{tensor.name}` {large}, at default sizes"
            )


def _values(fusion: Fusion) -> Iterable[tuple[Value, Span | None]]:
    for entry in fusion.inputs:
        yield entry.value, entry.span
    for node in fusion.nodes:
        for value in node.outputs:
            yield value, node.span
