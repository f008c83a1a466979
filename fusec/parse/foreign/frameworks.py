"""Calls by the names of other frameworks, rewritten for fusec: as trees, or as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, cast

from fusec import ops
from fusec.codes.calls import MISSING_ARGUMENT
from fusec.dataclasses import replace
from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.dim import Dim
from fusec.ir.dtype import DTYPES
from fusec.ir.graph import Type
from fusec.ir.op import REQUIRED, Param
from fusec.ops.builder.arguments import near_argument, parameter_called
from fusec.ops.find import without_place
from fusec.ops.frameworks import Entry
from fusec.ops.frameworks.entry import IGNORED, NEEDED, PARTS
from fusec.ops.frameworks.entry import value_of as entry_value
from fusec.parse.source import source_of_text
from fusec.parse.syntax.expressions import Parser
from fusec.parse.syntax.operators import PRECEDENCE
from fusec.parse.syntax.trees import (
    Argument,
    CallTree,
    Dots,
    Infix,
    Items,
    Literal,
    Name,
    Prefix,
    Range,
    String,
    Subscript,
    Tree,
)

T = TypeVar("T")
OPAQUE = object()
"""The value of an argument that is not a literal."""
_OF_TYPES = frozenset({"ndim", "integers", "complex"})
"""Conditions on the type of the first argument."""

_FIRST = ("input", "self", "x", "a", "arg")
_SYNONYMS = {"axis": "dim", "dim": "axis", "keepdim": "keepdims", "keepdims": "keepdim"}


def bind(
    entry: Entry,
    positional: Sequence[T],
    keywords: Mapping[str, T],
    listed: Callable[[Sequence[T]], T],
) -> dict[str, T]:
    """Return the arguments of a call by the parameters' names; FusecError if they do not fit.

    listed: combines the arguments of a variadic parameter into one.
    """
    names = [p.name for p in entry.parameters]
    given: dict[str, T] = {}
    for place, parameter in enumerate(entry.parameters):
        if parameter.variadic and len(positional) > place:
            given[parameter.name] = listed(positional[place:])
            positional = positional[:place]
    if len(positional) > len(names):
        count = len(names)
        raise FusecError(
            f"`{entry.name}` takes {count} argument{'s' * (count != 1)}, got {len(positional)}",
            help=entry.title,
        )
    given |= dict(zip(names, positional, strict=False))
    op = ops.TABLE[entry.name] if entry.kind == "same" else None
    for word, value in keywords.items():
        name = _parameter(word, names) if op is None else parameter_called(op, word)
        if name not in names and word in IGNORED:
            continue
        if name not in names or name in given:
            what = "is specified twice" if name in given else "is unknown"
            near = near_argument(op, word) if op is not None and name not in given else None
            help = f"did you mean `{near}`?" if near else entry.title
            raise FusecError(f"argument `{word}` of `{entry.name}` {what}", help=help)
        given[name] = value
    for parameter in entry.parameters:
        if parameter.default is NEEDED and not parameter.variadic and parameter.name not in given:
            message = f"`{entry.name}` needs `{parameter.name}`"
            raise FusecError(message, help=entry.title, code=MISSING_ARGUMENT)
    return given


def _parameter(word: str, names: Sequence[str]) -> str:
    if word in names:
        return word
    if word in _FIRST and names and names[0] in _FIRST:
        return names[0]
    return _SYNONYMS.get(word, word)


def instantiate(
    entry: Entry,
    given: Mapping[str, T],
    value_of: Callable[[T], Any],
    type_of: Callable[[T], Type | None] = lambda argument: None,
) -> Tree:
    """Return what to write for a call, with parameters' names in the positions of its arguments.

    It is the first of the entry's expressions whose conditions hold and that uses all given
    arguments. Arguments that are none, or omitted with the same default, are omitted there too.
    value_of: an argument's value, OPAQUE for one that is not a literal. type_of: the type of a
    tensor argument, None if it is unknown. Raise FusecError if no expression fits.
    """
    known = {p.name: p for p in entry.parameters}
    values = {
        p.name: value_of(given[p.name]) if p.name in given else p.default for p in entry.parameters
    }
    ignored = IGNORED | frozenset({"self"} if entry.namespace == "torch.Tensor" else ())
    explicit = {n for n in given if n not in ignored and not _is(values[n], known[n].default)}
    types = _Types(entry, given, type_of)
    for text, conditions in entry.forms:
        tree = parsed(text)
        if not all(_holds(condition, values, types) for condition in conditions):
            continue
        if not explicit <= {*names_in(tree), *map(_subject, conditions)}:
            continue
        found = _instance(tree, values, explicit | (set(given) & {"self"}))
        if found is not None:
            return found
    raise _misfit(entry, explicit, values, types)


def _misfit(
    entry: Entry, explicit: set[str], values: Mapping[str, Any], types: _Types
) -> FusecError:
    """Return the error for a call that matches no expression of its entry."""
    possible = [
        (text, conditions)
        for text, conditions in entry.forms
        if all(_holds(condition, values, types) for condition in conditions)
    ]
    if not possible:
        asked = {word for _, conditions in entry.forms for word in map(_subject, conditions)}
        first = entry.parameters[0].name
        if "ndim" in asked and types.of("") is None and not isinstance(values[first], list):
            help = "give the first argument a name on a line above"
            return Unsupported(
                f"`{entry.name}` of {entry.framework} of an expression: its shape is not known yet",
                help=help,
            )
        return without_place(entry, _listed(sorted(explicit & asked) or ["this shape"], values))
    if explicit <= {p.name for p in entry.parameters if p.default is NEEDED}:
        forms = " or ".join(f"`{text}`" for text, _ in possible)
        return FusecError(f"`{entry.name}` needs more arguments", help=f"the form is {forms}")
    # Of several expressions, report the missing arguments of the one with the most parameters.
    left = min((explicit - set(names_in(parsed(text))) for text, _ in possible), key=len)
    return without_place(entry, _listed(sorted(left or explicit), values))


def names_asked(entry: Entry) -> frozenset[str]:
    """Return the parameters that occur in an entry's expressions and their conditions."""
    used = (n for text in entry.expressions for n in names_in(parsed(text)))
    asked = (_subject(c) for conditions in entry.conditions for c in conditions)
    return frozenset((*used, *asked))


