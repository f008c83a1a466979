"""Schedule parameters of decode attention, and its shared memory layout."""

from __future__ import annotations

from typing import ClassVar

from fusec.dataclasses import dataclass, field
from fusec.kernel.sizes import Constants, Listing, Quantity
from fusec.schedule.attention.decode.problem import CHUNK, MOST_ROWS, Decode
from fusec.schedule.plan import Kernel
from fusec.schedule.space import COUNTS, Field, Parameters
from fusec.segment.protocol import Refusal
from fusec.target import Target

TILE_KEYS = (16, 32, 64)
LIKELY = ((16, 8, 2), (16, 4, 3), (16, 4, 2), (16, 2, 2))
"""Keys per tile, warps and stages, tried in this order until shared memory holds them."""
IN_REGISTERS = 128
"""Features of queries that a thread holds with as many accumulators; 256 would spill."""
STREAMED = 6
"""A cache of keys larger than this many times L2 is streamed with evict-first (decision 121)."""
_FLOAT = 4


@dataclass(frozen=True)
class DecodeParameters(Parameters):
    """The schedule parameters of decode attention; wide_index: 64-bit addresses."""

    tile_keys: int
    warps: int
    stages: int
    splits: int = 1
    streaming: bool = True
    vector_width: int = 2
    wide_index: bool = False
    free: ClassVar = (
        Field("tile_keys", TILE_KEYS, "keys that a warp processes at a time"),
        Field("warps", (1, 2, 4, 8), "warps of a block"),
        Field("stages", (2, 3, 4, 6, 8), "tiles of a warp in flight"),
        Field("splits", COUNTS, "blocks that share the same queries"),
        Field("streaming", (False, True), "whether keys and values are evicted from L2 first"),
        Field(
            "vector_width",
            (1, 2),
            "adjacent elements per access of elementwise operations on scores",
        ),
    )

    @property
    def threads(self) -> int:
        """Return the threads of a block."""
        return 32 * self.warps


@dataclass(frozen=True)
class DecodeLayout:
    """The shared memory of a block, in bytes: a tile of keys, and a stage.

    queries: their offset; 0 if they are in registers.
    """

    keys: int
    stage: int
    queries: int
    bytes: int


@dataclass(frozen=True)
class DecodeKernel(Kernel):
    """The launch of decode attention and the layout of its shared memory."""

    layout: DecodeLayout = field(kw_only=True)


def shared_layout(p: DecodeParameters, decode: Decode) -> DecodeLayout:
    """Return the layout: the rings of all warps, reused by their partial results at the end."""
    features = decode.graph.features.value
    keys, stage, rings = map(int, _rings(p, decode, Listing(spelled=False)))
    parts = p.warps * part_floats(decode, CHUNK) * _FLOAT
    if features <= IN_REGISTERS:
        return DecodeLayout(keys, stage, 0, max(rings, parts))
    return DecodeLayout(keys, stage, rings, max(rings + MOST_ROWS * features * 2, parts))


def spelled_layout(p: DecodeParameters, decode: Decode) -> Constants:
    """Return the layout's constants as sums of earlier constants and tile sizes."""
    listing = Listing(spelled=True)
    *_, rings = _rings(p, decode, listing)
    if decode.graph.features.value > IN_REGISTERS:
        listing.add("kQueriesAt", rings, "queries")
    return listing.constants


def _rings(p: DecodeParameters, decode: Decode, listing: Listing) -> tuple[Quantity, ...]:
    """List the bytes of keys and of a stage, and return these and the bytes of the rings."""
    features = listing.named("kFeatures", decode.graph.features.value)
    values = listing.named("kValueFeatures", decode.graph.value_features.value)
    tile = listing.named("kKeys", p.tile_keys)
    key_bytes = tile * (features + CHUNK) * 2
    keys = listing.add("kKeyBytes", key_bytes, "keys of a stage; its values follow")
    stage = listing.add("kStageBytes", keys + tile * (values + CHUNK) * 2, "one stage")
    rings = listing.named("kWarps", p.warps) * listing.named("kStages", p.stages) * stage
    return keys, stage, rings


def part_floats(decode: Decode, padding: int = 0) -> int:
    """Return the floats of a partial result: accumulators and row statistics, in whole vectors."""
    return -(-decode.rows * (decode.graph.value_features.value + padding + 2) // 4) * 4


def why_illegal(p: DecodeParameters, decode: Decode, target: Target) -> Refusal | None:
    """Return the rule that the parameters violate, or None if they are legal."""
    extents = (decode.graph.n, decode.graph.value_features)
    if any(c % p.vector_width for e in extents for _, c in e.terms):
        return Refusal("access", f"{p.vector_width} keys are not divisible by {decode.graph.n}")
    needed = shared_layout(p, decode).bytes
    if needed > target.shared:
        because = f"{needed} bytes of shared memory needed; an SM has {target.shared}"
        return Refusal("shared memory", because)
    return None


def likely_parameters(decode: Decode, target: Target) -> DecodeParameters | None:
    """Return the first of the likely tiles that fits; None where none does."""
    width = 2 if all(c % 2 == 0 for _, c in decode.graph.n.terms) else 1
    tried = (DecodeParameters(k, w, s, vector_width=width) for k, w, s in LIKELY)
    return next((p for p in tried if why_illegal(p, decode, target) is None), None)
