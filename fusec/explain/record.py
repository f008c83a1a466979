"""Answer queries about a fusion, without data, GPU or compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

from fusec import driver, lowering
from fusec.activity import activity
from fusec.dataclasses import dataclass, field, replace
from fusec.diagnostics import FusecError
from fusec.driver import Compilation, choose
from fusec.explain.facts import Exact, KernelFacts, Segmentation, SumOrder
from fusec.explain.query import describe
from fusec.files import as_asked, with_sizes
from fusec.keywords import Options, options_of
from fusec.options import DEFAULT_TARGET, CompileOptions

if TYPE_CHECKING:
    from fusec.explain.instructions import Counted
    from fusec.hostir.program import HostProgram
    from fusec.ir.graph import Fusion
    from fusec.run.build import Artifact
    from fusec.schedule.plan import KernelPlan
    from fusec.target import Target


EXACT_SECONDS = 60.0
"""Time limit of the search for the least traffic, in seconds."""


@dataclass(frozen=True)
class Questions:
    """Optional parts of the query: ranges of dims, the exact bound, compiled registers.

    instructions: whether those of kernels are counted, which renders them. modules: of an imported
    model, their paths by the names of values.
    """

    ranges: Mapping[str, tuple[int, int]]
    exact: bool = False
    build: bool = False
    instructions: bool = False
    modules: Mapping[str, str] = field(default_factory=dict[str, str])


def explain(program: Compilation, questions: Questions | None = None) -> Segmentation:
    """Return the description of a program's segmentation, with costs on the first target."""
    from fusec.explain.sizes import choices

    options, segmented = program.options, program.segmented
    counts = questions is not None and questions.instructions
    if questions is not None and questions.build:
        package = driver.build(program)
        record = record_of(package.program, options.target, package.artifacts, counts=counts)
    else:
        record = record_of(program, options.target, counts=counts)
    if questions is not None:
        found = (choices(program, n, *r) for n, r in questions.ranges.items())
        record = replace(record, choices=tuple(c for each in found for c in each))
        if questions.exact:
            record = replace(record, exact=_exact(segmented.fusion, options, record.bytes))
        if questions.modules:
            record = _with_modules(record, program, questions.modules)
    return record


def _with_modules(
    record: Segmentation, program: Compilation, modules: Mapping[str, str]
) -> Segmentation:
    from fusec import target
    from fusec.explain.modules import with_modules

    gpu = target.find(program.options.target)
    return with_modules(record, program.segmented, gpu, modules)


Built = Mapping[tuple[str, str], "Artifact"]


def record_of(
    program: Compilation, arch: str, built: Built | None = None, *, counts: bool = False
) -> Segmentation:
    """Return a program's segmentation as data, with costs on a target.

    counts: whether the instructions of its kernels are included.
    """
    from fusec import target
    from fusec.explain.pushed_rows import rows_decisions
    from fusec.explain.specialised import specialised_sizes
    from fusec.hostir.expand import expand

    gpu, segmented = target.find(arch), program.segmented
    division = lowering.division(program.original, program.options)
    peak = peak_bytes(expand(program.posts, segmented, program.plans), segmented.fusion.hints)
    registers = {} if built is None else _registers(program, arch, built)
    instructions: Counted = _instructions(program) if counts else {}
    with activity(f"explain {program.original.name}"):
        found = describe(
            segmented,
            gpu,
            divisions=(*division.decisions, *rows_decisions(segmented, program.plans, gpu)),
            streams=program.options.streams,
            peak_bytes=peak,
            occupancy=[_kernels(plan, gpu, registers, instructions) for plan in program.plans],
            orders=[_orders(plan) for plan in program.plans],
            hosts=["" if plan.host is None else str(plan.host) for plan in program.plans],
            specialised=[
                specialised_sizes(segment, plan)
                for segment, plan in zip(segmented.segments, program.plans, strict=True)
            ],
        )
        return replace(found, summation=program.posts.summation)


def _orders(plan: KernelPlan) -> tuple[SumOrder, ...]:
    return tuple(
        SumOrder(name, str(order), order.rounded_to, order.arrives)
        for name, order in plan.orders.items()
    )


def _registers(program: Compilation, arch: str, built: Built) -> dict[str, int]:
    """Return the registers of each planned kernel: those of the equal kernel that is launched."""
    return {name: built[own, arch].registers for name, own in program.kernels_launched.items()}


