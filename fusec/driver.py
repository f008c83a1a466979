"""The stages from a file to kernels, each timed; every command is a call into this module."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import EnvironmentProblem, FusecError
from fusec.options import CompileOptions

if TYPE_CHECKING:
    from fusec.codegen.render import KernelSource
    from fusec.hostir.program import HostProgram
    from fusec.ir.graph import Fusion
    from fusec.reference.nodes import Model
    from fusec.run.build import Artifact, Progress
    from fusec.run.device import Device, DeviceFacts
    from fusec.run.measure import Timing
    from fusec.schedule.plan import KernelPlan
    from fusec.segment.segmented import SegmentedFusion


@dataclass
class Timings:
    """Seconds by stage, in order."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def measure(self, stage: str, function: Callable[[], Any]) -> Any:
        """Return what `function` returns, adding its time to `stage`."""
        start = time.perf_counter()
        result = function()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start
        return result


@dataclass(frozen=True)
class Planned:
    """A fusion taken to kernel plans and CUDA text."""

    original: Fusion
    fusion: Fusion
    segmented: SegmentedFusion
    plans: tuple[KernelPlan, ...]
    sources: tuple[tuple[KernelSource, ...], ...]
    timings: Timings

    @property
    def kernel_sources(self) -> tuple[KernelSource, ...]:
        """Return every kernel's text in launch order."""
        return tuple(source for sources in self.sources for source in sources)


@dataclass(frozen=True)
class Compiled:
    """A planned fusion with its host program and its built kernels, by (kernel, arch)."""

    planned: Planned
    program: HostProgram
    artifacts: Mapping[tuple[str, str], Artifact]
    targets: tuple[str, ...]

    def cubins(self, arch: str) -> dict[str, bytes]:
        """Return the machine code for one architecture, by kernel."""
        return {name: a.cubin for (name, built), a in self.artifacts.items() if built == arch}


def load(path: str, sizes: Mapping[str, int] | None = None) -> Fusion:
    """Return the fusion of a YAML file or a script; `sizes` replace defaults by name."""
    fusions = load_all(path, CompileOptions(sizes=sizes or {}))
    if len(fusions) > 1:
        names = ", ".join(f.name for f in fusions)
        raise FusecError(
            f"`{path}` defines {len(fusions)} fusions: {names}", help="use `fusec run`"
        )
    return fusions[0]


def load_all(path: str, options: CompileOptions | None = None) -> list[Fusion]:
    """Return every fusion of a file; a joint graph counts as its phases."""
    options = options or CompileOptions()
    return [part for f in load_whole(path, options.sizes) for part in phases_of(f, options)]


def load_whole(path: str, sizes: Mapping[str, int]) -> list[Fusion]:
    """Return what a file defines, named apart: one fusion for YAML, each definition of a script."""
    if Path(path).suffix == ".py":
        from fusec.parse.script import load_script

        names = Names()
        return [with_sizes(names.unique(f), sizes) for f in load_script(path)]
    from fusec.parse import read_file

    if os.path.isdir(path):
        raise FusecError(
            f"`{path}` is a directory, not a fusion file",
            help="`fusec run` takes compiled folders; the fusion of one is its fusion.yaml",
        )
    return [with_planned_strides(read_file(path, dict(sizes)))]


def phases_of(fusion: Fusion, options: CompileOptions) -> list[Fusion]:
    """Return the phases of a joint graph, each a fusion of its own; a plain fusion is one.

    The passes run before the cut: what they make of the whole decides what is saved.
    """
    if not fusion.phases:
        return [fusion]
    from fusec.segment.phases import split

    # Each phase checks the indices that it uses.
    return list(split(optimise(fusion, replace(options, check_bounds=False))).parts)


class Names:
    """Fusions by name: a script names all of its definitions after itself, folders must differ."""

    def __init__(self) -> None:
        """Start without any."""
        self._taken: dict[str, Fusion] = {}

    def unique(self, fusion: Fusion) -> Fusion:
        """Return the fusion as `name`, `name_2`, ...; one that is the same keeps its name."""
        name, number, plain = fusion.name, 1, _without_defaults(fusion)
        while name in self._taken and self._taken[name] != plain:
            number += 1
            name = f"{fusion.name}_{number}"
        self._taken.setdefault(name, plain)
        return fusion if name == fusion.name else replace(fusion, name=name)


