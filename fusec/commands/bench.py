"""`fusec bench`: fusions compared with the memory bandwidth limit, or with profiler counters."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusec import driver
from fusec.activity import activity
from fusec.commands.report import aligned
from fusec.commands.terminal.diagnose import Report
from fusec.dataclasses import asdict, dataclass, replace
from fusec.diagnostics import EnvironmentProblem, FusecError
from fusec.files import fusions_of
from fusec.options import CompileOptions, environment

if TYPE_CHECKING:
    from fusec.bench.bound import BoundWork
    from fusec.bench.counters import CountedSegment
    from fusec.bench.figures import Figures
    from fusec.bench.session import Session
    from fusec.commands.running.run_page import RunPage
    from fusec.driver import Package
    from fusec.ir.graph import Fusion


@dataclass(frozen=True)
class BenchOptions:
    """Options of a benchmark; out: a file for the results; counters: profile instead of timing.

    page: the HTML page to write.
    """

    repeats: int
    verify: bool
    seed: int
    out: str | None
    counters: bool
    page: RunPage | None = None


def bench(path: str, options: CompileOptions, chosen: BenchOptions, report: Report) -> int:
    """Time every fusion of a file, or count its bytes; return the exit code."""
    from fusec.bench.counters import find_profiler
    from fusec.run.device import device_available

    if chosen.out is not None and Path(chosen.out).is_dir():
        raise FusecError(f"--out {chosen.out}: is a directory")
    if chosen.counters:
        if chosen.page is not None:
            raise FusecError("--html shows times, --counters measures none", help="run both")
        find_profiler()
    reason = device_available()
    if reason is not None:
        raise EnvironmentProblem(reason, help="fusec explain FILE predicts without a GPU")
    record = _counted(path, options) if chosen.counters else _timed(path, options, chosen)
    report.facts["bench"] = record
    if chosen.out is not None:
        Path(chosen.out).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if chosen.page is not None:
        chosen.page.write()
    return 0


def _programs(path: str, options: CompileOptions) -> list[Fusion]:
    """Return the fusions to time: the phases of a joint graph separately."""
    found = [driver.Compilation(f, options).parts for f in fusions_of(path, options)]
    return [part.original for parts in found for part in parts]


def head(session: Session) -> dict[str, Any]:
    """Return the header of a record: the GPU, the method and the sources."""
    from fusec import __version__
    from fusec.bench.timer import FLUSH_BYTES, WARM_UP

    return {
        "device": session.device.facts.text(),
        "fusec": __version__,
        "fusec_tree": environment("FUSEC_TREE") or "",
        "method": {"flush_bytes": FLUSH_BYTES, "warm_up_s": WARM_UP, "clock": "events"},
    }


def _timed(path: str, options: CompileOptions, chosen: BenchOptions) -> dict[str, Any]:
    from fusec.bench.bound import BoundWork
    from fusec.bench.data import Inputs
    from fusec.bench.figures import HEADINGS, line_of
    from fusec.bench.session import Session, reference_error
    from fusec.bench.work import of_package

    lines: list[tuple[str, ...]] = [HEADINGS]
    rows: list[dict[str, Any]] = []
    with Session(options.jobs) as session:
        built_for = options if options.targets_given else replace(
            options, targets=session.options.targets
        )  # fmt: skip
        for fusion in _programs(path, options):
            package = driver.compile_fusion(fusion, built_for)
            work = of_package(package, built_for.target)
            inputs = Inputs(session.device, fusion, work.sizes, chosen.seed)
            with (
                activity(f"timing {fusion.name}", immediately=True),
                inputs,
                BoundWork(session.device, work, inputs) as bound,
            ):
                error = reference_error(fusion, bound, work.sizes) if chosen.verify else None
                inputs.fill()
                figures = session.figures(work, bound, repeats=chosen.repeats)
                if chosen.page is not None:
                    about = session.device.facts.text()
                    _show(chosen.page, package, bound, figures, about)
            figures = replace(figures, error=error, not_compared="" if error else "--no-verify")
            lines.append(line_of(fusion.name, figures))
            rows.append(figures.as_dict(fusion.name))
        record = {**head(session), "rows": rows}
    print("\n".join(line.rstrip() for line in aligned(lines, left=(0, len(HEADINGS) - 1))))
    print(f"medians of {chosen.repeats} runs with a cold L2, on {record['device']}")
    return record


def _show(page: RunPage, package: Package, bound: BoundWork, figures: Figures, device: str) -> None:
    """Add a fusion to the page; if it has several launches, time them one by one."""
    from fusec.bench.session import launch_times
    from fusec.run.measure import KernelTime, Timing

    runs = len(figures.times[0].runs)
    launches = package.program.host.launches
    times = tuple(KernelTime(k.kernel, k.segment, figures.seconds) for k in launches)
    if len(launches) > 1:
        times = launch_times(bound, runs).kernels
    timing = Timing(figures.seconds, times, runs)
    about = (timing, device, figures.limit.seconds)
    page.add(package.program, package, figures.work.sizes, *about)


COUNTED = ("segment", "scheduler", "launches", "read MB", "predicted", "written MB", "predicted",
           "to memory", "apart")  # fmt: skip


def flags_of(options: CompileOptions) -> list[str]:
    """Return the command-line flags that correspond to these options."""
    found = [f"--target={','.join(options.targets)}"] if options.targets_given else []
    found += [f"--set={name}={size}" for name, size in options.sizes.items()]
    found += [f"--without={name}" for name in options.without]
    named = {"--stop-after": options.stop_after, "--schedule": options.schedule}
    found += [f"{flag}={value}" for flag, value in named.items() if value is not None]
    found += [] if options.use_cache else ["--no-cache"]
    found += ["--check-bounds"] if options.check_bounds else []
    return [*found, f"--redefine={options.redefine}"]


def _counted(path: str, options: CompileOptions) -> dict[str, Any]:
    from fusec.bench.counters import compare_traffic, profile
    from fusec.bench.work import build
    from fusec.run.device import Device

    run = ["run", path, "--device=cuda", "--repeat=0", "--no-verify", *flags_of(options)]
    launches = profile(run)
    with Device() as device:
        options = driver.for_device(options, device.facts)
        about = device.facts.text()
    works = [build(fusion, options) for fusion in _programs(path, options)]
    found = [each for work in works for each in compare_traffic(work, launches)]
    print("\n".join(aligned([COUNTED, *map(_line, found)], left=(0, 1))))
    for each in found:
        if each.is_finding:
            print(f"finding: `{each.segment.name}` is {each.difference:+.1%} off its prediction")
    return {
        "device": about,
        "fusec_tree": environment("FUSEC_TREE") or "",
        "command": shlex.join(["fusec", *run]),
        "segments": [
            {**asdict(b), "difference": round(b.difference, 4), "finding": b.is_finding}
            for b in found
        ],
    }


def _line(each: CountedSegment) -> tuple[str, ...]:
    segment, counted = each.segment, each.counted
    sizes = (counted.read, segment.read_bytes, counted.stored, segment.written_bytes)
    shown = (f"{size / 1e6:.1f}" for size in (*sizes, counted.written))
    return segment.name, segment.scheduler, str(each.kernels), *shown, f"{each.difference:+.1%}"
