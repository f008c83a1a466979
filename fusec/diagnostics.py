"""Diagnostics with a source span: what was found, what was expected, how to fix it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

from fusec.codes.code import Code
from fusec.dataclasses import dataclass, field
from fusec.escape import visible


@dataclass(frozen=True)
class Span:
    """A range in one line of a source file; lines and columns count from 1."""

    file: str
    line: int
    column: int
    width: int = 1
    text: str = ""

    def place(self) -> str:
        """Return `file:line:column`."""
        return f"{self.file}:{self.line}:{self.column}"

    @property
    def shown(self) -> str:
        """Return the part of the line that is underlined by carets."""
        return self.text[self.column - 1 : self.column - 1 + self.width]


Paint = Callable[[str, str], str]
"""Returns a text styled by role."""


def plain(role: str, text: str) -> str:
    """Return a text unchanged."""
    return text


@dataclass(frozen=True)
class Diagnostic:
    """One message with its place, notes and help; code: of its kind, where that has one."""

    severity: str
    message: str
    span: Span | None = None
    notes: tuple[str, ...] = ()
    help: str | None = None
    code: str | None = None

    def render(self, paint: Paint = plain) -> str:
        """Return severity and message as text, with the line and a caret where there is a span.

        Unprintable characters are escaped: names and paths in it are untrusted. paint: returns a
        text in the colour of a role: the severity, `margin` or `help`.
        """
        kind = self.severity if self.code is None else f"{self.severity}[{self.code}]"
        return f"{paint(self.severity, f'{kind}:')} {self.text(paint)}"

    def text(self, paint: Paint = plain) -> str:
        """Return the same without the severity."""
        lines = [visible(self.message)]
        margin = " "
        if self.span is not None:
            number = str(self.span.line)
            margin = " " * (len(number) + 1)
            lines.append(f"{margin}{paint('margin', '-->')} {visible(self.span.place())}")
            if self.span.text:
                shown, bar = _shown(self.span.text), paint("margin", "|")
                caret = paint(self.severity, "^" * max(1, self.span.width))
                lines += [
                    f"{margin} {bar}",
                    f" {paint('margin', number)} {bar} {shown}",
                    f"{margin} {bar} {' ' * (self.span.column - 1)}{caret}",
                ]
        sign = paint("margin", "=")
        lines += [f"{margin} {sign} {visible(note.expandtabs())}" for note in self.notes]
        if self.help is not None:
            lines.append(f"{margin} {sign} {paint('help', 'help:')} {visible(self.help)}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for tools; unknown fields are null."""
        span = self.span
        return {
            "severity": self.severity,
            "code": self.code,
            "message": self.message,
            "file": None if span is None else span.file,
            "line": None if span is None else span.line,
            "column": None if span is None else span.column,
            "width": None if span is None else span.width,
            "notes": list(self.notes),
            "help": self.help,
        }

    @staticmethod
    def of_dict(data: Mapping[str, Any]) -> Diagnostic:
        """Return the diagnostic of data from `as_dict`, without the text of its line."""
        span = None
        if data["file"] is not None:
            span = Span(data["file"], data["line"], data["column"], data["width"])
        notes = tuple(data["notes"])
        return Diagnostic(
            data["severity"], data["message"], span, notes, data["help"], data["code"]
        )


def warning(
    message: str, *, span: Span | None = None, notes: Sequence[str] = (), help: str | None = None
) -> Diagnostic:
    """Return a warning about valid input that is rarely intended."""
    return Diagnostic("warning", message, span, tuple(notes), help)


def _shown(line: str) -> str:
    """Return a line with one character per unprintable one, so that carets are aligned."""
    return "".join(c if c.isprintable() else " " if c == "\t" else "\ufffd" for c in line)


@dataclass(frozen=True)
class Instead:
    """The replacement for a wrong call, in terms of the parameters of its operation.

    text: an expression with `{name}` for each argument, `{name_0}` for the first one of a list;
    empty for the call itself. arguments: the same for the arguments of the call that change. why:
    what the operation takes, said before it. declares: the declaration that the call needs as well,
    and also: how that is written.
    """

    text: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    why: str = ""
    declares: Any = None
    also: str = ""

    def help(self, line: str) -> str:
        """Return the help to write a line, which is in backquotes."""
        data = f"{self.why}: write {line}" if self.why else f"write {line}"
        return f"{data}, and {self.also}" if self.also else data

    @property
    def rule(self) -> str | None:
        """Return the help without the line, if there is any."""
        return ": ".join(filter(None, (self.why, self.also))) or None


