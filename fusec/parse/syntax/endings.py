"""Suggestions for a line that continues where it should end, and for Python's statements."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fusec.ops import TABLE
from fusec.parse.syntax.operators import WORDS

if TYPE_CHECKING:
    from fusec.parse.syntax.cursor import Cursor

STATEMENTS = {
    "import": "remove the line: `math.sqrt(2)` and PyTorch's names are known without an import",
    "from": "remove the line: `math.sqrt(2)` and PyTorch's names are known without an import",
    "return": "remove the line, and list the values under `outputs:`",
    "assert": "remove the line: shapes are checked when the file is read",
    "del": "remove the line: values take memory only as long as they are used",
    "print": "remove the line: `fusec run FILE --print 4` prints elements of the outputs",
    "pass": "remove the line",
    "global": "remove the line",
    "def": "a file holds the body of one function: write its lines, its arguments under `inputs:`",
    "class": "a file holds the body of one function: write the lines of `forward`",
    "for": "op lines are run once: write a line for each step, or a Python script with the loop",
    "while": "op lines are run once: write a line for each step, or a Python script with the loop",
    "if": "a choice by data is `where(condition, a, b)`",
    "with": "remove the line: a fusion records no gradients and runs on one device",
}
"""Python statements, including `print`, and their replacement in a file."""


def _too_many(parser: Cursor) -> str | None:
    """Return a suggestion for a call that is closed too early, or twice."""
    text, at = parser.source.text, parser.token.start
    start = text.rfind("\n", 0, at) + 1
    before, behind = text[start:at], text[at:].partition("\n")[0]
    line = before + behind
    if parser.token.text not in (",", ")") or line.count(")") != line.count("(") + 1:
        return None
    # The one that closed the call before the token, or the token itself.
    place = max(before.rfind(")"), 0) if parser.token.text == "," else len(before)
    depth = 0
    for k, sign in enumerate(before if parser.token.text == "," else ""):
        depth += (sign == "(") - (sign == ")")
        if sign == ")" and depth == 0:
            place = k
            break
    mended = (line[:place] + line[place + 1 :]).strip()
    return f"one `)` too many: write `{mended.removeprefix('- ').rstrip()}`"


def _unparenthesized(parser: Cursor) -> str | None:
    """Return a suggestion for `relu x`."""
    text, at = parser.source.text, parser.token.start
    words = re.search(r"(\w+)\s+\Z", text[:at])
    if words is None or words[1] not in TABLE or parser.token.kind not in ("name", "number"):
        return None
    line = text[text.rfind("\n", 0, at) + 1 :].partition("\n")[0]
    before = line[: line.rfind(words[1], 0, at - text.rfind("\n", 0, at))]
    rest = text[at:].partition("\n")[0].strip()
    return f"operations are called: write `{before.lstrip().removeprefix('- ')}{words[1]}({rest})`"


def _scalar(parser: Cursor) -> str | None:
    """Return a suggestion for `eps: f32 1e-5`."""
    line = parser.source.text[: parser.token.start].rpartition("\n")[2]
    found = re.fullmatch(r"\s*(\w+):\s+(\w+)\s+", line)
    if found is None or parser.token.kind != "number":
        return None
    return f"a default is written after `=`: write `{found[1]}: {found[2]} = {parser.token.text}`"


def _comma(parser: Cursor) -> str | None:
    """Return a suggestion for a comma after a value: at its end, or in a number."""
    if parser.token.text != ",":
        return None
    text, at = parser.source.text, parser.token.start
    before, behind = (re.compile(p) for p in (r"(\d+)\Z", r"(\d+(?:,\d{3})*)\b"))
    number, rest = before.search(text, 0, at), behind.match(text, at + 1)
    if number is None or rest is None:
        rest = text[at + 1 :].partition("\n")[0].strip()
        return "write a line for each result" if rest else "remove the `,`"
    plain = number[1] + rest[1].replace(",", "")
    if all(len(group) == 3 for group in rest[1].split(",")):
        return f"numbers have no separators: write `{plain}`"
    return f"decimals have a point: write `{number[1]}.{rest[1]}`"


def two_values(parser: Cursor) -> str | None:
    """Return a suggestion for `a b`, two values without an operator."""
    text, at = parser.source.text, parser.token.start
    before = re.search(r"([\w.]+|\))[ ]+\Z", text[text.rfind("\n", 0, at) + 1 : at])
    if before is None or parser.token.kind not in ("name", "number"):
        return None
    if parser.token.text in WORDS or "//" in text[text.rfind("\n", 0, at) + 1 : at]:
        return None
    left = "..." if before[1] == ")" else before[1]
    return f"an operator is missing, as in `{left} * {parser.token.text}`"


def _comment(parser: Cursor) -> str | None:
    """Return the help if words follow a `//`, as in C."""
    line = parser.source.text[: parser.token.start].rpartition("\n")[2]
    if "//" in line and parser.token.kind == "name":
        return "`//` divides integers: a comment begins with `#`"
    return None


def _second_line(parser: Cursor) -> str | None:
    line = parser.source.text[: parser.token.start].rpartition("\n")[2]
    if not line.strip() and parser.token.kind == "name":
        return "a new op begins with `- `"
    return None


def _converted(parser: Cursor) -> str | None:
    """Return a suggestion for `x as f32` and `(f32)x`."""
    text, at = parser.source.text, parser.token.start
    line = text[text.rfind("\n", 0, at) + 1 :].partition("\n")[0].strip().removeprefix("- ")
    for form in (r"(.*?=\s*)(\w+) as (\w+)\s*", r"(.*?=\s*)\((?P<dtype>\w+)\)\s*(?P<value>\w+)\s*"):
        found = re.fullmatch(form, line)
        if found is not None:
            named = found.groupdict()
            value, dtype = named.get("value") or found[2], named.get("dtype") or found[3]
            return f"write `{found[1]}cast({value}, {dtype})`"
    return None


_KNOWN = (
    _second_line, _converted, _too_many, _comma, _comment, _unparenthesized, _scalar, two_values,
)  # fmt: skip


def help_after(parser: Cursor) -> str | None:
    """Return a suggestion for a token that follows where the line should end."""
    return next((help for told in _KNOWN if (help := told(parser)) is not None), None)
