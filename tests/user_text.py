"""All text that users of fusec read, by where it stands: pages, help, operations, messages."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from paths import ROOT

from fusec.cli import cli
from fusec.ops import REFUSED, TABLE
from fusec.pages.files import GENERATED

PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
_TOKEN = re.compile(
    r'"""[\s\S]*?"""|#[^\n]*'
    r'|(?P<kind>[rbfRBF]*)(?P<quote>["\'])(?P<text>(?:\\.|(?!(?P=quote))[^\\\n])*)(?P=quote)'
)
_COMMENT = re.compile(r"(?:^[ ]*//[^\n]*\n)+|//[^\n]*", re.MULTILINE)
_COMPUTED = re.compile(r"\{[^{}]*\}")

_FENCE = re.compile(r"^```(\w*)\n.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\([^)]*\)")
_CODE = re.compile(r"`[^`]*`|--[\w-]+|\{\{.*?\}\}|\{%.*?%\}|^\w+\(.*\)$", re.MULTILINE)
_SHOWN = frozenset({"", "console", "text"})
"""Kinds of fenced blocks that hold output of fusec, so are read as text."""


def user_texts() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of everything, code and names of files replaced by a blank."""
    for path in PAGES:
        yield from _lines(path, path.read_text(encoding="utf-8"))
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    yield from _lines(
        ROOT / "CHANGELOG.md", "".join(re.split(r"^(?=## )", changes, flags=re.M)[:2])
    )
    for path in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        yield from _lines(path, path.read_text(encoding="utf-8").splitlines()[0])
    for name, page in GENERATED.items():
        yield f"fusec docs {name}", _prose(page())
    for name, text in _helps(cli, "fusec"):
        yield f"{name} --help", _prose(text)
    for name, op in TABLE.items():
        yield f"fusec ops {name}", _prose(op.doc)
    for name, reason in REFUSED.items():
        yield f"fusec ops {name}", _prose(reason)
    schema = json.loads((ROOT / "fusec.schema.json").read_text(encoding="utf-8"))
    for text in _descriptions(schema):
        yield "fusec.schema.json", _prose(text)
    for path in sorted((ROOT / "fusec").rglob("*.py")):
        yield from _messages(path)
    for page in sorted((ROOT / "fusec" / "explain").glob("page*.html.j2")):
        yield from _lines(page, page.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "fusec" / "templates").rglob("*")):
        if path.suffix in (".j2", ".cuh"):
            yield from _comments(path)


def python_texts() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each docstring and comment of the package."""
    for path in sorted((ROOT / "fusec").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        alone = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Expr)]
        constants = [n.value for n in alone if isinstance(n.value, ast.Constant)]
        found = [(c.lineno, c.value) for c in constants if isinstance(c.value, str)]
        comments = (m for m in _TOKEN.finditer(source) if m[0].startswith("#"))
        found += [(source.count("\n", 0, m.start()) + 1, m[0]) for m in comments]
        for line, text in found:
            yield f"{path.relative_to(ROOT)}:{line}", _prose(" ".join(text.split()))


def _prose(text: str) -> str:
    """Return a text without code, options and placeholders."""
    return _CODE.sub("` `", text)


def _lines(path: Path, text: str) -> Iterator[tuple[str, str]]:
    """Yield the paragraphs of a page, each with the line that it begins in."""

    def without(match: re.Match[str]) -> str:
        return match[0] if match[1] in _SHOWN else "\n" * match[0].count("\n")

    text = _LINK.sub("]", _FENCE.sub(without, text))
    number = 1
    for paragraph in re.split(r"(\n(?:\n+|(?=[-|])))", text):
        if paragraph.strip():
            yield f"{path.relative_to(ROOT)}:{number}", " ".join(_prose(paragraph).split())
        number += paragraph.count("\n")


def _comments(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the comments of generated code, those of adjacent lines as one."""
    text = path.read_text(encoding="utf-8")
    for match in _COMMENT.finditer(text):
        place = f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}"
        yield place, " ".join(_prose(match[0].replace("//", "")).split())


def _helps(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    yield name, command.get_help(click.Context(command, info_name=name))
    if isinstance(command, click.Group):
        for inner, child in command.commands.items():
            if inner != "dev":
                yield from _helps(child, f"{name} {inner}")


def _descriptions(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("description", "title", "errorMessage") and isinstance(value, str):
                yield value
            else:
                yield from _descriptions(value)
    elif isinstance(node, list):
        for value in node:
            yield from _descriptions(value)


def _messages(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the string literals of a module that read as text, adjacent ones as one.

    Docstrings and tables, in three quotes, are no messages. A scan, since parsing takes longer.
    """
    source = path.read_text(encoding="utf-8")
    start, end, parts = 0, 0, list[str]()
    for match in _TOKEN.finditer(source):
        if match["text"] is None:
            continue
        if parts and source[end : match.start()].strip():
            yield from _message(path, source, start, parts)
            parts = []
        start = start if parts else match.start()
        text = match["text"]
        parts.append(_COMPUTED.sub("{}", text) if "f" in match["kind"] else text)
        end = match.end()
    yield from _message(path, source, start, parts)


def _message(
    path: Path, source: str, start: int, parts: Sequence[str]
) -> Iterator[tuple[str, str]]:
    text = "".join(parts)
    if " " in text.strip():
        place = f"{path.relative_to(ROOT)}:{source.count(chr(10), 0, start) + 1}"
        yield place, " ".join(_prose(text.replace("\\n", " ")).split())
