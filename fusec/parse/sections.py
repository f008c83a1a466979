"""Errors in the layout of a file: nested fusions, Python, sections and lines that YAML merged."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fusec.codes.document import (
    COLON_IN_OP_LINE,
    UNEXPECTED_TOKEN,
    WRONG_NODE,
)
from fusec.diagnostics import FusecError
from fusec.parse import fields
from fusec.parse.source import Source
from fusec.parse.yaml_nodes import Listing, Mapping, Scalar, YamlNode

RESULTS = r"(?:\A|[;\n])[ ]*(?:- )?([^=;\n]*)="
"""The names defined in an op line, or in each of several on one line."""

_JOINED = re.compile(r"\n[ ]*(- *\w+(?: *, *\w+)* *=(?!=)[^\n]*)|(;) *([^\n]*)")


def names_of_outputs(node: YamlNode | None) -> Iterator[str]:
    if isinstance(node, Mapping):
        yield from (e.key.text for e in node.entries)
    for item in node.items if isinstance(node, Listing) else ():
        yield from [item.text] if isinstance(item, Scalar) else names_of_outputs(item)


def _is_closed(text: str) -> bool:
    return all(text.count(a) == text.count(b) for a, b in ("()", "[]"))


def joined_line(item: Scalar) -> FusecError | None:
    """Return the error for a second op line in one: after a `;`, or indented deeper."""
    found = _JOINED.search(item.source.text, item.start, item.end) if item.plain else None
    if found is None or not _is_closed(item.source.text[item.start : found.start()]):
        return None
    if found[1]:
        return FusecError(
            "this line is indented deeper than the op line above, so YAML joins them",
            span=item.source.span(found.start(1), found.end(1)),
            help="align its `-` with the one above, and write "
            f"`- {found[1].removeprefix('-').strip()}`",
            code=UNEXPECTED_TOKEN,
        )
    before = item.source.text[item.start : found.start(2)].strip()
    rest = f" and `- {found[3].strip()}`" if found[3].strip() else ""
    return FusecError(
        "an op line ends at its end, not at a `;`",
        span=item.source.span(found.start(2)),
        help=f"{'one op per line' if rest else 'remove it'}: write `- {before}`{rest}",
        code=UNEXPECTED_TOKEN,
    )


def refuse_nested(root: Mapping) -> None:
    """Raise FusecError for a section that is indented under another one."""
    for entry in root.entries:
        inner = entry.value.entries if isinstance(entry.value, Mapping) else ()
        for nested in inner:
            is_block = isinstance(nested.value, (Mapping, Listing))
            if is_block and nested.key.text in _SECTIONS_OF_LINES and not root.get(nested.key.text):
                raise FusecError(
                    f"`{nested.key.text}:` is indented under `{entry.key.text}:`",
                    span=nested.key.span,
                    help="begin the line in the first column, and indent its entries by 2 spaces",
                    code=WRONG_NODE,
                )


_SECTIONS_OF_LINES = ("dims", "inputs", "ops", "outputs", "mesh")
"""Sections whose names occur as entries of no other section."""


def refuse_python(source: Source) -> None:
    """Raise FusecError for a Python script in a file that is read as YAML."""
    first = _PYTHON.search(source.text)
    if first is not None:
        raise FusecError(
            "this is Python, not YAML",
            span=source.span(first.start(), first.end()),
            help=_python_help(source.text),
            code=WRONG_NODE,
        )


def _python_help(text: str) -> str:
    """Return what to do with a Python script in a file with another extension."""
    from fusec.parse.torch_modules import EXPORTED, MODULE_CLASS

    if "FusionDefinition" in text:
        return "name the file `.py`: scripts with a `FusionDefinition` are read"
    if MODULE_CLASS.search(text):
        return EXPORTED
    return (
        "a file has the lines of one function: write its arguments under `inputs:`, and "
        "`- y = relu(x)` under `ops:` for each line"
    )


_PYTHON = re.compile(
    r"(?m)\A(?:\s*(?:#[^\n]*)?\n)*(?:def \w+\(|import \w|from \w+ import|class \w+[:(]|@\w)"
)

OUTPUTS_HELP = "write `outputs: [y]`, or `- y: {alias: x}` to write to an input"

SECTIONS = {
    "dims": ("dims (a mapping)", "write `dims: {B: 4096, H: 1024}`, or one `name: size` per line"),
    "inputs": ("inputs (a mapping)", "write one `name: bf16[B, H]` per line, without `- `"),
}


def of_names(section: str, node: YamlNode) -> str | None:
    """Return the section written with the names of a list; None for other nodes."""
    pairs = re.findall(r"(\w+) *= *([\w*+/ -]+)", node.text) if isinstance(node, Scalar) else []
    if pairs and section == "dims":
        return f"write `dims: {{{', '.join(f'{name}: {size.strip()}' for name, size in pairs)}}}`"
    items = node.items if isinstance(node, Listing) else ()
    names = [i.text for i in items if isinstance(i, Scalar) and i.text.isidentifier()]
    if not names or len(names) != len(items):
        return None
    value = "4096" if section == "dims" else '"f32[B, H]"'
    entries = ", ".join(f"{name}: {value}" for name in names)
    return f"write `{section}: {{{entries}}}`, with the {'sizes' if section == 'dims' else 'types'}"


def is_cut(item: Scalar) -> bool:
    return item.text.count("(") != item.text.count(")") or "=" not in item.text


def became_mapping(item: Mapping) -> FusecError:
    """Return the error for an op line that YAML parses as a mapping because it contains `: `."""
    from fusec.parse.traps import colon_help

    first = item.entries[0] if item.entries else None
    if first is None or "=" not in first.key.text:
        body = first.value if first is not None and len(item.entries) == 1 else None
        named = first is not None and re.fullmatch(r"\w+(\s*,\s*\w+)*", first.key.text)
        if first is not None and first.key.text.split(" ")[0] in ("for", "while", "if", "with"):
            help = "op lines have no blocks: write a line for each turn, or a Python script"
            return FusecError(f"`{first.key.text}:` is Python", span=item.span, help=help)
        function = None if first is None else re.match(r"def (\w+)", first.key.text)
        if first is not None and function is not None:
            text = body.text.removeprefix("return ") if isinstance(body, Scalar) else ""
            help = f"write its body{f', `{text}`,' if text else ''} where `{function[1]}` is called"
            return FusecError("op lines have no functions", span=item.span, help=help)
        line = "y = op(x)"
        if first is not None and isinstance(body, Mapping):
            called, given = body.get("op"), body.get("args")
            items = given.items if isinstance(given, Listing) else ()
            words = [item.text for item in items if isinstance(item, Scalar)]
            if isinstance(called, Scalar):
                line = f"{first.key.text} = {called.text}({', '.join(words)})"
        if first is not None and named and isinstance(body, Scalar) and body.text:
            line = f"{first.key.text} = {body.text}"
        return fields.wrong(item, "an op line", f"write `- {line}`")
    # The colon follows the key, perhaps after spaces.
    start = item.source.text.find(":", first.key.end)
    return FusecError(
        "`: ` inside an op line makes it a YAML mapping",
        span=item.source.span(start),
        help=colon_help(first.key.text),
        code=COLON_IN_OP_LINE,
    )
