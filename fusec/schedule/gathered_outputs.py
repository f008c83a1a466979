"""Outputs that NCCL gathers from three or more ranks into the caller's memory."""

from __future__ import annotations

from fusec.dataclasses import replace
from fusec.ops.communication import ALL_GATHER
from fusec.segment.segmented import Segment, SegmentedFusion, tensor_bytes
from fusec.target import Target

GATHERED_OUTPUT = "gathered_output"
"""The kind of this collective in a target's `links` and in its choice of carrier."""
NCCL_GATHERS = 8 << 20
"""Bytes of an output from which NCCL gathers it from three or more ranks.

On four H200 it takes 59, 79, 337 and 650 us for 11, 22, 134 and 268 MB; copy engines take 77, 121,
567 and 1088 us (2026-11).
"""


def is_gathered_by_nccl(kind: str, ranks: int, size: int) -> bool:
    """Return whether NCCL gathers an output of `size` bytes into all ranks."""
    return kind == ALL_GATHER.name and ranks > 2 and size >= NCCL_GATHERS


def with_gathered_outputs(segmented: SegmentedFusion, target: Target) -> SegmentedFusion:
    """Return segments with the estimates of outputs that NCCL gathers."""
    if GATHERED_OUTPUT not in target.links:
        return segmented
    final = {o.value for o in segmented.fusion.outputs}

    def estimated(segment: Segment) -> Segment:
        estimate, node = segment.estimate, segment.nodes[0] if segment.nodes else None
        if (
            estimate is None
            or node is None
            or node.op is not ALL_GATHER
            or node.output not in final
        ):
            return segment
        size = tensor_bytes(node.output, segmented.fusion.hints)
        if not is_gathered_by_nccl(node.op.name, node.attributes["ranks"], size):
            return segment
        return replace(segment, estimate=replace(estimate, exchange=GATHERED_OUTPUT))

    return replace(segmented, segments=tuple(map(estimated, segmented.segments)))
