"""The answer to a query as records, whose fields are the keys of its JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fusec.dataclasses import asdict, dataclass, field

SCHEMA = 2
"""Incremented when a key changes its meaning or is removed; docs/query.md describes every key."""


@dataclass(frozen=True)
class Operation:
    """A node of a segment by the names of its operands and results; `text` is its line."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Refused:
    """A scheduler that rejects a segment, and why.

    near: whether it supports this kind of segment, and a property of this one forbids it.
    """

    scheduler: str
    rule: str
    reason: str
    near: bool


@dataclass(frozen=True)
class LevelFacts:
    """Instructions of one trip of a loop, excluding nested loops; the first level is the kernel.

    loop: its variable, or its function; depth: number of surrounding loops; trips: average over
    threads, each time that it is reached, null if data-dependent; expression: the same in the
    constants of the kernel; per_trip: by class.
    """

    loop: str
    depth: int
    trips: float | None
    expression: str
    per_trip: Mapping[str, float]


@dataclass(frozen=True)
class InstructionFacts:
    """Instructions of a thread that takes every branch, counted in the nodes of a kernel.

    not_counted: the device functions that are not included.
    """

    per_thread: Mapping[str, float]
    levels: tuple[LevelFacts, ...]
    not_counted: tuple[str, ...]


@dataclass(frozen=True)
class KernelFacts:
    """A kernel of a segment, with its occupancy in CTAs per SM, predicted from its plan.

    registers: per thread; spills: whether it needs more than its launch bounds allow.
    built_registers: the compiler's allocation, instructions: the executed ones; both only on
    request.
    """

    name: str
    threads: int
    registers: int
    spills: bool
    shared_bytes: int
    resident_blocks: int
    built_registers: int | None = None
    instructions: InstructionFacts | None = None


@dataclass(frozen=True)
class Overridden:
    """A field of a schedule that the user sets; place: where, as `file:line`."""

    field: str
    value: bool | int | str
    place: str


@dataclass(frozen=True)
class Measured:
    """The measurement that a schedule is taken from; source: its file; exact: of these sizes.

    reordered: the sums that it adds in another order than the schedule of the cost model.
    """

    source: str
    exact: bool
    sizes: str
    us: float
    device: str
    date: str
    reordered: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exchange:
    """Communication of ranks along an axis of the mesh; each sends `sent_bytes` over its links.

    reduction: of the kinds that reduce, else empty. carrier: the transport between GPUs of one host
    with peer access, with the reason.
    """

    kind: str
    axis: str
    ranks: int
    reduction: str
    sent_bytes: int
    carrier: str
    carrier_because: str


@dataclass(frozen=True)
class SumOrder:
    """The order in which a kernel adds a sum.

    rounded: the 16-bit type of partial sums, or empty; arrives: whether blocks add in arrival
    order, so that bits vary from run to run.
    """

    value: str
    order: str
    rounded: str
    arrives: bool


@dataclass(frozen=True)
class Specialised:
    """A dim that is specialized in a segment's kernels.

    rule: `reduced`, `inner`, `argument` or `scheduler`, with `because`, the values that require it;
    way_out: how to keep it dynamic, or compile for more sizes.
    """

    dim: str
    size: int
    rule: str
    because: str
    way_out: str


