"""The stages from a file to kernels: a table, each stage timed; every command is a call into it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import EnvironmentProblem, FusecError
from fusec.files import fusions_of
from fusec.options import ASKED, CompileOptions
from fusec.stages import Stage, Timings

if TYPE_CHECKING:
    from fusec.codegen.render import KernelSource
    from fusec.hostir.program import HostProgram
    from fusec.ir.graph import Fusion
    from fusec.reference.nodes import Model
    from fusec.run.build import Artifact, Progress
    from fusec.run.device import Device, DeviceFacts
    from fusec.run.measure import Timing
    from fusec.run.spills import Build
    from fusec.schedule.plan import KernelPlan
    from fusec.segment.segmented import SegmentedFusion

Plans = tuple["KernelPlan", ...]
Sources = tuple[tuple["KernelSource", ...], ...]


FRAMES_PER_NODE = 20
"""Calls inside one another, at most, for each operation of a chain that is followed."""


def _allow_depth(fusion: Fusion) -> None:
    """Let values be followed through as many operations as the fusion has."""
    wanted = 1000 + FRAMES_PER_NODE * len(fusion.nodes)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), min(wanted, 200_000)))


def divide(fusion: Fusion, options: CompileOptions) -> Fusion:
    """Return what one rank runs of a fusion; the fusion itself where nothing is divided."""
    if not fusion.shardings:
        return fusion
    from fusec.shard import partition

    _allow_depth(fusion)
    return partition(fusion)


def optimise(fusion: Fusion, options: CompileOptions, observer: Any = None) -> Fusion:
    """Return the fusion after the pre-segmentation passes."""
    from fusec.passes import APPROXIMATIONS, run_pipeline
    from fusec.passes.check_indices import check_indices
    from fusec.shard.loops import settle_loops

    _allow_depth(fusion)
    without = (*_left_out(options)[0], *(APPROXIMATIONS if options.precise else ()))
    fusion = run_pipeline(fusion, without=without, stop_after=options.stop_after, observer=observer)
    fusion = settle_loops(fusion)
    return check_indices(fusion) if options.check_bounds else fusion


def _left_out(options: CompileOptions) -> tuple[list[str], list[str]]:
    """Return which passes over fusions and which over host programs are left out."""
    from fusec.hostir.passes import PIPELINE as HOST_PIPELINE
    from fusec.passes import PIPELINE
    from fusec.passes.pipeline import known_name

    every = (*PIPELINE, *HOST_PIPELINE)
    names = [known_name(every, name) for name in options.without]
    before = {step.name for step in PIPELINE}
    return [n for n in names if n in before], [n for n in names if n not in before]


def _asked(options: CompileOptions) -> list[str]:
    """Return the passes that run since they are asked for, over host programs and segments."""
    from fusec.passes.pipeline import one_of

    return [one_of(ASKED, name) for name in options.with_]


def verify(fusion: Fusion) -> None:
    """Raise InternalError where passes have left a fusion that is not well formed."""
    from fusec.ir.verify import verify

    verify(replace(fusion, pins=()))  # what a pin names may be gone


def segment(fusion: Fusion, options: CompileOptions) -> SegmentedFusion:
    """Return the segments of an optimised fusion."""
    from fusec import target
    from fusec.schedule.overrides import with_overrides
    from fusec.schedule.registry import host_schedulers, schedulers
    from fusec.schedule.tuned import with_tuned
    from fusec.segment.offers import Offers
    from fusec.segment.redefine import redefine
    from fusec.segment.search import segment as search
    from fusec.tuned import store_for

    gpu = target.find(options.target, options.rates)
    all = (*schedulers(), *host_schedulers())
    offers = Offers(all, gpu)
    found = redefine(
        fusion,
        lambda f: search(f, all, gpu, offers=offers),
        all,
        gpu,
        options.redefine,
    )
    stores = [] if options.untuned else store_for(gpu.arch, options.tuned)
    chosen = with_tuned(with_overrides(found, gpu), gpu, stores)
    if "reuse_in_place" not in _asked(options):
        return chosen
    from fusec.schedule.reuse import reuse_in_place

    return reuse_in_place(chosen, gpu)


def schedule(segmented: SegmentedFusion, options: CompileOptions) -> Plans:
    """Return each segment's kernel plan, whose kernels take whatever they might read."""
    from fusec import target
    from fusec.schedule.segments import plan_segment

    gpu = target.find(options.target, options.rates)
    plans = tuple(plan_segment(s, gpu) for s in segmented.segments)
    if not options.overlap:
        return plans
    from fusec.schedule.overlap import overlap_launches

    return overlap_launches(plans, gpu)


def render(plans: Plans, options: CompileOptions) -> Sources:
    """Return the CUDA text of each plan's kernels."""
    from fusec.codegen.dispatch import plan_sources

    return tuple(plan_sources(plan) for plan in plans)


