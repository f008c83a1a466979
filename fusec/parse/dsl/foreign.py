"""Calls of `fd.ops` and of tensors by other frameworks' names, put into fusec's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError, Unsupported
from fusec.ops import TABLE
from fusec.ops.find import not_ours
from fusec.ops.frameworks import Entry, find, find_bare
from fusec.parse import frameworks
from fusec.parse.dsl.lists import is_list
from fusec.parse.dsl.place import placed
from fusec.parse.dsl.refused import MissingName, UnsupportedName
from fusec.parse.operators import BINARY, COMPARISONS, UNARY

if TYPE_CHECKING:
    from fusec.parse.dsl.operations import Operations


def function_named(operations: Operations, name: str) -> Callable[..., Any] | None:
    """Return `fd.ops.name` where another framework has the name and fusec takes it too.

    None where no framework has it. The error for one that is written otherwise, or that is not
    supported, is an AttributeError too.
    """
    entry = find_bare(name)
    if entry is None:
        return None
    if entry.kind != "alias":
        raise _missing(name, entry)
    return _function(operations, entry)


def method_named(operations: Operations, name: str) -> Callable[..., Any] | None:
    """Return `tensor.name` as a function of the tensor, where only a tensor has such a method.

    A method of a name of `fd.ops` takes several sizes one by one too: `x.permute(0, 2, 1)`.
    """
    entry = find("torch.Tensor", name)
    if name not in TABLE:
        if entry is None or entry.namespace != "torch.Tensor":
            return function_named(operations, name)
        if entry.kind != "alias":
            raise _missing(name, entry)
        return _function(operations, entry)
    own = getattr(operations, name)
    if entry is None or not any(p.variadic for p in entry.parameters):
        return None
    spread = _function(operations, entry)

    def method(*args: Any, **options: Any) -> Any:
        several = len(args) > 2 and not any(is_list(a) for a in args) and not options
        return spread(*args) if several else own(*args, **options)

    return method


def _missing(name: str, entry: Entry) -> FusecError:
    """Return the error for a name that is written otherwise, in Python's words."""
    prefix = "fd.ops."
    written = frameworks.shown(entry, prefix) if entry.kind != "unsupported" else None
    plain = not_ours(name, replace(entry, note="") if written else entry, written)
    told = plain.diagnostic
    kind = UnsupportedName if isinstance(plain, Unsupported) else MissingName
    return kind(told.message, span=told.span, notes=told.notes, help=told.help, code=plain.code)


def _function(operations: Operations, entry: Entry) -> Callable[..., Any]:
    def function(*args: Any, **options: Any) -> Any:
        name = options.pop("name", None)
        with placed():
            given = frameworks.bind(entry, args, options, _listed)
            tree = frameworks.instantiate(entry, given, _value_of)

        def call(op: str, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
            own = {"name": name} if name is not None else {}
            return getattr(operations, op)(*positional, **named, **own)

        def operator(sign: str, operands: Sequence[Any]) -> Any:
            table = UNARY if len(operands) == 1 else {**BINARY, **COMPARISONS, "/": "truediv"}
            return getattr(operations, table[sign])(*operands)

        return frameworks.evaluated(tree, given, call, operator)

    function.__name__, function.__doc__ = entry.name, f"{entry.title}: {frameworks.shown(entry)}."
    return function


def _listed(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 and is_list(values[0]) else list(values)


def _value_of(value: Any) -> Any:
    plain = value is None or isinstance(value, (bool, int, float, str))
    return value if plain else frameworks.OPAQUE
