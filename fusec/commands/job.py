"""What a run needs: a fusion with its host program and machine code, from a file or folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fusec import driver
from fusec.commands.folder import FolderKernel, FolderPlan, read_folder
from fusec.commands.progress import build_progress
from fusec.commands.report import Figures
from fusec.diagnostics import FusecError, Span
from fusec.escape import visible
from fusec.options import CompileOptions

if TYPE_CHECKING:
    from fusec.explain.query import Segmentation
    from fusec.hostir.program import HostProgram
    from fusec.ir.graph import Fusion
    from fusec.segment.roofline import Roofline


@dataclass(frozen=True)
class Job:
    """A fusion with its program and machine code, ready to run; no program for the reference alone.

    segments: figures by name; least: what the fusion must do, if known, at its default sizes;
    seconds: the time of each stage so far; edited: the kernels whose text somebody changed after
    it was compiled; predicted: what they should cost, where no GPU is there to measure it.
    """

    fusion: Fusion
    program: HostProgram | None
    cubins: Mapping[str, bytes]
    target: str
    segments: Mapping[str, Figures]
    seconds: Mapping[str, float]
    least: Roofline | None = None
    edited: tuple[str, ...] = ()
    predicted: Segmentation | None = None


def job_of_fusion(fusion: Fusion, options: CompileOptions, on_gpu: bool) -> Job:
    """Return a fusion compiled for the GPU at hand, or for the target of the options."""
    from fusec.segment import roofline

    options = _for_device(options, on_gpu)
    with build_progress() as progress:
        compiled = driver.compile_fusion(fusion, options, progress)
    planned = compiled.planned
    predicted = None
    if not on_gpu:
        from fusec.explain.record import record_of

        predicted = record_of(planned.segmented, compiled.program, options.target)
    return Job(
        fusion,
        compiled.program,
        compiled.cubins(options.target),
        options.target,
        {s.name: Figures(s.scheduler, roofline.of_segment(s)) for s in planned.segmented.segments},
        planned.timings.seconds,
        roofline.of_fusion(planned.segmented),
        predicted=predicted,
    )


def _for_device(options: CompileOptions, on_gpu: bool) -> CompileOptions:
    if not on_gpu or options.targets_given:
        return options
    from fusec.run.device import Device

    with Device() as device:
        return driver.for_device(options, device.facts)


def job_of_folder(path: Path, options: CompileOptions, *, on_gpu: bool, builds: bool) -> Job:
    """Return a compiled folder's fusion: its machine code, built anew for what was edited."""
    if options.sizes or options.without or options.stop_after or options.check_bounds:
        raise FusecError(
            "--set, --without, --stop-after and --check-bounds have no effect on a compiled folder",
            help="compile the fusion with them, or run the fusion file",
        )
    folder = read_folder(path)
    for name in folder.edited:
        print(visible(f"edited since it was compiled: {path / name}"))
    if not builds:
        return Job(folder.fusion, None, {}, "", {}, {})
    options = _for_device(options, on_gpu)
    chosen = on_gpu or options.targets_given
    target = options.target if chosen else folder.plans[0].targets[0]
    plan = folder.plan_for(target)
    cubins = _cubins(plan, target, options)
    edited = tuple(k.name for k in plan.kernels if k.edited)
    predicted = None
    if not on_gpu:
        from fusec.explain.record import explain

        predicted = explain(folder.fusion, replace(options, targets=(target,))).record
    what = (folder.fusion, plan.program, cubins, target, plan.segments)
    return Job(*what, {}, plan.least, edited, predicted)


def _cubins(plan: FolderPlan, target: str, options: CompileOptions) -> dict[str, bytes]:
    """Return machine code for `target`: as it lies there, or built from the text there."""
    from fusec.run.build import Source, build
    from fusec.run.cache import Cache
    from fusec.run.nvrtc import CompileError

    stale = {k.name: k for k in plan.kernels if k.edited or target not in k.cubins}
    sources = [Source(k.name, k.text, k.headers) for k in stale.values()]
    cache = None if options.use_cache else Cache(None)
    try:
        with build_progress() as progress:
            built = build(sources, [target], options.jobs, cache=cache, progress=progress)
    except CompileError as error:
        failed = error.diagnostic.span.file.removesuffix(".cu") if error.diagnostic.span else ""
        edited = [stale[failed]] if failed in stale else list(stale.values())
        if not any(k.edited for k in edited):
            raise
        raise _broken_edit(edited, error.diagnostic.span, error.log) from None
    fresh = {name: artifact.cubin for (name, _), artifact in built.items()}
    for name, cubin in fresh.items():
        if f".text.{name}\0".encode() not in cubin:
            raise FusecError(
                f"`{stale[name].path}` no longer defines the kernel `{name}`",
                help=f'keep `extern "C" __global__ void {name}(...)`',
            )
    cubins = {k.name: fresh.get(k.name) or k.cubins[target] for k in plan.kernels}
    for kernel in plan.kernels:
        _check_parameters(kernel, cubins[kernel.name])
    return cubins


def _check_parameters(kernel: FolderKernel, cubin: bytes) -> None:
    """Raise FusecError where a kernel takes other parameters than its launch passes."""
    from fusec.run.kernel_parameters import sizes_passed, sizes_taken

    taken, passed = sizes_taken(cubin, kernel.name), sizes_passed(kernel.record.arguments)
    if taken is not None and taken != passed:
        raise FusecError(
            f"`{kernel.path}`: the parameters of `{kernel.name}` have {_bytes(taken)}, its launch "
            f"passes {_bytes(passed)}",
            help="keep the parameters as they were, in number, order and type",
        )


def _bytes(sizes: Sequence[int]) -> str:
    return f"{', '.join(map(str, sizes)) or 'no'} bytes"


def _broken_edit(kernels: list[FolderKernel], span: Span | None, log: str) -> FusecError:
    """Return what NVRTC says about a text that the user edited, at its place in the folder."""
    path = str(kernels[0].path)
    if span is not None:
        span = Span(path, span.line, span.column, span.width, span.text)
    return FusecError(
        f"`{path}` does not compile as it was edited",
        span=span,
        notes=log.splitlines()[:40],
        help="mend the text, or compile the fusion again into another folder",
    )
