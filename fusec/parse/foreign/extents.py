"""Shapes as lists of sizes, in written form."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.ir.dim import Dim
from fusec.parse.foreign import frameworks
from fusec.parse.syntax.trees import Items, Tree


def listed_sizes(shape: Sequence[Dim], at: Tree) -> Items:
    return Items(tuple(frameworks.size_tree(size, at) for size in shape), at.start, at.end)


def product_of(shape: Sequence[Dim]) -> Dim:
    whole = shape[0]
    for size in shape[1:]:
        whole = whole * size
    return whole
