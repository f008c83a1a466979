"""`fusec compile` and `fusec check`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fusec import driver
from fusec.commands.report import count, print_times
from fusec.options import CompileOptions


def compile_file(path: str, options: CompileOptions, output: str | None, *, times: bool) -> int:
    """Compile every fusion of a file into a folder each, and print what was built."""
    from fusec.commands.artifacts import check_place, files_of, write_folder
    from fusec.commands.progress import build_progress

    fusions = driver.load_all(path, options)
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
        write_folder(folder, files_of(builds, options.targets))
    for folder, builds in zip(folders, made, strict=True):
        _print_builds(folder, builds)
        if times:
            for built in builds:
                print_times(built.planned.timings.seconds)
    return 0


def _print_builds(folder: Path, builds: tuple[driver.Compiled, ...]) -> None:
    for built in builds:
        segments = count(len(built.planned.segmented.segments), "segment")
        kernels = count(len(built.program.launches), "kernel")
        print(f"{folder}: {segments}, {kernels} for {', '.join(built.targets)}")
        for (name, arch), artifact in built.artifacts.items():
            spills = f", {artifact.spill_bytes} bytes spilled" if artifact.spill_bytes else ""
            print(f"  {name} {arch}: {artifact.registers} registers{spills}")


def _kinds(schedulers: Sequence[str]) -> str:
    """Return the kinds of segments, one by one where there are few."""
    if len(schedulers) <= 12:
        return ", ".join(f"s{k} {kind}" for k, kind in enumerate(schedulers))
    counts = Counter(schedulers).most_common()
    return ", ".join(f"{number} {kind}" for kind, number in counts)


def check_file(path: str, options: CompileOptions, *, times: bool) -> int:
    """Parse, type and segment every fusion of a file; nothing is compiled."""
    for fusion in driver.load_all(path, options):
        timings = driver.Timings()
        optimised = timings.measure("passes", lambda f=fusion: driver.optimise(f, options))
        segmented = timings.measure("segment", lambda f=optimised: driver.segment(f, options))
        kinds = _kinds([s.scheduler for s in segmented.segments])
        operations = count(len(fusion.nodes), "operation")
        segments = count(len(segmented.segments), "segment")
        print(f"{fusion.name}: {operations}, {segments} ({kinds})")
        if times:
            print_times(timings.seconds)
    return 0
