"""The command line of `fusec bench`."""

from __future__ import annotations

import click

from fusec.commands.diagnose import Report, diagnosed
from fusec.commands.flags import CONTEXT, PATH, compile_options
from fusec.options import CompileOptions


@click.command("bench", context_settings=CONTEXT)
@click.argument("file", type=PATH)
@click.option(
    "--repeat",
    type=click.IntRange(1, 100_000),
    default=25,
    show_default=True,
    help="Timed runs, of which the median counts.",
)
@click.option(
    "--seed", type=click.IntRange(0, 2**64 - 1), default=0, show_default=True, help="Of the inputs."
)
@click.option("--no-verify", is_flag=True, help="Do not compare with the fp64 reference.")
@click.option("--counters", is_flag=True, help="Count bytes of memory by the profiler instead.")
@click.option("--out", type=PATH, metavar="FILE", help="Also write the results as JSON.")
@diagnosed
@compile_options
def bench_command(
    file: str,
    repeat: int,
    seed: int,
    no_verify: bool,
    counters: bool,
    out: str | None,
    options: CompileOptions,
    report: Report,
) -> int:
    """Time FILE on the GPU, beside kernels that only move the fewest bytes (docs/bench.md).

    Medians of runs with a cold L2. --counters runs Nsight Compute (`ncu`) instead, and compares
    the bytes that it counts with those that were predicted.
    """
    from fusec.commands.bench import BenchOptions, bench

    chosen = BenchOptions(repeat, not no_verify, seed, out, counters)
    return bench(file, options, chosen, report)
