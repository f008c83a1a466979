"""`fusec dump`: the result of each stage, as text."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fusec import driver, lowering
from fusec.commands.terminal.diagnose import Report
from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError, note_once
from fusec.driver import Compilation
from fusec.files import fusions_of
from fusec.options import CompileOptions, environment

if TYPE_CHECKING:
    from fusec.segment.segmented import Segment

_NVFUSER = {
    "segmented_fusion": "segmented-fusion",
    "fusion_ir": "fusion-ir",
    "fusion_ir_math": "fusion-ir",
    "fusion_ir_original": "fusion-ir",
    "fusion_ir_preseg": "preseg",
    "fusion_ir_concretized": "preseg",
    "pre_segmenter_logging": "preseg",
    "preseg_pass": "preseg",
    "host_ir_lowering": "host-passes",
    "compile_params": "scheduler-params",
    "scheduler_params": "scheduler-params",
    "cuda_kernel": "cuda-kernel",
    "ptx": "ptx",
    "sass": "sass",
    "python_definition": "python",
    "host_ir": "host-ir",
    "draw_segmented_fusion": "dot",
}
"""nvFuser's dump names that have a counterpart here."""

_INSTEAD = {
    "segmenter_logging": "explain", "scheduler_verbose": "explain", "launch_param": "explain",
    "occupancy": "explain", "perf_debug_verbose": "explain", "ptxas_verbose": "explain",
    "dynamic_shared_memory": "explain", "buffer_reuse_verbose": "explain",
    "global_zeroed_memory": "explain", "index_type": "explain", "kernel_ir": "explain",
    "fusion_ir_presched": "explain", "fusion_ir_graph": "explain --html FILE",
    "cuda_to_file": "compile -o FOLDER", "cuda_full": "compile -o FOLDER",
    "cubin": "compile -o FOLDER", "sass_to_file": "compile -o FOLDER",
    "ftrace": "run --trace FILE.json", "communication": "run --trace FILE.json",
    "kernel_args": "dump --host-ir", "fusion_args": "dump --host-ir",
}  # fmt: skip
"""Commands that replace others of nvFuser's dump names."""
_OWN_NAMES = """
    bank_conflict ca_map cutlass_compile expr_simplify expr_sort expr_sort_verbose host_ir_jit
    indexing_verbose inlining lower_verbose parallel_dimensions predicate_elimination sync_map
    transform_propagator
"""
_OWN = frozenset(_OWN_NAMES.split())
"""Names of dumps that only nvFuser has."""


_TARGET_FREE = frozenset(
    {"fusion-ir", "python", *Compilation.local.dumps, *Compilation.fusion.dumps}
)
"""Dumps that do not depend on the target."""


@dataclass(frozen=True)
class DumpOptions:
    """The dumps to print: names of DUMP_KINDS, and the style of a segmented fusion."""

    kinds: tuple[str, ...]
    style: str = "2024"


def dump(path: str, compile_options: CompileOptions, options: DumpOptions, report: Report) -> int:
    """Print the chosen dumps of every fusion of a file, with headings if there are several."""
    told = report.facts["dumps"] = list[dict[str, Any]]()

    def tell(program: Compilation, kind: str, text: str) -> None:
        targets = [] if kind in _TARGET_FREE else list(program.targets)
        fusion = program.original.name
        told.append({"fusion": fusion, "kind": kind, "targets": targets, "text": text})

    wholes = [Compilation(f, compile_options) for f in fusions_of(path, compile_options)]
    programs = [part for whole in wholes for part in whole.parts]
    for whole in wholes:
        if whole not in programs and "preseg" in options.kinds:
            text = text_of(whole, "preseg")
            tell(whole, "preseg", text)
            sys.stdout.write(f"# {whole.original.name}\n{text}")
    for part in programs:
        every = [part.on((target,)) for target in compile_options.targets]
        for kind in options.kinds:
            chosen = every[: 1 if kind in _TARGET_FREE else None]
            for program in chosen:
                text = text_of(program, kind, options.style)
                tell(program, kind, text)
                named = [part.original.name] * (len(programs) > 1)
                parts = [*named, *program.targets] if len(chosen) > 1 else named
                if parts and options.style != "json":
                    mark = "#" if kind in ("partition", "preseg", "python") else "//"
                    if (kind, options.style) == ("segmented-fusion", "mermaid"):
                        mark = "%%"
                    sys.stdout.write(f"{mark} {', '.join(parts)}\n")
                sys.stdout.write(text)
    return 0


def environment_kinds() -> list[str]:
    """Return the dumps that NVFUSER_DUMP names, and note names without a counterpart.

    FusecError lists the valid names for one that nvFuser does not have either.
    """
    named = (n.strip().split("(")[0] for n in (environment("NVFUSER_DUMP") or "").split(","))
    names = [n for n in named if n]
    for name in names:
        if name in _INSTEAD or name in _OWN:
            way = f"; see `fusec {_INSTEAD[name]}`" if name in _INSTEAD else ""
            note_once(f"NVFUSER_DUMP: `{name}` has no equivalent{way}")
        elif name not in _NVFUSER:
            raise FusecError(
                f"NVFUSER_DUMP: unknown name `{name}`", help="one of " + ", ".join(sorted(_NVFUSER))
            )
    return [name for name in names if name in _NVFUSER]


def dump_for_environment(program: Compilation) -> None:
    """Print the dumps that NVFUSER_DUMP names."""
    for name in environment_kinds():
        kind = _NVFUSER[name]
        style = "2024" if kind != "dot" else "dot"
        kind = "segmented-fusion" if kind == "dot" else kind
        sys.stdout.write(text_of(program, kind, style))
        sys.stdout.flush()


