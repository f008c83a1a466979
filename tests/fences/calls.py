"""What calls do: the effects of the table, function objects, and bodies of device functions."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from .effects import EFFECTS
from .events import Effects
from .order import WARP
from .scopes import Closure, Frame, Scope
from .syntax import Function, Node
from .values import Pointer, Unknown, is_exact, is_uniform, text_of

CASTS = frozenset(
    [
        "static_cast",
        "reinterpret_cast",
        "const_cast",
        "int",
        "Index",
        "u32",
        "i32",
        "i64",
        "u64",
        "bool",
        "float",
        "double",
        "Acc",
    ]
)


def call(walk: Any, node: Node) -> Any:
    """Return what a call returns and do its effects."""
    target = node.kids[0]
    if target.kind == "member":
        return method(walk, node, target)
    name = walk.scope.qualified(node.text)
    if name in CASTS:
        return cast(walk, node)
    scope = walk.scope.find(name)
    if scope is not None and isinstance(scope.values[name], Closure):
        return call_closure(walk, node, scope.values[name])
    effect = EFFECTS.get(name)
    if effect is not None:
        return Effects(walk, node, effect).happen()
    function = chosen(walk, name, len(node.kids) - 1)
    if function is not None and (
        name in walk.interesting or is_short(function) or hands_over(walk, node)
    ):
        return inline(walk, node, function)
    values = [walk.value(kid) for kid in node.kids[1:]]
    width = walk.constant(node.arguments[1]) if len(node.arguments or ()) > 1 else WARP
    if name == "warp_reduce" and walk.threads == WARP == width:
        return walk.unknown(name, False)  # the only warp's result
    if all(is_uniform(v) for v in values):
        if name in ("min", "max") and all(is_exact(v) for v in values):
            return min(values) if name == "min" else max(values)
        if name == "tile_count" and all(is_exact(v) for v in values):
            return -(-values[0] // values[1])
        return Unknown(f"{name}({', '.join(text_of(v) for v in values)})")
    return Unknown("?", True)


def cast(walk: Any, node: Node) -> Any:
    """Return the argument, a pointer with the size of what it now points at."""
    value = walk.value(node.kids[1]) if len(node.kids) > 1 else 0
    if node.text == "reinterpret_cast" and isinstance(value, Pointer) and node.arguments:
        text = "".join(t.text for t in node.arguments[0] if t.text != "const")
        if value.space == "shared":
            vector = re.fullmatch(r"Vec<(.*),[^,]*>\*?", text)
            inner = walk.size_of(vector[1]) if vector else None
            return replace(value, left=0, size=walk.size_of(text), inner=inner)
    return value


def method(walk: Any, node: Node, target: Node) -> Any:
    """Call a method; those of an mbarrier have effects."""
    effect = EFFECTS.get(f"Barrier::{target.text}")
    place = walk.place(target.kids[0])
    if effect is not None and place is None:
        value = walk.value(target.kids[0])
        place = value if isinstance(value, Pointer) else None
    if effect is not None and place is not None and place.space == "shared":
        return Effects(walk, node, effect, place).happen()
    values = [walk.value(kid) for kid in (target.kids[0], *node.kids[1:])]
    if place is not None:
        return walk.unknown(target.text, False)
    varies = not all(is_uniform(v) for v in values)
    return walk.unknown(target.text, varies)


def chosen(walk: Any, name: str, count: int) -> Function | None:
    """Return the function of a name with so many parameters; the last may be a pack."""

    def takes(function: Function) -> bool:
        fixed = len(function.parameters)
        has_pack = fixed > 0 and function.parameters[-1].is_pack
        return count >= fixed - 1 if has_pack else count == fixed

    return next((f for f in walk.functions.get(name, ()) if takes(f)), None)


def hands_over(walk: Any, node: Node) -> bool:
    """Return whether a call hands over a function object, or memory that threads share."""
    known = [(w, walk.scope.find(w)) for kid in node.kids[1:] for w in kid.words]
    values = [scope.values[w] for w, scope in known if scope is not None]
    return any(kid.kind == "lambda" for kid in node.kids[1:]) or any(
        isinstance(v, Closure)
        or (
            isinstance(v, Pointer)
            and (v.space == "shared" or (walk.speaks and "__restrict__" not in v.type))
        )
        for v in values
    )


def is_short(function: Function) -> bool:
    """Return whether a function only returns an expression."""
    return [t.text for t in function.tokens[1:2]] == ["return"]


def call_closure(walk: Any, node: Node, closure: Closure) -> Any:
    """Run a function object's body where it was made."""
    values = [walk.value(kid) for kid in node.kids[1:]]
    return body(walk, closure.node, closure.scope, closure.node.parameters, values, "lambda", node)


