"""A compiled folder read back and checked: what is missing, damaged or edited."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fusec.commands.artifacts import digest
from fusec.commands.manifest_records import (
    AGAIN,
    MANIFEST,
    KernelRecord,
    Manifest,
    PlanRecord,
    SegmentRecord,
    damaged,
    read_manifest,
)
from fusec.commands.replan import check_head, check_plan, check_targets
from fusec.commands.report import Figures
from fusec.diagnostics import EnvironmentProblem, FusecError
from fusec.hostir.program import HostProgram
from fusec.ir.graph import Fusion
from fusec.run.headers import headers_for
from fusec.segment.roofline import Roofline

FUSION = "fusion.yaml"
RATES = "targets"


@dataclass(frozen=True)
class FolderKernel:
    """A kernel as it lies in a folder; edited: its text, or a header of it, was changed.

    cubins: machine code by target, made from the text as it was compiled.
    """

    record: KernelRecord
    path: Path
    text: str
    headers: Mapping[str, str]
    edited: bool
    cubins: Mapping[str, bytes]

    @property
    def name(self) -> str:
        """Return the kernel's name."""
        return self.record.name


@dataclass(frozen=True)
class FolderPlan:
    """The program and kernels for some targets."""

    record: PlanRecord
    kernels: tuple[FolderKernel, ...]

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the targets that the plan is for."""
        return self.record.targets

    @property
    def program(self) -> HostProgram:
        """Return what the host does."""
        return self.record.program

    @property
    def segments(self) -> Mapping[str, Figures]:
        """Return scheduler of each segment, and the least that it must do."""
        return {s.name: Figures(s.scheduler, _least(s)) for s in self.record.segments}

    @property
    def least(self) -> Roofline:
        """Return what any kernels for the whole fusion must do."""
        return _least(self.record)


@dataclass(frozen=True)
class Folder:
    """A compiled folder; edited: the files whose text differs from what was written."""

    path: Path
    manifest: Manifest
    fusion: Fusion
    plans: tuple[FolderPlan, ...]
    edited: tuple[str, ...]

    def plan_for(self, target: str) -> FolderPlan:
        """Return the plan made for `target`, else the one for the latest that it can run.

        FusecError where it is not what this fusec plans for the folder's fusion.
        """
        from fusec import target as targets

        wanted = targets.find(target).capability
        fitting = [
            (targets.find(t).capability, number)
            for number, plan in enumerate(self.plans)
            for t in plan.targets
            if t == target or (t[-1].isdigit() and targets.find(t).capability <= wanted)
        ]
        exact = [number for number, plan in enumerate(self.plans) if target in plan.targets]
        if not exact and not fitting:
            known = ", ".join(t for p in self.plans for t in p.targets)
            raise EnvironmentProblem(
                f"`{self.path}` is compiled for {known}, which {target} cannot run",
                help=f"compile the fusion with --target {target}",
            )
        number = exact[0] if exact else max(fitting)[1]
        check_plan(self.path, self.manifest, number, self.fusion, self.path / RATES)
        return self.plans[number]


def read_folder(folder: Path) -> Folder:
    """Return a compiled folder; FusecError says what is missing or damaged."""
    from fusec.parse import read_file

    manifest = read_manifest(folder)
    check_targets(folder / MANIFEST, manifest)
    _check_listed(folder, manifest)
    contents = {path: _read(folder, path) for path in manifest.files}
    changed = {p for p in contents if digest(contents[p]) != manifest.files[p]}
    for path in sorted(changed):
        if not path.startswith("kernels/"):
            raise FusecError(f"`{folder / path}` was changed since it was compiled", help=AGAIN)
    fusion = read_file(folder / FUSION)
    check_head(folder, manifest, fusion)
    plans = tuple(
        FolderPlan(p, tuple(_kernel(folder, k, contents, changed) for k in _kernels(p)))
        for p in manifest.plans
    )
    return Folder(folder, manifest, fusion, plans, tuple(sorted(changed)))


def _kernels(plan: PlanRecord) -> tuple[KernelRecord, ...]:
    return tuple(k for s in plan.segments for k in s.kernels)


def _check_listed(folder: Path, manifest: Manifest) -> None:
    """Raise FusecError unless the manifest lists what it needs, and nothing else."""
    for path in manifest.files:
        place = PurePosixPath(path)
        if place.is_absolute() or ".." in place.parts:
            reason = f"it names a file outside the folder, {path}"
            raise damaged(folder / MANIFEST, reason)
    kernels = [k for plan in manifest.plans for k in _kernels(plan)]
    sources = {k.source for k in kernels}
    needed = {FUSION, *sources, *(b.cubin for k in kernels for b in k.builds.values())}
    local = {PurePosixPath(source).parent for source in sources}
    for path in sorted(needed - manifest.files.keys()):
        raise damaged(folder / MANIFEST, f"its files have no `{path}`")
    for path in manifest.files.keys() - needed:
        place = PurePosixPath(path)
        is_header = place.suffix == ".cuh" and place.parent in local
        if not is_header and path not in {f"{RATES}/{t}.toml" for t in manifest.targets}:
            raise damaged(folder / MANIFEST, f"`{path}` is no file of a compiled folder")


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except FileNotFoundError:
        raise FusecError(f"`{folder / name}` is missing", help=AGAIN) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FusecError(f"cannot read `{folder / name}`: {reason}") from None


def _text(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise FusecError(f"`{path}` is not UTF-8 text", help=AGAIN) from None


def _least(record: PlanRecord | SegmentRecord) -> Roofline:
    return Roofline(record.floor_bytes, record.tensor_flops)


def _kernel(
    folder: Path, record: KernelRecord, contents: Mapping[str, bytes], changed: set[str]
) -> FolderKernel:
    source = record.source
    place = folder / source
    text = _text(place, contents[source])
    # Whatever header lies there counts, also one that the user added.
    found = sorted(p for p in place.parent.glob("*.cuh") if p.is_file())
    local = {p.name: _text(p, p.read_bytes()) for p in found}
    headers = headers_for(text, local)
    own = {f"{PurePosixPath(source).parent}/{name}" for name in headers}
    edited = source in changed or bool(own & changed) or not own <= contents.keys()
    cubins = {target: contents[build.cubin] for target, build in record.builds.items()}
    return FolderKernel(record, place, text, headers, edited, cubins)
