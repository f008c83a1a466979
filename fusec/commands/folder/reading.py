"""A compiled folder read back and checked for missing, damaged and edited files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from fusec.commands.folder.artifacts import digest
from fusec.commands.folder.edited import KernelFile, check_parameters, rebuild
from fusec.commands.folder.records import (
    AGAIN,
    MANIFEST,
    KernelRecord,
    Manifest,
    PlanRecord,
    damaged,
    read_manifest,
)
from fusec.commands.folder.replan import Given, check_head, check_targets, planned_again
from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import EnvironmentProblem, FusecError
from fusec.driver import Package
from fusec.emit import paths_of
from fusec.foreign import (
    CODE_BYTES,
    TEXT_BYTES,
    MissingFile,
    decode_text,
    decoding,
    not_a,
    read_bytes,
    read_text,
)
from fusec.hostir.coverage import fitting
from fusec.hostir.program import HostProgram
from fusec.ir.graph import DimFact, Fusion
from fusec.options import CompileOptions
from fusec.run.binary.headers import headers_for
from fusec.run.binary.kernel_parameters import sizes_passed
from fusec.run.binary.nvrtc import Compiled
from fusec.run.build import Source, artifact_of

FUSION = "fusion.yaml"
RATES = "targets"
TUNED = "tuned"


@dataclass(frozen=True)
class Contents:
    """The files of a compiled folder; edited: those that no longer match the manifest."""

    path: Path
    manifest: Manifest
    fusion: Fusion
    files: Mapping[str, bytes]
    edited: tuple[str, ...]


def read_folder(folder: Path) -> Contents:
    """Return the contents of a compiled folder; FusecError if a file is missing or damaged."""
    from fusec.parse import read_file

    manifest = read_manifest(folder)
    check_targets(folder / MANIFEST, manifest)
    _check_listed(folder, manifest)
    files = {path: _read(folder, path) for path in manifest.files}
    edited = sorted(p for p in files if digest(files[p]) != manifest.files[p])
    for path in edited:
        if not path.startswith("kernels/") and path not in paths_of(manifest.fusion):
            raise FusecError(f"`{folder / path}` was changed since it was compiled", help=AGAIN)
    fusion = read_file(folder / FUSION)
    check_head(folder, manifest, fusion)
    return Contents(folder, manifest, fusion, files, tuple(edited))


def package_of(
    contents: Contents,
    target: str,
    options: CompileOptions,
    sizes: Mapping[str, int] | None = None,
) -> Package:
    """Return a folder's programs and machine code for a target; edited kernels are rebuilt.

    sizes: the sizes to run, for which one program is returned. Raise FusecError if a program
    differs from this fusec's plan for the folder's fusion, or if none fits these sizes.
    """
    numbers, manifest = plans_for(contents, target), contents.manifest
    if sizes is not None:
        numbers = [numbers[fitting([_build(contents, k) for k in numbers], sizes)]]
    given = Given(contents.path / RATES, contents.path / TUNED)
    programs = tuple(
        planned_again(contents.path, manifest, k, contents.fusion, given) for k in numbers
    )
    plans = [manifest.plans[number] for number in numbers]
    kernels = [kernel for plan in plans for kernel in _kernels(contents, plan)]
    stale = [k for k in kernels if k.edited or target not in k.record.builds]
    artifacts = rebuild(stale, target, options)
    for kernel in kernels:
        if kernel not in stale:
            built = kernel.record.builds[target]
            code = Compiled(contents.files[built.cubin])
            with decoding(not_a(contents.path / built.cubin, "a whole cubin", AGAIN)):
                made = artifact_of(kernel.name, target, built.compiler, code)
                if kernel.name not in {k.name for k in code.kernels}:
                    raise ValueError(f"it has no kernel `{kernel.name}`")
            artifacts[kernel.name, target] = made
        check_parameters(kernel, artifacts[kernel.name, target].cubin)
    edited = tuple(k.name for k in kernels if k.edited)
    return Package(programs, artifacts, (target,), edited)


def _build(contents: Contents, number: int) -> tuple[HostProgram, tuple[DimFact, ...]]:
    """Return the host program of a plan, and the dims with the sizes that it was made for."""
    plan = contents.manifest.plans[number]
    dims = (replace(d, default=plan.sizes.get(d.name, d.default)) for d in contents.fusion.dims)
    return plan.program, tuple(dims)


def plans_for(contents: Contents, target: str) -> list[int]:
    """Return the numbers of the plans for `target`, else for the latest target that it can run."""
    from fusec import target as targets

    plans = contents.manifest.plans
    wanted = targets.find(target).capability
    able = [
        (targets.find(t).capability, number)
        for number, plan in enumerate(plans)
        for t in plan.targets
        if t == target or (t[-1].isdigit() and targets.find(t).capability <= wanted)
    ]
    exact = [number for number, plan in enumerate(plans) if target in plan.targets]
    if not exact and not able:
        known = ", ".join(contents.manifest.targets)
        raise EnvironmentProblem(
            f"`{contents.path}` is compiled for {known}, which {target} cannot run",
            help=f"compile the fusion with --target {target}",
        )
    return exact or [number for at, number in able if at == max(able)[0]]


def _check_listed(folder: Path, manifest: Manifest) -> None:
    """Raise FusecError unless the manifest lists exactly the files that it needs."""
    for path in manifest.files:
        place = PurePosixPath(path)
        if place.is_absolute() or ".." in place.parts:
            reason = f"it refers to a file outside the folder, {path}"
            raise damaged(folder / MANIFEST, reason)
    kernels = [k for plan in manifest.plans for k in plan.kernels]
    sources = {k.source for k in kernels}
    needed = {FUSION, *sources, *(b.cubin for k in kernels for b in k.builds.values())}
    local = {PurePosixPath(source).parent for source in sources}
    for path in sorted(needed - manifest.files.keys()):
        raise damaged(folder / MANIFEST, f"its file list lacks `{path}`")
    for path in manifest.files.keys() - needed:
        place = PurePosixPath(path)
        is_header = place.suffix == ".cuh" and place.parent in local
        known = {*paths_of(manifest.fusion), *_target_files(manifest)}
        if not is_header and path not in known:
            raise damaged(folder / MANIFEST, f"`{path}` is not a file of a compiled fusion")


def _target_files(manifest: Manifest) -> Iterator[str]:
    """Yield the optional files of each target: its rates and measured schedules."""
    for target in manifest.targets:
        yield from (f"{RATES}/{target}.toml", f"{TUNED}/{target}.toml")


def _read(folder: Path, name: str) -> bytes:
    try:
        return read_bytes(folder / name, _PART, CODE_BYTES)
    except MissingFile:
        raise FusecError(f"`{folder / name}` is missing", help=AGAIN) from None


_PART = "a file of a compiled fusion"


def _kernels(contents: Contents, plan: PlanRecord) -> Iterator[KernelFile]:
    # Launches were checked: all launches of a kernel pass the same arguments.
    passed = {r.kernel: sizes_passed(r.arguments) for s in plan.segments for r in s.launches}
    yield from (_kernel(contents, record, passed[record.name]) for record in plan.kernels)


def _kernel(contents: Contents, record: KernelRecord, passed: tuple[int, ...]) -> KernelFile:
    place, files = contents.path / record.source, contents.files
    text = decode_text(files[record.source], place, AGAIN)
    # Every header in the folder counts, including ones that the user added.
    found = sorted(p for p in place.parent.glob("*.cuh") if p.is_file())
    local = {p.name: read_text(p, _PART, TEXT_BYTES, AGAIN) for p in found}
    headers = headers_for(text, local)
    own = {record.source, *(f"{PurePosixPath(record.source).parent}/{name}" for name in headers)}
    edited = bool(own & {*contents.edited}) or not own <= files.keys()
    return KernelFile(record, place, Source(record.name, text, headers), edited, passed)
