"""Calls with several unknown arguments: each is named in the error."""

from __future__ import annotations

from fusec.dataclasses import replace
from fusec.diagnostics import FusecError
from fusec.ir.op import OpDef
from fusec.ops.builder.arguments import parameter_called
from fusec.ops.frameworks import Entry
from fusec.parse.syntax.trees import CallTree


def without_unknown(
    op: OpDef, entry: Entry | None, tree: CallTree, error: FusecError
) -> tuple[CallTree, FusecError]:
    """Return a call without arguments unknown to fusec and PyTorch, and the error that names all.

    With a single unknown argument the call and its error are returned unchanged.
    """
    ours = {p.name for p in op.params}
    theirs = {p.name for p in entry.parameters} if entry is not None else set[str]()
    given = [(a, a.keyword.text) for a in tree.arguments if a.keyword is not None]
    unknown = [(a, name) for a, name in given if parameter_called(op, name) not in ours]
    if len(unknown) < 2:
        return tree, error
    words = [f"`{name}`" for _, name in unknown]
    named = f"{', '.join(words[:-1])} and {words[-1]}"
    dropped = [a for a, name in unknown if name not in {*theirs, "dtype"}]
    rest = tuple(a for a in tree.arguments if not any(a is d for d in dropped))
    message = f"`{op.name}` has no arguments {named}"
    return replace(tree, arguments=rest), error.changed(message)