def lower(
    segmented: SegmentedFusion,
    plans: Plans,
    original: Fusion,
    options: CompileOptions,
    observer: Any = None,
) -> HostProgram:
    """Return what the host does, after the passes over it: which segments run, on which memory."""
    from fusec import target
    from fusec.hostir.lower import lower
    from fusec.hostir.passes import run_pipeline
    from fusec.hostir.passes.known import known_of

    program = lower(segmented, plans, original, options.streams)
    left_out, asked = _left_out(options)[1], _asked(options)
    gpu = target.find(options.target, options.rates)
    known = known_of(segmented, plans, gpu, options.streams)
    return run_pipeline(program, known, without=left_out, asked=asked, observer=observer)


def check(program: HostProgram) -> None:
    """Raise FusecError where passes have left a host program that cannot run."""
    from fusec.hostir.program import check_program

    check_program(program)


def expand(
    posts: HostProgram,
    segmented: SegmentedFusion,
    plans: Plans,
    sources: Sources,
    options: CompileOptions,
) -> HostProgram:
    """Return the program with the launches of its segments, which pass what the texts read."""
    from fusec.hostir.expand import expand

    printed = zip(plans, sources, strict=True)
    read = [replace(plan, kernels=tuple(s.kernel for s in each)) for plan, each in printed]
    return expand(posts, segmented, read, sources)


class Compilation:
    """A fusion planned for targets whose plans agree; a stage runs when its value is asked for.

    original: the fusion as it was given. local: what one rank runs of it: its sizes, inputs and
    outputs are those of a call. made: by attribute what the stages have given so far; a program may
    begin with the values of any of them.
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
        """Run no stage yet."""
        self.original, self.options, self.made = original, options, made
        self.timings = Timings()

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the targets that the program is for."""
        return self.options.targets

    @cached_property
    def parts(self) -> tuple[Compilation, ...]:
        """Return the programs of a joint graph's phases, in order; any other is its only part.

        The passes run before the cut: what they make of the whole decides what is saved.
        """
        if not self.original.phases:
            return (self,)
        from fusec.segment.phases import split

        # Each phase checks the indices that it uses.
        whole = optimise(self.local, replace(self.options, check_bounds=False))
        return tuple(Compilation(part, self.options) for part in split(whole).parts)

    @property
    def kernel_sources(self) -> tuple[KernelSource, ...]:
        """Return every kernel's text in launch order."""
        return tuple(source for sources in self.sources for source in sources)

    def on(self, targets: tuple[str, ...]) -> Compilation:
        """Return the program for other targets; what is made for the first of them is kept."""
        options = replace(self.options, targets=targets)
        if options.target != self.options.target:
            return Compilation(self.original, options)
        other = Compilation(self.original, options, **self.made)
        other.timings = self.timings
        return other

    def planned_as(self, plans: Plans, **made: Any) -> Compilation:
        """Return the program with other plans of its segments, and what they make."""
        known = {
            "local": self.local,
            "fusion": self.fusion,
            "segmented": self.segmented,
            "plans": plans,
        }
        other = Compilation(self.original, self.options, **known, **made)
        other.timings = self.timings
        return other

    def other_plans(self, number: int) -> Iterator[KernelPlan]:
        """Return further plans of a segment, for when the compiler spills registers."""
        from fusec import target
        from fusec.schedule.segments import plans_for_fewer

        gpu = target.find(self.options.target, self.options.rates)
        return plans_for_fewer(self.segmented.segments[number], gpu)

    def agrees(self, other: Compilation) -> bool:
        """Return whether two programs of one fusion run the same kernels in the same way."""
        kinds, others = ([s.scheduler for s in p.segmented.segments] for p in (self, other))
        return self.sources == other.sources and self.host == other.host and kinds == others


STAGES: tuple[Stage[Any], ...] = (
    Compilation.local, Compilation.fusion, Compilation.segmented, Compilation.plans,
    Compilation.sources, Compilation.posts, Compilation.host,
)  # fmt: skip
"""The stages that every program goes through, in order; then its kernels are built."""


@dataclass(frozen=True)
class Package:
    """A fusion's programs, with machine code by (kernel, target).

    Each is for targets and sizes of its own; where several can run, see `at`. targets: of all
    programs, as they were asked for. edited: the kernels of a compiled folder whose text somebody
    changed.
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
        """Return the sizes that one of the programs was planned for, where the first has others."""
        first = self.program.local.hints
        return {n: s for n, s in program.local.hints.items() if s != first[n]}

    def at(self, target: str, sizes: Mapping[str, int]) -> Compilation:
        """Return the program that runs at some sizes; FusecError says which are covered."""
        from fusec.hostir.coverage import fitting

        found = [p for p in self.programs if target in p.targets]
        return found[fitting([(p.host, p.local.dims) for p in found], sizes)]

    def cubins(self, target: str) -> dict[str, bytes]:
        """Return the machine code for one target, by kernel."""
        return {name: a.cubin for (name, arch), a in self.artifacts.items() if arch == target}


def plan(fusion: Fusion, options: CompileOptions) -> Compilation:
    """Return a fusion's program after all stages of the table."""
    program = Compilation(fusion, options)
    for stage in STAGES:
        getattr(program, stage.gives)
    return program


