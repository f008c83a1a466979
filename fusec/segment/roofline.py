"""Fractions of the hardware limits: peak bandwidth, and peak tensor-core throughput."""

from __future__ import annotations

from math import prod

from fusec.dataclasses import dataclass
from fusec.ir.dim import dim
from fusec.ir.dtype import F32, DType
from fusec.ir.graph import Fusion, Node, Value
from fusec.ops.matmul.tensor_cores import tf32
from fusec.segment.floor import floor_bytes
from fusec.segment.loops import loops
from fusec.segment.segmented import Segment, SegmentedFusion


@dataclass(frozen=True)
class Rates:
    """Peak rates of a GPU: bytes, and operations on tensor cores (0: unknown), per second."""

    bandwidth: float
    tensor: float = 0.0


@dataclass(frozen=True)
class Roofline:
    """The least work of any kernels for some nodes: bytes to move, operations for tensor cores.

    tensor_flops: TF32 operations count twice, since they take twice as long as 16-bit ones, and
    8-bit operations half. l2_bytes: the part of the bytes that stays in L2 and does not reach DRAM.
    """

    compulsory_bytes: int
    tensor_flops: int = 0
    l2_bytes: int = 0

    def share(self, seconds: float, rates: Rates) -> float:
        """Return the fraction of `seconds` that the compulsory traffic takes at peak bandwidth.

        Bytes that stay in L2 are excluded. At most 1 for a prediction; a measured time can exceed
        it if its operands are in L2.
        """
        bytes = self.compulsory_bytes - self.l2_bytes
        return bytes / (rates.bandwidth * seconds) if seconds else 0.0

    def tensor_share(self, seconds: float, rates: Rates) -> float:
        """Return the fraction of `seconds` that the GEMMs take at the full rate of tensor cores."""
        return self.tensor_flops / (rates.tensor * seconds) if seconds and rates.tensor else 0.0


def of_segment(segment: Segment, left_in_l2: int = 0) -> Roofline:
    """Return the least work of any kernels for a segment's operations, at hint sizes."""
    moved = 0 if segment.estimate is None else segment.estimate.bytes
    fewest = min(floor_bytes(segment.fusion), moved)
    return Roofline(fewest, _needed_flops(segment), min(fewest, left_in_l2))


def of_fusion(segmented: SegmentedFusion) -> Roofline:
    """Return the least work of any kernels for a whole fusion, at hint sizes."""
    fusion = segmented.fusion
    hidden = sum(tensor_flops(s.fusion) - _needed_flops(s) for s in segmented.segments)
    return Roofline(min(floor_bytes(fusion), segmented.bytes), tensor_flops(fusion) - hidden)


def _needed_flops(segment: Segment) -> int:
    """Return the operations of a segment's GEMMs, without those that positional masks hide."""
    seen = 1.0 if segment.estimate is None else segment.estimate.seen
    return round(tensor_flops(segment.fusion) * seen)


def tensor_flops(fusion: Fusion) -> int:
    """Return the operations of the GEMMs that tensor cores can run, at hint sizes."""
    counts, hints = loops(fusion), fusion.hints
    times = ((n, _times(fusion, n)) for n in fusion.nodes if n.op.family == "contraction")
    return round(
        sum(t * _flops(fusion, n) * counts.get(n, dim(1)).evaluate(hints) for n, t in times if t)
    )


def _times(fusion: Fusion, node: Node) -> float:
    """Return the cost of a tensor-core operation relative to 16-bit floats; 0 if not supported."""
    factors = node.inputs[:2]
    stored = [_stored(fusion, v) for v in factors]
    widths = [t.bits for t in stored if t is not None]
    if len(widths) == len(stored):
        return 0.5 if max(widths) <= 8 else 1
    return 2 * all(v.dtype == F32 and is_tf32(fusion, v) for v in factors)


def _stored(fusion: Fusion, value: Value) -> DType | None:
    """Return the float type of 16 bits or fewer from which an operand is cast and moved, if any."""
    found = value.dtype if value.dtype.is_half else None
    while (node := fusion.producer.get(value)) is not None:
        if not (node.op.family == "movement" or node.op.converts):
            break
        value = node.inputs[0]
        if value.dtype.is_half:
            found = value.dtype if found is None or value.dtype.bits < found.bits else found
        elif found is not None:
            break
    return found


def is_tf32(fusion: Fusion, value: Value) -> bool:
    """Return whether an f32 operand is rounded to TF32, possibly followed by movements."""
    while value not in fusion.input_of:
        node = fusion.producer[value]
        if node.op is tf32:
            return True
        if node.op.family != "movement":
            return False
        value = node.inputs[0]
    return False


def _flops(fusion: Fusion, node: Node) -> int:
    left, right = node.operands[0].shape, node.operands[1].shape
    results = node.output.shape
    if len(results) > max(len(left), len(right)):
        # One GEMM for each group of summed elements: together they sum over K once.
        results = results[1:]
    return 2 * prod(e.evaluate(fusion.hints) for e in (*results, left[-1]))
