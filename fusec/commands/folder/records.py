"""What a manifest holds, as records; the one way in which it is written and read.

A manifest carries the digest of itself: what was damaged or edited by hand is told. It is no proof
of where the manifest comes from; what is run is compared with a plan of the folder's own fusion.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from fusec.dataclasses import dataclass, field
from fusec.diagnostics import FusecError
from fusec.foreign import Undecodable, read_json
from fusec.hostir.form import RECORDS
from fusec.hostir.program import HostProgram
from fusec.hostir.records import OMITTED
from fusec.ir.dim import Dim, Shape
from fusec.ir.dtype import DType
from fusec.schedule.plan import Argument, Workspace

SCHEMA_VERSION = 2
MANIFEST = "manifest.json"
AGAIN = "compile the fusion again"


@dataclass(frozen=True)
class Choices:
    """The options of a compilation that plans depend on; those at their defaults are left out."""

    without: tuple[str, ...] = field(default=(), metadata=OMITTED)
    stop_after: str | None = field(default=None, metadata=OMITTED)
    check_bounds: bool = field(default=False, metadata=OMITTED)
    redefine: str = field(default="after", metadata=OMITTED)
    precise: bool = field(default=False, metadata=OMITTED)
    streams: int = field(default=4, metadata=OMITTED)
    with_: tuple[str, ...] = field(default=(), metadata=OMITTED)
    overlap: bool = field(default=False, metadata=OMITTED)
    as_written: bool = field(default=False, metadata=OMITTED)


@dataclass(frozen=True)
class DimRecord:
    """A dim: the size that decisions were made for, and what divides it."""

    name: str
    default: int
    multiple_of: int


@dataclass(frozen=True)
class InputRecord:
    """An input of the fusion; neither shape nor strides for a scalar.

    generator: what the program's random generator gives in it, if anything.
    """

    name: str
    dtype: DType
    shape: Shape | None
    strides: Shape | None
    default: bool | int | float | tuple[float, float] | None
    generator: str = field(default="", metadata=OMITTED)


@dataclass(frozen=True)
class OutputRecord:
    """An output of the fusion; alias: the input whose memory it is written into."""

    name: str
    dtype: DType
    shape: Shape
    alias: str | None


@dataclass(frozen=True)
class BuildRecord:
    """A kernel's machine code for a target."""

    cubin: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    compiler: str
    driver: int


@dataclass(frozen=True)
class KernelRecord:
    """A kernel: its text, what all of its launches have in common, and its builds by target."""

    name: str
    template: str
    source: str
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    overlapped: bool
    dynamic_shared_bytes: int
    builds: Mapping[str, BuildRecord]


@dataclass(frozen=True)
class LaunchRecord:
    """A launch of a kernel by a segment."""

    kernel: str
    grid: tuple[Dim, Dim, Dim]
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class SegmentRecord:
    """A segment with the choices of its scheduler; overridden: those that the user made."""

    name: str
    scheduler: str
    values: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bytes: int
    workspace_bytes: int
    floor_bytes: int
    tensor_flops: int
    specialised: Mapping[str, int]
    guards: tuple[str, ...]
    parameters: Mapping[str, Any]
    workspaces: tuple[Workspace, ...]
    launches: tuple[LaunchRecord, ...]
    overridden: tuple[str, ...] = field(default=(), metadata=OMITTED)


@dataclass(frozen=True)
class EdgeRecord:
    """A tensor that one segment writes and another one reads."""

    from_: str
    to: str
    value: str


@dataclass(frozen=True)
class PlanRecord:
    """What targets that share kernels run.

    sizes: those that it was decided for, of the dims where the manifest has others; of plans for a
    target, that runs which was decided for the nearest sizes, of those whose guards hold.
    """

    targets: tuple[str, ...]
    floor_bytes: int
    tensor_flops: int
    kernels: tuple[KernelRecord, ...]
    segments: tuple[SegmentRecord, ...]
    edges: tuple[EdgeRecord, ...]
    program: HostProgram
    sizes: Mapping[str, int] = field(default_factory=dict[str, int], metadata=OMITTED)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A whole manifest, but for its digest."""

    schema_version: int
    fusec: str
    fusion: str
    targets: tuple[str, ...]
    options: Choices = field(default=Choices(), metadata=OMITTED)
    dims: tuple[DimRecord, ...]
    inputs: tuple[InputRecord, ...]
    outputs: tuple[OutputRecord, ...]
    plans: tuple[PlanRecord, ...]
    files: Mapping[str, str]


def as_data(manifest: Manifest) -> dict[str, Any]:
    """Return the manifest as plain data, without a digest."""
    return RECORDS.encode(manifest)


def as_text(data: Mapping[str, Any]) -> str:
    """Return plain data as it is written."""
    return json.dumps(data, indent=2) + "\n"


def signed(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest's data with its digest, which does not depend on how they are laid out."""
    bare = {key: value for key, value in data.items() if key != "digest"}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"))
    return {**bare, "digest": sha256(text.encode()).hexdigest()}


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a compiled folder; FusecError says what is wrong with it."""
    path = folder / MANIFEST
    if not path.is_file():
        raise FusecError(
            f"`{folder}` is not a compiled fusion ({MANIFEST} not found)",
            help="`fusec compile FILE -o DIR` creates one",
        )
    data = _data(path)
    if data["schema_version"] != SCHEMA_VERSION:
        raise FusecError(
            f"`{path}` has schema version {data['schema_version']}, this fusec reads "
            f"{SCHEMA_VERSION}",
            help=AGAIN,
        )
    if "digest" not in data:
        raise FusecError(
            f"`{path}` has no digest: it is damaged or from an earlier fusec", help=AGAIN
        )
    if data != signed(data):
        raise FusecError(f"`{path}` was changed since it was compiled", help=AGAIN)
    del data["digest"]
    try:
        given: tuple[InputRecord, ...] = RECORDS.decode(
            tuple[InputRecord, ...], data.get("inputs"), "inputs"
        )
        scalars = frozenset(i.name for i in given if i.shape is None)
        return RECORDS.decode(Manifest, data, "", scalars)
    except FusecError as error:
        raise damaged(path, error.diagnostic.message) from None


def damaged(path: Path, reason: str) -> FusecError:
    """Return the error about a manifest that cannot be."""
    return FusecError(f"`{path}` is damaged: {reason}", help=AGAIN)


def _data(path: Path) -> dict[str, Any]:
    try:
        data: Any = read_json(path, "a manifest")
    except Undecodable as error:
        raise damaged(path, error.reason) from None
    if not isinstance(data, dict) or "schema_version" not in data:
        raise damaged(path, "it has no schema_version")
    return data  # pyright: ignore[reportUnknownVariableType]