def _instructions(program: Compilation) -> Counted:
    """Return the instructions of a program's kernels, by their names."""
    from fusec.explain.instructions import counted

    sources = (source for each in program.sources for source in each)
    return counted(sources, program.segmented.fusion.hints)


def _kernels(
    plan: KernelPlan, target: Target, registers: Mapping[str, int], instructions: Counted
) -> tuple[KernelFacts, ...]:
    from fusec.schedule.segments import occupancies

    found: list[KernelFacts] = []
    for kernel, told in zip(plan.kernels, occupancies(plan, target), strict=True):
        found.append(
            KernelFacts(
                kernel.name,
                told.threads,
                told.registers,
                told.spills,
                told.shared_bytes,
                told.blocks,
                registers.get(kernel.name),
                instructions.get(kernel.name),
            )
        )
    return tuple(found)


def _exact(fusion: Fusion, options: CompileOptions, found: int) -> Exact:
    from fusec import target
    from fusec.exact.bound import bound
    from fusec.schedule.registry import schedulers

    gpu = target.find(options.target)
    with activity("computing the lower bound on traffic", immediately=True):
        known = bound(fusion, schedulers(), gpu, seconds=EXACT_SECONDS)
    gap = max(0.0, 1 - known.lower_bytes / found) if found else 0.0
    return Exact(known.bytes, known.lower_bytes, known.proven, gap, known.method, known.segments)


def peak_bytes(program: HostProgram, sizes: Mapping[str, int]) -> int:
    """Return the peak memory in bytes, inputs excluded, at `sizes`."""
    from fusec.hostir.instructions import Allocate, Free

    live, peak = dict[str, int](), 0
    for instruction in program.instructions:
        if isinstance(instruction, Allocate):
            buffer = program.buffer[instruction.buffer]
            live[buffer.name] = buffer.elements.evaluate(sizes) * buffer.dtype.size
        elif isinstance(instruction, Free):
            live.pop(instruction.buffer, None)
        peak = max(peak, sum(live.values()))
    return peak


def segmentation(
    fusion: Any,
    *,
    ranges: Mapping[str, tuple[int, int]] | None = None,
    exact: bool = False,
    part: str | None = None,
    **options: Unpack[Options],
) -> Segmentation:
    """Return the segments of a fusion, the tensors between them, and their predicted cost.

    fusion: a Fusion, a FusionDefinition, or the path of a file. ranges: find the sizes of each dim
    for which the segmentation is the same. exact: compute the lower bound on traffic. part: the
    name of one of several fusions in a file, or a phase of a joint graph. The other options are
    those of `fusec.compile`. Times are in seconds, traffic in bytes (docs/query.md). Errors as for
    `compile`.
    """
    options.setdefault("target", DEFAULT_TARGET)
    programs = _programs_of(fusion, options_of("segmentation", options))
    chosen = choose("segmentation", {p.original.name: p for p in programs}, part)
    asked = Questions(ranges or {}, exact, instructions=True, modules=_modules_of(fusion))
    return explain(chosen, asked)


def _modules_of(given: Any) -> Mapping[str, str]:
    """Return the modules of an imported model's folder; none of anything else."""
    from fusec.models.folder import is_model_folder, read_model_folder

    if not isinstance(given, (str, PathLike)) or not is_model_folder(given):  # pyright: ignore[reportUnknownArgumentType]
        return {}
    return read_model_folder(given).modules  # pyright: ignore[reportUnknownArgumentType]


def _programs_of(given: Any, options: CompileOptions) -> Sequence[Compilation]:
    from fusec.ir.graph import Fusion
    from fusec.parse.dsl import FusionDefinition

    if isinstance(given, (str, PathLike)):
        return driver.programs(str(given), options)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(given, FusionDefinition):
        given = given.graph()
    if isinstance(given, Fusion):
        return Compilation(as_asked(with_sizes(given, options.sizes), options), options).parts
    kind = type(given).__name__  # pyright: ignore[reportUnknownVariableType]
    raise FusecError(
        f"segmentation() takes a Fusion, a FusionDefinition or a path, not {kind}",
        help='e.g. fusec.segmentation("examples/layernorm.yaml")',
    )