def text_of(program: Compilation, kind: str, style: str = "2024") -> str:
    """Return one dump of a program."""
    return _DUMPS[kind](program, style)


def _segmented(program: Compilation, style: str) -> str:
    from fusec.dumps.graphs import segmented_fusion_dot, segmented_fusion_json
    from fusec.dumps.mermaid import segmented_fusion_mermaid
    from fusec.dumps.nvfuser import segmented_fusion_text

    if style == "json":
        return segmented_fusion_json(program.segmented)
    if style == "dot":
        return segmented_fusion_dot(program.segmented)
    if style == "mermaid":
        return segmented_fusion_mermaid(program.segmented)
    return segmented_fusion_text(program.segmented, style=style)


def _groups(program: Compilation, style: str) -> str:
    from fusec.dumps.nvfuser import segmented_fusion_text

    groups = lowering.groups(program.fusion, program.options)
    return segmented_fusion_text(groups, style="head" if style == "head" else "2024")


def _fusion_ir(program: Compilation, style: str) -> str:
    from fusec.dumps.nvfuser import fusion_math_text

    return fusion_math_text(program.original)


def _partition(program: Compilation, style: str) -> str:
    from fusec.ir.text import to_text

    return to_text(program.local)


def _preseg(program: Compilation, style: str) -> str:
    from fusec.ir.graph import Fusion as FusionType
    from fusec.ir.text import to_text
    from fusec.passes import Pass

    parts = [f"# before the passes\n{to_text(program.local)}"]

    def note(step: Pass[FusionType], before: FusionType, after: FusionType, seconds: float) -> None:
        if after is not before:
            parts.append(f"# after {step.name}\n{to_text(after)}")

    lowering.optimise(program.local, program.options, observer=note)
    return "\n".join(parts)


def _parameters(program: Compilation, style: str) -> str:
    from fusec.commands.folder.manifest import parameters_of

    lines: list[str] = []
    for segment, plan in zip(program.segmented.segments, program.plans, strict=True):
        lines.append(f"{segment.name}: {segment.scheduler}, {_choice(segment)}")
        lines += [f"  {k}: {v}" for k, v in parameters_of(plan).items()]
        lines += [
            f"  kernel {k.name}: grid ({', '.join(map(str, k.grid))}), block {k.block}, "
            f"shared {k.shared_bytes} bytes"
            for k in plan.kernels
        ]
        lines += [f"  workspace {w.name}: {w.dtype}[{w.size}] {w.init}" for w in plan.workspaces]
        lines += [f"  guard {g}" for g in plan.guards]
    return "\n".join(lines) + "\n"


def _choice(segment: Segment) -> str:
    """Return how the schedule of a segment was selected."""
    from fusec.explain.query import chosen

    how, tuned = chosen(segment), segment.tuned
    if how == "priced":  # the value in JSON
        return "selected by the cost model"
    return how + ("" if tuned is None else f" (from {tuned.source})")


def _cuda(program: Compilation, style: str) -> str:
    return "\n".join(s.text for s in program.kernel_sources)


def _ptx(program: Compilation, style: str) -> str:
    from fusec.run.binary.headers import with_included
    from fusec.run.binary.nvrtc import compile_ptx

    arch = program.options.target
    texts = [
        compile_ptx(s.text, name=f"{s.name}.cu", arch=arch, headers=with_included(s.headers))
        for s in program.kernel_sources
    ]
    return "\n".join(texts)


def _sass(program: Compilation, style: str) -> str:
    from fusec.run.binary.sass import sass

    artifacts = driver.build(program).artifacts.items()
    return "\n".join(f"// {name} {arch}\n{sass(a.cubin)}" for (name, arch), a in artifacts)


def _python(program: Compilation, style: str) -> str:
    from fusec.parse.twin import to_python

    return to_python(program.original)


def _host_passes(program: Compilation, style: str) -> str:
    from fusec.hostir.program import HostProgram as Program
    from fusec.passes import Pass

    parts = list[str]()

    def note(step: Pass[Program], before: Program, after: Program, seconds: float) -> None:
        texts = before.text().splitlines(True), after.text().splitlines(True)
        parts.extend(difflib.unified_diff(*texts, "before", f"after {step.name}"))

    lowering.lower(program.segmented, program.plans, program.local, program.options, note)
    return "".join(parts) or "no pass changes the host program\n"


def _host_ir(program: Compilation, style: str) -> str:
    from fusec.hostir.text import host_ir_text

    return host_ir_text(program.posts, program.segmented)


def _host(program: Compilation, style: str) -> str:
    return program.host.text()


def _space(program: Compilation, style: str) -> str:
    from fusec import target
    from fusec.schedule.settings.listing import space_json, space_text, spaces_of

    gpu = target.find(program.options.target, program.options.rates)
    spaces = spaces_of(program.segmented, gpu)
    return space_json(spaces) if style == "json" else space_text(spaces)


_DUMPS: dict[str, Callable[[Compilation, str], str]] = {
    "segmented-fusion": _segmented,
    "groups": _groups,
    "fusion-ir": _fusion_ir,
    "partition": _partition,
    "preseg": _preseg,
    "scheduler-params": _parameters,
    "schedule-space": _space,
    "cuda-kernel": _cuda,
    "ptx": _ptx,
    "sass": _sass,
    "python": _python,
    "host-passes": _host_passes,
    "host-ir": _host_ir,
    "host-program": _host,
}
