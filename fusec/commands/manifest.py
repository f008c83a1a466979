"""manifest.json: what a compiled folder holds, how it is launched, and what it was decided for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fusec import __version__
from fusec.driver import Compiled
from fusec.hostir.form import to_json
from fusec.ir.dim import Dim
from fusec.ir.graph import Fusion
from fusec.schedule.plan import KernelPlan
from fusec.segment import roofline
from fusec.segment.roofline import Roofline
from fusec.segment.segmented import Segment

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"


def manifest_of(
    builds: Sequence[Compiled], targets: Sequence[str], files: Mapping[str, str]
) -> dict[str, Any]:
    """Return the manifest of a fusion's builds; `files` holds the digest of each file by path."""
    fusion = builds[0].planned.original
    return {
        "schema_version": SCHEMA_VERSION,
        "fusec": __version__,
        "fusion": fusion.name,
        "targets": list(targets),
        "dims": [
            {"name": d.name, "default": d.default, "multiple_of": d.multiple_of}
            for d in fusion.dims
        ],
        "inputs": _inputs(fusion),
        "outputs": [
            {
                "name": o.value.name,
                "dtype": o.value.dtype.name,
                "shape": _sizes(o.value.shape),
                "alias": o.alias,
            }
            for o in fusion.outputs
        ],
        "plans": [_plan(built, kernel_folder(built, builds)) for built in builds],
        "files": dict(sorted(files.items())),
    }


def kernel_folder(built: Compiled, builds: Sequence[Compiled]) -> str:
    """Return where the CUDA text of one build lies: a folder of its own where texts differ."""
    return "kernels" if len(builds) == 1 else f"kernels/{built.targets[0]}"


def cubin_path(kernel: str, target: str) -> str:
    """Return where a kernel's machine code for a target lies."""
    return f"cubins/{kernel}.{target}.cubin"


def as_text(manifest: Mapping[str, Any]) -> str:
    """Return the manifest as it is written."""
    return json.dumps(manifest, indent=2) + "\n"


def parameters_of(plan: KernelPlan) -> dict[str, Any]:
    """Return a plan's parameter record as plain data."""
    from dataclasses import asdict, is_dataclass

    record: Any = plan.parameters
    if not is_dataclass(record) or isinstance(record, type):
        return {}
    plain: dict[str, Any] = json.loads(json.dumps(asdict(record), default=str))
    return plain


def _inputs(fusion: Fusion) -> list[dict[str, Any]]:
    return [
        {
            "name": i.value.name,
            "dtype": i.value.dtype.name,
            "shape": None if i.value.is_scalar else _sizes(i.value.shape),
            "strides": None if i.value.is_scalar else _sizes(i.strides),
            "default": _default(i.default),
        }
        for i in fusion.inputs
    ]


def _default(value: complex | None) -> float | list[float] | None:
    """Return the default of a scalar input; a complex one as its parts."""
    return [value.real, value.imag] if isinstance(value, complex) else value


def _sizes(sizes: Sequence[Dim]) -> list[int | str]:
    return [s.value if s.is_const else str(s) for s in sizes]


def _plan(built: Compiled, folder: str) -> dict[str, Any]:
    planned = built.planned
    program = to_json(built.program)
    launches = {i["kernel"]: i for i in program["instructions"] if i["is"] == "launch"}
    return {
        "targets": list(built.targets),
        **_least(roofline.of_fusion(planned.segmented)),
        "segments": [
            _segment(built, segment, plan, launches, folder)
            for segment, plan in zip(planned.segmented.segments, planned.plans, strict=True)
        ],
        "edges": [
            {"from": f"s{e.producer}", "to": f"s{e.consumer}", "value": e.value.name}
            for e in planned.segmented.edges
        ],
        "program": program,
    }


def _segment(
    built: Compiled, segment: Segment, plan: KernelPlan, launches: Mapping[str, Any], folder: str
) -> dict[str, Any]:
    estimate = segment.estimate
    return {
        "name": segment.name,
        "scheduler": segment.scheduler,
        "values": [v.name for n in segment.nodes for v in n.outputs],
        "inputs": [i.value.name for i in segment.fusion.inputs],
        "outputs": [o.value.name for o in segment.fusion.outputs],
        "bytes": estimate.bytes if estimate else 0,
        "workspace_bytes": estimate.workspace_bytes if estimate else 0,
        **_least(roofline.of_segment(segment)),
        "specialised": dict(sorted(plan.specialised.items())),
        "guards": [str(g) for g in plan.guards],
        "parameters": parameters_of(plan),
        "workspaces": [
            {
                "name": w.name,
                "dtype": w.dtype.name,
                "size": w.size.value if w.size.is_const else str(w.size),
                "init": w.init,
            }
            for w in plan.workspaces
        ],
        "kernels": [
            {
                "name": kernel.name,
                "template": kernel.template,
                "source": f"{folder}/{kernel.name}.cu",
                "grid": launches[kernel.name]["grid"],
                "block": list(kernel.block),
                "cluster": list(kernel.cluster),
                "dynamic_shared_bytes": kernel.shared_bytes,
                "arguments": launches[kernel.name]["arguments"],
                "builds": {t: _build(built, kernel.name, t) for t in built.targets},
            }
            for kernel in plan.kernels
        ],
    }


def _least(least: Roofline) -> dict[str, int]:
    return {"floor_bytes": least.fewest_bytes, "tensor_flops": least.tensor_flops}


def _build(built: Compiled, kernel: str, target: str) -> dict[str, Any]:
    artifact = built.artifacts[(kernel, target)]
    return {
        "cubin": cubin_path(kernel, target),
        "registers": artifact.registers,
        "spill_bytes": artifact.spill_bytes,
        "shared_bytes": artifact.shared_bytes,
        "compiler": artifact.compiler,
    }