def _without_defaults(fusion: Fusion) -> Fusion:
    """Return the fusion with nothing in it of what one execution binds."""
    dims = tuple(replace(d, default=1, multiple_of=1) for d in fusion.dims)
    inputs = tuple(replace(i, default=None) for i in fusion.inputs)
    return replace(fusion, dims=dims, inputs=inputs)


def with_sizes(fusion: Fusion, sizes: Mapping[str, int]) -> Fusion:
    """Return the fusion with other default sizes; FusecError where they cannot be."""
    if not sizes:
        return fusion
    from fusec.ops.limits import check_sizes
    from fusec.run.inputs import choose_sizes

    chosen = choose_sizes(fusion, sizes)
    sized = replace(fusion, dims=tuple(replace(d, default=chosen[d.name]) for d in fusion.dims))
    check_sizes(sized)
    return sized


def with_planned_strides(fusion: Fusion) -> Fusion:
    """Return the fusion with the run-time strides that random inputs will have as their defaults.

    Kernels that put strides in are then built for the inputs that `fusec run` makes.
    """
    if not any(name.partition(".")[2] for name in fusion.hints):
        return fusion
    from fusec.run.inputs import choose_sizes

    chosen = choose_sizes(fusion)
    return replace(fusion, dims=tuple(replace(d, default=chosen[d.name]) for d in fusion.dims))


FRAMES_PER_NODE = 20
"""Calls inside one another, at most, for each operation of a chain that is followed."""


def _allow_depth(fusion: Fusion) -> None:
    """Let values be followed through as many operations as the fusion has."""
    wanted = 1000 + FRAMES_PER_NODE * len(fusion.nodes)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), min(wanted, 200_000)))


def optimise(fusion: Fusion, options: CompileOptions, observer: Any = None) -> Fusion:
    """Return the fusion after the pre-segmentation passes."""
    from fusec.passes import run_pipeline
    from fusec.passes.check_indices import check_indices

    _allow_depth(fusion)
    fusion = run_pipeline(
        fusion, without=options.without, stop_after=options.stop_after, observer=observer
    )
    return check_indices(fusion) if options.check_bounds else fusion


def segment(fusion: Fusion, options: CompileOptions) -> SegmentedFusion:
    """Return the segments of an optimised fusion."""
    from fusec import target
    from fusec.schedule.registry import schedulers
    from fusec.segment.offers import Offers
    from fusec.segment.redefine import redefine
    from fusec.segment.search import segment as search

    gpu = target.find(options.target, options.rates)
    offers = Offers(schedulers(), gpu)
    return redefine(
        fusion,
        lambda f: search(f, schedulers(), gpu, offers=offers),
        schedulers(),
        gpu,
        options.redefine,
    )


def plan_segments(segmented: SegmentedFusion, options: CompileOptions) -> tuple[KernelPlan, ...]:
    """Return each segment's kernel plan."""
    from fusec import target
    from fusec.schedule.segments import plan_segment

    gpu = target.find(options.target, options.rates)
    return tuple(plan_segment(s, gpu) for s in segmented.segments)


def other_plans(
    segmented: SegmentedFusion, options: CompileOptions, number: int
) -> Iterator[KernelPlan]:
    """Return further plans of a segment, for when the compiler spills registers of the first."""
    from fusec import target
    from fusec.schedule.segments import plans_for_fewer

    return plans_for_fewer(segmented.segments[number], target.find(options.target, options.rates))


def plan(fusion: Fusion, options: CompileOptions) -> Planned:
    """Return a fusion's segments, plans and CUDA text."""
    from fusec.codegen.dispatch import plan_sources

    timings = Timings()
    optimised = timings.measure("passes", lambda: optimise(fusion, options))
    segmented = timings.measure("segment", lambda: segment(optimised, options))
    plans = timings.measure("schedule", lambda: plan_segments(segmented, options))
    sources = timings.measure("codegen", lambda: tuple(plan_sources(p) for p in plans))
    return Planned(fusion, optimised, segmented, plans, sources, timings)


