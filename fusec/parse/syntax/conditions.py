"""Expressions that are certainly conditions, by their form."""

from __future__ import annotations

from fusec.parse.syntax.operators import COMPARISONS
from fusec.parse.syntax.trees import Infix, Prefix, Tree


def is_condition(tree: Tree) -> bool:
    """Return whether an expression is certainly a bool: a comparison, or a combination of them."""
    if isinstance(tree, Prefix):
        return tree.operator == "~" and is_condition(tree.operand)
    if not isinstance(tree, Infix):
        return False
    joined = tree.operator in ("&", "|", "^")
    return tree.operator in COMPARISONS or (
        joined and is_condition(tree.left) and is_condition(tree.right)
    )
