"""Run a fusion that is divided over a mesh: as one rank among others, or by starting them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from fusec import driver
from fusec.commands.diagnose import Report
from fusec.commands.launch import launch
from fusec.commands.lint import lint
from fusec.commands.progress import working
from fusec.commands.report import print_outputs
from fusec.commands.run import RunOptions, check_files, check_sizes, inputs_of
from fusec.commands.verify import agree, differences, load_expected
from fusec.diagnostics import FusecError, Unsupported
from fusec.driver import Compilation
from fusec.files import fusions_of
from fusec.options import CompileOptions
from fusec.run.gathering import gather_arrays
from fusec.run.links import Links
from fusec.run.ranks import Ranks, from_environment, patience
from fusec.run.rendezvous import meet

if TYPE_CHECKING:
    from fusec.ir.graph import Fusion

COMPILING = 600.0
"""Seconds in which all ranks have to be ready to begin, and to have done: none waits on a GPU."""
_WATCH = 0.25


def run_divided(
    path: str,
    ranks: int | None,
    compile_options: CompileOptions,
    options: RunOptions,
    report: Report,
    arguments: Sequence[str],
) -> int | None:
    """Run a file whose fusion has a mesh; None where it has none, and no ranks are asked for.

    ranks: how many to start, where nobody has started this process as one of them. arguments: of
    the command line, for those.
    """
    own = from_environment()
    if ranks is None and not own.started and not _may_have_mesh(path):
        return None
    check_files(options)
    fusion = _fusion_of(path, compile_options, given=ranks)
    if fusion is None or (fusion.mesh is None and ranks is None):
        return None
    if own.started:
        if ranks is not None and ranks != own.size:
            raise FusecError(f"--ranks {ranks}, but {own.by} has started {own.size} ranks")
        check_mesh(fusion, own.size, own.by)
        return _run_as(own, Compilation(fusion, compile_options), options, report)
    check_mesh(fusion, ranks or 1, f"--ranks {ranks}" if ranks else "")
    if ranks is None or ranks == 1:
        return _run_as(Ranks(), Compilation(fusion, compile_options), options, report)
    report.warn(lint(fusion))
    aside = "--json" in arguments
    given = [text for text in arguments if text != "--json"]
    code, failures = launch(given, ranks, aside=aside)
    report.diagnostics += failures
    return code


def _may_have_mesh(path: str) -> bool:
    """Return whether a file is worth reading for a mesh: scripts run, which is done once only."""
    return not os.path.isdir(path) and not path.endswith(".py") and path != "-"


def _fusion_of(path: str, options: CompileOptions, given: int | None) -> Fusion | None:
    if os.path.isdir(path):
        if given is None:
            return None
        raise Unsupported("a compiled folder on several ranks", help="run the fusion file")
    fusions = fusions_of(path, options)
    if len(fusions) != 1:
        if given is None:
            return None
        raise Unsupported(f"`{path}` defines {len(fusions)} fusions: several ranks run one")
    return fusions[0]


def check_mesh(fusion: Fusion, size: int, who: str) -> None:
    """Raise FusecError where a fusion's mesh has not as many ranks as there are."""
    found = f"{size} rank{'s' * (size != 1)}"
    given = f"{found} (of {who})" if who else found
    mesh = fusion.mesh
    if mesh is None:
        if size == 1:
            return
        raise FusecError(
            f"fusion `{fusion.name}` has no mesh, and there are {given}",
            help=f"write `mesh: [{size}]`, and say with `shard:` how its values are divided",
        )
    if sorted(mesh.ranks) == list(range(size)):
        return
    how = "larger" if mesh.size > size else "smaller"
    raise FusecError(
        f"the mesh of `{fusion.name}` is {how} than the run: {mesh.size} ranks ({mesh}), {given}",
        span=_place_of(fusion),
        help=f"--ranks {mesh.size}, or torchrun --nproc-per-node {mesh.size}",
    )


