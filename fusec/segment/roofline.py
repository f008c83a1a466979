"""How near to its limits work runs: to moving the fewest bytes, to multiplying on tensor cores."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from fusec.ir.dim import dim
from fusec.ir.graph import Fusion, Node
from fusec.segment.floor import floor_bytes
from fusec.segment.loops import loops
from fusec.segment.segmented import Segment, SegmentedFusion


@dataclass(frozen=True)
class Rates:
    """What a GPU does at most: bytes, and operations on tensor cores (0: unknown), per second."""

    bandwidth: float
    tensor: float = 0.0


@dataclass(frozen=True)
class Roofline:
    """What any kernels for some nodes must do: bytes to move, operations for tensor cores."""

    fewest_bytes: int
    tensor_flops: int = 0

    def share(self, seconds: float, rates: Rates) -> float:
        """Return which part of `seconds` moving the fewest bytes takes at the full bandwidth."""
        return self.fewest_bytes / (rates.bandwidth * seconds) if seconds else 0.0

    def tensor_share(self, seconds: float, rates: Rates) -> float:
        """Return which part of `seconds` the products take at the full rate of tensor cores."""
        return self.tensor_flops / (rates.tensor * seconds) if seconds and rates.tensor else 0.0


def of_segment(segment: Segment) -> Roofline:
    """Return what any kernels for a segment's operations must do, at hint sizes."""
    moved = 0 if segment.estimate is None else segment.estimate.bytes
    return Roofline(min(floor_bytes(segment.fusion), moved), tensor_flops(segment.fusion))


def of_fusion(segmented: SegmentedFusion) -> Roofline:
    """Return what any kernels for a whole fusion must do, at hint sizes."""
    fusion = segmented.fusion
    return Roofline(min(floor_bytes(fusion), segmented.bytes), tensor_flops(fusion))


def tensor_flops(fusion: Fusion) -> int:
    """Return the operations of the matrix products that tensor cores can do, at hint sizes."""
    counts, hints = loops(fusion), fusion.hints
    products = (n for n in fusion.nodes if _is_for_tensor_cores(n))
    return sum(_flops(fusion, n) * counts.get(n, dim(1)).evaluate(hints) for n in products)


def _is_for_tensor_cores(node: Node) -> bool:
    kinds = (v.dtype for v in node.inputs[:2])
    return node.op.family == "contraction" and all(k.is_float and k.bits <= 16 for k in kinds)


def _flops(fusion: Fusion, node: Node) -> int:
    left, right = node.operands[0].shape, node.operands[1].shape
    results = node.output.shape
    if len(results) > max(len(left), len(right)):
        # One product for each group of summed elements: together they sum over K once.
        results = results[1:]
    return 2 * prod(e.evaluate(fusion.hints) for e in (*results, left[-1]))
