"""Look up operations by name, with errors for unknown names."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.codes.names import FOREIGN_NAME, UNKNOWN_OPERATION
from fusec.codes.unsupported import UNSUPPORTED_OPERATION
from fusec.diagnostics import FusecError, Span, Unsupported
from fusec.ir.op import REQUIRED, OpDef
from fusec.ops.frameworks import Entry, find_bare, find_dotted
from fusec.ops.refused import REFUSED
from fusec.ops.table import TABLE
from fusec.spelling import edits


def find_op(name: str, span: Span | None = None, *, count: int | None = None) -> OpDef:
    """Return the operation called `name`; the error suggests a replacement for an unknown name.

    count: the number of arguments of the call, so that only operations that accept it are
    suggested.
    """
    found = TABLE.get(name)
    if found is not None:
        return found
    if name in REFUSED:
        raise Unsupported(f"`{name}`: {REFUSED[name]}", span=span, code=UNSUPPORTED_OPERATION)
    entry = find_dotted(name) if "." in name else find_bare(name)
    if entry is not None:
        raise not_ours(name, entry, span=span)
    meant = near_operation(name.rpartition(".")[2], count)
    help = f"did you mean `{meant}`?" if meant else "`fusec ops` lists all operations"
    raise FusecError(f"unknown operation `{name}`", span=span, help=help, code=UNKNOWN_OPERATION)


def not_ours(
    name: str, entry: Entry, written: str | None = None, *, span: Span | None = None
) -> FusecError:
    """Return the error for a name of another framework; `written` is the suggested line."""
    if entry.kind == "unsupported":
        help = None if written is None else f"write {written}"
        return Unsupported(
            f"`{name}` of {entry.framework}: {entry.note}",
            span=span,
            help=help,
            code=UNSUPPORTED_OPERATION,
        )
    forms = " or ".join(f"`{e}`" for e in entry.expressions)
    text = f"write {written}" if written else f"the form is {forms}"
    note = entry.caveat
    if written and note.startswith("results: ") and "," not in written.partition("=")[0]:
        note = ""  # one result, which is named
    whose = "" if entry.namespace == "models" else f"{entry.framework}'s name, not "
    return FusecError(
        f"`{name}` is {whose or 'not '}an operation of fusec",
        span=span,
        notes=[f"it is {entry.title}"] if written and entry.kind != "same" else (),
        help=text + (f"; {note}" if note else ""),
        code=FOREIGN_NAME,
    )


def without_place(entry: Entry, arguments: str) -> FusecError:
    """Return the error for arguments that fusec does not support."""
    what = f"`{entry.name}` of {entry.framework} with {arguments} has no equivalent"
    only = (
        entry.note.removeprefix("results: ") if entry.conditions and any(entry.conditions) else ""
    )
    help = f"fusec has it {only}" if only.startswith("by ") else None
    help = entry.caveat if only.startswith("of ") else help
    return Unsupported(what, notes=[f"it is {entry.title}"], help=help)


def near_operation(name: str, count: int | None = None) -> str | None:
    """Return the operation that `name` is a typo of, among those that take `count` arguments."""
    return nearest(name, (n for n, op in TABLE.items() if count is None or _takes(op, count)))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the word that `name` is a typo of: one letter off, two for long names; else None."""
    most = 1 if len(name) < 5 else 2
    near = [
        (edits(name.lower(), word.lower()), word)
        for word in known
        if abs(len(word) - len(name)) <= most
    ]
    distance, meant = min(near, default=(most + 1, None))
    return meant if distance <= most else None


def _takes(op: OpDef, count: int) -> bool:
    least = sum(p.default is REQUIRED for p in op.params)
    return least <= count <= len(op.params)
