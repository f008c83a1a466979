"""Commands on several files: each in a process of its own, one summary and one exit code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click

from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.escape import visible

OF_ONE_FILE = {
    "html": "--html", "inputs": "--inputs", "outputs": "--outputs", "expect": "--expect",
    "trace": "--trace", "ranks": "--ranks",
}  # fmt: skip
"""Options that apply to one file, by parameter name."""
ONE_AT_A_TIME = ("run",)
"""Commands that measure: parallel ones would disturb them."""

Guard = Callable[[Callable[[], Any], Sequence[str]], int]
"""Calls a function and returns the exit code; errors go to stderr."""


@dataclass(frozen=True)
class Done:
    """The result of a command for one file."""

    file: str
    code: int
    out: str
    err: str


class FilesCommand(click.Command):
    """A command whose callback takes `file`, and is called for each of several."""

    guard: Guard
    """Set by the command line, which knows how errors are reported."""

    def invoke(self, ctx: click.Context) -> Any:
        """Call it directly for one file, and in separate processes for several."""
        files: tuple[str, ...] = ctx.params.pop("files")
        if len(files) == 1:
            ctx.params["file"] = files[0]
            return super().invoke(ctx)
        _check(files, ctx.params)
        jobs = ctx.params.get("jobs") or len(os.sched_getaffinity(0))
        parallel = 1 if self.name in ONE_AT_A_TIME else min(jobs, len(files))
        calls = {file: partial(self._one, ctx, file, max(1, jobs // parallel)) for file in files}
        as_json, done = bool(ctx.params.get("as_json")), list[Done]()
        for each in _all(calls, parallel):
            done.append(each)
            _tell(each, as_json=as_json)
        if as_json:
            click.echo(_as_json(done))
        click.echo(_summary(done), err=True)
        return max(each.code for each in done)

    def _one(self, ctx: click.Context, file: str, jobs: int) -> int:
        given: dict[str, Any] = {**ctx.params, "file": file, "jobs": jobs}
        if given.get("output"):
            given["output"] = os.path.join(given["output"], Path(file).stem)
        assert self.callback is not None
        callback = self.callback
        return type(self).guard(lambda: ctx.invoke(callback, **given), [str(self.name), file])


def _check(files: Sequence[str], given: dict[str, Any]) -> None:
    for name, option in OF_ONE_FILE.items():
        if given.get(name):
            raise FusecError(f"{option} takes one file, got {len(files)}")
    if len({*files}) < len(files):
        raise FusecError("a file is specified twice")
    if "-" in files:
        raise FusecError("`-` (standard input) cannot be combined with other files")
    stems = [Path(file).stem for file in files]
    twice = next((stem for stem in stems if stems.count(stem) > 1), None)
    if given.get("output") and twice is not None:
        raise FusecError(
            f"two files are named `{twice}` and would be written to one folder",
            help="compile them separately, each with its own -o",
        )


def _all(calls: Mapping[str, Callable[[], int]], parallel: int) -> Iterator[Done]:
    """Yield the result for each file, in order, as soon as those before it are done."""
    # One file needs no processes, and each command loads this module.
    from multiprocessing.connection import wait

    waiting, running, done = list(calls.items()), list[_Child](), dict[str, Done]()
    stack = ExitStack()
    try:
        for file in calls:
            while file not in done:
                while waiting and len(running) < parallel:
                    running.append(_Child(*waiting.pop(0), stack))
                wait([child.process.sentinel for child in running])
                for child in [c for c in running if c.process.exitcode is not None]:
                    running.remove(child)
                    done[child.file] = child.done()
            yield done[file]
    finally:
        for child in running:
            child.process.terminate()
        stack.close()


class _Child:
    """A process that is a fork of this one, and its output."""

    def __init__(self, file: str, call: Callable[[], int], stack: ExitStack) -> None:
        from multiprocessing import get_context
        from tempfile import TemporaryFile

        sys.stdout.flush()
        sys.stderr.flush()
        self.file = file
        self._streams = [stack.enter_context(TemporaryFile()) for _ in range(2)]  # noqa: SIM115
        places = [stream.fileno() for stream in self._streams]
        self.process = get_context("fork").Process(target=_captured, args=(call, *places))
        self.process.start()

    def done(self) -> Done:
        """Return its result, once it has ended."""
        code, texts = self.process.exitcode, list[str]()
        for stream in self._streams:
            stream.seek(0)
            texts.append(stream.read().decode("utf-8", "replace"))
            stream.close()
        out, err = texts
        if code is None or code < 0:
            name = visible(self.file)
            err += f"environment: the process of `{name}` was killed by signal {-(code or 0)}\n"
            code = 4
        return Done(self.file, code, out, err)


def _captured(call: Callable[[], int], out: int, err: int) -> None:
    os.dup2(out, 1)
    os.dup2(err, 2)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    code = call()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _tell(done: Done, *, as_json: bool) -> None:
    if not as_json:
        click.echo(f"== {visible(done.file)}")
        click.echo(done.out, nl=False)
    click.echo(done.err, nl=False, err=True)


def _as_json(done: Sequence[Done]) -> str:
    return json.dumps({"files": [_of_file(each) for each in done]}, indent=2)


def _of_file(done: Done) -> dict[str, Any]:
    known: dict[str, Any] = {"file": done.file, "exit_code": done.code}
    try:
        found = json.loads(done.out)
    except ValueError:
        return known  # it failed before it could report anything
    return {**known, **found} if isinstance(found, dict) else {**known, "found": found}


def _summary(done: Sequence[Done]) -> str:
    failed = [each for each in done if each.code]
    text = f"{len(done)} files: {len(done) - len(failed)} ok"
    return text + "".join(f"\n  exit code {each.code}: {visible(each.file)}" for each in failed)
