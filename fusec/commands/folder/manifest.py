"""manifest.json: the contents of a compiled folder, its launches, and its planned sizes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fusec.commands.folder.records import (
    SCHEMA_VERSION,
    BuildRecord,
    Choices,
    DimRecord,
    EdgeRecord,
    InputRecord,
    KernelRecord,
    LaunchRecord,
    Manifest,
    OutputRecord,
    PlanRecord,
    SegmentRecord,
)
from fusec.driver import Compilation, Package
from fusec.ir.graph import Fusion, Input
from fusec.run.binary.nvrtc import least_driver
from fusec.schedule.plan import Kernel, KernelPlan
from fusec.schedule.space import Parameters
from fusec.segment import roofline
from fusec.segment.segmented import Segment
from fusec.version import __version__

BuildOf = Callable[[str, str], BuildRecord | None]
"""Returns the build of a kernel for a target, or None if there is none."""


def manifest_of(package: Package, files: Mapping[str, str]) -> Manifest:
    """Return the manifest of a package; `files` holds the digest of each file by path."""
    fusion, options = package.program.local, package.program.options

    def build_of(kernel: str, target: str) -> BuildRecord | None:
        if not package.artifacts:
            return None
        built = package.artifacts[kernel, target]
        return BuildRecord(
            cubin_path(kernel, target), built.registers, built.spill_bytes, built.shared_bytes,
            built.compiler, least_driver(built.compiler),
        )  # fmt: skip

    count = len(package.programs)
    plans = (
        plan_record(p, kernels_at(p.targets, count), build_of, package.sizes_of(p))
        for p in package.programs
    )
    return Manifest(
        schema_version=SCHEMA_VERSION,
        fusec=__version__,
        fusion=fusion.name,
        targets=package.targets,
        options=Choices(
            options.without,
            options.stop_after,
            options.check_bounds,
            options.redefine,
            options.precise,
            options.streams,
            options.with_,
            options.overlap,
            options.as_written,
        ),
        dims=dims_of(fusion),
        inputs=inputs_of(fusion),
        outputs=outputs_of(fusion),
        plans=tuple(plans),
        files=dict(sorted(files.items())),
    )


def kernels_at(targets: Sequence[str], plans: int) -> str:
    """Return the folder of the CUDA source of a plan: a separate one if there are several plans."""
    return "kernels" if plans == 1 else f"kernels/{targets[0]}"


def cubin_path(kernel: str, target: str) -> str:
    """Return the path of a kernel's machine code for a target."""
    return f"cubins/{kernel}.{target}.cubin"


def parameters_of(plan: KernelPlan) -> dict[str, Any]:
    """Return a plan's parameter record as plain data."""
    record = plan.parameters
    if not isinstance(record, Parameters):
        return {}
    return json.loads(json.dumps(record.written, default=str))


def dims_of(fusion: Fusion) -> tuple[DimRecord, ...]:
    """Return the dims with the sizes for which the plans were made."""
    return tuple(DimRecord(d.name, d.default, d.multiple_of) for d in fusion.dims)


def inputs_of(fusion: Fusion) -> tuple[InputRecord, ...]:
    """Return the records of the fusion's inputs."""
    return tuple(_input(entry) for entry in fusion.inputs)


def _input(entry: Input) -> InputRecord:
    value, default = entry.value, entry.default
    parts = (default.real, default.imag) if isinstance(default, complex) else default
    if value.is_scalar:
        return InputRecord(value.name, value.dtype, None, None, parts, entry.generator)
    return InputRecord(value.name, value.dtype, value.shape, entry.strides, parts, entry.generator)


def outputs_of(fusion: Fusion) -> tuple[OutputRecord, ...]:
    """Return the records of the fusion's outputs."""
    return tuple(
        OutputRecord(
            v.name, v.dtype, v.shape, None if (name := fusion.effects.buffer(v)) == v.name else name
        )
        for v in (o.value for o in fusion.outputs)
    )


def plan_record(
    program: Compilation,
    folder: str,
    build_of: BuildOf,
    sizes: Mapping[str, int] | None = None,
) -> PlanRecord:
    """Return the record of a program whose CUDA source is in `folder`, planned for other sizes."""
    segmented, targets = program.segmented, program.targets
    least = roofline.of_fusion(segmented)
    launches = defaultdict[str, list[LaunchRecord]](list)
    for each in program.host.launches:
        launches[each.segment].append(LaunchRecord(each.kernel, each.grid, each.arguments))
    return PlanRecord(
        targets=targets,
        floor_bytes=least.compulsory_bytes,
        tensor_flops=least.tensor_flops,
        kernels=tuple(
            _kernel(source.kernel, targets, folder, build_of) for source in program.kernel_sources
        ),
        segments=tuple(
            _segment(segment, plan, tuple(launches[segment.name]))
            for segment, plan in zip(segmented.segments, program.plans, strict=True)
        ),
        edges=tuple(
            EdgeRecord(f"s{e.producer}", f"s{e.consumer}", e.value.name) for e in segmented.edges
        ),
        program=program.host,
        sizes=sizes or {},
    )


def _segment(
    segment: Segment, plan: KernelPlan, launches: tuple[LaunchRecord, ...]
) -> SegmentRecord:
    estimate = segment.estimate
    least = roofline.of_segment(segment)
    return SegmentRecord(
        name=segment.name,
        scheduler=segment.scheduler,
        values=tuple(v.name for n in segment.nodes for v in n.outputs),
        inputs=tuple(i.value.name for i in segment.fusion.inputs),
        outputs=tuple(o.value.name for o in segment.fusion.outputs),
        bytes=estimate.bytes if estimate else 0,
        workspace_bytes=estimate.workspace_bytes if estimate else 0,
        floor_bytes=least.compulsory_bytes,
        tensor_flops=least.tensor_flops,
        specialised=dict(sorted(plan.specialised.items())),
        guards=tuple(str(g) for g in plan.guards),
        parameters=parameters_of(plan),
        workspaces=plan.workspaces,
        launches=launches,
        overridden=tuple(o.name for o in segment.overrides),
    )


def _kernel(kernel: Kernel, targets: Sequence[str], folder: str, build_of: BuildOf) -> KernelRecord:
    return KernelRecord(
        name=kernel.name,
        template=kernel.template,
        source=f"{folder}/{kernel.name}.cu",
        block=kernel.block,
        cluster=kernel.cluster,
        overlapped=kernel.overlapped,
        dynamic_shared_bytes=kernel.shared_bytes,
        builds={t: b for t in targets if (b := build_of(kernel.name, t)) is not None},
    )
