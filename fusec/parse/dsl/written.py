"""Calls of other libraries in a script rewritten as calls of `fd.ops`, from the script's source."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Sequence
from typing import Any

from fusec.diagnostics import FusecError, Span
from fusec.ops import TABLE
from fusec.ops.frameworks import Entry, find_bare, find_dotted
from fusec.ops.frameworks.entry import PAIRS
from fusec.parse.foreign import frameworks
from fusec.parse.foreign.modules import FUNCTIONALS
from fusec.parse.syntax.trees import CallTree, Items, Name, Tree

PREFIX = "fd.ops."
_OPERATORS = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Lambda)
_BUILTINS = {"sum": "sum", "max": "maximum", "min": "minimum", "len": "size"}
"""Python functions that take no tensor, and the corresponding operations."""
_PLACES: dict[Any, int] = {0: 0, 1: 1, "values": 0, "indices": 1}
"""The index of a result for the subscripts and attributes that select it in PyTorch."""
_AS_THEY_ARE = ("einsum", "rearrange")
"""Functions that `fd.ops` has with the arguments of their libraries."""


def written_call(span: Span | None) -> str | None:
    """Return the statement at a location with its call rewritten; None without equivalent.

    span: of a call, or of its function. For a statement of several lines only the call is returned.
    """
    node, statement = _call_at(span)
    if node is None:
        return None
    ours = _Ours(node)
    made = ours.visit(node if statement is None else statement)
    return ast.unparse(made) if ours.is_done else None


def written_method(span: Span | None, name: str, entry: Entry) -> str | None:
    """Return the statement at a location with a method `x.name(...)` rewritten as `fd.ops`."""
    node, statement = _call_at(span)
    if node is None or not isinstance(node.func, ast.Attribute) or node.func.attr != name:
        return None
    is_function = ast.unparse(node.func.value).endswith("ops")
    receiver = [] if is_function else [node.func.value]
    made = _instance(entry, [*receiver, *node.args], node.keywords)
    return None if made is None else _with_part(statement, node, made)


def without_pair(span: Span | None) -> tuple[str, str] | None:
    """Return `max`, and what to write for `x.max(-1)[0]` or `x.max(-1).indices` at a location.

    None for other expressions: PyTorch returns two results, a fusion's call returns one.
    """
    nodes = _nodes_at(span)
    for node in nodes:
        key: Any = None
        if isinstance(node, ast.Attribute):
            key = node.attr
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            key = node.slice.value
        if not isinstance(node, (ast.Attribute, ast.Subscript)):
            continue
        call = node.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        name, is_function = call.func.attr, ast.unparse(call.func.value).endswith("ops")
        given = len(call.args) + len(call.keywords) - is_function
        if name in PAIRS and given >= 1 and key in _PLACES:
            call.func.attr = PAIRS[name][1] if _PLACES[key] else name
            return name, _with_part(_statement(nodes), node, call)
    return None


def builtin_call(span: Span | None) -> str | None:
    """Return the statement at a location with Python's `max(x, y)` rewritten as an operation."""
    node, _ = _call_at(span)
    return None if node is None or _dotted(node.func) not in _BUILTINS else written_call(span)


def _call_at(span: Span | None) -> tuple[ast.Call | None, ast.stmt | None]:
    """Return the call at a location, or whose function is there, and its statement.

    The statement is None if it has a block, or several lines.
    """
    nodes = _nodes_at(span)
    start, end = _ends(span)
    for node in nodes:
        if not isinstance(node, ast.Call) or (node.lineno, node.col_offset) != start:
            continue
        if node.end_lineno != node.lineno or end in (node.end_col_offset, node.func.end_col_offset):
            return node, _statement(nodes)
    return None, None


def _statement(nodes: Sequence[ast.AST]) -> ast.stmt | None:
    """Return the innermost statement of nodes, if it has one line and no block."""
    plain = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return, ast.AugAssign)
    found = [n for n in nodes if isinstance(n, plain) and n.lineno == n.end_lineno]
    return found[-1] if found else None


