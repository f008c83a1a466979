"""The command line of `fusec tune`."""

from __future__ import annotations

import click

from fusec.commands.terminal.diagnose import Report, diagnosed
from fusec.commands.terminal.flags import PATH, compile_options
from fusec.diagnostics import FusecError
from fusec.options import CompileOptions


@click.command("tune")
@click.argument("files", nargs=-1, type=PATH)
@click.option("--budget", type=click.FloatRange(0), metavar="S", help="Time budget in seconds.")
@click.option("--segments", metavar="S0,S1", help="Tune these segments alone.")
@click.option(
    "--top",
    "most",
    type=click.IntRange(2, 64),
    default=16,
    show_default=True,
    metavar="K",
    help="Candidates per segment in the first round.",
)
@click.option("-o", "--output", type=PATH, metavar="FILE", help="File to write or add to.")
@click.option("--merge", is_flag=True, help="Merge FILES written by `tune` into one.")
@click.option(
    "--report",
    "summarise",
    is_flag=True,
    help="Report cost-model mispredictions, from FILES or from those in use.",
)
@diagnosed
@compile_options
def tune_command(
    files: tuple[str, ...],
    budget: float | None,
    segments: str | None,
    most: int,
    output: str | None,
    merge: bool,
    summarise: bool,
    options: CompileOptions,
    report: Report,
) -> int:
    """Measure schedules of the segments of FILES on the GPU, and keep the fastest of each.

    They are used from then on, also without a GPU: docs/tuning.md.
    """
    from fusec.commands.tune import TuneOptions, merge_files, report_files, tune_files

    if merge and summarise:
        raise FusecError("--merge and --report exclude each other")
    if not files and not summarise:
        raise FusecError("no FILES given", help="`fusec tune FILE...`")
    if output == "":
        raise FusecError("-o names no file")
    if merge:
        return merge_files(files, output, report)
    if summarise:
        return report_files(files, options, report)
    named = tuple(s.strip() for s in (segments or "").split(",") if s.strip())
    return tune_files(files, options, TuneOptions(budget, named, most, output), report)
