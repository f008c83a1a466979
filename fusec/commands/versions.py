"""Inputs of `fusec diff`: fusions of a file, of compiled folders, or of golden folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fusec import driver
from fusec import target as targets
from fusec.commands.folder.reading import RATES, TUNED, Contents, read_folder
from fusec.commands.folder.records import MANIFEST
from fusec.commands.folder.replan import Given, planned_again
from fusec.commands.golden import REGISTERS
from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.driver import Compilation
from fusec.foreign import TEXT_BYTES, decode_text, decoding, not_a, read_json, read_text
from fusec.options import CompileOptions

DUMPS = "segmented_fusion.*.txt"
"""Files that golden folders have and compiled ones do not."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of a version; scheduler: of the first segment that launches it.

    registers: as reported by the compiler, None if it was not run.
    """

    name: str
    scheduler: str
    text: str
    registers: int | None = None


@dataclass(frozen=True)
class Version:
    """A fusion as planned for a target.

    bytes: predicted traffic; compulsory_bytes: its lower bound; seconds: predicted by this fusec.
    Fields that are not recorded are None.
    """

    fusion: str
    target: str
    bytes: int | None
    compulsory_bytes: int
    seconds: float | None
    kernels: tuple[Kernel, ...]


def versions_of(path: str, options: CompileOptions) -> list[Version]:
    """Return the versions at a path; the options are for fusions that a file defines.

    FusecError if there is nothing to compare.
    """
    folder = Path(path)
    if not folder.is_dir():
        return [v for p in driver.programs(path, options) for v in _planned(p)]
    found = [v for each in sorted(folder.rglob(MANIFEST)) for v in _recorded(each.parent)]
    if not found:
        raise FusecError(
            f"`{path}` holds no compiled fusion and no golden files",
            help="name a fusion file, a folder of `fusec compile`, or one of `fusec golden`",
        )
    return found


def holds_golden(path: str) -> bool:
    """Return whether a path is a folder with golden files in it."""
    return next(Path(path).rglob(DUMPS), None) is not None


def _planned(whole: Compilation) -> Iterator[Version]:
    from fusec.segment import roofline

    for arch in whole.targets:
        program = whole.on((arch,))
        segmented = program.segmented
        pairs = zip(segmented.segments, program.sources, strict=True)
        scheduler = {source.name: segment.scheduler for segment, own in pairs for source in own}
        kernels = (Kernel(s.name, scheduler[s.name], s.text) for s in program.kernel_sources)
        yield Version(
            program.original.name, arch, segmented.bytes,
            roofline.of_fusion(segmented).compulsory_bytes,
            sum(segmented.times(targets.find(arch))), tuple(kernels),
        )  # fmt: skip


def _recorded(folder: Path) -> Iterator[Version]:
    if any(folder.glob(DUMPS)):
        yield from _golden(folder)
    else:
        yield from _compiled(folder)


def _compiled(folder: Path) -> Iterator[Version]:
    """Yield the versions of a compiled folder, with its current CUDA source."""
    contents = read_folder(folder)
    for number, plan in enumerate(contents.manifest.plans):
        program = _planned_again(contents, number)
        scheduler = {r.kernel: s.scheduler for s in reversed(plan.segments) for r in s.launches}
        for arch in plan.targets:
            kernels = tuple(
                Kernel(
                    k.name, scheduler[k.name],
                    decode_text(contents.files[k.source], folder / k.source),
                    k.builds[arch].registers,
                )
                for k in plan.kernels
            )  # fmt: skip
            fusion, least = contents.manifest.fusion, plan.floor_bytes
            if program is None:
                # A loop runs segments more than once, which only a program counts.
                moved = sum(s.bytes + s.workspace_bytes for s in plan.segments)
                size, seconds = None if contents.fusion.shardings else moved, None
            else:
                segmented = program.segmented
                size, seconds = segmented.bytes, sum(segmented.times(targets.find(arch)))
            yield Version(fusion, arch, size, least, seconds, kernels)


def _planned_again(contents: Contents, number: int) -> Compilation | None:
    """Return a folder's program; None if this fusec plans another, since times do not apply."""
    given = Given(contents.path / RATES, contents.path / TUNED)
    try:
        return planned_again(contents.path, contents.manifest, number, contents.fusion, given)
    except FusecError:
        return None


def _golden(folder: Path) -> Iterator[Version]:
    """Yield the versions of a golden folder, which records no times, and may lack registers."""
    texts = {p.stem: p for p in folder.glob("*.cu")}
    data = read_json(folder / MANIFEST, "a golden manifest")
    registers = folder / REGISTERS
    built = read_json(registers, "golden registers") if registers.is_file() else None
    with decoding(not_a(folder / MANIFEST, "a golden manifest")):
        builds = None if built is None else built["kernels"]
        plans: Sequence[Any] = data["plans"]
        divided = any(folder.glob("partition*.txt"))
        for plan in plans:
            scheduler = {
                launch["kernel"]: s["scheduler"]
                for s in reversed(plan["segments"])
                for launch in s["launches"]
            }
            for arch in plan["targets"]:
                mark = f".{plan['targets'][0]}" if len(plans) > 1 else ""
                kernels = tuple(
                    Kernel(
                        k["name"], scheduler[k["name"]],
                        read_text(texts[f"{k['name']}{mark}"], "a golden file", TEXT_BYTES),
                        None if builds is None else builds[k["name"]][arch]["registers"],
                    )
                    for k in plan["kernels"]
                )  # fmt: skip
                size = sum(s["bytes"] + s["workspace_bytes"] for s in plan["segments"])
                yield Version(
                    data["fusion"], arch, None if divided else size, plan["floor_bytes"], None,
                    kernels,
                )  # fmt: skip
