"""The command line: parses arguments with click, runs one call, and prints errors."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from fusec import __version__
from fusec.commands import tuning
from fusec.commands.bench_command import bench_command
from fusec.commands.docs_command import docs_command
from fusec.commands.running.run_command import run_command
from fusec.commands.terminal import completion
from fusec.commands.terminal.annotations import annotated
from fusec.commands.terminal.colour import tell
from fusec.commands.terminal.diagnose import Report, diagnosed
from fusec.commands.terminal.flags import (
    CONTEXT,
    PATH,
    check_set,
    compile_options,
    dump_flags,
    several_files,
)
from fusec.commands.terminal.progress import status_line
from fusec.commands.terminal.several import FilesCommand
from fusec.commands.terminal.usage import no_command, usage
from fusec.diagnostics import FusecError, InternalError, Unsupported
from fusec.emit import KINDS
from fusec.escape import visible
from fusec.options import DUMP_STYLES, ENVIRONMENT, CompileOptions, environment


class Commands(click.Group):
    """The commands; their help ends with the environment variables."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the named command; the error for an unknown one suggests a similar name."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise no_command(args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description of each environment variable."""
        with formatter.section("Environment"):
            formatter.write_dl(list(ENVIRONMENT.items()))


@click.group(context_settings=CONTEXT, cls=Commands)
@click.version_option(__version__, prog_name="fusec")
def cli() -> None:
    """Compile fusion definitions (YAML or Python) into CUDA kernels; run and verify them."""


@cli.command("compile", cls=FilesCommand)
@several_files
@click.option(
    "-o", "--output", type=PATH, metavar="DIR", help="Folder to write (default NAME.fusec)."
)
@click.option("--emit", type=click.Choice(KINDS), multiple=True, help="Also write a launcher.")
@click.option("--time", "times", is_flag=True, help="Print the time of each stage.")
@diagnosed
@annotated
@compile_options
def compile_command(
    file: str,
    output: str | None,
    emit: tuple[str, ...],
    times: bool,
    options: CompileOptions,
    report: Report,
) -> int:
    """Compile FILE: kernels, cubins, manifest.json and fusion.yaml in a folder."""
    from fusec.commands.build import compile_file

    if output == "":
        raise FusecError("-o is empty")
    return compile_file(file, options, output, report, times=times, emit=emit)


@cli.command("import")
@click.argument("model", type=PATH)
@click.option(
    "-o", "--output", type=PATH, metavar="DIR", help="Folder to write (default: the model's name)."
)
@click.option(
    "--external",
    multiple=True,
    metavar="OP",
    help="Operation to be an external call, as aten.sort.default.",
)
@diagnosed
def import_command(
    model: str, output: str | None, external: tuple[str, ...], report: Report
) -> int:
    """Import MODEL, a torch.export archive (.pt2): fusion.yaml and weights in a folder.

    PyTorch is not needed. The other commands accept the folder; see docs/models.md.
    """
    from fusec.commands.import_model import import_model

    if output == "":
        raise FusecError("-o is empty")
    return import_model(model, output, report, external)


@cli.command("check", cls=FilesCommand)
@several_files
@click.option("--time", "times", is_flag=True, help="Print the time of each stage.")
@diagnosed
@annotated
@compile_options
def check_command(file: str, times: bool, options: CompileOptions, report: Report) -> int:
    """Check FILE: syntax, types, segments, CUDA source, dynamic dims; nothing is compiled."""
    from fusec.commands.build import check_file

    return check_file(file, options, report, times=times)


@cli.command("dump")
@click.argument("file", type=PATH)
@click.option(
    "--style",
    type=click.Choice(DUMP_STYLES),
    help="Format of --segmented-fusion: nvFuser's of June 2024 or of its head, JSON, or a graph.",
)
@dump_flags
@diagnosed
@compile_options
def dump_command(
    file: str, style: str | None, options: CompileOptions, report: Report, **flags: bool
) -> int:
    """Print the result of compiler stages for FILE (default: its segments)."""
    from fusec.commands.dump import DumpOptions, dump

    kinds = tuple(k.replace("_", "-") for k, wanted in flags.items() if wanted)
    kinds = kinds or ("segmented-fusion",)
    styled = ("segmented-fusion", "schedule-space")[: 2 if style == "json" else 1]
    if style is not None and not any(k in styled for k in kinds):
        raise FusecError(
            f"--style {style} has no effect on --{kinds[0]}",
            help=f"it applies to --{' and --'.join(styled)}",
        )
    return dump(file, options, DumpOptions(kinds, style or DUMP_STYLES[0]), report)


@cli.command("explain", cls=FilesCommand)
@click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=PATH,
    shell_complete=completion.files_or_codes,
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON, see docs/query.md."
)
@click.option(
    "--html",
    type=PATH,
    metavar="FILE",
    help="Write an HTML page with the graph, the CUDA source and the decisions.",
)
@click.option(
    "--exact", is_flag=True, help="Also compute a lower bound on the traffic of any segmentation."
)
@click.option(
    "--sizes",
    "ranges",
    multiple=True,
    metavar="DIM=FIRST..LAST",
    help="Also print the ranges of a dim's sizes with the same segmentation.",
)
@click.option("--build", is_flag=True, help="Also build the kernels and print their registers.")
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Print all refusals, of unrelated schedulers too, and the instructions of kernels.",
)
@compile_options
def explain_command(
    file: str,
    as_json: bool,
    html: str | None,
    exact: bool,
    ranges: tuple[str, ...],
    build: bool,
    every: bool,
    options: CompileOptions,
) -> int:
    """Explain the segments of FILE, their predicted cost, and the rejected alternatives.

    FILE may be the code of an error, as E0201.
    """
    from fusec.commands.explain import ExplainOptions, explain_file

    return explain_file(file, options, ExplainOptions(as_json, html, exact, ranges, build, every))


@cli.command("golden")
@click.argument("files", nargs=-1, required=True, type=PATH)
@click.option("--update", is_flag=True, help="Write the golden files instead of comparing.")
@click.option("--no-build", is_flag=True, help="Do not build kernels; skip their registers.")
@click.option(
    "--dialect",
    "dialects",
    multiple=True,
    type=click.Choice(["2024", "head"]),
    help="Dump dialects to keep (default: those present, else 2024).",
)
@diagnosed
@annotated
@compile_options
def golden_command(
    files: tuple[str, ...],
    update: bool,
    no_build: bool,
    dialects: tuple[str, ...],
    options: CompileOptions,
    report: Report,
) -> int:
    """Compare dump, CUDA, manifest and registers with the golden files next to FILES."""
    from fusec.commands.golden import golden

    return golden(files, options, dialects, report, update=update, build=not no_build)


@cli.command("diff")
@click.argument("before", type=PATH)
@click.argument("after", type=PATH)
@diagnosed
@compile_options
def diff_command(before: str, after: str, options: CompileOptions, report: Report) -> int:
    """Compare two fusion files, compiled folders or golden folders: traffic, time, kernels, CUDA.

    Options are for files. The exit code is 1 where something differs.
    """
    from fusec.commands.diff import diff

    return diff(before, after, options, report)


@cli.command("ops")
@click.argument("name", required=False, shell_complete=completion.operations)
@diagnosed
def ops_command(name: str | None, report: Report) -> int:
    """List the operations, or describe one."""
    from fusec.commands.operations import list_ops

    return list_ops(name, report)


@cli.command("schema")
def schema_command() -> int:
    """Print the JSON Schema of fusion files."""
    from fusec.commands.info import print_schema

    return print_schema()


@cli.command("cache")
@click.option("--clear", "clears", is_flag=True, help="Remove its kernels.")
@diagnosed
def cache_command(clears: bool, report: Report) -> int:
    """Show the kernel cache (path, entries, size and limit), or clear it."""
    from fusec.commands.cache import clear_cache, show_cache

    return clear_cache(report) if clears else show_cache(report)


@cli.command("doctor")
@click.option(
    "--measure",
    "folder",
    type=PATH,
    metavar="DIR",
    help="Write the GPU's rates as a target file.",
)
@diagnosed
def doctor_command(folder: str | None, report: Report) -> int:
    """Report the GPU, driver and tools of this machine, or measure its GPU."""
    if folder is not None:
        from fusec.commands.calibrate import calibrate

        return calibrate(folder, report)
    from fusec.commands.info import doctor

    return doctor(report)


@cli.command(
    "dev",
    hidden=True,
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.pass_context
def dev_command(context: click.Context) -> int:
    """Say where the tools for work on fusec are: next to the package, in a checkout."""
    tool = next((a for a in context.args if a in _TOOLS), _TOOLS[0])
    raise Unsupported(
        f"`fusec dev {tool}` is `python -m tools.{tool}` now, in a checkout of fusec",
        help="clone the repository, `pip install -e .` there, and run it in that folder",
    )


_TOOLS = ("fuzz", "reduce")
"""The former subcommands of `fusec dev`."""


cli.add_command(run_command)
cli.add_command(bench_command)
cli.add_command(docs_command)
cli.add_command(tuning.tune_command)


COLLECT_EVERY = 100_000
"""Number of new objects that triggers Python's cycle collector: values here are trees, and with the
default of 700 the collector takes a tenth of the time of `check`."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    gc.set_threshold(COLLECT_EVERY)
    code = run_main(list(sys.argv[1:] if arguments is None else arguments))
    gc.freeze()  # else Python looks for reference cycles among all objects at exit
    sys.exit(code)


def run_main(arguments: list[str]) -> int:
    """Run a command line and return its exit code; errors go to stderr, never as a traceback."""
    _accept_any_path()
    with status_line():
        return _guarded(
            lambda: _run(arguments),
            arguments,
        )


def _run(arguments: list[str]) -> Any:
    check_set(arguments)
    return cli.main(arguments, prog_name="fusec", standalone_mode=False, obj=arguments)


def _guarded(call: Callable[[], Any], arguments: Sequence[str]) -> int:
    """Return the exit code of a call; print errors on stderr, with how to reproduce them."""
    try:
        code = call()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except InternalError as error:
        if environment("FUSEC_TRACEBACK"):
            raise
        tell(error, f"\n{_reproduction(arguments)}")
        return error.exit_code
    except FusecError as error:
        tell(error)
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        tell(usage(error, arguments, cli.commands))
        return 2
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except (BrokenPipeError, SystemExit):
        # The reader closed the pipe early; click itself exits then.
        _drop_output()
        return 0
    except MemoryError:
        click.echo("environment: out of memory\n  = help: use smaller sizes with --set", err=True)
        return 4
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _NO_SPACE:
            _drop_output()
            click.echo(f"environment: cannot write the output: {error.strerror}", err=True)
            return 4
        if environment("FUSEC_TRACEBACK"):
            raise
        click.echo(
            f"internal error: {type(error).__name__}: {visible(str(error))}\n"
            f"  = this is a bug in fusec ({_place_of(error)}); please report it with the file\n"
            f"{_reproduction(arguments)}\n"
            f"  = FUSEC_TRACEBACK=1 shows the traceback",
            err=True,
        )
        return 70


FilesCommand.guard = staticmethod(_guarded)


def _accept_any_path() -> None:
    """Allow printing paths that are not UTF-8, or that the terminal cannot show."""
    reconfigure: Callable[..., None] | None = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def _drop_output() -> None:
    """Discard buffered output, which the interpreter would otherwise report as an error at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _reproduction(arguments: Sequence[str]) -> str:
    return visible(f"  = to reproduce: fusec {shlex.join(arguments)}")


def _place_of(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "unknown place"
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