def _subject(condition: str) -> str:
    """Return the subject of a condition: an argument, or a word of `_OF_TYPES`."""
    return re.split("[=:<>]", condition)[0]


def _listed(names: Sequence[str], values: Mapping[str, Any]) -> str:
    """Return arguments with their values, as in `mode=nearest`."""
    known = {n: values.get(n, OPAQUE) for n in names}
    return " and ".join(
        n if " " in n else f"`{n}`" if v is OPAQUE else f"`{n}={v}`" for n, v in known.items()
    )


class _Types:
    """The types of the arguments of a call, determined lazily for conditions."""

    def __init__(
        self, entry: Entry, given: Mapping[str, T], type_of: Callable[[T], Type | None]
    ) -> None:
        """Determine the types of `given` by `type_of`."""
        self._first = entry.parameters[0].name if entry.parameters else ""

        def find(name: str) -> Type | None:
            return type_of(given[name]) if name in given else None

        self._found = cache(find)

    def of(self, name: str) -> Type | None:
        """Return the type of an argument, of the first one for an empty name; None if unknown."""
        return self._found(name or self._first)


def _holds(condition: str, values: Mapping[str, Any], types: _Types) -> bool:
    """Return whether a condition of an expression holds; False for one on an unknown type.

    values: the arguments.
    """
    subject, sign, wanted = re.fullmatch(r"([\w.]+)(>=|<=|=|:|)(.*)", condition).groups()  # pyright: ignore[reportOptionalMemberAccess]
    owner, _, name = subject.rpartition(".")
    if name in _OF_TYPES and name not in values:
        type = types.of(owner)
        if type is None or name != "ndim":
            return type is not None and _is_of_kind(type, name)
        values = {**values, name: len(type.shape or ())}
    value = values.get(name, OPAQUE)
    if sign == ":":
        return wanted == "any" or not isinstance(value, list)
    limit = values[wanted] if wanted in values else entry_value(wanted)
    if sign == "=":
        several = [*cast("list[Any]", value)] if isinstance(value, list) else [value]
        plain = [v.rpartition(".")[2] if isinstance(v, str) else v for v in several]
        return bool(plain) and all(_is(v, limit) for v in plain)
    if not isinstance(value, int) or not isinstance(limit, int):
        return False
    return value >= limit if sign == ">=" else value <= limit


def _is_of_kind(type: Type, kind: str) -> bool:
    """Return whether a type is of integers, or of complex numbers."""
    is_complex = type.dtype.is_complex
    return is_complex if kind == "complex" else not type.dtype.is_float and not is_complex


def _is(value: Any, default: Any) -> bool:
    return value is not OPAQUE and value == default and type(value) is type(default)


@cache
def parsed(text: str) -> Tree:
    """Return the tree of an expression in fusec's syntax."""
    return Parser(source_of_text(text, "<frameworks>"), 0, len(text)).expression()


def is_exact(entry: Entry) -> bool:
    """Return whether an entry's expressions are its exact meaning, with nothing left to fill in.

    Not exact are entries with a note, those that use dims of their own (`[N, C, H, W]`), and
    methods that write in place (`normal_`).
    """
    if entry.kind in ("same", "alias"):
        return True
    known = {*DTYPES, *(p.name for p in entry.parameters)}
    closed = all(known.issuperset(names_in(parsed(e))) for e in entry.expressions)
    whole = not entry.note and entry.name not in PARTS and not entry.name.endswith("_")
    return entry.kind == "other" and closed and whole


