"""Destinations of a command's diagnostics: stderr as text, and on request stdout as JSON."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections.abc import Callable, Generator, Iterable
from math import isfinite
from typing import Any

import click

from fusec.commands.terminal.colour import tell
from fusec.dataclasses import dataclass, field
from fusec.diagnostics import Diagnostic, FusecError

SCHEMA_VERSION = 1
"""Version of the output of `--json` (docs/json.md); within a version fields are only added."""


@dataclass
class Report:
    """A command's report in addition to its output: diagnostics, and facts for JSON.

    differences: of golden files, at their lines. silent: whether another process reports all of it.
    """

    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    differences: list[Diagnostic] = field(default_factory=list[Diagnostic])
    silent: bool = False

    def warn(self, found: Iterable[Diagnostic]) -> None:
        """Record warnings and print them, without duplicates."""
        for diagnostic in found:
            if diagnostic not in self.diagnostics:
                self.diagnostics.append(diagnostic)
                tell(diagnostic)

    def json(self) -> str:
        """Return everything as the text of one JSON object."""
        told = [d.as_dict() for d in self.diagnostics]
        facts = {"schema_version": SCHEMA_VERSION, "diagnostics": told, **self.facts}
        return json.dumps(_plain(facts), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    """Return data with numbers that JSON lacks as text: `nan`, `inf`, `-inf`, `(1+2j)`."""
    match value:
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}  # pyright: ignore
        case list() | tuple():
            return [_plain(item) for item in value]  # pyright: ignore
        case complex():
            return str(value)
        case float() if not isfinite(value):
            return str(value)
        case _:
            return value


@contextlib.contextmanager
def report_to(report: Report) -> Generator[None]:
    """Add the error that ends the block to a report, and print the report as JSON in any case."""
    try:
        yield
    except FusecError as error:
        report.diagnostics += error.diagnostics
        raise
    except (OSError, MemoryError) as error:
        report.diagnostics.append(Diagnostic("environment", str(error) or "out of memory"))
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        report.diagnostics.append(Diagnostic("internal error", message))
        raise
    finally:
        if not report.silent:
            click.echo(report.json())


def diagnosed(function: Callable[..., int]) -> Callable[..., int]:
    """Add `--json`; the body gets a Report, and its own output then goes to stderr."""

    @click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object for tools, see docs/json.md."
    )
    @functools.wraps(function)
    def body(*args: Any, as_json: bool, **rest: Any) -> int:
        report = Report()
        if not as_json:
            return function(*args, report=report, **rest)
        with report_to(report), contextlib.redirect_stdout(sys.stderr):
            return function(*args, report=report, **rest)

    return body
