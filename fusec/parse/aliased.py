"""Outputs that are written to an input of another dtype: suggest the cast."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.codes.declarations import ALIAS_TYPE
from fusec.dataclasses import replace
from fusec.diagnostics import FusecError
from fusec.ir.graph import Type
from fusec.parse.foreign.uses import names_used
from fusec.parse.syntax.lines import line_text
from fusec.parse.syntax.trees import Argument, CallTree, Name, OpLine


def with_cast(
    error: FusecError, lines: Sequence[OpLine], name: str, types: tuple[Type, Type]
) -> FusecError:
    """Return the error of an alias with a line that casts the output, if only dtypes differ.

    types: of the output `name` and of the input. A line whose result others read is kept.
    """
    own, wanted = types
    line = next((line for line in lines if [n.text for n in line.names] == [name]), None)
    if error.code is not ALIAS_TYPE or own.shape != wanted.shape or line is None:
        return error
    if any(name in names_used(other.tree) for other in lines if other is not line):
        return error
    start, end = line.tree.start, line.tree.end
    arguments = (line.tree, Name(str(wanted.dtype), start, start))
    cast = CallTree(
        Name("cast", start, start), tuple(Argument(None, a) for a in arguments), start, end
    )
    return error.changed(help=f"the dtypes differ: write {line_text(replace(line, tree=cast))}")
