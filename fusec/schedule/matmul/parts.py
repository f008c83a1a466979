"""Lower bounds on the time of a GEMM that is split along K into separate kernels."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.ir.dtype import F32
from fusec.ir.graph import Fusion, Node, Value
from fusec.schedule.matmul.problem import Product
from fusec.segment.protocol import Estimate
from fusec.segment.traffic import elements
from fusec.target import Target


@dataclass(frozen=True)
class InParts:
    """A GEMM to split along K.

    segment: that of its node; is_fed: whether bulk copies or a stream can feed its kernels; alone:
    whether no other kernel can add the partial sums.
    """

    node: Node
    segment: Fusion
    product: Product
    is_fed: bool
    alone: bool

    def least_seconds(self, parts: int, target: Target) -> float:
        """Return a lower bound on the time of kernels that compute the parts and add them."""
        return self._multiplying(target) + self._adding(parts, target)

    def _multiplying(self, target: Target) -> float:
        """Computed operands, except casts, need a preceding kernel."""
        hints, taken, read = self.segment.hints, target.launch, 0
        operands = self.product.a, self.product.b
        for value, operand in zip(self.node.inputs, operands, strict=True):
            source, stored = _source(self.segment, value)
            read += stored
            if source not in self.segment.input_of:
                given = elements(operand.buffer, hints) * operand.buffer.dtype.size
                moved = Estimate(
                    bytes=given + stored, written=stored, efficiency=1, ctas=target.sms
                )
                taken += moved.seconds(target)
        cost = target.cost
        taken += cost.bulk_gemm_start_seconds if self.is_fed else cost.gemm_start_seconds
        products = 2.0 * elements(self.node.output, hints) * self.product.k.evaluate(hints)
        reading = read / (target.bandwidth * cost.gemm_memory_reach)
        return taken + max(reading, products / (target.half_flops * cost.gemm_tensor_reach))

    def _adding(self, parts: int, target: Target) -> float:
        """The consumer reads at least two parts, from L2."""
        results = elements(self.node.output, self.segment.hints)
        if not self.alone:
            return 2 * results * F32.size / target.l2_bandwidth
        best = max(rate for rates in target.rates.values() for rate in rates.values())
        written = results * self.node.output.dtype.size
        read = parts * results * F32.size
        least = Estimate(bytes=read + written, written=written, efficiency=best, ctas=target.sms)
        return least.seconds(target)


def _source(segment: Fusion, value: Value) -> tuple[Value, int]:
    """Return the source of a value through movement and casts, and a lower bound on its bytes."""
    fewest = elements(value, segment.hints) * value.dtype.size
    while (node := segment.producer.get(value)) is not None and len(node.inputs) == 1:
        if not node.op.converts and node.op.access is None:
            break
        (value,) = node.inputs
        fewest = min(fewest, elements(value, segment.hints) * value.dtype.size)
    return value, fewest
