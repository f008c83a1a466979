"""`fusec compile` and `fusec check`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusec import driver
from fusec.commands.facts import kernel_facts, named_sizes, predicted_registers
from fusec.commands.report import count, kernel_count, print_times
from fusec.commands.terminal.diagnose import Report
from fusec.dataclasses import replace
from fusec.escape import visible
from fusec.files import fusions_of
from fusec.options import CompileOptions
from fusec.variants import compile_variants, variants

if TYPE_CHECKING:
    from fusec.driver import Compilation, Package
    from fusec.ir.graph import Fusion, Value


def compile_file(
    path: str,
    options: CompileOptions,
    output: str | None,
    report: Report,
    *,
    times: bool,
    emit: Sequence[str] = (),
) -> int:
    """Compile every fusion of a file into a folder each, and print what was built.

    emit: additional artifacts for the folders, from fusec.emit.KINDS.
    """
    from fusec.commands.folder.artifacts import check_place, files_of, write_folder
    from fusec.commands.lint import lint, lint_plan
    from fusec.commands.terminal.progress import build_progress

    buckets, options = options.buckets, replace(options, buckets={})
    wholes = [driver.Compilation(fusion, options) for fusion in fusions_of(path, options)]
    report.warn(d for whole in wholes for d in lint(whole.original))
    programs = [part for whole in wholes for part in whole.parts]
    report.warn(d for program in programs for d in lint_plan(program))
    names = [p.original.name for p in programs]
    several = len(programs) > 1
    folders = [
        Path(f"{name}.fusec") if output is None else Path(output, name if several else "")
        for name in names
    ]
    for folder in folders:
        check_place(folder)
    with build_progress() as progress:
        packages = [compile_variants(variants(p, buckets), progress) for p in programs]
    contents = [files_of(package, emit) for package in packages]
    for folder, files in zip(folders, contents, strict=True):
        write_folder(folder, files)
    for folder, package in zip(folders, packages, strict=True):
        _print_package(folder, package)
        report.facts.setdefault("folders", []).append(_built_facts(folder, package))
        if times:
            for program in package.programs:
                print_times(program.timings.seconds)
    return 0


def _built_facts(folder: Path, package: Package) -> dict[str, Any]:
    """Return a JSON summary of a compiled folder."""
    from fusec.hostir.coverage import coverage

    plans = [
        {
            "targets": list(program.targets),
            "covers": coverage(program.host.guards, program.local.dims),
            "kernels": kernel_facts(package, program),
            "stages": program.timings.seconds,
        }
        for program in package.programs
    ]
    return {
        "folder": str(folder), "fusion": package.program.original.name,
        "sizes": named_sizes(package.program.original.hints),
        "segments": [s.scheduler for s in package.program.segmented.segments], "plans": plans,
    }  # fmt: skip


def _print_package(folder: Path, package: Package) -> None:
    from fusec.hostir.coverage import coverage

    for program in package.programs:
        segments = count(len(program.segmented.segments), "segment")
        kernels = kernel_count(program.host.launches)
        print(visible(f"{folder}: {segments}, {kernels} for {', '.join(program.targets)}"))
        _print_coverage(coverage(program.host.guards, program.local.dims))
        predicted = predicted_registers(program)
        for (name, arch), artifact in package.artifacts_of(program).items():
            about = predicted.get((name, arch))
            told = f" ({about} predicted)" if about is not None else ""
            spills = f", {artifact.spill_bytes} bytes spilled" if artifact.spill_bytes else ""
            print(f"  {name} {arch}: {artifact.registers} registers{told}{spills}")


def _kinds(schedulers: Sequence[str]) -> str:
    """Return the kinds of segments, listed one by one if there are few."""
    if len(schedulers) <= 12:
        return ", ".join(f"s{k} {kind}" for k, kind in enumerate(schedulers))
    counts = Counter(schedulers).most_common()
    return ", ".join(f"{number} {kind}" for kind, number in counts)


def _print_coverage(covers: str) -> None:
    if covers:
        print(f"  {covers}")


def _outputs(fusion: Fusion) -> Iterator[tuple[Value, str | None]]:
    """Yield each output, and the input into which it is written."""
    for value in (o.value for o in fusion.outputs):
        name = fusion.effects.buffer(value)
        yield value, None if name == value.name else name


def _facts(program: Compilation) -> dict[str, Any]:
    """Return the JSON record of a check."""
    fusion = program.original
    return {
        "name": fusion.name,
        "operations": len(fusion.nodes),
        "segments": list(program.schedulers),
        "outputs": [
            {"name": value.name, "type": str(value.type), "alias": into}
            for value, into in _outputs(fusion)
        ],
        "covers": program.covers,
        "stages": program.timings.seconds,
    }


def check_file(path: str, options: CompileOptions, report: Report, *, times: bool) -> int:
    """Parse, type, segment and generate every fusion of a file, without compiling."""
    from fusec.commands.lint import lint

    buckets, options = options.buckets, replace(options, buckets={})
    for whole in fusions_of(path, options):
        report.warn(lint(whole))
        for program in driver.recalled(whole, options).parts:
            _check(program, variants(program, buckets)[1:], report, times=times)
            driver.keep(program)
    return 0


def _check(
    program: Compilation, others: Sequence[Compilation], report: Report, *, times: bool
) -> None:
    """Print the outputs and segments of a fusion, and the sizes that a build covers."""
    from fusec.commands.lint import lint_plan

    fusion, kinds = program.original, program.schedulers
    report.warn(lint_plan(program))
    for each in (program, *others):
        if "covers" not in each.made:
            _ = each.sources  # generate the CUDA source: errors in it must be reported
    operations = count(len(fusion.nodes), "operation")
    segments = count(len(kinds), "segment")
    print(f"{fusion.name}: {operations}, {segments} ({_kinds(kinds)})")
    for value, into in _outputs(fusion):
        print(f"  {value.name}: {value.type}{f' into {into}' if into else ''}")
    for each in (program, *others):
        _print_coverage(each.covers)
    report.facts.setdefault("fusions", []).append(_facts(program))
    if times:
        print_times(program.timings.seconds)