def build(
    program: Compilation, progress: Progress | None = None, make: Build | None = None
) -> Package:
    """Return a program with its kernels built for all of its targets, by `make` if one is given.

    Where the compiler spills registers, it may be with other plans.
    """
    from fusec.run.build import Builder
    from fusec.run.cache import Cache
    from fusec.run.spills import build_plans

    options = program.options
    cache = None if options.use_cache else Cache(None)
    builder = Builder(options.targets, options.jobs, cache=cache, progress=progress)
    first = program.plans, program.sources
    plans, sources, artifacts = program.timings.measure(
        "build", lambda: build_plans(*first, make or builder.build, program.other_plans)
    )
    if plans != first[0]:
        program = program.planned_as(plans, sources=sources)
    return Package((program,), artifacts, options.targets)


def compile_fusion(
    fusion: Fusion, options: CompileOptions, progress: Progress | None = None
) -> Package:
    """Return a fusion compiled for the first target of the options."""
    return build(Compilation(fusion, replace(options, targets=options.targets[:1])), progress)


def compile_targets(program: Compilation, progress: Progress | None = None) -> Package:
    """Return a program compiled for every target; targets whose plans agree share one.

    A plan is made for a target: what is chosen for one may use instructions that another lacks.
    """
    shared: list[Compilation] = []
    for target in program.targets:
        own = program.on((target,))
        known = next((k for k, other in enumerate(shared) if own.agrees(other)), None)
        if known is None:
            shared.append(own)
        else:
            shared[known] = shared[known].on((*shared[known].targets, target))
    built = [build(each, progress) for each in shared]
    artifacts = {key: a for package in built for key, a in package.artifacts.items()}
    return Package(tuple(p.program for p in built), artifacts, program.targets)


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
    """Return what is expected of a program's results: its sums' orders, its approximations."""
    from fusec.reference.nodes import Model

    return (
        Model()
        if host is None
        else Model(
            host.orders_at(sizes),
            approximated=frozenset(host.approximated),
            inside=frozenset(host.inside),
        )
    )


def execute(fusion: Fusion, arrays: Sequence[Any]) -> list[Any]:
    """Return one array per output for a plain Python program that calls `fd.execute`.

    On the GPU where there is one; else the reference, with a note on stderr. Outputs that are
    written into inputs are among them: the caller stores them.
    """
    from fusec.run.device import Device, device_available
    from fusec.run.inputs import bind_sizes

    fusion = replace(fusion, phases=())  # all inputs are given at once
    inputs = {i.value.name: a for i, a in zip(fusion.inputs, arrays, strict=True)}
    sizes = bind_sizes(fusion, inputs)
    reason = device_available()
    if reason is not None:
        _note_reference(reason)
        results = reference(fusion, inputs, sizes)
    else:
        from fusec.run.execute import execute as run_program

        with Device() as device:
            options = for_device(CompileOptions(), device.facts)
            package = compile_fusion(fusion, options)
            cubins = package.cubins(options.target)
            results = run_program(device, package.program.host, cubins, inputs, sizes)
    return [results[o.value.name] for o in fusion.outputs]


def describe(fusion: Fusion, what: str) -> str:
    """Return the kernels (`cuda`) or the segments (nvFuser's text) that a fusion is compiled to.

    `schedulers`: the name of each segment's, in order.
    """
    program = Compilation(replace(fusion, phases=()), CompileOptions())
    if what == "schedulers":
        return " ".join(s.scheduler for s in program.segmented.segments)
    if what == "cuda":
        return "\n".join(source.text for source in program.kernel_sources)
    from fusec.dumps.nvfuser import segmented_fusion_text

    return segmented_fusion_text(program.segmented)


def measure(device: Device, package: Package, target: str, repeats: int) -> Timing:
    """Return the median times of the kernels for `target` on random inputs, with a cold L2."""
    from fusec.run.execute import Executable
    from fusec.run.inputs import choose_sizes, random_inputs
    from fusec.run.measure import measure

    fusion = package.program.local
    sizes = choose_sizes(fusion)
    executable = Executable(device, package.program.host, package.cubins(target))
    with executable.bind(random_inputs(fusion, sizes), sizes) as bound:
        bound.reset()
        return measure(bound, repeats)


def for_device(options: CompileOptions, facts: DeviceFacts) -> CompileOptions:
    """Return the options with the target of the GPU at hand, where none was chosen.

    A GPU without a target of its own runs the machine code of an earlier one of its generation.
    """
    if options.targets_given:
        return options
    from fusec.target import TARGETS, nearest

    target = nearest(TARGETS, facts.capability)
    if target is None:
        raise EnvironmentProblem(
            f"{facts.name} (sm_{facts.capability}) runs no known target",
            help=f"one of {', '.join(TARGETS)}",
        )
    return replace(options, targets=(target.arch,))


@cache
def _note_reference(reason: str) -> None:
    print(f"fusec: results come from the fp64 reference ({reason})", file=sys.stderr)
