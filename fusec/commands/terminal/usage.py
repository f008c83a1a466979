"""Usage errors: suggest what a wrong command, option or value was meant to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import click

from fusec.diagnostics import FusecError

_OTHER_WORDS = {
    "build": "compile", "make": "compile", "nvrtc": "compile", "generate": "compile",
    "lint": "check", "validate": "check", "verify": "run", "test": "run", "execute": "run",
    "exec": "run", "show": "dump", "print": "dump", "view": "dump", "operations": "ops",
    "list": "ops", "benchmark": "bench", "time": "bench", "compare": "diff", "manual": "docs",
    "man": "docs", "examples": "docs", "help": "--help", "version": "--version",
}  # fmt: skip
"""Names of fusec's commands in other tools."""


def no_command(name: str, known: Sequence[str]) -> FusecError:
    """Return the error for a command that fusec does not have, given the commands that it has."""
    from fusec.ops.find import nearest

    meant = _OTHER_WORDS.get(name.lower()) or nearest(name, known)
    if meant not in (*known, "--help", "--version"):
        meant = None
    if name.endswith((".yaml", ".yml", ".py")):
        return FusecError(f"no such command {name!r}", help=f"write `fusec run {name}`")
    help = f"did you mean `fusec {meant}`?" if meant else f"commands: {', '.join(known)}"
    return FusecError(f"no such command {name!r}", help=help)


def _value_of_option(error: click.BadOptionUsage, command: click.Command | None) -> str | None:
    """Return how to write an option of a command that lacks its value."""
    for option in command.params if command is not None else ():
        if error.option_name in option.opts and isinstance(option, click.Option):
            is_number = isinstance(option.type, (click.types.IntParamType, click.IntRange))
            value = "4" if is_number else option.metavar or option.type.name.upper()
            return f"it takes a value: `{error.option_name} {value}`"
    return None


_SIZES = ("--shape", "--shapes", "--size", "--dim", "--dims", "-D")
"""Names of the option that sets sizes in other tools."""

_OTHER_OPTIONS = {"--arch": "--target", "--gpu": "--target", "--sm": "--target"}
"""Names of fusec's options in other tools."""

_TOLERANCES = ("--tolerance", "--tol", "--eps", "--epsilon")
"""Names of tolerance options in other tools."""

_DEVICES = {"cpu": "reference", "gpu": "cuda", "nvidia": "cuda", "host": "reference"}
"""Names of the devices of `--device` in other tools."""


def _meant_choice(option: click.Parameter, arguments: Sequence[str]) -> str | None:
    """Return the choice of an option that its value was probably meant to be."""
    from fusec.ops.find import nearest

    if not isinstance(option.type, click.Choice):
        return None
    values = [given for flag, given in pairwise(arguments) if flag in option.opts]
    values += [a.partition("=")[2] for a in arguments if a.partition("=")[0] in option.opts]
    known = [str(choice) for choice in option.type.choices]
    for value in values:
        plain = value.lower().partition(":")[0]
        meant = _DEVICES.get(plain, plain) if "--device" in option.opts else plain
        meant = meant if meant in known else nearest(value, known)
        if meant in known and value not in known:
            why = ": it evaluates on the CPU" if (plain, meant) == ("cpu", "reference") else ""
            return f"write `{option.opts[0]} {meant}`{why}"
    return None


def usage(
    error: click.ClickException, arguments: Sequence[str], commands: Mapping[str, click.Command]
) -> FusecError:
    """Return an error of click in fusec's form, with what the user may have meant."""
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        near = [p for p in error.possibilities if _is_near(error.option_name, p)]
        error = click.NoSuchOption(error.option_name, error.message, near, error.ctx)
    message = error.format_message().removesuffix(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    help = None if context is None else f"`{context.command_path} --help` lists the options"
    if isinstance(error, click.NoSuchOption) and error.option_name in _SIZES:
        sets = context is not None and any("--set" in p.opts for p in context.command.params)
        help = "sizes are set with `--set`, as in `--set B=8`" if sets else help
    other = _OTHER_OPTIONS.get(error.option_name) if isinstance(error, click.NoSuchOption) else None
    if other is not None and context is not None:
        takes = any(other in p.opts for p in context.command.params)
        help = f"did you mean `{other}`?" if takes else help
    if isinstance(error, click.NoSuchOption) and error.option_name in _TOLERANCES:
        judges = context is not None and any("--rtol" in p.opts for p in context.command.params)
        help = "did you mean `--rtol` (relative) or `--atol` (absolute)?" if judges else help
    if isinstance(error, click.BadParameter) and error.param is not None:
        help = _meant_choice(error.param, arguments) or help
    if isinstance(error, click.MissingParameter) and context is not None:
        named = [p.human_readable_name for p in context.command.params
                 if isinstance(p, click.Argument)]  # fmt: skip
        if len(named) > 1:
            help = f"{help}; it is called `{context.command_path} {' '.join(named)}`"
    if isinstance(error, click.BadOptionUsage) and context is None:
        help = _value_of_option(error, commands.get(arguments[0]) if arguments else None)
    return FusecError(message[:1].lower() + message[1:], help=help)


def _is_near(given: str, known: str) -> bool:
    """Return whether an option is a misspelling of a known one, or begins like it."""
    from fusec.spelling import edits

    given, known = given.lstrip("-"), known.lstrip("-")
    return edits(given, known) <= 1 + len(known) // 4 or known.startswith(given)