def _with_part(statement: ast.stmt | None, old: ast.expr, new: ast.expr) -> str:
    """Return a statement with one part replaced; only the new part if there is no statement."""

    class Replaced(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return new if node is old else self.generic_visit(node)

    return ast.unparse(new if statement is None else Replaced().visit(statement))


def _nodes_at(span: Span | None) -> Sequence[ast.stmt | ast.expr]:
    """Return the nodes of a script that contain a location, the outer ones first."""
    if span is None:
        return []
    try:
        tree = ast.parse("".join(linecache.getlines(span.file)))
    except SyntaxError:
        return []
    start, end = _ends(span)
    found = (node for node in ast.walk(tree) if isinstance(node, (ast.stmt, ast.expr)))
    return [
        node for node in found
        if (node.lineno, node.col_offset) <= start
        and (node.end_lineno or 0, node.end_col_offset or 0) >= (start[0], end)
    ]  # fmt: skip


def _ends(span: Span | None) -> tuple[tuple[int, int], int]:
    """Return the line and column of a location, in bytes as in syntax trees, and its end."""
    if span is None:
        return (0, 0), 0
    first, last = span.column - 1, span.column - 1 + span.width
    return (span.line, len(span.text[:first].encode())), len(span.text[:last].encode())


class _Ours(ast.NodeTransformer):
    """Rewrites calls of other libraries as fusec's, including those in their arguments."""

    def __init__(self, asked: ast.Call) -> None:
        """Rewrite at least `asked`; calls on numbers only if it is that call."""
        self._asked = asked
        self.is_done = False

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Return a call rewritten for fusec, or unchanged if it has no equivalent."""
        called = _dotted(node.func)
        args = [self.visit(a) for a in node.args]
        keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        function, name = self.visit(node.func), called.rpartition(".")[2]
        is_asked = node is self._asked
        of_numbers = called.startswith(("math.", "np.")) and not is_asked
        made = None
        if isinstance(node.func, ast.Call):
            made = _of_layer(node.func, args)
            is_asked = is_asked or node.func is self._asked
        elif name in _AS_THEY_ARE and not called.startswith(PREFIX):
            made = ast.Call(ast.Name(f"{PREFIX}{name}"), args, keywords)
        elif is_asked and called in _BUILTINS:
            made = ast.Call(ast.Name(f"{PREFIX}{_BUILTINS[called]}"), args, keywords)
        elif (entry := _entry(called)) is not None and not of_numbers:
            made = _instance(entry, args, keywords)
        self.is_done = self.is_done or (made is not None and is_asked)
        return made or ast.copy_location(ast.Call(function, args, keywords), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Return `torch.max(x, 1)[0]` without the subscript, since one result is returned."""
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        one = self._one_of(node.value, key)
        return one or self.generic_visit(node)  # pyright: ignore[reportReturnType]

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Return `torch.max(x, 1).values` without the attribute, since one result is returned."""
        one = self._one_of(node.value, node.attr)
        return one or self.generic_visit(node)  # pyright: ignore[reportReturnType]

    def _one_of(self, node: ast.expr, key: Any) -> ast.expr | None:
        if (
            key not in _PLACES
            or not isinstance(node, ast.Call)
            or len(node.args) + len(node.keywords) < 2
        ):
            return None
        entry = _entry(_dotted(node.func))
        if entry is None or entry.name not in PAIRS:
            return None
        made = self.visit(node)
        if _PLACES[key] and isinstance(made, ast.Call):
            made.func = ast.Name(f"{PREFIX}{PAIRS[entry.name][1]}")
        return made


def _of_layer(layer: ast.Call, args: Sequence[ast.expr]) -> ast.expr | None:
    """Return `nn.GELU()(x)` as a call of the function; None for layers with weights."""
    name = FUNCTIONALS.get(_dotted(layer.func).rpartition(".")[2], "")
    entry = _entry(name)
    if entry is None or not args:
        return None
    words = [k for k in layer.keywords if k.arg != "inplace"]
    return _instance(entry, [*args, *layer.args], words)


def _dotted(node: ast.expr) -> str:
    """Return a dotted name, or an empty string for another expression."""
    text = ast.unparse(node)
    return text if re.fullmatch(r"[A-Za-z_][\w.]*", text) else ""


def _entry(called: str) -> Entry | None:
    """Return the entry of a function of another library by its dotted name."""
    root, dot, _ = called.partition(".")
    if not dot or ".ops." in called:
        return None
    entry = find_dotted(called)
    if entry is None and root in ("torch", "F", "nn", "np", "jnp", "math"):
        entry = find_bare(called.rpartition(".")[2])
    return entry


def _instance(
    entry: Entry, args: Sequence[ast.expr], keywords: Sequence[ast.keyword]
) -> ast.expr | None:
    """Return a call of an entry rewritten for fusec; None if its arguments do not fit."""
    if entry.kind == "unsupported" or any(k.arg is None for k in keywords):
        return None
    if any(isinstance(a, ast.Starred) for a in args):
        return None
    if entry.kind in ("same", "alias"):
        return ast.Call(ast.Name(f"{PREFIX}{entry.name}"), [*args], [*keywords])
    values = {f"_{k}_": a for k, a in enumerate((*args, *(k.value for k in keywords)))}
    names = [Name(name, 0, 0) for name in values]
    words = {str(k.arg): name for k, name in zip(keywords, names[len(args) :], strict=True)}

    def value_of(tree: Tree) -> Any:
        if isinstance(tree, Items):
            return [value_of(item) for item in tree.items]
        return _literal(values[tree.text]) if isinstance(tree, Name) else frameworks.OPAQUE

    try:
        given = frameworks.bind(entry, names[: len(args)], words, _listed)
        tree = frameworks.instantiate(entry, given, value_of)
    except FusecError:
        return None
    texts = {name: _operand(value) for name, value in values.items()}
    text = frameworks.text_of(frameworks.substituted(tree, given, tree), texts, PREFIX)
    made = ast.parse(text, mode="eval").body
    op = TABLE.get(tree.name.text) if isinstance(tree, CallTree) else None
    is_first = op is not None and len(op.results) > 1 and entry.note.startswith("results: ")
    return ast.Subscript(made, ast.Constant(0)) if is_first else made


def _literal(node: ast.expr) -> Any:
    """Return the value of a number, a word, or a list of such; OPAQUE for other expressions."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _literal(node.operand)
        return -value if isinstance(value, (int, float)) else frameworks.OPAQUE
    is_list = isinstance(node, (ast.List, ast.Tuple))
    return [_literal(item) for item in node.elts] if is_list else frameworks.OPAQUE


def _operand(node: ast.expr) -> str:
    text = ast.unparse(node)
    return f"({text})" if isinstance(node, _OPERATORS) else text


def _listed(trees: Sequence[Tree]) -> Tree:
    return trees[0] if len(trees) == 1 else Items(tuple(trees), 0, 0)