def inline(walk: Any, node: Node, function: Function) -> Any:
    """Run a device function's body."""
    outer = Scope(walk.globals)
    given = node.arguments or []
    for i, (name, default) in enumerate(function.template):
        tokens = given[i] if i < len(given) else default
        bind_template(walk, outer, name, tokens)
    deduce(walk, outer, function, given)
    values: list[Any] = []
    parameters = function.parameters
    if parameters and parameters[-1].is_pack:  # of which the first is known by its name
        count = len(node.kids) - len(parameters)
        rest = [replace(parameters[-1], name=f"{parameters[-1].name}{n}") for n in range(1, count)]
        parameters = [*(parameters if count else parameters[:-1]), *rest]
    for parameter, kid in zip(parameters, node.kids[1:], strict=True):
        place = walk.place(kid) if parameter.is_reference else None
        values.append(walk.value(kid) if place is None else place)
        if parameter.is_reference and place is None and kid.kind == "name":
            values[-1] = Alias(walk, kid.text)
    numbers = [str(v) for v in outer.values.values() if is_exact(v)]
    name = f"{function.name}<{','.join(numbers)}>"
    return body(walk, function.body, outer, parameters, values, name, node)


class Alias:
    """A reference to a local variable of the caller."""

    def __init__(self, walk: Any, name: str) -> None:
        self.name = name
        self.scope = walk.scope.find(name)


def bind_template(walk: Any, outer: Scope, name: str, tokens: Any) -> None:
    """Bind a template parameter to a number or a type."""
    if tokens is None:
        return
    value = walk.constant(tokens)
    if value is not None:
        outer.values[name] = value
    else:
        outer.types[name] = walk.scope.type_of("".join(t.text for t in tokens))
        rename(walk.globals.values, outer.values, "".join(t.text for t in tokens), name)


def rename(values: Any, into: Any, old: str, new: str) -> None:
    """Let the constants of a struct be those of another name, too."""
    prefix = f"{old.removeprefix('fusec::')}::"
    if old:
        into |= {
            f"{new}::{name.removeprefix(prefix)}": value
            for name, value in values.items()
            if name.startswith(prefix)
        }


def deduce(walk: Any, outer: Scope, function: Function, given: Any) -> None:
    """Leave template parameters that are not given unknown, but the same in all threads."""
    for name, default in function.template[len(given) :]:
        if default is None and name not in outer.types:
            outer.values[name] = Unknown(f"{function.name}.{name}")


def body(
    walk: Any, node: Node, outer: Scope, parameters: Any, values: list[Any], name: str, at: Node
) -> Any:
    """Run a function's body with the threads that call it, and return what it returns."""
    scope = Scope(outer)
    aliases: list[tuple[str, Alias]] = []
    for parameter, value in zip(parameters, values, strict=True):
        if isinstance(value, Alias):
            aliases.append((parameter.name, value))
            known = value.scope.values.get(value.name) if value.scope else None
            value = Unknown("?", True) if known is None else known
        scope.values[parameter.name] = value
        scope.since[parameter.name] = walk.mask.copy(), walk.unsure
    inner = node.kids[0] if node.kind == "lambda" else node
    saved = walk.scope, walk.mask, walk.loops, walk.sums
    walk.frames.append(Frame(name))
    if name != "lambda":
        walk.lines.append(at.line)
        walk.sums = {}
    walk.scope, walk.loops = scope, []
    walk.run(inner, walk.mask)
    frame = walk.frames.pop()
    walk.scope, walk.mask, walk.loops, walk.sums = saved
    if name != "lambda":
        walk.lines.pop()
    for parameter_name, alias in aliases:
        if alias.scope is not None:
            value = scope.values[parameter_name]
            alias.scope.values[alias.name] = walk.merged(alias.scope, alias.name, value)
    if len(frame.results) == 1:
        return frame.results[0][1]
    return walk.unknown(
        name, not all(is_uniform(v) for _, v in frame.results) or len(frame.results) > 1
    )
