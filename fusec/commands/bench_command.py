"""The command line of `fusec bench`."""

from __future__ import annotations

import click

from fusec.commands.terminal.diagnose import Report, diagnosed
from fusec.commands.terminal.flags import CONTEXT, PATH, compile_options
from fusec.options import CompileOptions


@click.command("bench", context_settings=CONTEXT)
@click.argument("file", type=PATH)
@click.option(
    "--repeat",
    type=click.IntRange(1, 100_000),
    default=25,
    show_default=True,
    help="Timed runs; the median is reported.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**64 - 1),
    default=0,
    show_default=True,
    help="Seed of the random inputs.",
)
@click.option("--no-verify", is_flag=True, help="Do not compare with the fp64 reference.")
@click.option("--counters", is_flag=True, help="Measure memory traffic with the profiler instead.")
@click.option("--out", type=PATH, metavar="FILE", help="Also write the results as JSON.")
@click.option(
    "--html",
    type=PATH,
    metavar="FILE",
    help="Also write the page of `explain --html`, with the measured times and the limit.",
)
@diagnosed
@compile_options
def bench_command(
    file: str,
    repeat: int,
    seed: int,
    no_verify: bool,
    counters: bool,
    out: str | None,
    html: str | None,
    options: CompileOptions,
    report: Report,
) -> int:
    """Time FILE on the GPU against kernels that only move the compulsory traffic (docs/bench.md).

    Medians of runs with a cold L2. --counters runs Nsight Compute (`ncu`) instead, and compares
    the bytes that it counts with those that were predicted.
    """
    from fusec.commands.bench import BenchOptions, bench
    from fusec.commands.running.run_page import RunPage

    page = None if html is None else RunPage(html)
    chosen = BenchOptions(repeat, not no_verify, seed, out, counters, page)
    return bench(file, options, chosen, report)
