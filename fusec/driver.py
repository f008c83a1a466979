"""The stages from a file to kernels, as a table; each is timed, and every command calls it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import EnvironmentProblem, FusecError
from fusec.files import fusions_of
from fusec.lowering import (
    Plans,
    check,
    divide,
    expand,
    lower,
    no_collection,
    optimise,
    render,
    schedule,
    segment,
    verify,
)
from fusec.options import DEBUG_FLAGS, CompileOptions, environment
from fusec.properties import cached_property
from fusec.stages import Stage, Timings, made_earlier

if TYPE_CHECKING:
    from fusec.codegen.source import KernelSource
    from fusec.hostir.program import HostProgram
    from fusec.ir.graph import Fusion
    from fusec.reference.errors.nodes import Model
    from fusec.run.build import Artifact, Progress
    from fusec.run.device import Device, DeviceFacts
    from fusec.run.measure import Timing
    from fusec.run.spills import Build
    from fusec.schedule.plan import KernelPlan

T = TypeVar("T")


class Compilation:
    """A fusion planned for targets whose plans agree; stages run on demand.

    original: the fusion before partitioning. local: the per-rank fusion: its sizes, inputs and
    outputs are those of a call. made: the results of stages so far, by attribute; a program may
    start with any of them.
    """

    local = Stage("partition", divide, "original", dumps=("partition",))
    fusion = Stage("passes", optimise, "local", verify=verify, dumps=("preseg",))
    segmented = Stage("segment", segment, "fusion", dumps=("segmented-fusion", "schedule-space"))
    plans = Stage("schedule", schedule, "segmented", dumps=("scheduler-params",))
    sources = Stage("codegen", render, "plans", dumps=("cuda-kernel", "ptx"))
    posts = Stage(
        "schedule", lower, "segmented", "plans", "local", verify=check,
        dumps=("host-passes", "host-ir"),
    )  # fmt: skip
    host = Stage(
        "schedule", expand, "posts", "segmented", "plans", "sources", dumps=("host-program",)
    )

    def __init__(self, original: Fusion, options: CompileOptions, **made: Any) -> None:
        """Start without any stage run."""
        self.original, self.options, self.made = original, options, made
        self.timings = Timings(original.name)

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the targets that the program is for."""
        return self.options.targets

    @cached_property
    def parts(self) -> tuple[Compilation, ...]:
        """Return the programs of a joint graph's phases, in order; else only this program.

        The passes run before it is split: their result for the whole determines what is saved.
        """
        if not self.original.phases:
            return (self,)
        from fusec.segment.phases import split

        # Each phase checks the indices that it uses.
        whole = optimise(self.local, replace(self.options, check_bounds=False))
        return tuple(Compilation(part, self.options) for part in split(whole).parts)

    @property
    def evaluated(self) -> Mapping[str, Fusion]:
        """Return the segments that the CPU evaluates, by name."""
        known = made_earlier(self, "evaluated")
        if known is not None:
            return known
        parts = zip(self.segmented.segments, self.plans, strict=True)
        return {s.name: s.fusion for s, p in parts if p.host is not None and p.host.evaluated}

    @cached_property
    def kernels_launched(self) -> Mapping[str, str]:
        """Return by the name of each planned kernel the kernel that is launched for it.

        Of equal kernels the first is launched, by the number of the segment.
        """
        known = made_earlier(self, "kernels_launched")
        if known is not None:
            return known
        from fusec.codegen.equal import kernels_launched

        return kernels_launched(source for sources in self.sources for source in sources)

    @property
    def schedulers(self) -> tuple[str, ...]:
        """Return the scheduler of each segment."""
        known = made_earlier(self, "schedulers")
        return tuple(s.scheduler for s in self.segmented.segments) if known is None else known

    @property
    def covers(self) -> str:
        """Return the supported sizes, as text."""
        known = made_earlier(self, "covers")
        if known is not None:
            return known
        from fusec.hostir.coverage import coverage

        return coverage(self.posts.guards, self.local.dims)

    @property
    def kernel_sources(self) -> tuple[KernelSource, ...]:
        """Return the sources of all kernels that are launched, in the order of segments."""
        launched = self.kernels_launched
        each = (source for sources in self.sources for source in sources)
        return tuple(source for source in each if launched[source.name] == source.name)

    def on(self, targets: tuple[str, ...]) -> Compilation:
        """Return the program for other targets; results for an unchanged first target are kept."""
        options = replace(self.options, targets=targets)
        if options.target != self.options.target:
            return Compilation(self.original, options)
        other = Compilation(self.original, options, **self.made)
        other.timings = self.timings
        return other

    def planned_as(self, plans: Plans, **made: Any) -> Compilation:
        """Return the program with other plans of its segments, and the results of later stages."""
        known = {"local": self.local, "fusion": self.fusion, "segmented": self.segmented}
        other = Compilation(self.original, self.options, **known, plans=plans, **made)
        other.timings = self.timings
        return other

    def other_plans(self, number: int) -> Iterator[KernelPlan]:
        """Return alternative plans of a segment, for when the compiler spills registers."""
        from fusec import target
        from fusec.schedule.segments import plans_for_fewer

        gpu = target.find(self.options.target, self.options.rates)
        return plans_for_fewer(self.segmented.segments[number], gpu)

    def is_planned_for(self, sizes: Mapping[str, int]) -> bool:
        """Return whether a run has the sizes that the plans were made for."""
        return all(sizes.get(name, size) == size for name, size in self.original.hints.items())

    def agrees(self, other: Compilation) -> bool:
        """Return whether two programs of one fusion run the same kernels in the same way."""
        texts, others = ([[(s.name, s.text) for s in e] for e in p.sources] for p in (self, other))
        return texts == others and self.host == other.host and self.schedulers == other.schedulers