def names_in(tree: Tree) -> Sequence[str]:
    """Return the names that an expression uses, except those of operations."""
    if isinstance(tree, Name):
        return [tree.text]
    return [name for part in parts_of(tree) for name in names_in(part)]


def calls_in(tree: Tree) -> Sequence[CallTree]:
    """Return the calls of an expression."""
    own = [tree] if isinstance(tree, CallTree) else []
    return [*own, *(call for part in parts_of(tree) for call in calls_in(part))]


def parts_of(tree: Tree) -> Sequence[Tree]:
    if isinstance(tree, Items):
        return tree.items
    if isinstance(tree, CallTree):
        return [argument.value for argument in tree.arguments]
    if isinstance(tree, Infix):
        return [tree.left, tree.right]
    if isinstance(tree, Subscript):
        return [tree.base, *tree.keys]
    if isinstance(tree, Range):
        return [part for part in (tree.low, tree.high, tree.step) if part is not None]
    return [tree.operand] if isinstance(tree, Prefix) else []


def rebuilt(tree: Tree, parts: Sequence[Tree]) -> Tree:
    """Return a tree with other parts, in the order of `parts_of`."""
    if isinstance(tree, Items):
        return replace(tree, items=tuple(parts))
    if isinstance(tree, CallTree):
        pairs = zip(tree.arguments, parts, strict=True)
        return replace(tree, arguments=tuple(replace(a, value=part) for a, part in pairs))
    if isinstance(tree, Infix):
        return replace(tree, left=parts[0], right=parts[1])
    if isinstance(tree, Subscript):
        return replace(tree, base=parts[0], keys=tuple(parts[1:]))
    if isinstance(tree, Range):
        rest = iter(parts)
        bounds = [None if p is None else next(rest) for p in (tree.low, tree.high, tree.step)]
        return replace(tree, low=bounds[0], high=bounds[1], step=bounds[2])
    return replace(tree, operand=parts[0]) if isinstance(tree, Prefix) else tree


def _instance(tree: Tree, values: Mapping[str, Any], explicit: set[str]) -> Tree | None:
    """Return an expression without absent arguments, None if a required one is missing."""
    if isinstance(tree, Name) and tree.text in values and tree.text not in explicit:
        value = values[tree.text]
        if value is None:
            return None
        if value is NEEDED or value is OPAQUE:
            return tree
        if isinstance(value, str):
            return replace(tree, text=value)
        return Literal(value, tree.start, tree.end)
    if isinstance(tree, CallTree):
        tree = _without_absent(tree, values, explicit)
    parts = [_instance(part, values, explicit) for part in parts_of(tree)]
    known = [part for part in parts if part is not None]
    return rebuilt(tree, known) if len(known) == len(parts) else None


def _without_absent(call: CallTree, values: Mapping[str, Any], explicit: set[str]) -> CallTree:
    op = ops.TABLE.get(call.name.text)
    params = [] if op is None else list(op.params)
    kept: list[Argument] = []
    named = False
    for place, argument in enumerate(call.arguments):
        word = argument.keyword.text if argument.keyword else ""
        param = next((p for p in params if p.name == word), None)
        if not word and place < len(params):
            param = params[place]
        name = argument.value.text if isinstance(argument.value, Name) else ""
        absent = name in values and name not in explicit
        if absent and param is not None and _is_default(values[name], param):
            named = True
            continue
        if named and not word and param is not None:
            argument = replace(argument, keyword=Name(param.name, call.start, call.end))
        kept.append(argument)
    return replace(call, arguments=tuple(kept))


def _is_default(value: Any, param: Param) -> bool:
    if param.default is REQUIRED:
        return False
    return value is None or _is(value, param.default)


def substituted(tree: Tree, values: Mapping[str, Tree], at: Tree) -> Tree:
    """Return an expression with trees substituted for names, located at `at`."""
    if isinstance(tree, Name) and tree.text in values:
        return values[tree.text]
    tree = replace(tree, start=at.start, end=at.end)
    if isinstance(tree, CallTree):
        tree = replace(tree, name=replace(tree.name, start=at.start, end=at.end))
    if isinstance(tree, Infix):
        tree = replace(tree, place=at.start)
    return rebuilt(tree, [substituted(part, values, at) for part in parts_of(tree)])


