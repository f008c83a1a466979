"""Schedule parameters of attention's backward, and the shared memory layout of its kernels.

Each kernel is a walk: a warpgroup owns 64 rows of one side, keys or queries, and tiles of the other
side are loaded through a ring of stages.
"""

from __future__ import annotations

from typing import ClassVar

from fusec.dataclasses import dataclass, field
from fusec.kernel.sizes import Constants, Listing
from fusec.schedule.attention.backward.problem import Backward
from fusec.schedule.attention.forward.choice import (
    BARRIER,
    AttentionLayout,
    ByWarpgroups,
    in_panels,
)
from fusec.schedule.plan import Kernel
from fusec.schedule.space import Field
from fusec.segment.protocol import Refusal
from fusec.target import Target

_ELEMENT = 2
FEATURES = (64, 96, 128, 256)
"""Features of a query or value for which a thread can hold the accumulators of one side."""
TILES = tuple(range(32, 161, 16))
"""Queries or keys per stage."""
STAGES = (2, 3, 4)
"""A stage is released while the GEMMs of the next one run."""
LIKELY = (
    *((80, 3, 128, 2), (64, 3, 128, 3), (48, 3, 112, 2)),
    *((64, 2, 64, 2), (48, 2, 48, 2), (32, 2, 48, 2)),
)
"""Compared by the cost model: queries and their stages, keys and theirs."""
_OTHER_REGISTERS = {False: 32, True: 64}
"""Registers per thread, besides accumulators, GEMM results and weights, that avoid spills.

More if the weights read memory for each key.
"""


@dataclass(frozen=True)
class Walk:
    """What one kernel owns and accumulates.

    name: the tensor that its results belong to; of_keys: it owns keys, else queries; pulls: it
    accumulates their gradients; shares: it accumulates the gradients of their values.
    """

    name: str
    of_keys: bool
    pulls: bool = True
    shares: bool = False

    def sums(self, features: int, value_features: int) -> int:
        """Return the number of accumulated features per row."""
        return self.pulls * features + self.shares * value_features


OF_QUERIES = Walk("queries", of_keys=False)
TOGETHER = (Walk("keys", of_keys=True, shares=True), OF_QUERIES)
SEPARATE = (
    Walk("keys", of_keys=True),
    Walk("values", of_keys=True, pulls=False, shares=True),
    OF_QUERIES,
)


@dataclass(frozen=True)
class BackwardParameters(ByWarpgroups):
    """The schedule parameters of attention's backward; wide_index: 64-bit addresses."""

    tile_queries: int
    query_stages: int
    tile_keys: int
    key_stages: int
    warpgroups: int = 2
    separate: bool = False
    wide_index: bool = False
    free: ClassVar = (
        Field("tile_queries", TILES, "queries of a stage in the loop over queries"),
        Field("query_stages", STAGES, "stages of queries in flight"),
        Field("tile_keys", TILES, "keys of a stage in the loop over keys"),
        Field("key_stages", STAGES, "stages of keys in flight"),
        Field("warpgroups", (1, 2, 3), "warpgroups that multiply, with 64 rows each"),
        Field(
            "separate",
            (False, True),
            "whether gradients of keys and of values are computed in separate loops",
        ),
    )

    @property
    def walks(self) -> tuple[Walk, ...]:
        """Return the walks, one per kernel."""
        return SEPARATE if self.separate else TOGETHER

    def others(self, *, of_keys: bool) -> int:
        """Return the rows per stage of the kernel that owns keys, or of the other one."""
        return self.tile_queries if of_keys else self.tile_keys

    def stages(self, *, of_keys: bool) -> int:
        """Return the stages of the kernel that owns keys, or of the other one."""
        return self.query_stages if of_keys else self.key_stages


@dataclass(frozen=True)
class WalkKernel(Kernel):
    """The launch of one walk and its shared memory layout.

    query_values: how many per-query values are stored in shared memory.
    """

    walk: Walk = field(kw_only=True)
    query_values: int = field(kw_only=True)
    layout: AttentionLayout = field(kw_only=True)


def walk_layout(
    p: BackwardParameters, features: int, value_features: int, query_values: int, walk: Walk
) -> AttentionLayout:
    """Return the layout: owned rows, stages, per-query values and barriers."""
    listing = Listing(spelled=False)
    size = _lay_out(p, features, value_features, query_values, walk, listing)
    return AttentionLayout(listing.values, size)


def spelled_walk_layout(
    p: BackwardParameters, features: int, value_features: int, query_values: int, walk: Walk
) -> Constants:
    """Return the layout's constants as sums of earlier constants and tile sizes."""
    listing = Listing(spelled=True)
    _lay_out(p, features, value_features, query_values, walk, listing)
    return listing.constants


def _lay_out(
    p: BackwardParameters,
    features: int,
    value_features: int,
    query_values: int,
    walk: Walk,
    listing: Listing,
) -> int:
    """List the layout and return its size in bytes."""
    of_keys = walk.of_keys
    rows = listing.named("kRows", p.rows)
    others = listing.named("kOthers", p.others(of_keys=of_keys))
    stages = listing.named("kStages", p.stages(of_keys=of_keys))
    first = in_panels(listing, "kFeatures", features)
    second = in_panels(listing, "kValueFeatures", value_features)
    listing.add("kOwned", 0, "owned rows")
    follows = "; the second follows" * walk.pulls
    owned = listing.add("kOwnedBytes", rows * first * _ELEMENT, f"first operand{follows}")
    stage_at = owned + rows * second * _ELEMENT if walk.pulls else owned
    at = listing.add("kStage", stage_at, "the first stage")
    meaning = "the first operand of a stage; the second follows"
    first_bytes = listing.add("kFirstBytes", others * first * _ELEMENT, meaning)
    at = at + stages * listing.add(
        "kStageBytes", first_bytes + others * second * _ELEMENT, "a stage"
    )
    if of_keys:
        at = listing.add("kQueryValues", at, "per-query values of each stage")
        if query_values:
            at = at + stages * listing.named("kQueryCount", query_values) * others * 4
    for name, count, meaning in (
        ("kOwnedFull", 1, "barrier: owned rows are loaded"),
        ("kOwnedEmpty", 1, "barrier: owned rows are no longer read"),
        ("kFull", stages, "barriers, one per stage: loads are complete"),
        ("kEmpty", stages, "barriers, one per stage: reads are complete"),
    ):
        at = listing.add(name, at, meaning) + count * BARRIER
    return int(at)


def held_words(p: BackwardParameters, features: int, value_features: int, walk: Walk) -> int:
    """Return the registers per thread of accumulators and of both GEMM results or their weights."""
    return walk.sums(features, value_features) // 2 + p.others(of_keys=walk.of_keys)


def why_illegal(
    p: BackwardParameters, backward: Backward, query_values: int, target: Target, *, reads: bool
) -> Refusal | None:
    """Return the rule that the parameters violate, or None if they are legal."""
    features, values = backward.features.value, backward.value_features.value
    for walk in p.walks:
        held = held_words(p, features, values, walk)
        if held + _OTHER_REGISTERS[reads] > p.consumer_registers:
            because = (
                f"accumulators and weights need {held} registers; a thread has "
                f"{p.consumer_registers}"
            )
            return Refusal("registers", because)
        needed = walk_layout(p, features, values, query_values, walk).bytes
        if needed > target.shared:
            because = f"{needed} bytes of shared memory needed; an SM has {target.shared}"
            return Refusal("shared memory", because)
    return None
