"""A segment to tune, as plain data that can be sent to processes, and its kernels by record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import sha256

from fusec import driver
from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import FusecError
from fusec.driver import Compilation
from fusec.hostir.program import HostProgram
from fusec.ir.annotations import Override, Setting
from fusec.ir.graph import Fusion
from fusec.ir.text import to_text
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.schedule.registry import find_scheduler
from fusec.schedule.summation import digest_at
from fusec.segment.segmented import Segment, SegmentedFusion
from fusec.target import find
from fusec.tuned import Key, key_of

Settings = Mapping[str, Setting]


@dataclass(frozen=True)
class Job:
    """A segment to tune: the text of its fusion, its sizes in it as defaults, and its scheduler.

    of: its display name.
    """

    of: str
    text: str
    scheduler: str
    target: str
    use_cache: bool = True

    @property
    def options(self) -> CompileOptions:
        """Return the options for building its kernels, one at a time."""
        return CompileOptions(
            targets=(self.target,),
            targets_given=True,
            jobs=1,
            use_cache=self.use_cache,
            untuned=True,
        )

    @property
    def fusion(self) -> Fusion:
        """Return the segment as a fusion; the same object for the same job."""
        return _segment(self).fusion

    @property
    def segment(self) -> Segment:
        """Return the segment, as scheduled by the cost model; the same object for the same job."""
        return _segment(self)

    @property
    def key(self) -> Key:
        """Return the key to look up its schedule."""
        return key_of(self.fusion)


@lru_cache(maxsize=256)
def _segment(job: Job) -> Segment:
    return Segment(0, job.scheduler, read_text(job.text, "segment.yaml"), None)


@dataclass(frozen=True)
class Built:
    """A segment's kernels with one record: the host program, machine code by name.

    settings: the free fields of the record. form: equal if host program and sources are, except for
    names. summation: the digest of the outputs' summation trees.
    """

    settings: Settings
    host: HostProgram
    cubins: Mapping[str, bytes]
    templates: tuple[str, ...]
    form: str
    summation: str = ""


@dataclass(frozen=True)
class Failed:
    """A record without working kernels, and the reason."""

    settings: Settings
    reason: str


def jobs_of(path: str, options: CompileOptions, wanted: Iterable[str] = ()) -> list[Job]:
    """Return a job for each segment of a file that has a choice; wanted: names, or empty for all.

    FusecError where a file has no segment of a name. A segment with `schedules:` is left to the
    user.
    """
    names, found = {*wanted}, list[Job]()
    known: set[str] = set()
    for program in driver.programs(path, replace(options, untuned=True)):
        for segment in program.segmented.segments:
            known.add(segment.name)
            if names and segment.name not in names:
                continue
            free = find_scheduler(segment.scheduler).free(segment.fusion, find(options.target))
            if free and not segment.overrides:
                made = ", ".join(o.value.name for o in segment.fusion.outputs)
                of = f"{program.original.name} {segment.name} ({made})"
                text = to_text(replace(segment.fusion, name=program.original.name))
                found.append(Job(of, text, segment.scheduler, options.target, options.use_cache))
    if names - known:
        raise FusecError(
            f"`{path}` has no segment {', '.join(sorted(names - known))}",
            help=f"it has {', '.join(sorted(known))}",
        )
    return found


def program_of(job: Job, settings: Settings | None) -> Compilation:
    """Return the program of a segment with some fields set, or as the cost model selects."""
    overrides = tuple(Override("s0", n, v) for n, v in (settings or {}).items())
    segment = replace(job.segment, overrides=overrides)
    segmented = SegmentedFusion(segment.fusion, (segment,))
    return Compilation(segment.fusion, job.options, fusion=segment.fusion, segmented=segmented)


def build(job: Job, settings: Settings | None) -> Built | Failed:
    """Return a segment's kernels with some fields set, or why there are none.

    Any failure is returned as that of the record, so that it does not affect others.
    """
    try:
        program = driver.build(program_of(job, settings))
    except FusecError as error:
        return Failed(settings or {}, error.diagnostic.message)
    except Exception as error:
        return Failed(settings or {}, f"{type(error).__name__}: {error}")
    (plan,) = program.program.plans
    found = settings_of(plan.parameters)
    texts = [s.digest for s in program.program.kernel_sources]
    names = {k.name: f"k{n}" for n, k in enumerate(plan.kernels)}
    host = program.program.host.text()
    for name, short in names.items():
        host = host.replace(name, short)
    return Built(
        settings or found,
        program.program.host,
        program.cubins(job.target),
        tuple(k.template for k in plan.kernels),
        sha256("\n".join([*texts, host]).encode()).hexdigest(),
        digest_at(job.fusion, program.program.host.orders, job.fusion.hints),
    )


def settings_of(parameters: object) -> Settings:
    """Return the free fields of a record with their values."""
    found: Settings = getattr(parameters, "settings", {})
    return found
