"""`--format github`: diagnostics as workflow commands, which GitHub shows next to the lines."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import click

from fusec.commands.terminal.diagnose import Report
from fusec.diagnostics import Diagnostic, FusecError
from fusec.escape import visible

FORMS = ("text", "github")


def annotated(function: Callable[..., int]) -> Callable[..., int]:
    """Add `--format`; the body's report is printed as annotations on stdout, after other output."""

    @click.option(
        "--format",
        "form",
        type=click.Choice(FORMS),
        default=FORMS[0],
        show_default=True,
        help="Also print diagnostics as annotations of GitHub Actions.",
    )
    @functools.wraps(function)
    def body(*args: Any, form: str, report: Report, **rest: Any) -> int:
        errors: tuple[Diagnostic, ...] = ()
        try:
            return function(*args, report=report, **rest)
        except FusecError as error:
            errors = error.diagnostics
            raise
        finally:
            if form == "github":
                _print((*report.diagnostics, *report.differences, *errors))

    return body


def _print(found: Iterable[Diagnostic]) -> None:
    for diagnostic in found:
        print(annotation(diagnostic))


def annotation(diagnostic: Diagnostic) -> str:
    """Return a diagnostic as one line: `::error file=f.yaml,line=3,col=5,endColumn=8::message`.

    Source: "Workflow commands for GitHub Actions", docs.github.com; escapes as its toolkit writes
    them.
    """
    kind = "warning" if diagnostic.severity == "warning" else "error"
    place, span = "", diagnostic.span
    if span is not None:
        fields = {
            "file": span.file, "line": span.line, "col": span.column,
            "endColumn": span.column + max(1, span.width),
        }  # fmt: skip
        place = " " + ",".join(f"{name}={_field(str(value))}" for name, value in fields.items())
    told = [diagnostic.message, *diagnostic.notes]
    told += [f"help: {diagnostic.help}"] if diagnostic.help is not None else []
    return f"::{kind}{place}::{_data(chr(10).join(told))}"


def _data(text: str) -> str:
    """Return a text as the message of a command; line breaks of it are the command's own."""
    lines = (visible(line) for line in text.split("\n"))
    return "%0A".join(line.replace("%", "%25") for line in lines)


def _field(text: str) -> str:
    """Return a text as the value of a field, where `:` and `,` have a meaning."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
