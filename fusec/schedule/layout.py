"""Where outputs lie in memory."""

from __future__ import annotations

from fusec.ir.dim import Dim, product
from fusec.ir.graph import Fusion, Output


def output_strides(output: Output) -> tuple[Dim, ...]:
    """Return the strides of a fresh output in elements: row-major, or as its stride order asks."""
    shape, order = output.value.shape, output.stride_order
    order = range(len(shape) - 1, -1, -1) if order is None else order
    return tuple(
        product(e for e, other in zip(shape, order, strict=True) if other < rank) * output.step
        for rank in order
    )


def output_strides_in(fusion: Fusion, output: Output) -> tuple[Dim, ...]:
    """Return the strides of an output: those of the input that it is written into, or its own."""
    if output.alias is not None:
        return next(i.strides for i in fusion.inputs if i.value.name == output.alias)
    return output_strides(output)
