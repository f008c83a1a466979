"""Schedule parameters of an attention kernel, and its shared memory layout."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import ClassVar

from fusec.dataclasses import dataclass, field
from fusec.kernel.sizes import Constants, Listing, Quantity
from fusec.schedule.attention.forward.problem import AttentionGraph
from fusec.schedule.plan import Kernel
from fusec.schedule.space import Field, Parameters
from fusec.segment.protocol import Refusal
from fusec.target import Target

FEATURES = (64, 96, 128, 256)
"""Features of a query or value for which the kernel has tiles."""
TILE_KEYS = tuple(range(64, 177, 16))
LIKELY_KEYS = (176, 128, 80, 64)
"""Those that the cost model compares."""
PANEL = 64
"""16-bit elements in the 128 bytes of a swizzle row."""
WARPGROUP_ROWS = 64
_ELEMENT = 2
BARRIER = 8
"""Bytes of an mbarrier."""
SM_REGISTERS = 512
"""Registers per thread, summed over the warpgroups: 65536 / 128 threads."""
PRODUCER_REGISTERS = {1: 40, 2: 24, 3: 32}


class ByWarpgroups(Parameters):
    """Parameters of CTAs with one producer warpgroup and consumer warpgroups of 64 rows each."""

    warpgroups: int

    @property
    def rows(self) -> int:
        """Return the rows of a tile."""
        return WARPGROUP_ROWS * self.warpgroups

    @property
    def threads(self) -> int:
        """Return the threads of a CTA."""
        return 128 * (self.warpgroups + 1)

    @property
    def producer_registers(self) -> int:
        """Return the registers of a producer thread."""
        return PRODUCER_REGISTERS[self.warpgroups]

    @property
    def consumer_registers(self) -> int:
        """Return the registers of a consumer thread."""
        left = (SM_REGISTERS - self.producer_registers) // self.warpgroups
        return min(240, left // 8 * 8)


@dataclass(frozen=True)
class AttentionParameters(ByWarpgroups):
    """The schedule parameters of an attention; wide_index: 64-bit addresses."""

    tile_keys: int
    stages: int
    warpgroups: int = 2
    ping_pong: bool = False
    vector_width: int = 2
    wide_index: bool = False
    free: ClassVar = (
        Field("tile_keys", TILE_KEYS, "keys of a stage"),
        Field("stages", (1, 2, 3, 4), "stages of keys and values in flight"),
        Field("warpgroups", (1, 2, 3), "warpgroups that multiply, with 64 queries each"),
        Field("ping_pong", (False, True), "whether the warpgroups alternate on the tensor cores"),
        Field(
            "vector_width",
            (1, 2),
            "adjacent elements per access of elementwise operations on scores",
        ),
    )


def compared(vector_width: int) -> Iterator[AttentionParameters]:
    """Yield the tiles, warpgroups and stages that are compared by predicted time."""
    for keys, warpgroups, stages in product(LIKELY_KEYS, (2, 3, 1), (2, 1)):
        yield AttentionParameters(keys, stages, warpgroups, vector_width=vector_width)


@dataclass(frozen=True)
class AttentionLayout:
    """Constants of the kernel: name, value in bytes, meaning; bytes: total shared memory."""

    constants: tuple[tuple[str, int, str], ...]
    bytes: int


@dataclass(frozen=True)
class AttentionKernel(Kernel):
    """The launch of an attention and the layout of its shared memory."""

    layout: AttentionLayout = field(kw_only=True)


def padded(features: int) -> int:
    """Return the features of a tile, padded to whole panels."""
    return -(-features // PANEL) * PANEL


def shared_layout(p: AttentionParameters, features: int, value_features: int) -> AttentionLayout:
    """Return the layout: queries, stages of keys and values, and barriers."""
    listing = Listing(spelled=False)
    size = _lay_out(p, features, value_features, listing)
    return AttentionLayout(listing.values, size)


def spelled_layout(p: AttentionParameters, features: int, value_features: int) -> Constants:
    """Return the layout's constants as sums of earlier constants and tile sizes."""
    listing = Listing(spelled=True)
    _lay_out(p, features, value_features, listing)
    return listing.constants


def in_panels(listing: Listing, name: str, features: int) -> Quantity:
    """Return the features of a tile's row, padded to whole panels."""
    whole = padded(features)
    return listing.named(name, features) if whole == features else whole


def _lay_out(p: AttentionParameters, features: int, value_features: int, listing: Listing) -> int:
    """List the layout and return its size in bytes."""
    row = in_panels(listing, "kFeatures", features)
    value_row = in_panels(listing, "kValueFeatures", value_features)
    keys, stages = listing.named("kKeys", p.tile_keys), listing.named("kStages", p.stages)
    queries = listing.named("kRows", p.rows) * row * _ELEMENT
    listing.add("kQueries", 0, "queries of a tile")
    first = listing.add("kStage", queries, "the first stage")
    key_bytes = listing.add(
        "kKeyBytes", keys * row * _ELEMENT, "keys of a stage; its values follow"
    )
    stage = listing.add("kStageBytes", key_bytes + keys * value_row * _ELEMENT, "one stage")
    at = first + stages * stage
    for name, count, meaning in (
        ("kQueriesFull", 1, "barrier: queries are loaded"),
        ("kQueriesEmpty", 1, "barrier: queries are no longer read"),
        ("kKeysFull", stages, "barriers, one per stage: keys are loaded"),
        ("kKeysEmpty", stages, "barriers, one per stage: keys are no longer read"),
        ("kValuesFull", stages, "barriers, one per stage: values are loaded"),
        ("kValuesEmpty", stages, "barriers, one per stage: values are no longer read"),
    ):
        at = listing.add(name, at, meaning) + count * BARRIER
    return int(at)


def why_illegal(
    p: AttentionParameters, attention: AttentionGraph, target: Target
) -> Refusal | None:
    """Return the rule that the parameters violate, or None if they are legal."""
    features, values = attention.features.value, attention.value_features.value
    held = values // 2 + p.tile_keys // 2 + p.tile_keys // 4
    if held + 40 > p.consumer_registers:
        because = (
            f"accumulators and scores need {held} registers; a thread has {p.consumer_registers}"
        )
        return Refusal("registers", because)
    if p.ping_pong and p.warpgroups == 1:
        return Refusal("ping_pong", "ping-pong needs at least two warpgroups")
    extents = (attention.n, attention.value_features)
    if any(c % p.vector_width for e in extents for _, c in e.terms):
        return Refusal("access", f"{p.vector_width} keys are not divisible by {attention.n}")
    needed = shared_layout(p, features, values).bytes
    if needed > target.shared:
        because = f"{needed} bytes of shared memory needed; an SM has {target.shared}"
        return Refusal("shared memory", because)
    return None
