"""Look up operations by name."""

from __future__ import annotations

import difflib

from fusec.diagnostics import FusecError, Span, Unsupported
from fusec.ir.op import OpDef
from fusec.ops.declare import TABLE
from fusec.ops.refused import REFUSED


def find_op(name: str, span: Span | None = None) -> OpDef:
    """Return the operation called `name`; FusecError suggests a near one."""
    found = TABLE.get(name)
    if found is not None:
        return found
    if name in REFUSED:
        raise Unsupported(f"`{name}`: {REFUSED[name]}", span=span)
    last = name.rpartition(".")[2]
    close = [last] if last in TABLE else difflib.get_close_matches(name, TABLE, n=1)
    help = f"did you mean `{close[0]}`?" if close else "`fusec ops` lists all operations"
    raise FusecError(f"unknown operation `{name}`", span=span, help=help)
