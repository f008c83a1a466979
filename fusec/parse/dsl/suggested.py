"""Suggested replacements of wrong calls, in Python: each is tried before an error shows it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError
from fusec.ir.dim import Dim
from fusec.ir.dtype import DType
from fusec.ir.graph import Const, Operand, Value
from fusec.ir.op import OpDef
from fusec.ops.builder.advice import searched, written_with
from fusec.ops.builder.arguments import bind
from fusec.ops.builder.build import GraphBuilder
from fusec.ops.find import find_op
from fusec.parse.dsl.place import is_own
from fusec.parse.foreign import frameworks
from fusec.parse.syntax.operators import BINARY, COMPARISONS, UNARY
from fusec.parse.syntax.trees import Subscript, Tree

if TYPE_CHECKING:
    from fusec.parse.dsl.definition import FusionDefinition

PREFIX = "fd.ops."


def with_call(
    error: FusecError, definition: FusionDefinition, builder: GraphBuilder, op: OpDef, *read: Any
) -> FusecError:
    """Return the error of a call with a suggested call, in the variables of the script.

    Only the rule if that call is wrong, too, or has a value that no variable holds. read: the
    operands and the attributes.
    """
    return searched(error, partial(_with_call, error, definition, builder, op, *read))


def _with_call(
    error: FusecError,
    definition: FusionDefinition,
    builder: GraphBuilder,
    op: OpDef,
    operands: Sequence[Any],
    attributes: Mapping[str, Any],
) -> FusecError:
    instead = error.instead
    if instead is None or error.operation != op.name:
        return error
    arguments = {n: v for n, v in attributes.items() if v is not None}
    for param, value in zip(op.operands, operands, strict=False):
        if isinstance(value, (list, tuple)):
            arguments |= {f"{param.name}_{k}": v for k, v in enumerate(value)}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if value is not None:
            arguments[param.name] = value
    places = {name: f"_{name}_" for name in arguments}
    tree = frameworks.parsed(written_with(op, instead, places))
    names = _variables(definition)
    texts = {f"_{n}_": text for n, v in arguments.items() if (text := _text(v, names)) is not None}
    known = texts.keys() | _sizes(names)
    rule = error.changed(help=instead.rule or error.diagnostic.help)

    def call(name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> Operand:
        made, options = bind(find_op(name), positional, named)
        (result,) = builder.call(name, made, options)
        return result

    def operator(sign: str, parts: Sequence[Any]) -> Operand:
        table = UNARY if len(parts) == 1 else {**BINARY, **COMPARISONS, "/": "truediv"}
        return call(table[sign], parts, {})

    if not known.issuperset(frameworks.names_in(tree)):
        return rule
    values = {place: arguments[name] for name, place in places.items()} | {
        name: value for name, value in names if isinstance(value, Dim)
    }
    made = partial(frameworks.evaluated, tree, values, call, operator)
    if not _has_subscript(tree) and not builder.works(made, instead.declares):
        return rule
    return error.changed(help=instead.help(f"`{frameworks.text_of(tree, texts, PREFIX)}`"))


def _has_subscript(tree: Tree) -> bool:
    """Return whether an expression indexes a tensor, which graph values do not support."""
    return isinstance(tree, Subscript) or any(map(_has_subscript, frameworks.parts_of(tree)))


def _variables(definition: FusionDefinition) -> list[tuple[str, Any]]:
    """Return the variables of the script that hold values of the definition, or sizes."""
    from fusec.parse.dsl.handles import Handle

    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and is_own(frame):
        frame = frame.f_back
    if frame is None:
        return []
    found: list[tuple[str, Any]] = []
    for name, value in (frame.f_globals | frame.f_locals).items():
        if isinstance(value, Dim):
            found.append((name, value))
            continue
        own = isinstance(value, Handle) and value.definition is definition
        if own and (value.const is not None or definition.knows(value)):
            found.append((name, value.operand))
    return found


def _sizes(names: Sequence[tuple[str, Any]]) -> set[str]:
    return {name for name, value in names if isinstance(value, Dim)}


def _text(value: Any, names: Sequence[tuple[str, Any]]) -> str | None:
    """Return an argument in the script's syntax; None if no variable holds it."""
    if isinstance(value, (list, tuple)):
        items = [_text(v, names) for v in value]  # pyright: ignore[reportUnknownVariableType]
        return None if None in items else f"[{', '.join(i for i in items if i)}]"
    if isinstance(value, (Value, Const)):
        held = next((n for n, v in names if v is value), None)
        return repr(value.value) if held is None and isinstance(value, Const) else held
    if isinstance(value, DType):
        return None  # a script has other names for types
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, Dim) and not value.is_const:
        sizes = {str(v): n for n, v in names if isinstance(v, Dim)}
        words = set(re.findall(r"[A-Za-z_]\w*", str(value)))
        return str(value) if all(sizes.get(w) == w for w in words) else sizes.get(str(value))
    return str(value)
