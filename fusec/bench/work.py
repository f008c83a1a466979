"""The subject of a benchmark: a fusion built at some sizes, with its traffic and kernels."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from fusec import driver
from fusec.bench.sectors import SECTOR, sectors
from fusec.dataclasses import dataclass, field
from fusec.driver import Compilation, Package
from fusec.hostir.program import HostProgram
from fusec.index.boxes import whole
from fusec.ir.annotations import Setting
from fusec.ir.evaluate import Sizes
from fusec.ir.graph import Fusion, Input
from fusec.options import CompileOptions
from fusec.run.inputs import choose_sizes
from fusec.schedule.pressure import resident_blocks
from fusec.segment import roofline
from fusec.segment.floor import Floor
from fusec.target import Target, find


@dataclass(frozen=True)
class Kernel:
    """A kernel as built, of a segment that launches it.

    occupancy: resident threads per SM over the maximum.
    """

    name: str
    segment: str
    threads: int
    registers: int
    spill_bytes: int
    shared_bytes: int
    occupancy: float


@dataclass(frozen=True)
class Segment:
    """A segment as planned, with the predicted memory traffic of its kernels.

    schedule: the free fields of its scheduler's record, with the selected values.
    """

    name: str
    scheduler: str
    read_bytes: int
    written_bytes: int
    seconds: float
    schedule: Mapping[str, Setting] = field(default_factory=dict[str, Setting])


@dataclass(frozen=True)
class Work:
    """A fusion built for a target at some sizes.

    read_bytes, written_bytes: compulsory traffic, in whole sectors of 32 bytes. It is passed
    between processes, so it contains no fusion.
    """

    name: str
    target: str
    sizes: Mapping[str, int]
    host: HostProgram
    cubins: Mapping[str, bytes]
    read_bytes: int
    written_bytes: int
    kernels: tuple[Kernel, ...]
    segments: tuple[Segment, ...]

    @property
    def compulsory_bytes(self) -> int:
        """Return the compulsory traffic."""
        return self.read_bytes + self.written_bytes


def build(fusion: Fusion, options: CompileOptions) -> Work:
    """Return a fusion compiled for the first target of the options, at its default sizes."""
    return of_package(driver.compile_fusion(fusion, options), options.target)


def of_package(package: Package, target: str) -> Work:
    """Return the work to time for a package."""
    program = package.program
    read, written = fewest(program)
    return Work(
        program.original.name,
        target,
        choose_sizes(program.original),
        program.host,
        package.cubins(target),
        read,
        written,
        _kernels(package, target),
        _segments(program, find(target)),
    )


def fewest(program: Compilation) -> tuple[int, int]:
    """Return the compulsory traffic, as `roofline.of_fusion` but in whole sectors."""
    fusion = program.segmented.fusion
    floor, sizes = Floor(fusion), choose_sizes(fusion)
    written = sum(-(-size // SECTOR) * SECTOR for size in floor.written.values())
    read = sum(_read(floor, i, sizes) for i in fusion.inputs if not i.value.is_scalar)
    least = roofline.of_fusion(program.segmented).compulsory_bytes
    return max(read, least - written), written


def _read(floor: Floor, entry: Input, sizes: Sizes) -> int:
    """Return the compulsory bytes read of an input, in whole sectors if they are known."""
    least, size = floor.input_bytes(entry), entry.value.dtype.size
    strides = tuple(s.evaluate(sizes) for s in entry.strides)
    needed = floor.demand.of(entry.value)
    boxes = [r.box for r in needed.regions if r.sure and all(step == 1 for _, _, step in r.box)]
    for box in (whole(needed.shape), *(boxes if len(boxes) == 1 else ())):
        distinct = prod(b - a for (a, b, _), stride in zip(box, strides, strict=True) if stride)
        if least == distinct * size:
            begin = sum(a * stride for (a, _, _), stride in zip(box, strides, strict=True))
            return sectors([b - a for a, b, _ in box], strides, size, begin * size) * SECTOR
    return -(-least // SECTOR) * SECTOR


def _kernels(package: Package, target: str) -> tuple[Kernel, ...]:
    built, known = find(target), package.artifacts
    found: dict[tuple[str, str], Kernel] = {}
    for launch in package.program.host.launches:
        artifact = known[launch.kernel, target]
        x, y, z = launch.block
        threads, shared = x * y * z, launch.shared_bytes + artifact.shared_bytes
        blocks = resident_blocks(threads, artifact.registers, shared, built)
        found[launch.kernel, launch.segment] = Kernel(
            launch.kernel,
            launch.segment,
            threads,
            artifact.registers,
            artifact.spill_bytes,
            shared,
            round(blocks * threads / built.threads, 3),
        )
    return tuple(found.values())


def _segments(program: Compilation, target: Target) -> tuple[Segment, ...]:
    found: list[Segment] = []
    for segment, plan in zip(program.segmented.segments, program.plans, strict=True):
        estimate = segment.estimate
        if estimate is not None:
            written = round(estimate.stored)
            read, seconds = estimate.moved - written, estimate.seconds(target)
            chosen: dict[str, Setting] = getattr(plan.parameters, "settings", {})
            found.append(Segment(segment.name, segment.scheduler, read, written, seconds, chosen))
    return tuple(found)
