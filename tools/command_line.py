"""What the command lines of these tools have in common: options, and how errors are printed."""

from __future__ import annotations

from collections.abc import Sequence

import click

from fusec.commands.terminal.colour import tell
from fusec.diagnostics import FusecError
from fusec.processors import usable_processors

DEVICE = click.option(
    "--device", type=click.Choice(["auto", "cuda", "none"]), default="auto", show_default=True
)
JOBS = click.option(
    "--jobs", "-j", type=click.IntRange(0), help="Processes; 0: all in this one, for a debugger."
)


def jobs_of(given: int | None) -> int:
    """Return how many processes to start: as given, or two less than there are processors."""
    return max(1, usable_processors() - 2) if given is None else given


def run(command: click.Command, arguments: Sequence[str] | None = None) -> int:
    """Run a tool's command line, by default this process's, and return its exit code."""
    name = f"python -m tools.{command.name}"
    given = None if arguments is None else list(arguments)
    try:
        return int(command.main(given, prog_name=name, standalone_mode=False) or 0)
    except FusecError as error:
        tell(error)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
