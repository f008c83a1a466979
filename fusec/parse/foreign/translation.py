"""Calls by other frameworks' names as expressions in fusec's terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fusec.diagnostics import FusecError
from fusec.ir.graph import Type
from fusec.ops.frameworks import Entry
from fusec.parse.foreign import frameworks
from fusec.parse.foreign.repeated import folded_sizes
from fusec.parse.numbers import number_in
from fusec.parse.syntax.trees import (
    Argument,
    CallTree,
    Items,
    Literal,
    Name,
    String,
    Tree,
    integer_literal,
)

_CONVERTING = frozenset({
    "softmax", "log_softmax", "softmin", "mean", "prod", "cumsum", "cumprod", "norm", "vector_norm",
})  # fmt: skip
"""PyTorch functions with a `dtype` that converts the operand first."""

TypeOf = Callable[[Tree], Type | None]
"""Returns the type of an argument; None if it is unknown before the line is read."""


def translated(entry: Entry, called: CallTree, type_of: TypeOf) -> Tree:
    """Return a call as an expression of fusec; FusecError if its arguments do not fit."""
    positional = [a.value for a in called.arguments if a.keyword is None]
    keywords = {a.keyword.text: a.value for a in called.arguments if a.keyword is not None}
    converts = entry.name in _CONVERTING and not _takes(entry, "dtype")
    dtype = keywords.pop("dtype", None) if converts and positional else None
    if dtype is not None and value_of(dtype) is not None:
        arguments = (Argument(None, positional[0]), Argument(None, dtype))
        name = Name("cast", called.start, called.start)
        positional[0] = CallTree(name, arguments, called.start, called.end)
    if entry.name == "where" and entry.namespace == "torch":
        positional[1:] = _in_single_precision(positional[1:])
    is_loss = entry.name.endswith("_loss") or entry.name == "kl_div"
    if entry.kind == "other" and is_loss and "reduction" in keywords:
        entry, keywords = _reduced(entry, keywords)
    given = frameworks.bind(entry, positional, keywords, _listed)
    given = {name: _one_size(value, name, entry) for name, value in given.items()}
    made = frameworks.instantiate(entry, given, value_of, type_of)
    return _with_extents(frameworks.substituted(made, given, called), type_of)


def part_of(entry: Entry, text: str, called: CallTree, type_of: TypeOf) -> Tree:
    """Return an expression for one result of a call, with the arguments that it uses."""
    positional = [a.value for a in called.arguments if a.keyword is None]
    keywords = {a.keyword.text: a.value for a in called.arguments if a.keyword is not None}
    given = frameworks.bind(entry, positional, keywords, _listed)
    one = entry.of(text)
    used = frameworks.names_asked(one)
    known = {name: value for name, value in given.items() if name in used}
    made = frameworks.instantiate(one, known, value_of, type_of)
    return _with_extents(frameworks.substituted(made, known, called), type_of)


def _takes(entry: Entry, word: str) -> bool:
    return any(p.name == word for p in entry.parameters)


def _in_single_precision(values: Sequence[Tree]) -> Sequence[Tree]:
    """Return two numbers in PyTorch's precision if one is a float: f32, not f64."""
    numbers = [number_in(value) for value in values]
    if len(values) != 2 or None in numbers or not any(isinstance(n, float) for n in numbers):
        return values
    return [
        CallTree(Name("f32", v.start, v.start), (Argument(None, v),), v.start, v.end)
        for v in values
    ]


def _with_extents(tree: Tree, type_of: TypeOf) -> Tree:
    """Return an expression with the dims of the file for `size(x, 0)` and `shape(x)`."""
    parts = [_with_extents(part, type_of) for part in frameworks.parts_of(tree)]
    tree = folded_sizes(frameworks.rebuilt(tree, parts))
    if not isinstance(tree, CallTree) or tree.name.text not in ("size", "shape") or not parts:
        return tree
    type = type_of(parts[0])
    shape = None if type is None else type.shape
    if tree.name.text == "shape":
        if shape is None:
            raise FusecError("the shape is not known before the line is read")
        return Items(tuple(frameworks.size_tree(e, tree) for e in shape), tree.start, tree.end)
    axis = integer_literal(parts[1])
    if shape is None or axis is None or not -len(shape) <= axis < len(shape):
        return tree
    return frameworks.size_tree(shape[axis], tree)


def _one_size(tree: Tree, name: str, entry: Entry) -> Tree:
    """Return the common size of `(2, 2)`, where an expression takes one size for all dims."""
    asked = any(c in (f"{name}:one", f"{name}=kernel_size") for cs in entry.conditions for c in cs)
    sizes = {value_of(item) for item in tree.items} if isinstance(tree, Items) else set[Any]()
    if not asked or len(sizes) != 1 or not isinstance(tree, Items):
        return tree
    return tree.items[0]


def _reduced(entry: Entry, keywords: Mapping[str, Tree]) -> tuple[Entry, dict[str, Tree]]:
    """Return the entry of a loss that is a mean, with the reduction of the call instead."""
    word, by = value_of(keywords["reduction"]), entry.parameters[0].name
    texts: list[str] = []
    for text, conditions in entry.forms:
        mean = frameworks.parsed(text)
        if not isinstance(mean, CallTree) or mean.name.text != "mean":
            return entry, dict(keywords)
        inner = frameworks.text_of(mean.arguments[0].value, {})
        reduced = {
            "mean": f"mean({inner})", "sum": f"sum({inner})", "none": inner, None: inner,
            "batchmean": f"sum({inner}) / size({by}, 0)",
        }  # fmt: skip
        if word not in reduced or (word == "batchmean" and entry.name != "kl_div"):
            return entry, dict(keywords)
        condition = "{" + ", ".join(conditions) + "} " if conditions else ""
        texts.append(condition + reduced[word])
    rest = {k: v for k, v in keywords.items() if k != "reduction"}
    return entry.of(" | ".join(texts)), rest


def _listed(trees: Sequence[Tree]) -> Tree:
    """Return the argument of a variadic parameter: a single list unchanged, or a list of all."""
    if len(trees) == 1 and isinstance(trees[0], Items):
        return trees[0]
    return Items(tuple(trees), trees[0].start, trees[-1].end)


def value_of(tree: Tree) -> Any:
    """Return the value of a literal, the text of a name, a list of such; OPAQUE for others."""
    if isinstance(tree, Literal):
        return tree.value
    if isinstance(tree, Items):
        return [value_of(item) for item in tree.items]
    return tree.text if isinstance(tree, (Name, String)) else frameworks.OPAQUE