STAGES: tuple[Stage[Any], ...] = (
    Compilation.local, Compilation.fusion, Compilation.segmented, Compilation.plans,
    Compilation.sources, Compilation.posts, Compilation.host,
)  # fmt: skip
"""The stages of every program, in order; its kernels are built after them."""


@dataclass(frozen=True)
class Package:
    """A fusion's programs, with machine code by (kernel, target).

    Each has its own targets and sizes; if several can run, see `at`. targets: of all programs, as
    requested. edited: the kernels of a compiled folder with user-edited source.
    """

    programs: tuple[Compilation, ...]
    artifacts: Mapping[tuple[str, str], Artifact]
    targets: tuple[str, ...]
    edited: tuple[str, ...] = ()

    @property
    def program(self) -> Compilation:
        """Return the program for the first target."""
        return self.programs[0]

    def artifacts_of(self, program: Compilation) -> dict[tuple[str, str], Artifact]:
        """Return the artifacts of one of the programs."""
        own = {source.name for source in program.kernel_sources}
        found = self.artifacts.items()
        return {key: a for key, a in found if key[0] in own and key[1] in program.targets}

    def sizes_of(self, program: Compilation) -> dict[str, int]:
        """Return the sizes for which a program was planned, where they differ from the first's."""
        first = self.program.local.hints
        return {n: s for n, s in program.local.hints.items() if s != first[n]}

    def at(self, target: str, sizes: Mapping[str, int]) -> Compilation:
        """Return the program that runs at some sizes; FusecError lists the supported ones."""
        from fusec.hostir.coverage import fitting

        found = [p for p in self.programs if target in p.targets]
        return found[fitting([(p.host, p.local.dims) for p in found], sizes)]

    def cubins(self, target: str) -> dict[str, bytes]:
        """Return the machine code for one target, by kernel."""
        return {name: a.cubin for (name, arch), a in self.artifacts.items() if arch == target}


