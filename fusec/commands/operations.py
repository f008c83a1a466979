"""`fusec ops`: the operations, and a page for each."""

from __future__ import annotations

import sys
from typing import Any

from fusec.commands.terminal.diagnose import Report
from fusec.ir.op import REQUIRED, OpDef
from fusec.ops import REFUSED, TABLE, find_op
from fusec.ops.find import not_ours
from fusec.ops.frameworks import Entry, aliases, find_bare, find_dotted
from fusec.pages.operations import describe, signature
from fusec.parse.foreign.frameworks import calls_in, parsed


def list_ops(name: str | None, report: Report) -> int:
    """Print all operations by family, or the page of one."""
    if name is not None:
        text = described(name)
        report.facts["operation"] = {**_named(name), "text": text}
        sys.stdout.write(text)
        return 0
    report.facts |= _every()
    families: dict[str, list[OpDef]] = {}
    for op in TABLE.values():
        families.setdefault(op.family, []).append(op)
    for family, ops in families.items():
        print(f"{family}:")
        for op in ops:
            print(f"  {signature(op):<60} {op.doc.splitlines()[0]}")
    print("aliases from other frameworks (`fusec ops NAME` maps all other names too):")
    for _, entry in sorted(aliases().items()):
        print(f"  {entry.signature:<60} {' or '.join(entry.expressions)}")
    print("refused:")
    for refused, reason in REFUSED.items():
        print(f"  {refused:<60} {reason}")
    return 0


def _facts(op: OpDef) -> dict[str, Any]:
    """Return the JSON record of an operation in the list."""
    parameters = [{"name": p.name, "required": p.default is REQUIRED} for p in op.params]
    return {
        "name": op.name, "family": op.family, "signature": signature(op), "doc": op.doc,
        "parameters": parameters, "results": list(op.results), "cuda": dict(op.cuda),
    }  # fmt: skip


def _every() -> dict[str, Any]:
    """Return the JSON record of operations, their other names, and rejected ones."""
    named = [
        {"name": name, "signature": entry.signature, "expressions": list(entry.expressions)}
        for name, entry in sorted(aliases().items())
    ]
    return {
        "operations": [_facts(op) for op in TABLE.values()],
        "aliases": named,
        "refused": [{"name": name, "reason": reason} for name, reason in REFUSED.items()],
    }


def _named(name: str) -> dict[str, Any]:
    """Return the JSON record of a foreign name: its operations, and how to write it."""
    entry = _entry_of(name)
    found = [name] if entry is None else operations_of(entry)
    expressions = [] if entry is None else list(entry.expressions)
    operations = [_facts(TABLE[n]) for n in found]
    return {"name": name, "expressions": expressions, "operations": operations}


def _entry_of(name: str) -> Entry | None:
    """Return the entry of another framework's name; None for one that only fusec has."""
    if name in TABLE:
        return None
    words = dict.fromkeys((name, name.lower()))  # PyTorch's modules: `LSTM`, `nn.GELU`
    found = (find_dotted(word) if "." in word else find_bare(word) for word in words)
    return next((entry for entry in found if entry is not None), None)


def described(name: str) -> str:
    """Return the page of an operation, or the equivalent of another framework's name."""
    entry = _entry_of(name)
    if entry is None:
        return describe(find_op(name))
    if entry.kind == "unsupported":
        raise not_ours(name, entry)
    taken = "fusec accepts this name too" if entry.kind == "alias" and "." not in name else ""
    lines = [entry.title, *(f"  {e}" for e in entry.expressions), entry.note, taken]
    lines += [signature(TABLE[n]) for n in operations_of(entry)]
    return "".join(f"{line}\n" for line in lines if line)


def operations_of(entry: Entry) -> list[str]:
    """Return the operations that are equivalent to another framework's name, in order."""
    calls = (call for e in entry.expressions for call in calls_in(parsed(e)))
    return list(dict.fromkeys(c.name.text for c in calls if c.name.text in TABLE))
