"""`python -m tools.reduce FILE`: a failing fusion shrunk, as long as it fails in the same way."""

from __future__ import annotations

import sys

import click

from tools.command_line import DEVICE, JOBS, jobs_of, run


@click.command("reduce")
@click.argument("file")
@DEVICE
@JOBS
@click.option("--time", "seconds", type=click.FloatRange(0), default=300.0, show_default=True)
@click.option("-o", "--output", metavar="FILE", help="Where to write (default FILE.min.yaml).")
def command(file: str, device: str, jobs: int | None, seconds: float, output: str | None) -> int:
    """Shrink the failing fusion FILE to a small one that fails in the same way."""
    from tools.reducing import reduce_file

    return reduce_file(file, device, jobs_of(jobs), seconds, output)


if __name__ == "__main__":
    sys.exit(run(command))
