"""`fusec tune`: measure schedules, merge files of them, report errors of the cost model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusec import trust
from fusec.commands.report import count
from fusec.commands.terminal.diagnose import Report
from fusec.dataclasses import asdict, dataclass, replace
from fusec.diagnostics import EnvironmentProblem, FusecError
from fusec.escape import visible
from fusec.options import CompileOptions
from fusec.schedule.space import setting_text
from fusec.tune.job import Job, Settings, jobs_of
from fusec.tuned import Entry, store_for, user_file
from fusec.tuned.store import merged, store_of, write
from fusec.user_files import TUNED, check_own

if TYPE_CHECKING:
    from fusec.tune.session import Outcome


@dataclass(frozen=True)
class TuneOptions:
    """How to tune: total seconds, segments by name, records measured first, the file to write."""

    budget: float | None = None
    segments: tuple[str, ...] = ()
    most: int = 16
    output: str | None = None


def tune_files(
    paths: Sequence[str], options: CompileOptions, chosen: TuneOptions, report: Report
) -> int:
    """Measure the segments of some files, and keep the fastest records after each of them."""
    from fusec.run.device import device_available
    from fusec.tune.kernels import Kernels
    from fusec.tune.remote import Remote
    from fusec.tune.session import Tools, tune

    reason = device_available()
    if reason is not None:
        raise EnvironmentProblem(
            f"tuning measures kernels on a GPU: {reason}",
            help="schedules measured elsewhere are also used without a GPU",
        )
    told = report.facts["tuned"] = list[dict[str, Any]]()
    with Remote() as bench, Kernels(options.jobs) as kernels:
        facts = bench.facts()
        options = _for_device(options, facts.capability)
        jobs = _jobs(paths, options, chosen.segments)
        path = _own_file(options.target) if chosen.output is None else Path(chosen.output)
        kept, failed = store_of(path).entries(), 0
        for outcome in tune(jobs, Tools(kernels, bench, facts, chosen.most), chosen.budget):
            told.append(_facts(outcome))
            if outcome.entry is None:
                failed += outcome.reason != "the time budget is used up"
                print(visible(f"{outcome.job.of}: not tuned: {outcome.reason}"), flush=True)
                continue
            own = [e for e in kept if e.place != outcome.entry.place]
            kept = merged([*own, outcome.entry])
            write(path, kept)
            print(visible(_line(outcome.entry)), flush=True)
            for each in () if outcome.found is None else outcome.found.failed:
                print(visible(f"  failed: {_settings(each.settings)}: {each.reason}"), flush=True)
        _tell_kept(report, path, kept)
    print(visible(f"{path}: {count(len(kept), 'schedule')}"))
    return 1 if failed else 0


def _facts(outcome: Outcome) -> dict[str, Any]:
    """Return the JSON record of a job's outcome."""
    left_out = () if outcome.found is None else outcome.found.failed
    return {
        "segment": outcome.job.of,
        "entry": None if outcome.entry is None else asdict(outcome.entry),
        "reason": outcome.reason or None,
        "left_out": [{"parameters": dict(f.settings), "reason": f.reason} for f in left_out],
    }


def _tell_kept(report: Report, path: Path | None, kept: Sequence[Entry]) -> None:
    """Report the schedules of a file, or of those in use."""
    report.facts["file"] = None if path is None else str(path)
    report.facts["schedules"] = [{**asdict(e), "current": e.is_current} for e in kept]


def _own_file(target: str) -> Path:
    """Return the user's file for a target; FusecError if it would not be used."""
    path = user_file(target)
    try:
        check_own(path)
    except trust.Untrusted as problem:
        raise FusecError(
            f"measured schedules are disabled, so none are written: {problem}",
            help=trust.way_out(TUNED),
        ) from None
    return path


def _for_device(options: CompileOptions, capability: int) -> CompileOptions:
    """Return the options with the target of the local GPU, if none was chosen."""
    from fusec.target import TARGETS, nearest

    if options.targets_given:
        return options
    target = nearest(TARGETS, capability)
    if target is None:
        raise EnvironmentProblem(f"no known target runs on sm_{capability}")
    return replace(options, targets=(target.arch,))


def _jobs(paths: Sequence[str], options: CompileOptions, segments: Sequence[str]) -> list[Job]:
    """Return the jobs of some files, one per set of equal segments."""
    found: dict[tuple[str, str, str], Job] = {}
    for path in paths:
        for job in jobs_of(path, options, segments):
            found.setdefault((job.scheduler, job.key.structure, job.key.sizes), job)
    return [*found.values()]


def _line(entry: Entry) -> str:
    return (
        f"{entry.of}: {entry.us:.2f} us, default {entry.default_us:.2f} us "
        f"({entry.default_us / entry.us:.3f}x), "
        f"{count(entry.records, 'record')}, rank correlation of the cost model {entry.rank:.2f}: "
        f"{_settings(entry.parameters)}"
    )


def _settings(settings: Settings) -> str:
    return ", ".join(f"{name} {setting_text(value)}" for name, value in settings.items())


def merge_files(paths: Sequence[str], output: str | None, report: Report) -> int:
    """Merge the entries of some files into one file; of duplicates, the faster one wins."""
    if output is None:
        raise FusecError("--merge writes a file", help="name it with -o")
    for path in paths:
        if not Path(path).is_file():
            raise FusecError(f"tuned schedules: no such file: `{path}`")
    every = [e for path in paths for e in store_of(Path(path)).entries()]
    kept = merged(every)
    write(Path(output), kept)
    _tell_kept(report, Path(output), kept)
    stale = sum(not e.is_current for e in kept)
    old = f", {stale} with outdated templates" if stale else ""
    print(visible(f"{output}: {count(len(kept), 'schedule')} of {len(every)}{old}"))
    return 0


def report_files(paths: Sequence[str], options: CompileOptions, report: Report) -> int:
    """Print errors of the cost model, by the entries of some files or of those in use."""
    from fusec.tune.report import mistakes_of, report_lines

    stores = [store_of(Path(p)) for p in paths] or store_for(options.target)
    entries = merged(e for store in stores for e in store.entries())
    _tell_kept(report, None, entries)
    report.facts["predictions"] = [asdict(m) for m in mistakes_of(entries)]
    for line in report_lines(entries):
        print(visible(line))
    return 0
