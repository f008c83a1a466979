"""`fusec compile` and `fusec check`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from fusec import driver
from fusec.options import CompileOptions


def compile_file(path: str, options: CompileOptions, output: str | None, *, times: bool) -> int:
    """Compile every fusion of a file into a folder each, and print what was built."""
    from fusec.commands.artifacts import files_of, write_folder

    fusions = driver.load_all(path, options.sizes)
    for fusion in fusions:
        compiled = driver.compile_fusion(fusion, options, progress=_progress())
        base = Path(output) if output is not None else Path(f"{fusion.name}.fusec")
        folder = base if len(fusions) == 1 else base / fusion.name
        write_folder(folder, files_of(compiled, options.targets))
        segments = len(compiled.planned.segmented.segments)
        print(f"{folder}: {_count(segments, 'segment')}, {_count(len(compiled.program.launches), 'kernel')}")
        for (name, arch), artifact in compiled.artifacts.items():
            spills = f", {artifact.spill_bytes} bytes spilled" if artifact.spill_bytes else ""
            print(f"  {name} {arch}: {artifact.registers} registers{spills}")
        if times:
            print_times(compiled.planned.timings.seconds)
    return 0


def check_file(path: str, options: CompileOptions, *, times: bool) -> int:
    """Parse, type and segment every fusion of a file; nothing is compiled."""
    for fusion in driver.load_all(path, options.sizes):
        timings = driver.Timings()
        optimised = timings.measure("passes", lambda f=fusion: driver.optimise(f, options))
        segmented = timings.measure("segment", lambda f=optimised: driver.segment(f, options))
        kinds = ", ".join(f"{s.name} {s.scheduler}" for s in segmented.segments)
        nodes = _count(len(fusion.nodes), "operation")
        print(f"{fusion.name}: {nodes}, {_count(len(segmented.segments), 'segment')} ({kinds})")
        if times:
            print_times(timings.seconds)
    return 0


def print_times(seconds: dict[str, float]) -> None:
    """Print the time of each stage."""
    for stage, time in seconds.items():
        print(f"  {stage:<9} {time * 1e3:8.1f} ms")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _progress() -> Any:
    if not sys.stderr.isatty():
        return None

    def show(artifact: Any, done: int, total: int) -> None:
        end = "\n" if done == total else "\r"
        print(f"built {done}/{total} {artifact.name:<60.60}", end=end, file=sys.stderr)

    return show