@dataclass(frozen=True)
class SegmentFacts:
    """A segment with its predicted cost; `time` holds the seconds of each resource used alone.

    iterations: how often it runs; bytes and seconds are the sums over all. host: how the host runs
    it without kernels, if it does. module: of an imported model, that of its GEMM or of most of its
    operations.
    """

    id: int
    name: str
    scheduler: str
    pin: str | None
    nodes: tuple[Operation, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bytes: int
    floor_bytes: int
    l2_bytes: int
    workspace_bytes: int
    seconds: float
    time: Mapping[str, float]
    bound: str
    share: float
    tensor_share: float
    ctas: int
    efficiency: float
    kernels: int
    occupancy: tuple[KernelFacts, ...]
    refusals: tuple[Refused, ...]
    why: str
    orders: tuple[SumOrder, ...] = ()
    overrides: tuple[Overridden, ...] = ()
    chosen: str = "priced"
    tuned: Measured | None = None
    iterations: int = 1
    exchange: Exchange | None = None
    specialised: tuple[Specialised, ...] = ()
    host: str = ""
    module: str = ""


@dataclass(frozen=True)
class Crossing:
    """A tensor in global memory between segments: written once, read by each consumer."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    producer: int
    consumers: tuple[int, ...]
    is_output: bool
    bytes: int
    bytes_expr: str


@dataclass(frozen=True)
class Recomputed:
    """A value that segments compute again instead of reading it."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    segments: tuple[int, ...]
    saved_bytes: int
    because: str


@dataclass(frozen=True)
class Saved:
    """A tensor that one phase of a joint graph saves for a later one.

    role: `output` if this phase writes it, `input` if it was saved for this phase.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    role: str
    bytes: int
    bytes_expr: str


@dataclass(frozen=True)
class Taken:
    """A decision: what was done to which values or segments, and why.

    refusals: if the decision is that no scheduler supports the group; `because` is the same as
    text.
    """

    action: str
    subject: tuple[str, ...]
    because: str
    refusals: tuple[Refused, ...] = ()


@dataclass(frozen=True)
class ModuleFacts:
    """A module of an imported model: segments in it and in its submodules, and their totals."""

    module: str
    segments: tuple[int, ...]
    seconds: float
    bytes: int
    floor_bytes: int


@dataclass(frozen=True)
class Break:
    """Two segments of a model that are not fused.

    tensors: those between them; bytes and seconds: the most that one kernel would save; fix: what
    the author of the model can do, empty if unknown.
    """

    producer: str
    consumer: str
    producer_module: str
    consumer_module: str
    tensors: tuple[str, ...]
    bytes: int
    seconds: float
    because: tuple[str, ...]
    fix: str


@dataclass(frozen=True)
class ChosenSegment:
    """A segment in a choice, with its scheduler."""

    scheduler: str
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    """Sizes of a dim, `first` to `last`, with the same segments and schedulers.

    refused: why there are no segments at these sizes. seconds: predicted at both ends.
    """

    dim: str
    first: int
    last: int
    segments: tuple[ChosenSegment, ...]
    refused: str | None
    seconds: tuple[float, float] | None


@dataclass(frozen=True)
class Exact:
    """The gap between the bytes and the least possible: none moves less than `lower_bytes`.

    compulsory_bytes: of the best known segmentation, `segments` by the names of its values; proven:
    whether that is optimal. gap: the fraction of the bytes that might be saved.
    """

    compulsory_bytes: int
    lower_bytes: int
    proven: bool
    gap: float
    method: str
    segments: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Segmentation:
    """The answer to a query; its keys are those of its JSON."""

    schema: int
    fusion: str
    target: Mapping[str, str]
    mesh: Mapping[str, int]
    sizes: Mapping[str, int]
    aliases: Mapping[str, str]
    segments: tuple[SegmentFacts, ...]
    crossing: tuple[Crossing, ...]
    rematerialised: tuple[Recomputed, ...]
    saved: tuple[Saved, ...]
    saved_bytes: int
    bytes: int
    floor_bytes: int
    peak_bytes: int
    seconds: float
    share: float
    tensor_share: float
    decisions: tuple[Taken, ...]
    choices: tuple[Choice, ...] = ()
    exact: Exact | None = None
    modules: tuple[ModuleFacts, ...] = ()
    breaks: tuple[Break, ...] = ()
    summation: Mapping[str, str] = field(default_factory=dict[str, str])

    def as_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers."""
        plain: dict[str, Any] = json.loads(self.json())
        return plain

    def json(self) -> str:
        """Return the JSON text."""
        return json.dumps(asdict(self), indent=2)
