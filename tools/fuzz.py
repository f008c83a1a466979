"""`python -m tools.fuzz`: random fusions through every stage; what fails is kept, shrunk."""

from __future__ import annotations

import sys
from typing import Any

import click

from tools.command_line import DEVICE, JOBS, jobs_of, run


@click.command("fuzz")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--count", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--first", type=click.IntRange(0), default=0, help="Number of the first fusion.")
@DEVICE
@click.option("--no-build", is_flag=True, help="Stop at the CUDA source.")
@JOBS
@click.option("--keep", metavar="DIR", default="fuzz-failures", show_default=True)
@click.option("--time", "seconds", type=click.FloatRange(0), help="Seconds after which to stop.")
@click.option("--shrink", type=click.FloatRange(0), default=120.0, show_default=True)
@click.option("--stats", is_flag=True, help="Print how often everything was drawn.")
@click.option("--theme", "themes", multiple=True, metavar="NAME", help="Only fusions about NAME.")
@click.option("--json", "summary", metavar="FILE", help="Write the counts to FILE.")
def command(no_build: bool, jobs: int | None, themes: tuple[str, ...], **rest: Any) -> int:
    """Take random fusions through every stage; keep what fails, shrunk, in DIR.

    NAME is one theme (gemm, attention_decode, ...), `contractions` (GEMMs and attention) or
    `general` (all others).
    """
    from tools.fuzzing import FuzzOptions, fuzz, themes_of

    options = FuzzOptions(builds=not no_build, jobs=jobs_of(jobs), themes=themes_of(themes), **rest)
    return fuzz(options)


if __name__ == "__main__":
    sys.exit(run(command))
