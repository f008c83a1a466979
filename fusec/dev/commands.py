"""`fusec dev`: what the commands of these tools take."""

from __future__ import annotations

from typing import Any

import click

from fusec.processors import usable_processors


@click.group("dev")
def dev_group() -> None:
    """Tools for work on fusec itself."""


def _jobs(given: int | None) -> int:
    """Return how many processes to start: as given, or two less than there are processors."""
    return max(1, usable_processors() - 2) if given is None else given


DEVICE = click.option(
    "--device", type=click.Choice(["auto", "cuda", "none"]), default="auto", show_default=True
)
JOBS = click.option(
    "--jobs", "-j", type=click.IntRange(0), help="Processes; 0: all in this one, for a debugger."
)


@dev_group.command("fuzz")
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
def fuzz_command(no_build: bool, jobs: int | None, themes: tuple[str, ...], **rest: Any) -> int:
    """Take random fusions through every stage; keep what fails, shrunk, in DIR.

    NAME is one theme (gemm, attention_decode, ...), `contractions` (GEMMs and attention) or
    `general` (all others).
    """
    from fusec.dev.fuzz import FuzzOptions, fuzz, themes_of

    options = FuzzOptions(builds=not no_build, jobs=_jobs(jobs), themes=themes_of(themes), **rest)
    return fuzz(options)


@dev_group.command("reduce")
@click.argument("file")
@DEVICE
@JOBS
@click.option("--time", "seconds", type=click.FloatRange(0), default=300.0, show_default=True)
@click.option("-o", "--output", metavar="FILE", help="Where to write (default FILE.min.yaml).")
def reduce_command(
    file: str, device: str, jobs: int | None, seconds: float, output: str | None
) -> int:
    """Shrink the failing fusion FILE to a small one that fails in the same way."""
    from fusec.dev.reduce import reduce_file

    return reduce_file(file, device, _jobs(jobs), seconds, output)
