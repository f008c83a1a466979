"""Folding: what nodes compute is said in fewer words, and no result changes, of floats to the bit.

Bits of a NaN are kept where a value that a type in memory holds was widened and rounded again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from operator import is_, is_not
from typing import Any, TypeGuard, TypeVar, cast

from fusec.kernel.ctext import C_NAMES
from fusec.kernel.device import NAMESPACE, PURE, device_name
from fusec.kernel.nodes import (
    FALSE,
    TRUE,
    ZERO,
    Binary,
    Call,
    Closure,
    Constexpr,
    Declare,
    Element,
    Expression,
    Grouped,
    If,
    Integer,
    Item,
    Let,
    Literal,
    Loop,
    Method,
    Name,
    Node,
    Parameter,
    Pointer,
    Real,
    Select,
    Statement,
    Static,
    Sum,
    Unary,
    Using,
    Widened,
    walk,
)
from fusec.kernel.numbering import NAMED

T = TypeVar("T")
Part = str | Node | tuple[Statement, ...]
"""A list of statements, an expression or another node of a record, or a name that it holds."""
_DECLARING = (Closure, Constexpr, Declare, Let, Loop, Parameter, Using)
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


def folded(record: T, names: Collection[str] = ()) -> T:
    """Return a record that holds nodes, or some nodes, folded: itself if nothing of it is.

    names: of constants that nothing but the record uses; they go where folding leaves them unused.
    A name that several lists of statements declare is one of each.
    """
    old: list[Part] = []

    def take(part: Part) -> Part:
        old.append(part)
        return part

    _each(record, take)
    new = [_folded(part) for part in old]
    if names and (any(map(is_not, old, new)) or _has_copies(new)):
        new = _without_needless(old, new, frozenset(names))
    if all(map(is_, old, new)):
        return record
    given = iter(new)
    return cast("T", _each(record, lambda _: next(given)))


def _without_needless(
    old: Sequence[Part], new: Sequence[Part], names: frozenset[str]
) -> Sequence[Part]:
    """Return parts without the constants that nothing needs: of one part, and of all."""
    declared = [_declared((part,)) for part in new]
    once = names & {n for n, count in sum(declared, Counter[str]()).items() if count == 1}
    inside = {*names}
    for part, own in zip(new, declared, strict=True):
        inside -= _used((part,)).keys() - own.keys()
    found: list[Part] = []
    for before, part, own in zip(old, new, declared, strict=True):
        lets = {name for name, count in own.items() if count == 1 and name in inside}
        found += _simplified((part,), lets, _used((before,))) if lets else (part,)
    return _simplified(found, once, _used(old))


def _has_copies(parts: Iterable[Part]) -> bool:
    """Return whether some constant may be a copy of what memory holds."""
    widened, back = set[str](), set[str]()
    for node in _walk(parts):
        if isinstance(node, Let) and isinstance(node.value, Widened):
            widened.add(node.name)
        elif isinstance(node, Call) and node.function == CONVERT:
            back |= {each.name for each in node.arguments if isinstance(each, Name)}
    return not widened.isdisjoint(back)


def has_effects(node: Node) -> bool:
    """Return whether it may matter that, or how often, an expression is evaluated."""
    return any(_has_effect(each) for each in walk([node]))


def _has_effect(node: Node) -> bool:
    if isinstance(node, Call):
        return not (device_name(node.function) in PURE or node.function in C_NAMES)
    return isinstance(node, Method | Static | Statement)


def _fold(node: Node, is_integer: bool) -> Node:
    """Return a node with its parts folded, and then itself.

    is_integer: whether its type is that of an integer: a float may be -0, and `x + 0` is not.
    """
    parts = node.children
    if not parts:
        return node
    kind, new = type(node), list[Node]()
    asks = _INTEGERS.get(kind)
    for place, part in enumerate(parts):
        new.append(_fold(part, asks is not None and asks(node, place, is_integer)))
    if any(map(is_not, parts, new)):
        given = iter(new)
        node = node.mapped(lambda _: next(given))
    if isinstance(node, Loop | If | Closure):
        body = _spliced(node.body)
        return node if body is node.body else replace(node, body=body)
    rule = _RULES.get(kind)
    return node if rule is None else rule(node, is_integer)


def _index(node: Node, place: int, is_integer: bool) -> bool:
    return place == 1


def _arm(node: Node, place: int, is_integer: bool) -> bool:
    return is_integer and place > 0


def _own(node: Node, place: int, is_integer: bool) -> bool:
    return is_integer


def _side(node: Binary, place: int, is_integer: bool) -> bool:
    return is_integer and node.operator in "+-*/%"


def _value(node: Let, place: int, is_integer: bool) -> bool:
    return node.type.name in ("int", "Index", "fusec::i64") and place == 1


_INTEGERS: dict[type[Node], Callable[[Any, int, bool], bool]] = {
    Item: _index, Element: _index, Pointer: _index, Select: _arm, Binary: _side, Let: _value,
    Sum: _own, Grouped: _own,
}  # fmt: skip
"""Whether the part at a place of a node has the type of an integer, if the node has."""


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
    # Literals without a suffix: any other might make the result wider.
    if operator in ("+", "-") and right == ZERO:
        return left
    if operator == "+" and left == ZERO:
        return right
    if operator in ("*", "/") and right == ONE:
        return left
    return right if operator == "*" and left == ONE else node


def _logical(node: Binary) -> Expression:
    # The operand that decides by itself, and the one that the other decides beside.
    decides, passes = (FALSE, TRUE) if node.operator == "&&" else (TRUE, FALSE)
    left, right = node.left, node.right
    if left == decides or (right == decides and not has_effects(left)):
        return decides
    if left == passes and _is_test(right):
        return right
    return left if right == passes and _is_test(left) else node


def _is_test(node: Expression) -> bool:
    """Return whether an expression's type is bool for sure."""
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
    """Return the number that a literal is, and what its type is told by; None if not exact."""
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
    """Fold a conversion to the type that a value has in memory."""
    (kind,), (value,) = node.template, node.arguments
    held = _held(value, kind)
    if held is None:
        return node
    return held if node.function == CONVERT else value


