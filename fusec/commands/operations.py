"""`fusec ops`: the operations, and a page of each."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from fusec.commands.diagnose import Report
from fusec.diagnostics import FusecError
from fusec.ir.dtype import DTYPES
from fusec.ir.graph import Fusion
from fusec.ir.op import REQUIRED, OpDef
from fusec.ops import REFUSED, TABLE, find_op
from fusec.ops.examples import examples
from fusec.ops.find import not_ours
from fusec.ops.frameworks import Entry, aliases, find_bare, find_dotted, of_operation
from fusec.parse import read_text
from fusec.parse.frameworks import calls_in, parsed

_SIZES = {"B": 4, "C": 8, "G": 2, "K": 8}
_OTHER_SIZE = 16


def list_ops(name: str | None, report: Report) -> int:
    """Print all operations by family, or all that is known of one."""
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
    """Return for tools what the list says of an operation."""
    parameters = [{"name": p.name, "required": p.default is REQUIRED} for p in op.params]
    return {
        "name": op.name, "family": op.family, "signature": signature(op), "doc": op.doc,
        "parameters": parameters, "results": list(op.results), "cuda": dict(op.cuda),
    }  # fmt: skip


def _every() -> dict[str, Any]:
    """Return for tools the operations, the names that stand for some, and those refused."""
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
    """Return for tools which operations a name stands for, and how it is written here."""
    entry = _entry_of(name)
    found = [name] if entry is None else operations_of(entry)
    expressions = [] if entry is None else list(entry.expressions)
    operations = [_facts(TABLE[n]) for n in found]
    return {"name": name, "expressions": expressions, "operations": operations}


def _entry_of(name: str) -> Entry | None:
    """Return what is known of a name of another framework; None of one that only fusec has."""
    if name in TABLE:
        return None
    words = dict.fromkeys((name, name.lower()))  # PyTorch's modules: `LSTM`, `nn.GELU`
    found = (find_dotted(word) if "." in word else find_bare(word) for word in words)
    return next((entry for entry in found if entry is not None), None)


def described(name: str) -> str:
    """Return the page of an operation, or what another framework's name is called here."""
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
    """Return the operations that stand for a name of another framework, in order."""
    calls = (call for e in entry.expressions for call in calls_in(parsed(e)))
    return list(dict.fromkeys(c.name.text for c in calls if c.name.text in TABLE))


def signature(op: OpDef) -> str:
    """Return `name(x, dims, keepdim=false)`."""
    parts = [
        p.name if p.default is REQUIRED else f"{p.name}={_default(p.default)}" for p in op.params
    ]
    return f"{op.name}({', '.join(parts)})"


def _default(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def describe(op: OpDef) -> str:
    """Return an operation's page: signature, meaning, types, and an example with its result."""
    text = example_file(op)
    fusion = read_text(text)
    made = ", ".join(f"{o.value.name}: {o.value.type}" for o in fusion.outputs)
    lines = [signature(op), "", op.doc, "", f"family: {op.family}"]
    if len(op.results) > 1:
        lines.append(f"results: {', '.join(op.results)}")
    for entry in of_operation(op.name):
        lines.append(f"{entry.title}: {' or '.join(entry.expressions)}")
    lines += types_taken(text)
    if op.cuda:
        lines += [f"CUDA ({kind}): {cuda}" for kind, cuda in op.cuda.items()]
    if op.family == "pointwise":
        low, high = op.domain
        lines += [f"random inputs in [{low:g}, {high:g}]", f"accuracy: {op.accuracy:g} ulp"]
    lines += ["", f"example, returns {made}:", "", text]
    return "\n".join(lines)


def example_file(op: OpDef) -> str:
    """Return a fusion file that uses an operation."""
    for example in examples(op):
        text = _file(op.name, example)
        if _read(text) is not None:
            return text
    raise FusecError(f"`{op.name}` has no example", help="give it one in fusec/ops/examples.py")


def _file(name: str, example: str) -> str:
    parts = example.split("; ")
    lines = [part for part in parts if "=" in part]
    inputs = [part for part in parts if "=" not in part]
    letters = sorted(set(re.findall(r"\b[A-Z]\b", example)))
    sizes = ", ".join(f"{letter}: {_SIZES.get(letter, _OTHER_SIZE)}" for letter in letters)
    outputs = [n for n in lines[-1].partition(" = ")[0].split(", ") if n != "_"]
    return "\n".join(
        [
            f"fusion: {name}_example",
            f"dims: {{{sizes}}}",
            *(["inputs:", *(f"  {declared}" for declared in inputs)] if inputs else []),
            "ops:",
            *(f"  - {line}" for line in lines),
            f"outputs: [{', '.join(outputs)}]\n",
        ]
    )


def _read(text: str) -> Fusion | None:
    try:
        return read_text(text)
    except FusecError:
        return None


def types_taken(text: str) -> Iterator[str]:
    """Yield, for the inputs of an example that are of one type, which types they may have.

    The types of the results stand behind an arrow where they follow from that.
    """
    inputs = [entry.value for entry in read_text(text).given]
    for dtype in dict.fromkeys(value.dtype for value in inputs):
        tried = {name: _read(re.sub(rf": {dtype}\b", f": {name}", text)) for name in DTYPES}
        made = {
            name: [output.value.dtype.name for output in fusion.outputs]
            for name, fusion in tried.items()
            if fusion is not None
        }
        fixed = [len({*results}) == 1 for results in zip(*made.values(), strict=True)]
        taken: dict[str, list[str]] = {}
        for name, results in made.items():
            words = (
                "the same" if result == name and not always else result
                for result, always in zip(results, fixed, strict=True)
            )
            taken.setdefault(", ".join(words), []).append(name)
        names = ", ".join(value.name for value in inputs if value.dtype == dtype)
        follow = dtype == inputs[0].dtype or not all(fixed)
        for results, types in taken.items():
            yield f"types of {names}: {' '.join(types)}{f' -> {results}' if follow else ''}"
