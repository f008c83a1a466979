"""The page of an operation: signature, meaning, types, and an example that works."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fusec.diagnostics import FusecError
from fusec.ir.dtype import DTYPES
from fusec.ir.graph import Fusion
from fusec.ir.op import REQUIRED, OpDef
from fusec.ops.examples import examples
from fusec.ops.frameworks import of_operation
from fusec.parse import read_text

_SIZES = {"B": 4, "C": 8, "G": 2, "K": 8}
_OTHER_SIZE = 16


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

    The types of the results follow an arrow if they are determined by that.
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
