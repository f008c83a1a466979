"""Follow the help of errors: put the line that it says to write in place of the wrong one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fusec.codes.calls import CHAINED_COMPARISON
from fusec.codes.document import COLON_IN_OP_LINE, UNEXPECTED_TOKEN, WRONG_NODE
from fusec.codes.names import DEFINED_TWICE, FOREIGN_NAME, METHOD_CALL
from fusec.diagnostics import Diagnostic, FusecError
from fusec.parse import read_text

MOST_STEPS = 6
"""How many lines are followed one after another, in a file with several mistakes."""

_WRITE = re.compile(
    r"(?:write|declare) (`[^`]+`(?:,? (?:and|or)(?: in this line)? `[^`]+`(?! for))*)"
)
_SPARE = re.compile(r"with `(\w+: [^`]+)`(?: before it)? under `dims:`")
_PLACE = re.compile(r"under `dims:`, below `(\w+)`")
_ALSO = re.compile(r", and declare `([^`]+)`")
_BELOW = re.compile(r"`(\w+)` for `(\w+)` in the lines below")
_OP_LINE = re.compile(r"(?:- )?\w+(?: *, *\w+)* = .+")
TRANSLATED = frozenset(
    code.number
    for code in (UNEXPECTED_TOKEN, CHAINED_COMPARISON, FOREIGN_NAME, METHOD_CALL, COLON_IN_OP_LINE,
                 WRONG_NODE, DEFINED_TWICE)
)  # fmt: skip
"""Codes of lines in another language's words: said in fusec's they may be wrong in another way."""

_FORMS = ("op(x)", "f32 = ...")
"""What stands in forms, which are no lines to write."""


@dataclass(frozen=True)
class Followed:
    """What became of a file: whether it is accepted, and what each step said."""

    accepted: bool
    steps: tuple[str, ...]
    stuck: str
    """Why the last help failed: the error it was to mend, or one at the line that it wrote."""


def error_of(text: str) -> FusecError | None:
    """Return the error of a file, None of one that is accepted."""
    try:
        read_text(text, "wrong.yaml")
    except FusecError as error:
        return error
    return None


def follow(text: str) -> Followed:
    """Follow the help of each error of a file in turn, until none says a line to write."""
    steps: list[str] = []
    error = error_of(text)
    while error is not None and len(steps) < MOST_STEPS:
        told = next(
            ((d, t) for d in error.diagnostics if (t := written(text, d)) is not None), None
        )
        if told is None:
            return Followed(False, tuple(steps), "")
        diagnostic, text = told
        steps.append(f"{diagnostic.message} => {diagnostic.help}")
        after = error_of(text)
        again = None if after is None else same_place(after, diagnostic)
        translated = diagnostic.code in TRANSLATED
        if again is not None and not (translated and again.message != diagnostic.message):
            return Followed(False, tuple(steps), f"{text}\n{again.render()}")
        error = after
    return Followed(error is None, tuple(steps), "" if error is None else "too many steps")


def same_place(error: FusecError, mended: Diagnostic) -> Diagnostic | None:
    """Return a diagnostic in the line of the one that was mended, if there is one."""
    span = mended.span
    assert span is not None
    return next((d for d in error.diagnostics if d.span and d.span.line == span.line), None)


def written(text: str, diagnostic: Diagnostic) -> str | None:
    """Return a file with the line that a diagnostic says to write; None where it says none."""
    span, help = diagnostic.span, diagnostic.help or ""
    found = _WRITE.search(help)
    if span is None or found is None or any(form in found[0] for form in _FORMS):
        return None
    parts = re.findall(r"(,? (?:and|or)(?: in this line)? )?`([^`]+)`", found[1])
    said = [part for word, part in parts if "or" not in word]
    lines = text.split("\n")
    at = span.line - 1
    if all(_OP_LINE.fullmatch(line) for line in said):
        end = _end_of(lines, at)
        below = lines[end:]
        for new, old in _BELOW.findall(help):
            below = [re.sub(rf"\b{old}\b", new, line) for line in below]
        made = [f"  - {line.removeprefix('- ')}" for line in said]
        whole = [*lines[:at], *made, *below]
        made = "\n".join(whole)
        for also in _ALSO.findall(help):
            declared = _declared(_moved_below(made.split("\n"), also, help), also, help)
            made = declared or made
        return made
    return _declared(_moved_below(lines, said[0], help), said[0], help)


def _moved_below(lines: list[str], said: str, help: str) -> list[str]:
    """Return the lines with the dim that is declared below another one, where the help says so."""
    found = _PLACE.search(help)
    if found is None:
        return lines
    name = re.escape(said.partition(":")[0])
    dims = re.sub(rf"([{{ ]){name}: [^,}}]+(?:, )?", r"\1", lines[1])
    return [lines[0], re.sub(rf"({found[1]}: [^,}}]+)", rf"\1, {name}: 0", dims), *lines[2:]]


def _end_of(lines: list[str], at: int) -> int:
    """Return where the op line ends that begins at a line: those indented deeper go on with it."""
    end = at + 1
    while end < len(lines) and lines[end].startswith("   ") and not lines[end].startswith("  - "):
        end += 1
    return end


def _declared(lines: list[str], said: str, help: str) -> str | None:
    """Return the file with a declaration in the place of the one of its name."""
    name, colon, value = said.partition(": ")
    if not colon or not name.isidentifier():
        return None
    made = list(lines)
    for k, line in enumerate(lines):
        if re.match(rf"  {name}:", line):
            made[k] = f"  {name}: {value}"
            break
        dim = re.search(rf"([{{ ]){name}: (?:\{{[^}}]*\}}|[^,}}]+)", line) if k < 3 else None
        if dim is not None:
            made[k] = line.replace(dim[0], f"{dim[1]}{said}")
            break
    else:
        return None
    for spare in _SPARE.findall(help):
        made = [line.replace("dims: {", f"dims: {{{spare}, ") for line in made]
    return "\n".join(made)
