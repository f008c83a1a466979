"""`fusec compile` and `fusec check`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusec import driver
from fusec.commands.diagnose import Report
from fusec.commands.report import count, print_times
from fusec.escape import visible
from fusec.options import CompileOptions

if TYPE_CHECKING:
    from fusec.ir.graph import Fusion
    from fusec.segment.segmented import SegmentedFusion


def compile_file(
    path: str, options: CompileOptions, output: str | None, report: Report, *, times: bool
) -> int:
    """Compile every fusion of a file into a folder each, and print what was built."""
    from fusec.commands.artifacts import check_place, files_of, write_folder
    from fusec.commands.lint import lint, lint_strides
    from fusec.commands.progress import build_progress

    wholes = driver.load_whole(path, options.sizes)
    report.warn(d for whole in wholes for d in lint(whole))
    fusions = [part for whole in wholes for part in driver.phases_of(whole, options)]
    report.warn(d for fusion in fusions for d in lint_strides(fusion, options))
    several = len(fusions) > 1
    folders = [
        Path(f"{f.name}.fusec") if output is None else Path(output, f.name if several else "")
        for f in fusions
    ]
    for folder in folders:
        check_place(folder)
    with build_progress() as progress:
        made = [driver.compile_targets(f, options, progress) for f in fusions]
    for folder, builds in zip(folders, made, strict=True):
        write_folder(folder, files_of(builds, options))
    for folder, builds in zip(folders, made, strict=True):
        _print_builds(folder, builds)
        if times:
            for built in builds:
                print_times(built.planned.timings.seconds)
    return 0


def _print_builds(folder: Path, builds: tuple[driver.Compiled, ...]) -> None:
    from fusec.hostir.coverage import coverage

    for built in builds:
        segments = count(len(built.planned.segmented.segments), "segment")
        kernels = count(len(built.program.launches), "kernel")
        print(visible(f"{folder}: {segments}, {kernels} for {', '.join(built.targets)}"))
        _print_coverage(coverage(built.program.guards, built.planned.original.dims))
        for (name, arch), artifact in built.artifacts.items():
            spills = f", {artifact.spill_bytes} bytes spilled" if artifact.spill_bytes else ""
            print(f"  {name} {arch}: {artifact.registers} registers{spills}")


def _kinds(schedulers: Sequence[str]) -> str:
    """Return the kinds of segments, one by one where there are few."""
    if len(schedulers) <= 12:
        return ", ".join(f"s{k} {kind}" for k, kind in enumerate(schedulers))
    counts = Counter(schedulers).most_common()
    return ", ".join(f"{number} {kind}" for kind, number in counts)


def _print_coverage(covers: str) -> None:
    if covers:
        print(f"  covers {covers}")


def _facts(fusion: Fusion, segmented: SegmentedFusion, covers: str) -> dict[str, Any]:
    """Return for tools what a check prints."""
    from fusec.commands.manifest import outputs_of

    return {
        "name": fusion.name,
        "operations": len(fusion.nodes),
        "segments": [s.scheduler for s in segmented.segments],
        "outputs": [
            {"name": r.name, "type": str(o.value.type), "alias": r.alias}
            for o, r in zip(fusion.outputs, outputs_of(fusion), strict=True)
        ],
        "covers": covers,
    }


def check_file(path: str, options: CompileOptions, report: Report, *, times: bool) -> int:
    """Parse, type and segment every fusion of a file; nothing is compiled."""
    from fusec.commands.lint import lint

    for whole in driver.load_whole(path, options.sizes):
        report.warn(lint(whole))
        for fusion in driver.phases_of(whole, options):
            _check(fusion, options, report, times=times)
    return 0


def _check(fusion: Fusion, options: CompileOptions, report: Report, *, times: bool) -> None:
    """Print what a fusion makes, in which segments, and which sizes a build covers."""
    from fusec.commands.lint import lint_strides
    from fusec.hostir.coverage import coverage
    from fusec.hostir.lower import lower

    timings = driver.Timings()
    optimised = timings.measure("passes", lambda: driver.optimise(fusion, options))
    segmented = timings.measure("segment", lambda: driver.segment(optimised, options))
    plans = timings.measure("schedule", lambda: driver.plan_segments(segmented, options))
    report.warn(lint_strides(fusion, options, segmented))
    kinds = _kinds([s.scheduler for s in segmented.segments])
    operations = count(len(fusion.nodes), "operation")
    segments = count(len(segmented.segments), "segment")
    print(f"{fusion.name}: {operations}, {segments} ({kinds})")
    for value, name in ((o.value, fusion.effects.buffer(o.value)) for o in fusion.outputs):
        place = "" if name == value.name else f" into {name}"
        print(f"  {value.name}: {value.type}{place}")
    covers = coverage(lower(segmented, plans).guards, fusion.dims)
    _print_coverage(covers)
    report.facts.setdefault("fusions", []).append(_facts(fusion, segmented, covers))
    if times:
        print_times(timings.seconds)
