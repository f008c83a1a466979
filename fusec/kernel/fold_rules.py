"""Rules that simplify a node after its parts have been folded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusec.dataclasses import replace
from fusec.kernel.ctext import C_NAMES
from fusec.kernel.device import NAMESPACE, PURE, device_name
from fusec.kernel.nodes import (
    FALSE,
    TRUE,
    ZERO,
    Binary,
    Call,
    Expression,
    Grouped,
    Integer,
    Literal,
    Method,
    Name,
    Node,
    Real,
    Select,
    Statement,
    Static,
    Sum,
    Unary,
    Widened,
    walk,
)

ONE = Integer(1)
CONVERT, ROUND = f"{NAMESPACE}convert", f"{NAMESPACE}round_to"
_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__,
    "==": int.__eq__, "!=": int.__ne__,
}  # fmt: skip
_EXTREMES: dict[str, Callable[[float, float], bool]] = {
    "min": float.__le__, f"{NAMESPACE}minimum": float.__le__,
    "max": float.__ge__, f"{NAMESPACE}maximum": float.__ge__,
}  # fmt: skip


def has_effects(node: Node) -> bool:
    """Return whether evaluating an expression has side effects."""
    return any(_has_effect(each) for each in walk([node]))


def _has_effect(node: Node) -> bool:
    if isinstance(node, Call):
        return not (device_name(node.function) in PURE or node.function in C_NAMES)
    return isinstance(node, Method | Static | Statement)


def _select(node: Select, is_integer: bool) -> Expression:
    if node.test in (TRUE, FALSE):
        return node.yes if node.test == TRUE else node.no
    same = _bare(node.yes) == _bare(node.no)
    return node.yes if same and not has_effects(node.test) else node


def _bare(node: Expression) -> Expression:
    return _bare(node.inside) if isinstance(node, Grouped) else node


def _binary(node: Binary, is_integer: bool) -> Expression:
    left, right, operator = node.left, node.right, node.operator
    if operator in ("&&", "||"):
        return _logical(node)
    if operator in _COMPARED:
        return _comparison(node)
    if not is_integer:
        return node
    # Literals without a suffix: any other might widen the result.
    if operator in ("+", "-") and right == ZERO:
        return left
    if operator == "+" and left == ZERO:
        return right
    if operator in ("*", "/") and right == ONE:
        return left
    return right if operator == "*" and left == ONE else node


def _logical(node: Binary) -> Expression:
    # The operand that determines the result, and the one that leaves it to the other operand.
    decides, passes = (FALSE, TRUE) if node.operator == "&&" else (TRUE, FALSE)
    left, right = node.left, node.right
    if left == decides or (right == decides and not has_effects(left)):
        return decides
    if left == passes and _is_test(right):
        return right
    return left if right == passes and _is_test(left) else node


def _is_test(node: Expression) -> bool:
    """Return whether an expression's type is certainly bool."""
    node = _bare(node)
    if isinstance(node, Binary):
        return node.operator in ("&&", "||", *_COMPARED)
    return node in (TRUE, FALSE) or (isinstance(node, Unary) and node.operator == "!")


def _comparison(node: Binary) -> Expression:
    left, right = node.left, node.right
    if not (isinstance(left, Integer) and isinstance(right, Integer)):
        return node
    if left.suffix != right.suffix:
        return node
    return TRUE if _COMPARED[node.operator](left.value, right.value) else FALSE


def _number(node: Expression) -> tuple[float, str] | None:
    """Return the number of a literal, and the suffix of its type; None if it is not exact."""
    if isinstance(node, Integer):
        return (float(node.value), node.suffix) if abs(node.value) < 2**53 else None
    return (node.value, f".{node.suffix}") if isinstance(node, Real) else None


def _unary(node: Unary, is_integer: bool) -> Expression:
    if node.operator == "!" and node.operand in (TRUE, FALSE):
        return FALSE if node.operand == TRUE else TRUE
    return node


def _sum(node: Sum, is_integer: bool) -> Expression:
    terms = tuple(t for t in node.terms if not (is_integer and t == ZERO))
    if len(terms) == len(node.terms):
        return node
    return Sum(terms) if len(terms) > 1 else terms[0] if terms else node.terms[0]


def _grouped(node: Grouped, is_integer: bool) -> Expression:
    return node.inside if isinstance(node.inside, Literal | Name) else node


def _call(node: Call, is_integer: bool) -> Expression:
    if node.function in (CONVERT, ROUND):
        return _conversion(node)
    return _extreme(node) if node.function in _EXTREMES else node


def _conversion(node: Call) -> Expression:
    """Fold a conversion to the type that a value already has in memory."""
    (kind,), (value,) = node.template, node.arguments
    held = _held(value, kind)
    if held is None:
        return node
    return held if node.function == CONVERT else value


def _held(value: Expression, kind: Expression) -> Expression | None:
    """Return the stored value that was widened; None if it has another type."""
    if isinstance(value, Widened):
        return value.arguments[0] if value.stored == kind else None
    if isinstance(value, Grouped):
        inside = _held(value.inside, kind)
        return inside if inside is None or isinstance(inside, Name) else Grouped(inside)
    if isinstance(value, Select):
        yes, no = _held(value.yes, kind), _held(value.no, kind)
        return None if yes is None or no is None else Select(value.test, yes, no)
    return None


def _extreme(node: Call) -> Expression:
    """Fold the extremum of a literal and of an extremum of a literal.

    Both propagate NaN, and neither of -0 and 0 counts as smaller.
    """
    for place, other in ((1, 0), (0, 1)):
        inner = node.arguments[other]
        if not (isinstance(inner, Call) and inner.function == node.function):
            continue
        outer = _number(node.arguments[place])
        own = [k for k, each in enumerate(inner.arguments) if _number(each) is not None]
        if outer is None or len(own) != 1:
            continue
        found = _number(inner.arguments[own[0]])
        assert found is not None
        if found[1] != outer[1] or found[0] == outer[0] == 0:
            continue
        if _EXTREMES[node.function](found[0], outer[0]):
            return inner
        kept = list(inner.arguments)
        kept[own[0]] = node.arguments[place]
        return _extreme(replace(inner, arguments=tuple(kept)))
    return node


RULES: dict[type[Node], Callable[[Any, bool], Expression]] = {
    Select: _select, Binary: _binary, Unary: _unary, Sum: _sum, Grouped: _grouped, Call: _call,
}  # fmt: skip
"""The rule for each kind of node; the flag says whether its type is an integer."""
