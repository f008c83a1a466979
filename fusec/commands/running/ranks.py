"""Run a fusion that is partitioned over a mesh: as one rank among others, or by starting them."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from fusec.commands.lint import lint
from fusec.commands.running.launch import launch
from fusec.commands.running.meshes import check_mesh, resized_to
from fusec.commands.running.rank import headline, run_rank
from fusec.commands.running.run_inputs import RunOptions, check_files
from fusec.commands.terminal.diagnose import Report
from fusec.diagnostics import FusecError, Unsupported
from fusec.driver import Compilation
from fusec.files import fusions_of
from fusec.foreign import TEXT_BYTES, read_bytes, read_standard_input
from fusec.models.folder import is_model_folder
from fusec.options import CompileOptions
from fusec.run.distributed.links import Links
from fusec.run.distributed.ranks import Ranks, from_environment, timeout
from fusec.run.distributed.rendezvous import meet
from fusec.shard.partition import partitioned

if TYPE_CHECKING:
    from fusec.ir.graph import Fusion


def run_divided(
    path: str,
    ranks: int | None,
    compile_options: CompileOptions,
    options: RunOptions,
    report: Report,
    arguments: Sequence[str],
) -> int | None:
    """Run a file whose fusion has a mesh; None if it has none and no ranks are requested.

    ranks: how many to start, if this process was not started as a rank. arguments: of the command
    line, for the started ranks.
    """
    if ranks is None and not _may_have_mesh(path):
        return None
    check_files(options)
    read = _keep_input() if path == "-" else None
    fusion = _fusion_of(path, compile_options, given=ranks)
    if fusion is None or (fusion.mesh is None and ranks is None):
        return None
    if options.page is not None:
        raise Unsupported(
            "--html of a run on several ranks",
            help="--trace FILE.json shows when each rank ran, fusec explain FILE --html PAGE "
            "predicts",
        )
    own = from_environment()
    if own.size > 1 and ranks is not None and ranks != own.size:
        raise FusecError(f"--ranks {ranks}, but {own.by} started {own.size} ranks")
    if ranks is not None:
        fusion = resized_to(fusion, ranks)
    program = Compilation(fusion, compile_options)
    if own.size > 1:
        check_mesh(fusion, own.size, own.by)
        return _run_as(own, program, options, report)
    check_mesh(fusion, ranks or 1, f"--ranks {ranks}" if ranks else "")
    if ranks is None or ranks == 1:
        return _run_as(Ranks(), program, options, report)
    report.warn(lint(fusion))
    partitioned(fusion)  # report an error in the sharding before ranks are started
    return launch(arguments, ranks, read, report)


def _may_have_mesh(path: str) -> bool:
    """Return whether a file may declare a mesh; not scripts, since reading executes them."""
    if not path.endswith((".yaml", ".yml")):
        return False
    try:
        return b"mesh" in read_bytes(path, "a fusion file", TEXT_BYTES)
    except FusecError:
        return False  # the error is reported when the file is read again


def _keep_input() -> bytes:
    """Return all of standard input, and make it readable again."""
    read = read_standard_input("a fusion file", TEXT_BYTES)
    sys.stdin = io.TextIOWrapper(io.BytesIO(read))
    return read


def _fusion_of(path: str, options: CompileOptions, given: int | None) -> Fusion | None:
    if os.path.isdir(path) and not is_model_folder(path):
        if given is None:
            return None
        raise Unsupported("a compiled folder on several ranks", help="run the fusion file")
    fusions = fusions_of(path, options)
    if len(fusions) != 1:
        if given is None:
            return None
        raise Unsupported(
            f"`{path}` defines {len(fusions)} fusions: only one can run on several ranks"
        )
    if fusions[0].phases and given is not None:
        raise Unsupported(f"phases of `{fusions[0].name}` on several ranks")
    return fusions[0]


def _run_as(ranks: Ranks, program: Compilation, options: RunOptions, report: Report) -> int:
    """Run as one rank; rank 0 reports."""
    # Streams that wait for other ranks must not share a queue of the GPU with streams that work.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    report.silent = ranks.rank > 0 and not ranks.launched  # a launcher gathers them
    if ranks.rank == 0 and not ranks.launched:
        report.warn(lint(program.original))
    with meet(ranks, timeout()) if ranks.size > 1 else Links.alone() as links:
        try:
            if links.rank == 0:
                return run_rank(links, program, options, report)
            with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
                return run_rank(links, program, options, report)
        except BaseException as error:
            lost = links.fail(headline(error))
            if lost is not None and isinstance(error, Exception):
                raise lost from error  # a call that failed because another rank is lost
            raise
