"""Outputs that are another value's elements in row-major order under another shape.

A reshape ends a band, since no axis of its result is aligned with the axes that it merges.
Comparisons of such an output use the shape of the value that is reshaped, which has bands.
"""

from __future__ import annotations

import numpy

from fusec.dataclasses import dataclass
from fusec.ir.evaluate import Array, Sizes, extents
from fusec.ir.graph import Fusion, Node, Value


@dataclass(frozen=True)
class View:
    """An output as a computed value (`root`) rearranged by the movements `nodes`, in order."""

    root: Value
    nodes: tuple[Node, ...]
    sizes: Sizes

    def restored(self, array: Array) -> Array:
        """Return an array of the output in the root's shape, without a copy if strides allow."""
        for node in reversed(self.nodes):
            along, shape = _along(node), self._shape_before(node)
            if along is not None:
                kept = [a for a in along if a is not None]
                squeezed = array.reshape(
                    [array.shape[d] for d, a in enumerate(along) if a is not None]
                )
                array = numpy.transpose(squeezed, sorted(range(len(kept)), key=kept.__getitem__))
            array = array.reshape(shape)
        return array

    def index(self, place: tuple[int, ...]) -> tuple[int, ...]:
        """Return the index in the output of the root's element at `place`."""
        for node in self.nodes:
            along = _along(node)
            if along is not None:
                place = tuple(0 if a is None else place[a] for a in along)
            else:
                number = numpy.ravel_multi_index(place, self._shape_before(node))
                after = extents(node.output.type, self.sizes)
                place = tuple(int(i) for i in numpy.unravel_index(number, after))
        return place

    def _shape_before(self, node: Node) -> tuple[int, ...]:
        return extents(node.operands[0].type, self.sizes)


def find_view(fusion: Fusion, output: Value, sizes: Sizes) -> View:
    """Return an output as the value before its first reshape; as itself if it has none."""
    nodes, found, value = list[Node](), View(output, (), sizes), output
    while (node := fusion.producer.get(value)) is not None and only_moves(node):
        nodes.insert(0, node)
        (value,) = node.inputs
        if _along(node) is None and value in fusion.producer:
            found = View(value, tuple(nodes), sizes)
    return found


def only_moves(node: Node) -> bool:
    """Return whether the result consists of each element of one operand, exactly once."""
    access = node.op.access
    if access is None or not access.view or access.repeats or access.partial(node):
        return False
    return len(node.inputs) == 1 and len(node.outputs) == 1


def _along(node: Node) -> tuple[int | None, ...] | None:
    access = node.op.access
    return None if access is None or access.along is None else access.along(node)
