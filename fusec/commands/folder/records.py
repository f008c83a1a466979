"""The records of a manifest, and the only code that reads and writes them.

A manifest contains its own digest, so damage and manual edits are detected. The digest does not
authenticate the manifest: before running, its plans are compared with a plan of the folder's own
fusion.
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
    """The options of a compilation that plans depend on; options at their defaults are omitted."""

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
    """A dim: the size that it was planned for, and its known divisor."""

    name: str
    default: int
    multiple_of: int


@dataclass(frozen=True)
class InputRecord:
    """An input of the fusion; neither shape nor strides for a scalar.

    generator: the random generator state that is passed in it, if any.
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
    """A kernel: its source, the common properties of its launches, and its builds by target."""

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
    """The plan that targets with the same kernels run.

    sizes: those it was made for, of the dims for which the manifest has other plans. Of the plans
    for a target whose guards hold, the one with the nearest sizes runs.
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
    """A whole manifest, except for its digest."""

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
    """Return the JSON text of plain data."""
    return json.dumps(data, indent=2) + "\n"


def signed(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest's data with its digest, which does not depend on their layout."""
    bare = {key: value for key, value in data.items() if key != "digest"}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"))
    return {**bare, "digest": sha256(text.encode()).hexdigest()}


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a compiled folder; FusecError describes what is wrong with it."""
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
    """Return the error for an invalid manifest."""
    return FusecError(f"`{path}` is damaged: {reason}", help=AGAIN)


def _data(path: Path) -> dict[str, Any]:
    try:
        data: Any = read_json(path, "a manifest")
    except Undecodable as error:
        raise damaged(path, error.reason) from None
    if not isinstance(data, dict) or "schema_version" not in data:
        raise damaged(path, "it has no schema_version")
    return data  # pyright: ignore[reportUnknownVariableType]
