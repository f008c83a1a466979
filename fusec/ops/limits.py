"""Sizes at the defaults: no extent is negative, no tensor beyond what 64 bits can address."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.diagnostics import FusecError, Span
from fusec.ir.graph import Fusion, Value


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


def _values(fusion: Fusion) -> Iterable[tuple[Value, Span | None]]:
    for entry in fusion.inputs:
        yield entry.value, entry.span
    for node in fusion.nodes:
        for value in node.outputs:
            yield value, node.span
