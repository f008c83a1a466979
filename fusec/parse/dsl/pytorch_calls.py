"""Calls of operations with the arguments of PyTorch's function of the same name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError
from fusec.ir.op import REQUIRED, OpDef
from fusec.ops.builder.arguments import parameter_called
from fusec.ops.frameworks import Entry, find
from fusec.ops.frameworks.entry import IGNORED, PAIRS
from fusec.parse.dsl.calls import named_arguments
from fusec.parse.dsl.foreign import function_of
from fusec.parse.dsl.place import here

if TYPE_CHECKING:
    from fusec.parse.dsl.operations import Operations

_OUT = re.compile(r",\s*out\s*=\s*([A-Za-z_]\w*)")


def as_pytorch(
    operations: Operations, op: OpDef, args: Sequence[Any], options: Mapping[str, Any]
) -> Callable[[], Any] | None:
    """Return PyTorch's function of an operation's name for a call that only it accepts."""
    if op.name in PAIRS and len(args) == 2 and not options and all(map(_has_dims, args)):
        return lambda: getattr(operations, PAIRS[op.name][0])(*args)
    entry = find("torch", op.name)
    if entry is not None and entry.kind == "other" and _has_dim_second(entry, op, args):
        return lambda: function_of(operations, entry)(*args, **options)
    _, named = named_arguments(op, args, options)
    known = {p.name for p in op.params}
    foreign = [word for word in options if word in named and word not in known and word != "name"]
    needed = sum(p.default is REQUIRED for p in op.params)
    if entry is None or not (foreign or len(args) + len(options) < needed):
        return None
    if "out" in foreign:
        raise _with_out(op)
    changed, first = dict(options), list(args)
    for word in foreign:
        if word in IGNORED:
            changed.pop(word)
        elif word == "unbiased":
            changed["correction"] = int(bool(changed.pop(word)))
        elif word == "dtype" and first:
            first[0] = operations.cast(first[0], changed.pop(word))
    if entry.kind == "other" and set(changed) <= {p.name for p in entry.parameters}:
        return lambda: function_of(operations, entry)(*first, **changed)
    if changed == dict(options) or not {parameter_called(op, w) for w in changed} <= known:
        return None
    return lambda: getattr(operations, op.name)(*first, **changed)


def _has_dim_second(entry: Entry, op: OpDef, args: Sequence[Any]) -> bool:
    """Return whether a call is `gather(x, 1, index)`: a number where fusec expects a tensor."""
    names = [p.name for p in entry.parameters]
    ours = len(op.params) > 2 and op.params[1].is_operand
    if not ours or names[1:2] != ["dim"] or len(args) < 3:
        return False
    return isinstance(args[1], int) and not isinstance(args[2], int)


def _with_out(op: OpDef) -> FusecError:
    place = here()
    line = "" if place is None else place.span.text.strip()
    found = _OUT.search(line)
    help = f"write `{found[1]} = {_OUT.sub('', line)}`" if found else "assign the result"
    return FusecError(f"`{op.name}` has no argument `out`", help=help)


def _has_dims(value: Any) -> bool:
    return bool(getattr(value, "ndim", 0)) and hasattr(value, "definition")