def build(planned: Planned, options: CompileOptions, progress: Progress | None = None) -> Compiled:
    """Return a planned fusion with its kernels built for every target."""
    from fusec.hostir.lower import lower
    from fusec.run.build import Builder
    from fusec.run.cache import Cache
    from fusec.run.spills import build_plans

    cache = None if options.use_cache else Cache(None)
    builder = Builder(options.targets, options.jobs, cache=cache, progress=progress)
    plans, sources, artifacts = planned.timings.measure(
        "build",
        lambda: build_plans(
            planned.plans,
            planned.sources,
            builder.build,
            lambda number: other_plans(planned.segmented, options, number),
        ),
    )
    planned = replace(planned, plans=plans, sources=sources)
    program = lower(planned.segmented, planned.plans, planned.original)
    return Compiled(planned, program, artifacts, options.targets)


def compile_fusion(
    fusion: Fusion, options: CompileOptions, progress: Progress | None = None
) -> Compiled:
    """Return a fusion compiled for the first target of the options."""
    options = replace(options, targets=options.targets[:1])
    return build(plan(fusion, options), options, progress)


def compile_targets(
    fusion: Fusion, options: CompileOptions, progress: Progress | None = None
) -> tuple[Compiled, ...]:
    """Return a fusion compiled for every target; targets whose plans agree share one.

    A plan is made for a target: what is chosen for one may use instructions that another lacks.
    """
    from fusec.hostir.lower import lower

    groups: list[tuple[Planned, object, list[str]]] = []
    for target in options.targets:
        planned = plan(fusion, replace(options, targets=(target,)))
        program = lower(planned.segmented, planned.plans, planned.original)
        key = (planned.kernel_sources, program, [s.scheduler for s in planned.segmented.segments])
        for _, known, targets in groups:
            if key == known:
                targets.append(target)
                break
        else:
            groups.append((planned, key, [target]))
    return tuple(
        build(planned, replace(options, targets=tuple(targets)), progress)
        for planned, _, targets in groups
    )


def reference(
    fusion: Fusion, inputs: Mapping[str, Any], sizes: Mapping[str, int]
) -> dict[str, Any]:
    """Return the outputs of the fp64 reference, rounded to their types."""
    from fusec.reference.stream import outputs_of

    return outputs_of(fusion, inputs, sizes)


def model_of(program: HostProgram | None, sizes: Mapping[str, int]) -> Model:
    """Return what is expected of the results of a program: the orders of its sums."""
    from fusec.reference.nodes import Model

    return Model() if program is None else Model(program.orders_at(sizes))


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
            compiled = compile_fusion(fusion, options)
            cubins = compiled.cubins(options.target)
            results = run_program(device, compiled.program, cubins, inputs, sizes)
    return [results[o.value.name] for o in fusion.outputs]


def measure(device: Device, compiled: Compiled, arch: str, repeats: int) -> Timing:
    """Return the median times of the kernels for `arch` on random inputs, with a cold L2."""
    from fusec.run.execute import Executable
    from fusec.run.inputs import choose_sizes, random_inputs
    from fusec.run.measure import measure

    fusion = compiled.planned.original
    sizes = choose_sizes(fusion)
    executable = Executable(device, compiled.program, compiled.cubins(arch))
    with executable.bind(random_inputs(fusion, sizes), sizes) as bound:
        bound.reset()
        return measure(bound, repeats)


def for_device(options: CompileOptions, facts: DeviceFacts) -> CompileOptions:
    """Return the options with the target of the GPU at hand, where none was chosen.

    A GPU without a target of its own runs the machine code of an earlier one of its generation.
    """
    if options.targets_given:
        return options
    from fusec.target import TARGETS

    at = facts.capability
    known = (t for t in TARGETS.values() if t.arch[-1].isdigit() and t.capability <= at)
    nearest = [t for t in known if t.capability // 10 == at // 10]
    target = facts.target or max(nearest, key=lambda t: t.capability, default=None)
    if target is None:
        raise EnvironmentProblem(
            f"{facts.name} (sm_{at}) runs no known target", help=f"one of {', '.join(TARGETS)}"
        )
    return replace(options, targets=(target.arch,))


@cache
def _note_reference(reason: str) -> None:
    print(f"fusec: results come from the fp64 reference ({reason})", file=sys.stderr)