def choose(caller: str, named: Mapping[str, T], part: str | None) -> T:
    """Return the fusion named by `part`, or the only one; FusecError if unknown or ambiguous.

    part: a fusion's name, or for a phase of a joint graph the phase's. caller: the calling
    function, as named in errors.
    """
    if part is None and len(named) == 1:
        return next(iter(named.values()))
    if part is not None and part in named:
        return named[part]
    fitting = [name for name in named if part and name.endswith(f"_{part}")]
    if len(fitting) == 1:
        return named[fitting[0]]
    what = "the file defines several fusions" if part is None else f"unknown fusion `{part}`"
    raise FusecError(f"{caller}(): {what}", help=f"part: one of {', '.join(named)}")


@no_collection()
def plan(fusion: Fusion, options: CompileOptions) -> Compilation:
    """Return a fusion's program after all stages of the table."""
    program = Compilation(fusion, options)
    for stage in STAGES:
        getattr(program, stage.gives)
    return program


def recalled(fusion: Fusion, options: CompileOptions) -> Compilation:
    """Return a fusion's program with the plan of an earlier process, if it is cached."""
    from fusec.plan_cache.store import recall

    return Compilation(fusion, options, **recall(fusion, options))


def keep(program: Compilation, compiler: str = "") -> None:
    """Cache the plan of a program for later processes, where possible.

    compiler: as for `fusec.plan_cache.key.key_of`.
    """
    if "schedulers" in program.made:
        return  # it was read from there
    from fusec.plan_cache.records import Planned, Stages, kernels_of
    from fusec.plan_cache.store import keep

    fusion, posts, host = program.original, program.posts, program.made.get("host")
    if program.evaluated or posts.checks:
        return  # segments, and source locations, have no records
    stages = None
    if host is not None:
        kernels = kernels_of(program.sources)
        stages = Stages(kernels, program.kernels_launched, posts, host)
    planned = Planned(program.schedulers, program.covers, stages)
    keep(fusion, program.options, planned, compiler)


def build(
    program: Compilation, progress: Progress | None = None, make: Build | None = None
) -> Package:
    """Return a program with its kernels built for all of its targets, by `make` if it is given.

    If the compiler spills registers, other plans may replace its plans.
    """
    from fusec.run.spills import build_plans

    options = program.options
    kernels_of = make or _kernels_of(options, progress)
    first = program.plans, program.sources
    plans, sources, artifacts = program.timings.measure(
        "build", lambda: build_plans(*first, kernels_of, program.other_plans)
    )
    if plans != first[0]:
        program = program.planned_as(plans, sources=sources)
    return Package((program,), artifacts, options.targets)


def _compiler() -> str:
    """Return the name and version of the compiler that determines spills; empty without one."""
    from fusec.run.binary.version import compiler_version

    try:
        return f"{compiler_version()} {' '.join(_flags())}"
    except EnvironmentProblem:
        return ""


def _flags() -> tuple[str, ...]:
    return DEBUG_FLAGS if environment("FUSEC_DEBUG") else ()


def _kernels_of(options: CompileOptions, progress: Progress | None) -> Build:
    """Return a function that builds kernels for the targets of some options."""
    from fusec.run.build import build as build_kernels
    from fusec.run.cache import Cache

    cache = None if options.use_cache else Cache(None)
    return partial(
        build_kernels, archs=options.targets, jobs=options.jobs, options=_flags(), cache=cache,
        progress=progress,
    )  # fmt: skip


def compile_fusion(
    fusion: Fusion, options: CompileOptions, progress: Progress | None = None
) -> Package:
    """Return a fusion compiled for the first target of the options.

    If an earlier process planned it, its cached plan is used, and its kernels are built or loaded.
    """
    from fusec.plan_cache.store import recall
    from fusec.run.build import Source

    options = replace(options, targets=options.targets[:1])
    compiler = _compiler()
    known = recall(fusion, options, compiler) if compiler else {}
    if "host" not in known:
        package = build(Compilation(fusion, options), progress)
        if compiler:
            _ = package.program.host
            keep(package.program, compiler)
        return package
    program = Compilation(fusion, options, **known)
    sources = [Source.of(source) for source in program.kernel_sources]
    return Package((program,), _kernels_of(options, progress)(sources), options.targets)


