"""Common YAML mistakes, reported with their fix."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import yaml

from fusec.codes.document import MISSING_DASH
from fusec.diagnostics import FusecError
from fusec.parse.source import Source

_TYPE = re.compile(r"[A-Za-z0-9_]+\s*$")
_KEY = re.compile(r"[ ]*[\w\"']+ *:(?=\s|$)")
_ENTRY = re.compile(_KEY.pattern + r" +[^\s#]")  # with its value in the line
_NAME_AND_TYPE = re.compile(r"[ ]*([A-Za-z_]\w*)[ ]+([A-Za-z0-9_]+(?:\[[^\]:]*\])?(?: *= *[^:]+)?)")
_OP_LINE = re.compile(r"[ ]*([A-Za-z_][\w, ]*=[^=].*?)[ ]*")
_BULLET = re.compile(r"\A(?:[*+–—•]|\d+[.)])\s*")
"""List markers in other formats."""
_ASSIGNED_NUMBER = re.compile(r"[ ]*([A-Za-z_]\w*)[ ]*=[ ]*([-+]?[0-9.][0-9.eE+-]*)[ ]*")
_ASSIGNED_SCALAR = re.compile(
    r"[ ]*([A-Za-z_]\w*)[ ]*=[ ]*([a-z]\w*)[ ]+([-+]?[0-9.][0-9.eE+-]*)[ ]*"
)
_SIZED_ENTRY = re.compile(r"(dims|mesh): +([A-Za-z_]\w*)[ ]*=[ ]*(\w+)[ ]*")
_STARRED = re.compile(r"[ ]*[*%$]\s*([A-Za-z_][\w, ]*=[^=].*?)[ ]*")
_SIGILED = re.compile(r"[ ]*- ([%$@]\w+\s*=[^=].*?)[ ]*")
_LISTED_ENTRY = re.compile(r"[ ]*-[ ]+([A-Za-z_]\w*): (\w+\[[^\]]*\].*?)[ ]*")
_DASHED = re.compile(r"[ ]*-([A-Za-z_][\w, ]*=[^=].*?)[ ]*")
_FIELD_AND_LIST = re.compile(r"([a-z]+)[ ]+([\[{].*?)[ ]*")
_ASSIGNED_TYPE = re.compile(r"[ ]*([A-Za-z_]\w*)[ ]*=[ ]*([A-Za-z]\w*\[[^\]:]*\])[ ]*")
_REVERSED_TYPE = re.compile(r"[ ]*([A-Za-z_]\w*)[ ]*:[ ]+(\[[^\]:]*\])[ ]*([a-z]\w*)[ ]*")
_NESTED_ENTRY = re.compile(r"(dims|inputs|mesh): +(\w+: .*?)[ ]*")
_WORD = re.compile(r"""[\w'"-]+""")
_WORD_BEFORE = re.compile(r"(\w+)\s*\Z")
_KEY_WITHOUT_SPACE = re.compile(r"[ ]*(?:- )?([A-Za-z_]\w*:)[^\s:/]")


def explain(source: Source, problem: yaml.MarkedYAMLError) -> FusecError:
    """Return the error for a mistake that the YAML parser found."""
    mark = problem.problem_mark or problem.context_mark
    offset = min(mark.index if mark is not None else 0, len(source.text))
    if problem.context and problem.context_mark and "quoted scalar" in problem.context:
        return FusecError(
            "the quoted text is never closed",
            span=source.span(problem.context_mark.index),
            help="close it with the same quote, on the same line",
        )
    for known in (_by_line, _without_blank, _without_colon, _without_dash):
        found = known(source, problem, offset)
        if found is not None:
            return found
    message, help = _mend(source, problem, offset)
    notes: tuple[str, ...] = ()
    if "flow" in (problem.context or ""):
        place = source.span(_context(problem, offset)).place()
        notes = (f"{problem.context}, begun at {place}",)
    return FusecError(message, span=source.span(offset), notes=notes, help=help)


def _by_line(source: Source, problem: yaml.MarkedYAMLError, offset: int) -> FusecError | None:
    """Return the error for a line of a known form near the location that YAML reports."""
    last = source.line_of(offset)
    while last > 1 and not source.line_text(last).strip():
        last -= 1  # YAML reports the end of the file for its last line
    for number in dict.fromkeys((last, last - 1, source.line_of(_context(problem, offset)))):
        line = source.line_text(number) if number >= 1 else ""
        for form, tell in _FORMS:
            found = form.fullmatch(line)
            told = None if found is None else tell(*found.groups())
            if found is not None and told is not None:
                start = source.start_of(number)
                span = source.span(start + found.start(1), start + found.end())
                return FusecError(told[0], span=span, help=told[1])
    return None


Advice = tuple[str, str] | None
"""A message and its help."""


def _dashed(line: str) -> Advice:
    return "no space after `-`", f"write `- {line}`"


def _starred(line: str) -> Advice:
    return "the op line is missing its `- `", f"write `- {line}`"


def _sigiled(line: str) -> Advice:
    plain = re.sub(r"[%$@](?=\w)", "", line)
    return "names are letters, digits and `_`", f"write `- {plain}`"


def _listed_entry(name: str, type: str) -> Advice:
    return "entries of a section are not a list", f"write `{name}: {type}`, without the `- `"


def _number(name: str, value: str) -> Advice:
    return f"no `:` after `{name}`", f"write `{name}: f32 = {value}`"


def _scalar(name: str, dtype: str, value: str) -> Advice:
    return f"no `:` after `{name}`", f"write `{name}: {dtype} = {value}`"


def _sized_entry(field: str, name: str, size: str) -> Advice:
    told = f"write `{name}: {size}` on a line below, indented by 2 spaces, or remove it"
    return f"`{field}:` has an entry on its own line", told


def _of_field(name: str, value: str) -> Advice:
    known = name in ("dims", "inputs", "outputs", "mesh")
    return (f"no `:` after `{name}`", f"write `{name}: {value}`") if known else None


def _without_sign(name: str, type: str) -> Advice:
    return f"no `:` after `{name}`", f"write `{name}: {type}`"


def _reversed(name: str, shape: str, dtype: str) -> Advice:
    return "the dtype comes before the shape", f"write `{name}: {dtype}{shape}`"


def _nested(field: str, entry: str) -> Advice:
    told = f"write `{entry}` on a line below, indented by 2 spaces"
    return f"`{field}:` has an entry on its own line", told


_COMMENT = re.compile(r"[ ]*(//+|/\*+|--+)[ ]?(.*?)[ ]*(?:\*/)?")


def _commented(marks: str, text: str) -> Advice:
    return f"a comment does not begin with `{marks}`", f"write `# {text}`"


_FORMS: Sequence[tuple[re.Pattern[str], Callable[..., Advice]]] = (
    (_COMMENT, _commented), (_DASHED, _dashed), (_FIELD_AND_LIST, _of_field),
    (_ASSIGNED_TYPE, _without_sign),
    (_REVERSED_TYPE, _reversed), (_NESTED_ENTRY, _nested), (_STARRED, _starred),
    (_SIGILED, _sigiled), (_LISTED_ENTRY, _listed_entry), (_ASSIGNED_NUMBER, _number),
    (_ASSIGNED_SCALAR, _scalar), (_SIZED_ENTRY, _sized_entry),
)  # fmt: skip
"""Lines that YAML does not parse, and the advice for each."""


def without_dash(source: Source, start: int, entry: str = "") -> FusecError:
    """Return the error for an op line that begins there, without its `- `.

    entry: the key of the section, which is on a line of its own.
    """
    first = source.text[start:].partition("\n")[0].rstrip()
    span = source.span(start, start + len(first))
    help = f"write `- {_BULLET.sub('', first)}`"
    if entry and source.line_text(source.line_of(start)).startswith(entry):
        help = f"write `{entry}` on a line of its own, and below it `{help[7:-1]}`"
    return FusecError("the op line is missing its `- `", span=span, help=help, code=MISSING_DASH)


def _without_dash(source: Source, problem: yaml.MarkedYAMLError, offset: int) -> FusecError | None:
    """Return the error for `y = op(x)` between lines that begin with `- `."""
    last = source.line_of(offset)
    for line in range(source.line_of(_context(problem, offset)), last + 1):
        found = _OP_LINE.fullmatch(source.line_text(line))
        if found is not None and source.line_text(line - 1).lstrip().startswith("- "):
            return without_dash(source, source.start_of(line) + found.start(1))
    return None


def _mend(source: Source, problem: yaml.MarkedYAMLError, offset: int) -> tuple[str, str | None]:
    text, context = source.text, problem.context or ""
    here = text[offset : offset + 1]
    if here == "\t":
        return "a tab indents this line", "indent with spaces, not tabs"
    if "flow mapping" in context and here == "[" and _TYPE.search(text, 0, offset):
        entry = re.search(r"(\w+): *(\w+)\Z", text[:offset])
        shape = re.match(r"\[[^\]\n]*\]", text[offset:])
        named = 'type: "bf16[B, H]"'
        if entry is not None and shape is not None:
            named = f'{entry[1]}: "{entry[2]}{shape[0]}"'
        return (
            "in `{...}`, a value ends at `[`",
            f"quote the type, as in `{{{named}}}`, or write one entry per line",
        )
    if "flow" in context and here == "?":
        return "a size is an integer", "write a default, as in `T: 4096`: sizes vary at run time"
    if "flow" in context:
        closing = "`}`" if "mapping" in context else "`]`"
        if here == "," and text[:offset].rstrip().endswith((",", "[", "{")):
            return "an entry is missing before this `,`", "remove one `,`"
        word = _WORD_BEFORE.search(text, 0, offset) if here == ":" else _WORD.match(text, offset)
        opened = source.line_of(_context(problem, offset))
        if word is not None and source.line_of(offset) == opened:
            return f"expected `,` or {closing}", f"write a `,` before `{word[0].rstrip()}`"
        ends = _without_comma(source, offset, opened)
        if ends is not None:
            return f"expected `,` or {closing}", f"write `,` at the end of line {ends}"
        return f"expected `,` or {closing}", f"close with {closing} what line {opened} opens"
    if "mapping values" in (problem.problem or ""):
        before = text[text.rfind("\n", 0, offset) + 1 : offset]
        if re.match(r"\s*- .*=.*[(\[]", before):
            return "`: ` inside an op line makes it a YAML mapping", colon_help(before)
        if _KEY.fullmatch(f"{before}:") and (misaligned := _misaligned(source, offset)):
            return misaligned
        return "unexpected `: `", _quoted(before, text, offset)
    if "could not find expected ':'" in (problem.problem or ""):
        return "expected `name: value`", "every line is a `key: value` pair or begins with `- `"
    if here == "`" and text.startswith("```", offset):
        return "this is Markdown, not YAML", "keep the lines between the two lines of ``` alone"
    if "cannot start any token" in (problem.problem or ""):
        return f"a value cannot begin with `{here}`", "quote it"
    if "did not find expected '-'" in (problem.problem or ""):
        if here == "=":
            return (
                "a list in brackets ends the op line at `]`",
                "name several results without brackets: `a, b = op(x)`",
            )
        return "expected `- `", "write every op on its own line: `- y = op(x)`"
    line = text[text.rfind("\n", 0, offset) + 1 :].partition("\n")[0]
    if re.match(r"\s*- .*=", line) and not re.search(r"(?m)^ops:", text):
        return "op lines stand under `ops:`", "write `ops:` on a line before this one"
    if "did not find expected key" in (problem.problem or ""):
        misaligned = _misaligned(source, offset)
        return misaligned or (
            "expected a key",
            "check the indentation, and that brackets are balanced",
        )
    return f"not YAML: {problem.problem or problem.context}", None


def _without_comma(source: Source, offset: int, opened: int) -> int | None:
    """Return the line before an entry of JSON that lacks its `,`; None if brackets are not closed.

    opened: the line of the bracket; its entries are to the right of the first word of that line.
    """
    number = source.line_of(offset)
    line, outer = source.line_text(number), source.line_text(opened)
    before = source.text[: source.start_of(number)].rstrip()
    first = source.start_of(number) + len(line) - len(line.lstrip())
    deeper = first - source.start_of(number) > len(outer) - len(outer.lstrip())
    if offset != first or not deeper or before.endswith((",", "[", "{")):
        return None
    return source.line_of(len(before) - 1)


def _misaligned(source: Source, offset: int) -> tuple[str, str] | None:
    """Return the error of a line that begins left of the line above, or right of an entry there."""
    number = source.line_of(offset)
    above = next((k for k in range(number - 1, 0, -1) if source.line_text(k).strip()), number)
    line, entry = source.line_text(number).rstrip(), source.line_text(above)
    own, other = (len(t) - len(t.lstrip()) for t in (line, entry))
    told = f"this line is indented by {own} blank{'s' * (own != 1)}, and the one above by {other}"
    if own < other:
        return told, "align it with the entries above, or with the section"
    if own > other and _ENTRY.match(entry) and _KEY.match(line):
        return told, f"align it with line {above}: write `{' ' * other}{line.lstrip()}`"
    return None


def _quoted(before: str, text: str, offset: int) -> str:
    """Return what to write for a value with `: ` in it, after the part `before` of its line."""
    rest = text[offset:].partition("\n")[0].rstrip()
    found = re.fullmatch(r"\s*([A-Za-z_]\w*):\s+(\S.*)", before)
    value = "" if found is None else f"{found[2]}{rest}"
    typed = re.fullmatch(r"(\w+) *: *([-+]?[0-9.][0-9.eE+-]*)", value)
    if found is not None and typed is not None:
        return f"a default is written after `=`: write `{found[1]}: {typed[1]} = {typed[2]}`"
    if found is None or '"' in value or "\\" in value or " #" in value:
        return "check the indentation of this line, or quote the value"
    return f'quote the value: write `{found[1]}: "{value}"`'


def _without_blank(source: Source, problem: yaml.MarkedYAMLError, offset: int) -> FusecError | None:
    """Return the error for `x:f32[H]`, at that line or the one before, where YAML sees no key."""
    if not re.search("':'|mapping values", problem.problem or ""):
        return None
    for line in (source.line_of(_context(problem, offset)), source.line_of(offset) - 1):
        found = _KEY_WITHOUT_SPACE.match(source.line_text(line))
        if found is not None:
            start = source.start_of(line)
            return FusecError(
                f"no space after `{found[1]}`",
                span=source.span(start + found.start(1), start + found.end(1)),
                help=f"write `{found[1]} {source.line_text(line)[found.end(1) :].strip()}`",
            )
    return None


def _without_colon(source: Source, problem: yaml.MarkedYAMLError, offset: int) -> FusecError | None:
    """Return the error for `x f32[H]` in the line before, which YAML joins to the next one."""
    if not re.search("expected ':'|mapping values", problem.problem or ""):
        return None
    for line in (source.line_of(offset) - 1, source.line_of(_context(problem, offset))):
        found = _NAME_AND_TYPE.fullmatch(source.line_text(line)) if line >= 1 else None
        if found is not None:
            start = source.start_of(line)
            return FusecError(
                f"no `:` after `{found[1]}`",
                span=source.span(start + found.start(1), start + found.end(1)),
                help=f"write `{found[1]}: {found[2].rstrip()}`",
            )
    return None


def _context(problem: yaml.MarkedYAMLError, offset: int) -> int:
    return problem.context_mark.index if problem.context_mark is not None else offset


def colon_help(before: str) -> str:
    """Return what to write for `: ` in an op line, after the text `before`."""
    if re.search(r"[\w\])]\[[^\[\]]*$", before):
        return "write slices without a blank after the colon: `x[0:3]`"
    if "?" in before:
        return "a choice is `where(condition, a, b)`"
    if re.search(r"\blambda\b", before):
        return "op lines have no `lambda`: write its body where it is called"
    return "write attributes with `=`, as in `pad(x, value=1)`"