def _place_of(fusion: Fusion) -> Any:
    """Return where a file says the mesh, else where it first divides something over it."""
    said = (sharding.span for sharding in fusion.shardings.values() if sharding.span)
    return next(iter(said), None)


def _run_as(ranks: Ranks, program: Compilation, options: RunOptions, report: Report) -> int:
    """Run as one rank; rank 0 reports."""
    if ranks.launched:
        _end_with_parent()
    if ranks.rank == 0 and not ranks.launched:
        report.warn(lint(program.original))
    with meet(ranks, patience()) if ranks.started else Links.alone() as links:
        try:
            if links.rank == 0:
                return _run_rank(links, program, options)
            with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
                return _run_rank(links, program, options)
        except BaseException as error:
            links.fail(_headline(error))
            raise


def _run_rank(links: Links, program: Compilation, options: RunOptions) -> int:
    fusion = program.original
    inputs, sizes = inputs_of(fusion, options)
    check_sizes(program.options.sizes, sizes)
    expected = None if options.expect is None else load_expected(fusion, options.expect)
    own = _execute(links, program, inputs, sizes, options)
    parts = gather_arrays(links, own, COMPILING)
    if parts is None:
        return 0
    outputs, copies = assembled(fusion, parts)
    right = _judge(fusion, inputs, sizes, outputs, options) and not copies
    print("\n".join(copies), end="\n" * bool(copies))
    if options.values:
        print_outputs(fusion, sizes, outputs, options.values)
    if options.outputs is not None:
        from fusec.run.arrays import save_arrays

        save_arrays(options.outputs, outputs)
    if expected is not None:
        assert options.expect is not None
        given = (inputs, sizes, outputs, expected, options.expect)
        right = agree(fusion, *given, options.judging) and right
    return 0 if right else 1


def _judge(
    fusion: Fusion,
    inputs: Mapping[str, Any],
    sizes: Mapping[str, int],
    outputs: Mapping[str, Any],
    options: RunOptions,
) -> bool:
    """Compare assembled outputs with the reference of the whole, and print the verdict."""
    if not options.verify:
        return True
    from fusec.reference.verdict import compare

    how = options.judging
    with working("comparing with the reference"):
        if how.by_tolerance:
            reference = driver.reference(fusion, inputs, sizes)
            lines = differences(fusion, outputs, reference, "the reference", how)
            print("\n".join(["differs", *lines] if lines else ["within the tolerances"]))
            return not lines
        # Sums are taken of the ranks' sums, in an order that no single plan tells.
        verdict = compare(fusion, sizes, inputs, outputs, seed=how.seed)
    print(verdict.text())
    return how.accepts(verdict)


def assembled(
    fusion: Fusion, parts: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    """Return the whole outputs of the ranks' parts, and what to say of copies that differ."""
    from fusec.ir.sharding import Sharding
    from fusec.shard.place import assemble, local_part

    outputs, copies = dict[str, Any](), list[str]()
    for output in fusion.outputs:
        name, mesh = output.value.name, fusion.mesh
        if mesh is None:
            outputs[name] = parts[0][name]
            continue
        sharding = fusion.shardings.get(name) or Sharding.whole(output.value.rank)
        own = {rank: parts[rank][name] for rank in mesh.ranks}
        outputs[name] = assemble(own, sharding, mesh)
        for rank, part in own.items():
            if local_part(outputs[name], sharding, mesh, rank).tobytes() != part.tobytes():
                copies.append(f"`{name}`: what ranks have of the same part differs, as rank {rank}")
                break
    return outputs, copies


def _execute(
    links: Links,
    program: Compilation,
    inputs: Mapping[str, Any],
    sizes: Mapping[str, int],
    options: RunOptions,
) -> dict[str, Any]:
    """Return this rank's outputs."""
    raise NotImplementedError


def _headline(error: BaseException) -> str:
    if isinstance(error, FusecError):
        return f"{error.severity}: {error.diagnostic.message}"
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _end_with_parent() -> None:
    """End this process when fusec, which has started it, is no more."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH)
        os._exit(4)

    threading.Thread(target=watch, name="fusec parent", daemon=True).start()
