"""Compiled folders: kernels, cubins, headers, fusion.yaml and manifest.json, written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from fusec import __version__
from fusec.diagnostics import FusecError
from fusec.driver import Compiled
from fusec.hostir.form import from_json, to_json
from fusec.hostir.program import HostProgram
from fusec.ir.graph import Fusion
from fusec.run.headers import headers_for
from fusec.schedule.plan import KernelPlan

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"


def manifest_of(compiled: Compiled, targets: tuple[str, ...]) -> dict[str, Any]:
    """Return the manifest: what is in the folder, how to launch it, and what it was decided for."""
    planned = compiled.planned
    segmented = planned.segmented
    return {
        "schema_version": SCHEMA_VERSION,
        "fusec": __version__,
        "fusion": planned.original.name,
        "targets": list(targets),
        "hints": dict(sorted(planned.fusion.hints.items())),
        "segments": [
            {
                "name": segment.name,
                "scheduler": segment.scheduler,
                "nodes": [v.name for n in segment.nodes for v in n.outputs],
                "inputs": [i.value.name for i in segment.fusion.inputs],
                "outputs": [o.value.name for o in segment.fusion.outputs],
                "bytes": segment.estimate.bytes if segment.estimate else 0,
                "workspace_bytes": segment.estimate.workspace_bytes if segment.estimate else 0,
                "parameters": parameters_of(plan),
                "kernels": [_kernel(compiled, plan, k, targets) for k in range(len(plan.kernels))],
                "workspaces": [
                    {"name": w.name, "dtype": w.dtype.name, "size": str(w.size), "init": w.init}
                    for w in plan.workspaces
                ],
                "guards": [str(g) for g in plan.guards],
                "specialised": dict(sorted(plan.specialised.items())),
            }
            for segment, plan in zip(segmented.segments, planned.plans, strict=True)
        ],
        "edges": [
            {"from": f"s{e.producer}", "to": f"s{e.consumer}", "value": e.value.name}
            for e in segmented.edges
        ],
        "program": to_json(compiled.program),
    }


def parameters_of(plan: KernelPlan) -> dict[str, Any]:
    """Return a plan's parameter record as plain data."""
    from dataclasses import asdict, is_dataclass

    record: Any = plan.parameters
    if not is_dataclass(record) or isinstance(record, type):
        return {}
    plain: dict[str, Any] = json.loads(json.dumps(asdict(record), default=str))
    return plain


def _kernel(
    compiled: Compiled, plan: KernelPlan, number: int, targets: tuple[str, ...]
) -> dict[str, Any]:
    kernel = plan.kernels[number]
    source = next(s for s in compiled.planned.kernel_sources if s.name == kernel.name)
    built = {t: compiled.artifacts[(kernel.name, t)] for t in targets}
    return {
        "name": kernel.name,
        "template": kernel.template,
        "source": f"kernels/{kernel.name}.cu",
        "sha256": source.digest,
        "grid": [str(g) for g in kernel.grid],
        "block": list(kernel.block),
        "cluster": list(kernel.cluster),
        "shared_bytes": kernel.shared_bytes,
        "builds": {
            target: {
                "cubin": f"cubins/{kernel.name}.{target}.cubin",
                "registers": built[target].registers,
                "spill_bytes": built[target].spill_bytes,
                "shared_bytes": built[target].shared_bytes,
                "compiler": built[target].compiler,
            }
            for target in targets
        },
    }


def files_of(compiled: Compiled, targets: tuple[str, ...]) -> dict[str, bytes]:
    """Return every file of a compiled folder by its path."""
    from fusec.ir.text import to_text

    planned = compiled.planned
    files: dict[str, bytes] = {}
    for source in planned.kernel_sources:
        files[f"kernels/{source.name}.cu"] = source.text.encode()
        for name, text in headers_for(source.text).items():
            files[f"kernels/{name}"] = text.encode()
    for (name, target), artifact in compiled.artifacts.items():
        files[f"cubins/{name}.{target}.cubin"] = artifact.cubin
    files["fusion.yaml"] = to_text(planned.original).encode()
    manifest = json.dumps(manifest_of(compiled, targets), indent=2) + "\n"
    files[MANIFEST] = manifest.encode()
    return files


def write_folder(folder: Path, files: dict[str, bytes]) -> None:
    """Write a compiled folder beside its place and rename it there; FusecError where that cannot be."""
    if folder.exists() and not folder.is_dir():
        raise FusecError(f"`{folder}` is a file", help="choose another folder with -o")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MANIFEST).is_file():
        raise FusecError(
            f"`{folder}` holds other files", help="choose a new folder, or one that fusec wrote"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise FusecError(f"cannot write `{folder}`: {error.strerror}") from None
    try:
        for name, content in files.items():
            path = aside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        aside.chmod(0o755)
        if folder.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
            os.replace(folder, old / "folder")
            os.replace(aside, folder)
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(aside, folder)
    except OSError as error:
        raise FusecError(f"cannot write `{folder}`: {error.strerror}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@dataclass(frozen=True)
class Folder:
    """A compiled folder read back.

    edited: kernels whose text differs from what was written; sources: the text of each kernel as it lies.
    """

    path: Path
    fusion: Fusion
    program: HostProgram
    manifest: dict[str, Any]
    sources: dict[str, str]
    edited: tuple[str, ...]


def read_folder(folder: Path) -> Folder:
    """Return a compiled folder; FusecError says what is missing or damaged."""
    from fusec.parse import read_file

    path = folder / MANIFEST
    if not path.is_file():
        raise FusecError(f"`{folder}` is no compiled folder: it has no {MANIFEST}")
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = manifest["schema_version"]
        program = from_json(manifest["program"])
        kernels = [k for s in manifest["segments"] for k in s["kernels"]]
        named = [(str(k["name"]), str(k["source"]), str(k["sha256"])) for k in kernels]
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise FusecError(
            f"`{path}` is damaged: {error}", help="compile the fusion again"
        ) from None
    if version != SCHEMA_VERSION:
        raise FusecError(f"`{path}` has schema version {version}, this fusec reads {SCHEMA_VERSION}")
    fusion = read_file(folder / "fusion.yaml", manifest.get("hints", {}))
    sources: dict[str, str] = {}
    edited: list[str] = []
    for name, place, digest in named:
        file = folder / place
        if Path(place).is_absolute() or ".." in Path(place).parts or not file.is_file():
            raise FusecError(f"`{file}` is missing", help="compile the fusion again")
        text = file.read_text(encoding="utf-8")
        sources[name] = text
        if sha256(text.encode()).hexdigest() != digest:
            edited.append(name)
    return Folder(folder, fusion, program, manifest, sources, tuple(edited))
