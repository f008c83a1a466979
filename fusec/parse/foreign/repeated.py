"""Python comprehensions over ranges of numbers, written out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fusec.codes.document import UNEXPECTED_TOKEN
from fusec.diagnostics import FusecError, Span
from fusec.parse.foreign import frameworks
from fusec.parse.syntax.expressions import REPEATED
from fusec.parse.syntax.operators import WORDS
from fusec.parse.syntax.trees import CallTree, Infix, Items, Literal, Name, Tree, integer_literal

MOST_ELEMENTS = 16
"""Maximum number of elements that are written out."""
_OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "//": lambda a, b: a // b, "%": lambda a, b: a % b,
}  # fmt: skip


def is_comprehension(tree: Items) -> bool:
    """Return whether a list is a Python comprehension."""
    return any(isinstance(i, CallTree) and i.name.text == REPEATED for i in tree.items)


def repeated(tree: Items, span: Callable[[Tree], Span]) -> Items:
    """Return the list of a comprehension over a range of numbers."""
    (call,) = tree.items
    assert isinstance(call, CallTree)
    item, variable, numbers = (a.value for a in call.arguments)
    bounds = numbers.arguments if isinstance(numbers, CallTree) else ()
    ends = [integer_literal(folded_sizes(a.value)) for a in bounds]
    known = [end for end in ends if end is not None]
    if not 1 <= len(known) == len(ends) <= 3 or 0 in known[2:]:
        message, help = "op lines have no comprehensions", WORDS["for"]
        raise FusecError(message, span=span(call.name), help=help, code=UNEXPECTED_TOKEN)
    values = range(*known)
    if not 1 <= len(values) <= MOST_ELEMENTS:
        message = f"a comprehension of {len(values)} elements"
        help = "write a Python script with the loop"
        raise FusecError(message, span=span(call.name), help=help, code=UNEXPECTED_TOKEN)
    name = variable.text if isinstance(variable, Name) else ""
    made = (folded_sizes(_with_number(item, name, k)) for k in values)
    return Items(tuple(made), tree.start, tree.end)


def _with_number(tree: Tree, name: str, number: int) -> Tree:
    """Return an expression with a number substituted for a name."""
    if isinstance(tree, Name) and tree.text == name:
        return Literal(number, tree.start, tree.end)
    parts = [_with_number(part, name, number) for part in frameworks.parts_of(tree)]
    return frameworks.rebuilt(tree, parts)


def folded_sizes(tree: Tree) -> Tree:
    """Return an expression with its integer arithmetic evaluated."""
    tree = frameworks.rebuilt(tree, [folded_sizes(p) for p in frameworks.parts_of(tree)])
    if isinstance(tree, Infix):
        left, right = integer_literal(tree.left), integer_literal(tree.right)
        known = tree.operator in _OPERATORS and (right or tree.operator not in ("//", "%"))
        if left is not None and right is not None and known:
            return Literal(_OPERATORS[tree.operator](left, right), tree.start, tree.end)
    return tree