@dataclass(frozen=True)
class Guess:
    """A line that is probably what was meant, and the help without it, if it does not work.

    declares: the declaration that it needs.
    """

    line: Any
    otherwise: str | None
    declares: Any = None


class FusecError(RuntimeError):
    """Wrong usage or input: exit code 2; a RuntimeError, as nvFuser's users expect.

    Its text is the complete diagnostic; `diagnostic.message` is the headline only.
    """

    exit_code: ClassVar[int] = 2
    severity: ClassVar[str] = "error"

    def __init__(
        self,
        message: str,
        *,
        span: Span | None = None,
        notes: Sequence[str] = (),
        help: str | None = None,
        about: str = "",
        code: Code | None = None,
        instead: Instead | None = None,
        facts: Sequence[str] = (),
        operation: str = "",
        cause: str = "",
        given: Mapping[str, Any] | None = None,
        guess: Guess | None = None,
    ) -> None:
        """Store one diagnostic; `more` may collect further ones.

        about: the kind of the parameter whose argument is wrong, for a caller that knows its place.
        code: the kind of the error, which `fusec explain CODE` describes. instead: the fix, for a
        caller that knows the arguments as written. facts: those of the notes that name no value.
        operation: the call whose error it is, and given: its operands by their parameters. cause:
        the message of the call that raised it. guess: the line that the help suggests, for a caller
        that can try it.
        """
        super().__init__(message)
        self.about, self.code, self.instead, self.facts = about, code, instead, tuple(facts)
        self.operation, self.cause, self.given = operation, cause, given or {}
        self.guess = guess
        number = None if code is None else code.number
        self.diagnostic = Diagnostic(self.severity, message, span, tuple(notes), help, number)
        self.more: tuple[Diagnostic, ...] = ()

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Return every diagnostic, the first one first."""
        return (self.diagnostic, *self.more)

    def __str__(self) -> str:
        return "\n\n".join(d.text() for d in self.diagnostics)

    def at(self, span: Span | None) -> FusecError:
        """Return the same error placed at `span`, where it has no place yet."""
        if span is None or self.diagnostic.span is not None:
            return self
        placed = self.changed(span=span)
        placed.more = self.more
        return placed

    def coded(self, code: Code) -> FusecError:
        """Return the same error with a code, where it has none yet."""
        return self if self.code is not None else self.changed(code=code)

    def changed(self, message: str | None = None, **changes: Any) -> FusecError:
        """Return an error of the same type and kind with another message, place, notes or help."""
        old = self.diagnostic
        kept: dict[str, Any] = {
            "span": old.span,
            "notes": old.notes,
            "help": old.help,
            "code": self.code,
            "about": self.about,
            "instead": self.instead,
            "facts": self.facts,
            "operation": self.operation,
            "cause": self.cause,
            "given": self.given,
            "guess": self.guess,
        }
        made = type(self)(old.message if message is None else message, **(kept | changes))
        vars(made).update({k: v for k, v in vars(self).items() if k not in vars(made)})
        return made

    def render(self, paint: Paint = plain) -> str:
        """Return every diagnostic as text."""
        return "\n\n".join(d.render(paint) for d in self.diagnostics)


class Unsupported(FusecError):
    """A valid fusion that fusec does not support, with the reason: exit code 3."""

    exit_code = 3
    severity = "unsupported"


class WrongType(FusecError, TypeError):
    """An argument of a Python call has an invalid type."""


class EnvironmentProblem(FusecError):
    """The machine lacks something (a GPU, NVRTC, a tool): exit code 4."""

    exit_code = 4
    severity = "environment"


class OutOfMemory(EnvironmentProblem):
    """A GPU has no memory left for an allocation."""


class InternalError(FusecError):
    """A bug of fusec, with instructions to reproduce it: exit code 70."""

    exit_code = 70
    severity = "internal error"


@cache
def note_once(text: str) -> None:
    """Print a note to stderr, once per process."""
    print(f"fusec: {text}", file=sys.stderr)
