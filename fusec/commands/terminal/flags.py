"""Flags that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import click

from fusec.codes.usage import SET_FORM
from fusec.commands.terminal import completion
from fusec.commands.terminal.progress import logged
from fusec.diagnostics import FusecError
from fusec.options import (
    ASKED,
    DEFAULT_TARGET,
    DUMP_KINDS,
    MOST_CHUNKS,
    MOST_STREAMS,
    CompileOptions,
    environment,
)


def hyphenated(token: str) -> str:
    """Return a flag's name with hyphens: underscores are accepted, too."""
    return token.replace("_", "-")


PATH = click.Path()
"""Any path, completed by the shell; the code that reads it checks whether it exists."""

CONTEXT: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "token_normalize_func": hyphenated,
}


several_files = click.argument("files", metavar="FILE...", nargs=-1, required=True, type=PATH)
"""For commands that are called for each file: `fusec.commands.terminal.several`."""


def sizes_of(items: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return `B=4096` and `B=16,4096` options as a dict."""
    sizes: dict[str, tuple[int, ...]] = {}
    for item in items:
        name, _, text = (part.strip() for part in item.partition("="))
        try:
            values = text.split(",")
            if not name or max(map(len, values)) > 40:
                raise ValueError
            sizes[name] = tuple(dict.fromkeys(int(value, 0) for value in values))
        except ValueError:
            raise FusecError(
                f"--set {item}: expected NAME=INTEGER",
                help=_set_help(name, text),
                code=SET_FORM,
            ) from None
    return sizes


def _set_help(name: str, text: str) -> str:
    """Return a help text for setting a size; `text` may be a number that is not an integer."""
    try:
        number = float(text)
    except ValueError:
        example = f"e.g. --set {name if name.isidentifier() else 'B'}=4096"
        if not text:
            return example
        return f"{example}; other scalars are set in the file: `{name}: f32 = 0.01`"
    if number.is_integer() and "e" in text.lower():
        return f"write --set {name}={int(number)}"
    return (
        f"sizes are integers; if `{name}` is a scalar, change its default in the file, as in "
        f"`{name}: f32 = {text}`"
    )


def check_set(arguments: Sequence[str]) -> None:
    """Raise FusecError for `--set B 1024`, where the number would be parsed as a file."""
    for option, name, number in zip(arguments, arguments[1:], arguments[2:], strict=False):
        if option == "--set" and name.isidentifier() and number.isdecimal():
            raise FusecError(
                f"--set {name}: expected NAME=INTEGER",
                help=f"write `--set {name}={number}`",
                code=SET_FORM,
            )


def compile_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options of every command that compiles; the body gets one CompileOptions."""

    @click.option(
        "--target",
        shell_complete=completion.targets,
        help=f"Architectures to build for, e.g. sm_80,sm_90a (default {DEFAULT_TARGET}).",
    )
    @click.option(
        "--set", "sizes", multiple=True, metavar="DIM=SIZE",
        help="Override a default size; `compile` compiles for each of DIM=SIZE,SIZE,...",
        shell_complete=completion.dims,
    )  # fmt: skip
    @click.option(
        "--without", multiple=True, metavar="PASS", help="Disable a pass.",
        shell_complete=completion.passes,
    )  # fmt: skip
    @click.option(
        "--with", "with_", multiple=True, metavar="PASS",
        help=f"Enable an optional pass: {', '.join(ASKED)}.",
        shell_complete=completion.asked_passes,
    )  # fmt: skip
    @click.option(
        "--stop-after", metavar="PASS", help="Stop after this pass.",
        shell_complete=completion.passes,
    )  # fmt: skip
    @click.option(
        "--jobs", "-j", type=click.IntRange(1), help="Number of kernels built in parallel."
    )
    @click.option("--no-cache", is_flag=True, help="Plan and build every kernel again.")
    @click.option("--check-bounds", is_flag=True, help="Check data-dependent indices on the GPU.")
    @click.option(
        "--precise", is_flag=True, help="Disable fast-math approximations that feed 16-bit outputs."
    )
    @click.option(
        "--as-written",
        is_flag=True,
        help="One kernel per operation, no passes, loops as in nvFuser's first lowering.",
    )
    @click.option(
        "--schedule",
        type=PATH,
        metavar="FILE",
        help="Set schedule parameters from a `schedules:` file.",
    )
    @click.option(
        "--untuned", is_flag=True, help="Ignore measured schedules; use the cost model only."
    )
    @click.option(
        "--overlap",
        is_flag=True,
        help="Overlap each kernel with the previous one (programmatic dependent launch, sm_90+).",
    )
    @click.option(
        "--redefine",
        type=click.Choice(["after", "before", "never"]),
        default="after",
        show_default=True,
        help="When to try alternative definitions: for segments, or for nodes before segmentation.",
    )
    @click.option(
        "--streams", type=click.IntRange(1, MOST_STREAMS), default=4, show_default=True,
        help="Number of streams that loop iterations rotate over.",
    )  # fmt: skip
    @click.option(
        "--sum-chunks", type=click.IntRange(1, MOST_CHUNKS), default=None, metavar="N",
        help="Sum over ranks in N chunks, in a fixed order: bitwise equal on 1 to N ranks.",
    )  # fmt: skip
    @click.option("--verbose", "-v", is_flag=True, help="Log each stage with its time on stderr.")
    @functools.wraps(function)
    def body(
        *args: Any,
        target: str | None,
        sizes: tuple[str, ...],
        without: tuple[str, ...],
        with_: tuple[str, ...],
        stop_after: str | None,
        jobs: int | None,
        no_cache: bool,
        check_bounds: bool,
        precise: bool,
        as_written: bool,
        redefine: str,
        schedule: str | None,
        untuned: bool,
        overlap: bool,
        streams: int,
        sum_chunks: int | None,
        verbose: bool,
        **rest: Any,
    ) -> int:
        from fusec import target as targets

        named = target or environment("FUSEC_TARGET")
        listed = (t.strip() for t in (named or DEFAULT_TARGET).split(","))
        archs = tuple(dict.fromkeys(t for t in listed if t))
        if not archs:
            raise FusecError("--target is empty", help="e.g. --target sm_80,sm_90a")
        for arch in archs:
            targets.find(arch)
        given = sizes_of(sizes)
        options = CompileOptions(
            targets=archs,
            targets_given=named is not None,
            without=without,
            with_=with_,
            stop_after=stop_after,
            jobs=jobs,
            use_cache=not no_cache,
            sizes={name: values[0] for name, values in given.items()},
            buckets={name: values for name, values in given.items() if len(values) > 1},
            check_bounds=check_bounds,
            precise=precise,
            as_written=as_written,
            redefine=redefine,
            schedule=schedule,
            untuned=untuned,
            overlap=overlap,
            streams=streams,
            sum_chunks=sum_chunks or 0,
        )
        with logged(verbose):
            return function(*args, options=options, **rest)

    return body


def dump_flags(function: Callable[..., int]) -> Callable[..., int]:
    """Add a flag for each kind of dump."""
    for kind, text in reversed(DUMP_KINDS.items()):
        function = click.option(f"--{kind}", kind.replace("-", "_"), is_flag=True, help=text)(
            function
        )
    return function
