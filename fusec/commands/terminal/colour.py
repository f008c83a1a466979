"""Diagnostics in colour on a terminal."""

from __future__ import annotations

import os
from typing import Protocol

import click

from fusec.diagnostics import Paint, plain

_COLOURS = {"warning": "yellow", "margin": "blue", "help": "green"}
"""By role; severities of errors are red."""


class Rendered(Protocol):
    """A diagnostic, or an error that contains some."""

    def render(self, paint: Paint = plain) -> str:
        """Return it as text."""
        ...


def tell(rendered: Rendered, more: str = "") -> None:
    """Print a diagnostic on stderr, in colour on a terminal unless NO_COLOR is set."""
    # click removes colours if stderr is not a terminal.
    click.echo(rendered.render(plain if os.environ.get("NO_COLOR") else _paint) + more, err=True)


def _paint(role: str, text: str) -> str:
    return click.style(text, fg=_COLOURS.get(role, "red"), bold=role != "margin")