def compile_targets(program: Compilation, progress: Progress | None = None) -> Package:
    """Return a program compiled for every target; targets whose plans agree share one.

    Plans are target-specific: they may use instructions that another target lacks.
    """
    shared = _shared_targets(program)
    built = [build(each, progress) for each in shared]
    artifacts = {key: a for package in built for key, a in package.artifacts.items()}
    return Package(tuple(p.program for p in built), artifacts, program.targets)


def plan_targets(program: Compilation) -> Package:
    """Return a program planned for every target, without building.

    A build may use other plans, where the compiler spills registers.
    """
    return Package(tuple(_shared_targets(program)), {}, program.targets)


def _shared_targets(program: Compilation) -> list[Compilation]:
    shared: list[Compilation] = []
    for target in program.targets:
        own = program.on((target,))
        known = next((k for k, other in enumerate(shared) if own.agrees(other)), None)
        if known is None:
            shared.append(own)
        else:
            shared[known] = shared[known].on((*shared[known].targets, target))
    return shared


def load(path: str, sizes: Mapping[str, int] | None = None) -> Fusion:
    """Return the fusion of a YAML file or a script; `sizes` replace defaults by name."""
    found = programs(path, CompileOptions(sizes=sizes or {}))
    if len(found) > 1:
        names = ", ".join(p.original.name for p in found)
        raise FusecError(f"`{path}` defines {len(found)} fusions: {names}", help="use `fusec run`")
    return found[0].original


def programs(path: str, options: CompileOptions | None = None) -> list[Compilation]:
    """Return the programs of every fusion of a file; a joint graph counts as its phases."""
    options = options or CompileOptions()
    return [p for f in fusions_of(path, options) for p in Compilation(f, options).parts]


def reference(
    fusion: Fusion, inputs: Mapping[str, Any], sizes: Mapping[str, int]
) -> dict[str, Any]:
    """Return the outputs of the fp64 reference, rounded to their types."""
    from fusec.reference.stream import outputs_of

    return outputs_of(fusion, inputs, sizes)


def model_of(host: HostProgram | None, sizes: Mapping[str, int]) -> Model:
    """Return the error model of a program: summation orders and approximations."""
    from fusec.reference.errors.nodes import Model

    return (
        Model()
        if host is None
        else Model(
            host.orders_at(sizes),
            approximated=frozenset(host.approximated),
            inside=frozenset(host.inside),
            early=host.rounded_early,
            unrounded=frozenset(host.unrounded),
        )
    )


def measure(device: Device, package: Package, target: str, repeats: int) -> Timing:
    """Return the median times of the kernels for `target` on random inputs, with a cold L2."""
    from fusec.run.execute import Executable
    from fusec.run.inputs import choose_sizes, random_inputs
    from fusec.run.measure import measure

    fusion = package.program.local
    sizes = choose_sizes(fusion)
    executable = Executable(
        device, package.program.host, package.cubins(target), None, package.program.evaluated
    )
    with executable.bind(random_inputs(fusion, sizes), sizes) as bound:
        bound.reset()
        return measure(bound, repeats)


def for_device(options: CompileOptions, facts: DeviceFacts) -> CompileOptions:
    """Return the options with the target of the local GPU, if none was given.

    A GPU without a target of its own runs the machine code of an earlier one of its generation.
    """
    if options.targets_given:
        return options
    from fusec.target import TARGETS, nearest_arch

    target = nearest_arch(TARGETS, facts.capability)
    if target is None:
        raise EnvironmentProblem(
            f"no known target runs on {facts.name} (sm_{facts.capability})",
            help=f"one of {', '.join(TARGETS)}",
        )
    return replace(options, targets=(target,))
