"""The command line of `fusec run`."""

from __future__ import annotations

import click

from fusec.commands.terminal.annotations import annotated
from fusec.commands.terminal.diagnose import Report, diagnosed
from fusec.commands.terminal.flags import CONTEXT, PATH, compile_options, several_files
from fusec.commands.terminal.several import FilesCommand
from fusec.options import REFERENCES, CompileOptions


@click.command("run", context_settings=CONTEXT, cls=FilesCommand)
@several_files
@click.option(
    "--seed",
    type=click.IntRange(0, 2**64 - 1),
    default=0,
    show_default=True,
    help="Seed of the random inputs and of random ops without an explicit seed.",
)
@click.option(
    "--device", type=click.Choice(["auto", "cuda", "reference"]), default="auto", show_default=True
)
@click.option(
    "--inputs-kind",
    type=click.Choice(["reals", "integers"]),
    default="reals",
    show_default=True,
    help="Random inputs; `integers` are small enough for exact sums in any order.",
)
@click.option(
    "--inputs",
    type=PATH,
    metavar="FILE",
    help="Inputs (.safetensors or .npz) instead of random ones.",
)
@click.option(
    "--outputs", type=PATH, metavar="FILE", help="Save the outputs (.safetensors or .npz)."
)
@click.option("--expect", type=PATH, metavar="FILE", help="Also compare with these outputs.")
@click.option(
    "--repeat",
    type=click.IntRange(0, 100_000),
    default=20,
    show_default=True,
    help="Timed runs; 0 for none.",
)
@click.option("--no-verify", is_flag=True, help="Do not compare with the reference.")
@click.option(
    "--verify-all",
    is_flag=True,
    help="Compare every element (default: sample slices of large outputs, about 10 s).",
)
@click.option(
    "--reference",
    type=click.Choice(REFERENCES),
    help="What evaluates the reference: NumPy, or CuPy on a GPU (default: FUSEC_REFERENCE, numpy).",
)
@click.option(
    "--rtol",
    type=click.FloatRange(0),
    help="Relative tolerance, instead of the expected errors.",
)
@click.option("--atol", type=click.FloatRange(0), help="Absolute tolerance; the two add up.")
@click.option("--allow-undecided", is_flag=True, help="Exit with 0 if the verdict is inconclusive.")
@click.option(
    "--print",
    "values",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Print the first N values of each output.",
)
@click.option(
    "--trace",
    type=PATH,
    metavar="FILE.json",
    help="Write a trace of all steps for Chrome tracing or Perfetto.",
)
@click.option(
    "--html",
    type=PATH,
    metavar="FILE",
    help="Write the page of `explain --html`, with the measured times.",
)
@click.option("--time", "times", is_flag=True, help="Print the time of each stage.")
@click.option(
    "--ranks",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Run as N processes, one per rank of the mesh (torchrun and MPI also work).",
)
@diagnosed
@annotated
@compile_options
def run_command(
    file: str,
    seed: int,
    device: str,
    inputs_kind: str,
    inputs: str | None,
    outputs: str | None,
    expect: str | None,
    repeat: int,
    no_verify: bool,
    verify_all: bool,
    reference: str | None,
    rtol: float | None,
    atol: float | None,
    allow_undecided: bool,
    values: int,
    trace: str | None,
    html: str | None,
    times: bool,
    ranks: int | None,
    options: CompileOptions,
    report: Report,
) -> int:
    """Run FILE (YAML, a script, or a compiled folder) and verify it against the fp64 reference.

    Without a GPU, kernels are built and their times predicted; the reference is only evaluated
    for --device reference, --outputs, --expect or --print.
    """
    from fusec.commands.running.ranks import run_divided
    from fusec.commands.running.run import run
    from fusec.commands.running.run_inputs import RunOptions
    from fusec.commands.running.run_page import RunPage
    from fusec.commands.running.verify import Judging
    from fusec.reference.gpu import asked

    files = (inputs, outputs, expect)
    how = Judging(rtol, atol, allow_undecided, seed, verify_all)
    shown = (times, values, inputs_kind)
    page = None if html is None else RunPage(html)
    chosen = RunOptions(device, seed, repeat, not no_verify, *files, *shown, how, trace, page)
    arguments: list[str] = click.get_current_context().find_root().obj
    with asked(reference):
        code = run_divided(file, ranks, options, chosen, report, arguments)
        return run(file, options, chosen, report) if code is None else code
