"""The text of a file, and spans into it."""

from __future__ import annotations

import codecs
import os
import re
from bisect import bisect_right
from pathlib import Path

from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError, Span
from fusec.escape import visible
from fusec.foreign import TEXT_BYTES, MissingFile, read_bytes, read_standard_input
from fusec.parse.documents import document_of
from fusec.properties import cached_property

MAX_CHARACTERS = 16 * 1024 * 1024
MAX_SHOWN_LINE = 400
_BINARY = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_YAML_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Line breaks in YAML only: a comment would continue as text."""
_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"), (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16"),
)  # fmt: skip
"""The byte-order marks of other encodings; that of UTF-32 begins with one of UTF-16."""
STDIN = "-"
_WHAT = "a fusion file"


@dataclass(frozen=True)
class Source:
    """The text of a file; offsets count characters from 0."""

    file: str
    text: str

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(m.end() for m in re.finditer("\n", self.text))]

    def line_of(self, offset: int) -> int:
        """Return the number of the line at `offset`, from 1."""
        return bisect_right(self._starts, offset)

    def start_of(self, line: int) -> int:
        """Return the offset at which a line begins."""
        return self._starts[line - 1]

    def line_text(self, line: int) -> str:
        """Return a line by number, with tabs replaced by single spaces to align carets."""
        if not 1 <= line <= len(self._starts):
            return ""
        start = self._starts[line - 1]
        end = self.text.find("\n", start)
        return self.text[start : len(self.text) if end < 0 else end].replace("\t", " ")

    def span(self, start: int, end: int | None = None) -> Span:
        """Return the span from `start` to `end`, truncated to its first line."""
        start = min(start, len(self.text))
        line = self.line_of(start)
        text = self.line_text(line)
        column = start - self._starts[line - 1] + 1
        width = 1 if end is None else min(end - start, len(text) - column + 1)
        # A generated line of a megabyte is not useful: only the location is shown.
        shown = text if len(text) <= MAX_SHOWN_LINE else ""
        return Span(self.file, line, column, max(1, width), shown)


def source_of_text(text: str, file: str) -> Source:
    """Return the source of `text`; FusecError if it is empty, binary or too long."""
    if len(text) > MAX_CHARACTERS:
        raise FusecError(f"`{file}` is too long for a fusion file ({len(text)} characters)")
    # The byte-order mark and carriage returns would shift columns.
    source = Source(file, text.removeprefix("\ufeff").replace("\r\n", "\n"))
    found = _BINARY.search(source.text)
    if found is not None:
        code = f"U+{ord(found[0]):04X}"
        if found[0] == "\0":
            raise FusecError(f"`{file}` is a binary file, not a fusion file")
        raise FusecError(f"control character {code}", span=source.span(found.start()))
    found = None if file.endswith(".py") else _YAML_BREAKS.search(source.text)
    if found is not None:
        raise FusecError(
            f"line separator U+{ord(found[0]):04X}",
            span=source.span(found.start()),
            help=f'in a string write it as `"{visible(found[0])}"`',
        )
    if not source.text.strip():
        begin = "`from fusec import FusionDefinition`" if file.endswith(".py") else "`fusion: name`"
        raise FusecError(f"`{file}` is empty", help=f"a fusion file begins with {begin}")
    return source


def source_of_file(path: str | os.PathLike[str]) -> Source:
    """Return the source of the file at `path`; FusecError if it cannot be read as text.

    `-` is standard input.
    """
    name = os.fspath(path)
    if name == STDIN:
        name, data = "<stdin>", read_standard_input(_WHAT, TEXT_BYTES)
    else:
        data = _bytes_of(name)
    document = document_of(data)
    if document is not None:
        what, help = document
        raise FusecError(
            f"this is {what}, not a fusion file", span=Source(name, "").span(0), help=help
        )
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            raise FusecError(
                f"`{name}` is {encoding} text",
                help=f"save it as UTF-8: `iconv -f {encoding} -t UTF-8 {name}` prints it so",
            )
    if b"\0" in data[:4096]:
        raise FusecError(f"`{name}` is a binary file, not a fusion file")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        good = data[: problem.start].decode("utf-8")
        span = Source(name, good).span(len(good))
        raise FusecError("the file is not UTF-8 text", span=span) from None
    return source_of_text(text, name)


def _bytes_of(name: str) -> bytes:
    try:
        return read_bytes(name, _WHAT, TEXT_BYTES)
    except MissingFile as error:
        raise FusecError(error.diagnostic.message, help=_neighbours(name)) from None


def _neighbours(name: str) -> str | None:
    import difflib

    if re.fullmatch(r"[A-Za-z_]\w*=\d[\d,]*", name):
        return f"sizes are set with `--set {name}`"
    path = Path(name)
    try:
        names = [p.name for p in path.parent.iterdir() if p.suffix in (".yaml", ".yml", ".py")]
    except OSError:
        return None
    same = next((n for n in names if n.lower() == path.name.lower()), None)
    if same is not None:
        return f"did you mean `{path.with_name(same)}`?"
    stems = difflib.get_close_matches(
        path.stem, [Path(name).stem for name in names], n=1, cutoff=0.7
    )
    close = [name for name in names if Path(name).stem in stems]
    return f"did you mean `{path.with_name(close[0])}`?" if close else None
