"""`fusec dump`: what each stage made, as text."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fusec import driver
from fusec.diagnostics import FusecError
from fusec.options import CompileOptions, environment

if TYPE_CHECKING:
    from fusec.ir.graph import Fusion

KINDS = {
    "segmented-fusion": "segments, edges and group details, as nvFuser prints them",
    "fusion-ir": "the fusion's operations",
    "preseg": "the graph after each pass that changed something",
    "scheduler-params": "each segment's scheduler and its parameters",
    "cuda-kernel": "the CUDA text of every kernel",
    "ptx": "the PTX of every kernel",
    "sass": "the machine code of every kernel, disassembled",
    "python": "a runnable script that defines the same fusion",
    "host-program": "what happens on the host: allocations, copies, launches",
}
"""What can be dumped, by option name."""

STYLES = ("2024", "head", "json", "dot")

_NVFUSER = {
    "segmented_fusion": "segmented-fusion",
    "fusion_ir": "fusion-ir",
    "fusion_ir_math": "fusion-ir",
    "fusion_ir_original": "fusion-ir",
    "fusion_ir_preseg": "preseg",
    "pre_segmenter_logging": "preseg",
    "scheduler_params": "scheduler-params",
    "cuda_kernel": "cuda-kernel",
    "ptx": "ptx",
    "sass": "sass",
    "python_definition": "python",
    "host_ir": "host-program",
    "draw_segmented_fusion": "dot",
}
"""nvFuser's dump names that have a counterpart here."""


@dataclass(frozen=True)
class DumpOptions:
    """What to print: names of KINDS, and the style of a segmented fusion."""

    kinds: tuple[str, ...]
    style: str = "2024"


def dump(path: str, compile_options: CompileOptions, options: DumpOptions) -> int:
    """Print the chosen dumps of every fusion of a file."""
    for fusion in driver.load_all(path, compile_options.sizes):
        for kind in options.kinds:
            sys.stdout.write(text_of(fusion, kind, compile_options, options.style))
    return 0


def dump_for_environment(fusion: Fusion, compile_options: CompileOptions) -> None:
    """Print what NVFUSER_DUMP asks for; FusecError lists the valid names for an unknown one."""
    wanted = environment("NVFUSER_DUMP")
    for name in filter(None, (n.strip() for n in (wanted or "").split(","))):
        base = name.split("(")[0]
        if base not in _NVFUSER:
            raise FusecError(
                f"NVFUSER_DUMP: unknown name `{base}`", help="one of " + ", ".join(sorted(_NVFUSER))
            )
        kind = _NVFUSER[base]
        style = "2024" if kind != "dot" else "dot"
        kind = "segmented-fusion" if kind == "dot" else kind
        sys.stdout.write(text_of(fusion, kind, compile_options, style))
        sys.stdout.flush()


def text_of(fusion: Fusion, kind: str, options: CompileOptions, style: str = "2024") -> str:
    """Return one dump of a fusion."""
    return _DUMPS[kind](fusion, options, style)


def _segmented(fusion: Fusion, options: CompileOptions, style: str) -> str:
    from fusec.segment.dump import segmented_fusion_text
    from fusec.segment.graph_dumps import segmented_fusion_dot, segmented_fusion_json

    segmented = driver.segment(driver.optimise(fusion, options), options)
    if style == "json":
        return segmented_fusion_json(segmented)
    if style == "dot":
        return segmented_fusion_dot(segmented)
    return segmented_fusion_text(segmented, style=style)


def _fusion_ir(fusion: Fusion, options: CompileOptions, style: str) -> str:
    from fusec.segment.dump import fusion_math_text

    return fusion_math_text(fusion)


def _preseg(fusion: Fusion, options: CompileOptions, style: str) -> str:
    from fusec.ir.graph import Fusion as FusionType
    from fusec.ir.text import to_text
    from fusec.passes import Pass

    parts = [f"# before the passes\n{to_text(fusion)}"]

    def note(step: Pass, before: FusionType, after: FusionType, seconds: float) -> None:
        if after is not before:
            parts.append(f"# after {step.name}\n{to_text(after)}")

    driver.optimise(fusion, options, observer=note)
    return "\n".join(parts)


def _parameters(fusion: Fusion, options: CompileOptions, style: str) -> str:
    from fusec.commands.artifacts import parameters_of

    segmented = driver.segment(driver.optimise(fusion, options), options)
    lines: list[str] = []
    for segment, plan in zip(
        segmented.segments, driver.plan_segments(segmented, options), strict=True
    ):
        lines.append(f"{segment.name}: {segment.scheduler}")
        lines += [f"  {k}: {v}" for k, v in parameters_of(plan).items()]
        lines += [
            f"  kernel {k.name}: grid ({', '.join(map(str, k.grid))}), block {k.block}, "
            f"shared {k.shared_bytes} bytes"
            for k in plan.kernels
        ]
        lines += [f"  workspace {w.name}: {w.dtype}[{w.size}] {w.init}" for w in plan.workspaces]
        lines += [f"  guard {g}" for g in plan.guards]
    return "\n".join(lines) + "\n"


def _cuda(fusion: Fusion, options: CompileOptions, style: str) -> str:
    return "\n".join(s.text for s in driver.plan(fusion, options).kernel_sources)


def _ptx(fusion: Fusion, options: CompileOptions, style: str) -> str:
    from fusec.run.headers import headers_for
    from fusec.run.nvrtc import compile_ptx

    texts = [
        compile_ptx(s.text, name=f"{s.name}.cu", arch=options.target, headers=headers_for(s.text))
        for s in driver.plan(fusion, options).kernel_sources
    ]
    return "\n".join(texts)


def _sass(fusion: Fusion, options: CompileOptions, style: str) -> str:
    from fusec.run.sass import sass

    compiled = driver.compile_fusion(fusion, options)
    return "\n".join(
        f"// {name} {arch}\n{sass(a.cubin)}" for (name, arch), a in compiled.artifacts.items()
    )


def _python(fusion: Fusion, options: CompileOptions, style: str) -> str:
    from fusec.parse.twin import to_python

    return to_python(fusion)


def _host(fusion: Fusion, options: CompileOptions, style: str) -> str:
    from fusec.hostir.lower import lower

    planned = driver.plan(fusion, options)
    return lower(planned.segmented, planned.plans).text()


_DUMPS: dict[str, Callable[[Fusion, CompileOptions, str], str]] = {
    "segmented-fusion": _segmented,
    "fusion-ir": _fusion_ir,
    "preseg": _preseg,
    "scheduler-params": _parameters,
    "cuda-kernel": _cuda,
    "ptx": _ptx,
    "sass": _sass,
    "python": _python,
    "host-program": _host,
}