def _held(value: Expression, kind: Expression) -> Expression | None:
    """Return the value in memory of a type that was widened; None where it is another one."""
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

    NaN passes both, and of -0 and 0 there is no smaller one.
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


_RULES: dict[type[Node], Callable[[Any, bool], Expression]] = {
    Select: _select, Binary: _binary, Unary: _unary, Sum: _sum, Grouped: _grouped, Call: _call,
}  # fmt: skip


def _each(value: object, change: Callable[[Part], Part]) -> object:
    """Return a record with others in the place of its parts, itself if none changes."""
    if isinstance(value, str | Node) or _are_statements(value):
        return change(value)
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        new = tuple(_each(item, change) for item in items)
        return items if all(map(is_, items, new)) else new
    if not is_dataclass(value) or isinstance(value, type):
        return value
    old = {name: getattr(value, name) for name in _field_names(type(value))}
    changed = {name: new for name, item in old.items() if (new := _each(item, change)) is not item}
    return replace(value, **changed) if changed else value


def _are_statements(value: object) -> TypeGuard[tuple[Statement, ...]]:
    if not (isinstance(value, tuple) and value):
        return False
    return all(isinstance(item, Statement) for item in cast("tuple[object, ...]", value))


@cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _mapped(part: Part, change: Callable[[Node], Node]) -> Part:
    """Return a part with its nodes changed."""
    if isinstance(part, tuple):
        return tuple(cast("Statement", change(line)) for line in part)
    return part if isinstance(part, str) else change(part)


def _folded(part: Part) -> Part:
    """Return a part folded: itself if nothing of it is."""
    if not isinstance(part, tuple):
        return _mapped(part, lambda node: _fold(node, False))
    new = _spliced(tuple(cast("Statement", _fold(line, False)) for line in part))
    return part if len(new) == len(part) and all(map(is_, new, part)) else new


def _spliced(lines: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Return statements, those under a test that always holds without it."""
    if not any(isinstance(line, If) and line.test in (TRUE, FALSE) for line in lines):
        return lines
    found: list[Statement] = []
    for line in lines:
        if isinstance(line, If) and line.test in (TRUE, FALSE):
            found += line.body if line.test == TRUE else ()
        else:
            found.append(line)
    return tuple(found)


def _walk(parts: Iterable[Part]) -> Iterator[Node]:
    for part in parts:
        yield from walk((Name(part),) if isinstance(part, str) else _nodes(part))


def _nodes(part: Node | tuple[Statement, ...]) -> tuple[Node, ...]:
    return part if isinstance(part, tuple) else (part,)


def _used(parts: Iterable[Part]) -> Counter[str]:
    """Return how often parts use each name."""
    return Counter(each.name for each in _walk(parts) if isinstance(each, Name))


def _declared(parts: Iterable[Part]) -> Counter[str]:
    """Return how often parts declare each name."""
    found = (node for node in _walk(parts) if isinstance(node, _DECLARING))
    return Counter(getattr(node, NAMED[type(node)]) for node in found)


def _simplified(
    parts: Sequence[Part], names: Collection[str], before: Counter[str]
) -> Sequence[Part]:
    """Return parts without constants that nothing needs.

    names: of those that are declared once, and used in these parts alone; before: how often the
    parts used each name when they were not folded.
    """
    lets = {n.name: n for n in _walk(parts) if isinstance(n, Let) and n.name in names}
    used = _used(parts)
    for name in _only_converted(parts, lets, used):
        parts = [_mapped(part, _as_stored(lets[name])) for part in parts]
    unused = {n for n in lets if before[n] > 0 and used[n] == 0}
    pure = {name for name in unused if not has_effects(lets[name].value or ZERO)}
    return [_without(part, pure) for part in parts] if pure else parts


def _only_converted(
    parts: Iterable[Part], lets: Mapping[str, Let], used: Counter[str]
) -> list[str]:
    """Return the constants that were widened and are only converted back."""
    widened = {name: let.value for name, let in lets.items() if isinstance(let.value, Widened)}
    if not widened:
        return []
    back = Counter(
        argument.name
        for node in _walk(parts)
        if isinstance(node, Call) and node.function == CONVERT
        for argument in node.arguments
        if isinstance(argument, Name)
        and argument.name in widened
        and node.template == (widened[argument.name].stored,)
    )
    return [name for name in widened if 0 < used[name] == back[name]]


def _as_stored(let: Let) -> Callable[[Node], Node]:
    """Return what makes of a constant one of the type in memory."""
    value = cast("Widened", let.value)
    back = Call(CONVERT, (Name(let.name),), (value.stored,))
    kept = Let(value.stored, let.name, value.arguments[0])

    def change(node: Node) -> Node:
        if node in (let, back):
            return kept if node == let else Name(let.name)
        return node.mapped(change) if node.children else node

    return change


def _without(part: Part, names: Collection[str]) -> Part:
    """Return a part without the statements that declare constants of some names."""
    if not isinstance(part, tuple):
        return part
    return tuple(
        replace(cast("Any", line), body=_without(line.body, names))
        if isinstance(line, Loop | If | Closure)
        else line
        for line in part
        if not (isinstance(line, Let) and line.name in names)
    )