def evaluated(
    tree: Tree,
    values: Mapping[str, Any],
    call: Callable[[str, Sequence[Any], Mapping[str, Any]], Any],
    operator: Callable[[str, Sequence[Any]], Any],
    inner: Callable[[str, Sequence[Any], Mapping[str, Any]], Any] | None = None,
) -> Any:
    """Return the value of an expression for values of its names; other names stay names.

    inner: evaluates the calls within it, if not `call`.
    """

    def of(part: Tree) -> Any:
        return evaluated(part, values, inner or call, operator)

    if isinstance(tree, Literal):
        return tree.value
    if isinstance(tree, Name):
        return values.get(tree.text, tree.text)
    if isinstance(tree, Items):
        return [of(item) for item in tree.items]
    if isinstance(tree, CallTree):
        positional = [of(a.value) for a in tree.arguments if a.keyword is None]
        named = {a.keyword.text: of(a.value) for a in tree.arguments if a.keyword is not None}
        return call(tree.name.text, positional, named)
    if isinstance(tree, Subscript):
        return of(tree.base)[tuple(map(of, tree.keys))]
    if isinstance(tree, Range):
        return slice(*(p if p is None else of(p) for p in (tree.low, tree.high, tree.step)))
    if isinstance(tree, Dots):
        return ...
    assert isinstance(tree, (Prefix, Infix)), "a string has no value"
    return operator(tree.operator, [of(part) for part in parts_of(tree)])


_LITERALS = {True: "true", False: "false", None: "none"}


def text_of(tree: Tree, texts: Mapping[str, str], prefix: str = "") -> str:
    """Return the text of an expression, with texts for names; `prefix` precedes operations.

    With a prefix it is Python: `True` and `None` for `true` and `none`.
    """

    def of(part: Tree) -> str:
        return text_of(part, texts, prefix)

    if isinstance(tree, Literal):
        if tree.value is None or isinstance(tree.value, bool):
            return str(tree.value) if prefix else _LITERALS[tree.value]
        return str(tree.value)
    if isinstance(tree, String):
        return tree.text
    if isinstance(tree, Name):
        return texts.get(tree.text, tree.text)
    if isinstance(tree, Items):
        return f"[{', '.join(map(of, tree.items))}]"
    if isinstance(tree, CallTree):
        keywords = (a.keyword.text + "=" if a.keyword else "" for a in tree.arguments)
        values = (of(a.value) for a in tree.arguments)
        words = [k + v for k, v in zip(keywords, values, strict=True)]
        if tree.name.text.startswith(".") and words:
            # A method without an operation in fusec.
            owner = _factor(tree.arguments[0].value, 10, texts, prefix)
            called = "" if tree.end == tree.name.end else f"({', '.join(words[1:])})"
            return f"{owner}{tree.name.text}{called}"
        return f"{prefix}{tree.name.text}({', '.join(words)})"
    if isinstance(tree, Subscript):
        keys = ", ".join(map(of, tree.keys))
        return f"{_factor(tree.base, 10, texts, prefix)}[{keys}]"
    if isinstance(tree, Range):
        parts = [tree.low, tree.high, *([] if tree.step is None else [tree.step])]
        return ":".join("" if part is None else of(part) for part in parts)
    if isinstance(tree, Dots):
        return "..."
    if isinstance(tree, Prefix):
        return f"{tree.operator}{_factor(tree.operand, 8, texts, prefix)}"
    level = _level(tree)
    left = _factor(tree.left, level + (tree.operator == "**"), texts, prefix)
    right = _factor(tree.right, level + (tree.operator != "**"), texts, prefix)
    return f"{left} {tree.operator} {right}"


def _level(tree: Tree) -> int:
    """Return the precedence of an expression: comparisons 0, powers 8, names and calls 10."""
    if isinstance(tree, Infix):
        return next((k for k, signs in enumerate(PRECEDENCE) if tree.operator in signs), 8)
    return 7 if isinstance(tree, Prefix) else 10


def _factor(tree: Tree, level: int, texts: Mapping[str, str], prefix: str) -> str:
    text = text_of(tree, texts, prefix)
    composed = _level(tree) < level
    if isinstance(tree, Name) and tree.text in texts:
        try:
            composed = _level(parsed(text)) < level
        except FusecError:
            composed = False
    return f"({text})" if composed else text


def reversed_dims(tree: Tree, rank: int, at: Tree) -> Tree:
    """Return a tensor with its dims reversed, as `x.T` does."""
    order = parsed(f"permute(x, {[*reversed(range(rank))]})")
    return substituted(order, {"x": tree}, at)


def size_tree(size: Dim, at: Tree) -> Tree:
    """Return a size as an expression, located at another one."""
    if size.is_const:
        return Literal(size.value, at.start, at.end)
    return substituted(parsed(str(size)), {}, at)


def shown(entry: Entry, prefix: str = "") -> str:
    """Return the text for an entry, with its own parameters as arguments."""
    texts = {p.name: p.name for p in entry.parameters}
    text = " or ".join(f"`{text_of(parsed(e), texts, prefix)}`" for e in entry.expressions)
    return f"{text}; {entry.caveat}" if entry.note else text
