"""Names and texts made to hide, to move or to end something, and what must not come of them."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from cli_tools import Result, fusec

from fusec.escape import quoted

NAMES = (
    "", " ", "a b", "a\nb", "a\r\nb", "a\tb", "a\x1b[31mb", "a\0b", "a\x07", "a\x9b31m", "a\\",
    "a\\\nb", "a*/b", "a??/", "a//b", "a;b", "a\"); import os; os.system('touch HACKED'); (\"b",
    "a'b", "{{ 7 * 7 }}", "<script>alert(1)</script>", '"><img src=x>', "../escaped",
    "/tmp/escaped", "..", ".", "a\u2028b", "a\x85b", "a\u202eb", "caf\u00e9", "\ud800", "a" * 2000,
    "__import__", "None", "null", "f32", "for", "#define a b", "$(touch HACKED)", "x: {y", "- y",
    "[y]", "%s%n",
)  # fmt: skip
"""None of these may name anything."""

WORDS = (
    "NULL", "INFINITY", "assert", "expf", "exp", "max", "min", "linux", "I", "main", "printf",
    "yes", "on", "Null", "TRUE", "y", "complex", "float32", "print", "lambda", "fd", "DataType",
    "self", "match", "None_", "row", "kThreads", "types", "half", "size_t",
)  # fmt: skip
"""Names as others; each is a word of some language that they go into."""

PATHS = (
    "nl\n#error x", "cr\rx", "tab\tx", "esc\x1b[31mx", "bell\x07", "csi\x9b31m", "back\\", "tri??",
    "com*", "-->", "quote\"'`x", "<script>alert(1)", "&amp;<b>x", "dollar$(touch HACKED)",
    "brace{{ 7 * 7 }}", "ls\u2028x", "rtl\u202ex", "caf\u00e9", "bytes\udce9", "%s%n", " ", "#x",
    "a" * 200,
)  # fmt: skip
"""Parts of paths; a folder and a file are called so."""

DOCS = (
    "*/ #error x", "ends with \\", "ends with \\ ", "??/", "one\ntwo", "\n\n", " #x: y", "- y",
    "null", '"""', "'''\"\"\"\"", "\\\"\"\"", "\x1b[31m", "\u2028#error x", "\u202ex", "\0",
    "\ud800", "\U000e0001", "{{ 7 * 7 }}", "</pre><script>alert(1)</script>", "\x85x", "tab\tx",
    " x ", "%s", "\\x1b", "\\u202e", "a: b", "|", "> x", "\ufeff",
)  # fmt: skip
"""What a fusion is said to compute."""

KINDS = ("fusion-ir", "preseg", "scheduler-params", "cuda-kernel", "python", "host-program")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("check",),
    ("check", "--format", "github", "-v"),
    ("compile", "-o", "{out}"),
    ("diff", "{out}"),
    ("run",),
    ("run", "--device", "reference", "--check-bounds"),
    ("dump", *(f"--{kind}" for kind in KINDS)),
    ("dump", "--ptx"),
    *(("dump", "--style", style) for style in ("2024", "head", "json", "dot", "mermaid")),
    ("explain",),
    ("explain", "--json"),
    ("explain", "--html", "{page}"),
    ("golden", "--update"),
    ("golden",),
)
"""Every command that takes a fusion file."""

RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What no terminal, editor or compiler may be given."""


def every_command(capsys: pytest.CaptureFixture[str], path: Path, out: Path) -> list[Result]:
    """Return what each command says of a file; none prints what cannot be seen."""
    results: list[Result] = []
    for command, *options in COMMANDS:
        given = [o.format(out=out, page=out.with_suffix(".html")) for o in options]
        done = fusec(capsys, command, path, *given)
        found = RAW.search(done.out + done.err)
        assert found is None, f"{command}: {found}"
        results.append(done)
    return results


def files_below(folder: Path) -> set[str]:
    """Return every file of a folder by its path."""
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def yaml_of(doc: str = "", **names: str) -> str:
    """Return a fusion file in which names stand at their places, quoted."""
    parts = {"fusion": "f", "dim": "N", "given": "x", "made": "z", "segment": "s", "phase": "p"}
    at = {place: quoted(name) for place, name in {**parts, **names}.items()}
    # In an op line a name stands bare.
    line = {place: name for place, name in {**parts, **names}.items()}
    return (
        f"fusion: {at['fusion']}\n"
        + (f"doc: {quoted(doc)}\n" if doc else "")
        + f"dims: {{{at['dim']}: 16}}\n"
        f"inputs:\n  {at['given']}: {quoted('f32[' + line['dim'] + ']')}\n"
        f"ops:\n  - {quoted(line['made'] + ' = exp(' + line['given'] + ')')}\n"
        f"  - {quoted('last = mul(' + line['made'] + ', ' + line['given'] + ')')}\n"
        f"outputs: [{at['made']}, last]\n"
        f"segments:\n  {at['segment']}: [last]\n"
        + (f"phases:\n  {at['phase']}: [{at['made']}]\n  q: [last]\n" if "phase" in names else "")
    )


class Tags(HTMLParser):
    """The tags of a page, with the names of their attributes."""

    def __init__(self, page: str) -> None:
        """Read a page."""
        super().__init__()
        self.found = Counter[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count a tag."""
        self.found[" ".join([tag, *(name for name, _ in attrs)])] += 1
