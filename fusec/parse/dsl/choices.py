"""Replacements for Python's choices by a tensor (`if`, `and`, `not`), from the script's source."""

from __future__ import annotations

import ast
import linecache

from fusec.diagnostics import Span
from fusec.parse.dsl.written import builtin_call

_GENERAL = "select elements with `fd.ops.where(condition, a, b)`: both values are computed"


def choice_help(span: Span | None, *, is_bool: bool) -> str:
    """Return what to write for the statement or expression that takes a tensor's truth value.

    span: the location of the test. is_bool: whether the tested tensor is one of bools.
    """
    called = builtin_call(span)
    if called is not None:
        return f"write `{called}`"
    source = "" if span is None else "".join(linecache.getlines(span.file))
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return _GENERAL
    found = [n for n in ast.walk(tree) if span is not None and _asks(n, span)]
    # The innermost one begins last.
    node = max(found, key=lambda n: (_line(n), getattr(n, "col_offset", 0)), default=None)
    if isinstance(node, ast.Compare):
        return f"write `{_chained(node)}`"
    if isinstance(node, ast.BoolOp):
        name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        parts = [ast.unparse(v) for v in node.values]
        text = parts[0]
        for part in parts[1:]:
            text = f"fd.ops.{name}({text}, {part})"
        return f"write `{text}`"
    if isinstance(node, ast.UnaryOp):
        return f"write `fd.ops.logical_not({ast.unparse(node.operand)})`"
    if isinstance(node, ast.IfExp):
        return f"write `{_where(node.test, node.body, node.orelse, is_bool=is_bool)}`"
    if isinstance(node, ast.If):
        target, then = _assigned(node.body)
        other_target, other = _assigned(node.orelse)
        if target is not None and then is not None and not node.orelse:
            other_target, other = target, ast.Name(target)
        if target is not None and target == other_target and then is not None and other is not None:
            return f"write `{target} = {_where(node.test, then, other, is_bool=is_bool)}`"
        return _GENERAL.replace("condition", _condition(node.test, is_bool=is_bool))
    return _GENERAL


def _chained(node: ast.Compare) -> str:
    """Return `a < b < c` as two comparisons."""
    values = [node.left, *node.comparators]
    pairs = zip(values, node.ops, values[1:], strict=False)
    return " & ".join(f"({ast.unparse(ast.Compare(a, [op], [b]))})" for a, op, b in pairs)


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def _asks(node: ast.AST, span: Span) -> bool:
    """Return whether a node takes the truth value of an expression at a location."""
    if isinstance(node, ast.BoolOp):
        asked = node.values
    elif isinstance(node, ast.Compare) and len(node.ops) > 1:
        asked = [node]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        asked = [node, node.operand]
    elif isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert)):
        asked = [node.test]
    else:
        return False
    if (_line(node), getattr(node, "col_offset", 0)) == (span.line, span.column - 1):
        return True  # a test that is only a name has the location of the statement
    return any(
        (e.lineno, e.col_offset) <= (span.line, span.column - 1)
        and (e.end_lineno or e.lineno, e.end_col_offset or 0) >= (span.line, span.column)
        for e in asked
    )


def _assigned(body: list[ast.stmt]) -> tuple[str | None, ast.expr | None]:
    """Return the name and the value of a block that is a single assignment."""
    statement = body[0] if len(body) == 1 else None
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return None, None
    return statement.targets[0].id, statement.value


def _condition(test: ast.expr, *, is_bool: bool) -> str:
    text = ast.unparse(test)
    return text if is_bool else f"{text} != 0"


def _where(test: ast.expr, then: ast.expr, other: ast.expr, *, is_bool: bool) -> str:
    parts = (_condition(test, is_bool=is_bool), ast.unparse(then), ast.unparse(other))
    return f"fd.ops.where({', '.join(parts)})"
