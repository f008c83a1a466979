"""What the segmenter asks of a scheduler: a price, or a refusal with its rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fusec.index.domain import Refusal
from fusec.ir.graph import Fusion
from fusec.target import Target

__all__ = ["Estimate", "Proposal", "Refusal", "Scheduler"]


@dataclass(frozen=True)
class Estimate:
    """The price of a segment at hint sizes.

    bytes: global memory traffic of inputs and outputs; workspace_bytes: of scratch buffers; flops,
    sfu: ordinary and special-function operations; tensor_flops: on tensor cores; efficiency: the
    part of the memory bandwidth that the family reaches; ctas: blocks in the largest launch;
    kernels: launches, 0 where the outputs are only views or empty.
    """

    bytes: int
    workspace_bytes: int = 0
    flops: float = 0
    sfu: float = 0
    tensor_flops: float = 0
    efficiency: float = 0.9
    ctas: int = 1
    live_registers: int = 32
    kernels: int = 1

    def seconds(self, target: Target) -> float:
        """Return the predicted time on `target`: the slowest resource, plus launches."""
        fill = min(1.0, self.ctas / target.sms) if self.ctas else 1.0
        moved = (self.bytes + self.workspace_bytes) / (target.bandwidth * self.efficiency * fill)
        arithmetic = (self.flops + 8 * self.sfu) / (target.flops / 2 * fill)
        matrix = self.tensor_flops / (target.half_flops * 0.8 * fill)
        return max(moved, arithmetic, matrix) + self.kernels * target.launch


Proposal = Estimate | Refusal


class Scheduler(Protocol):
    """A kernel family's entry: proposals only read; plans are the affair of `fusec.schedule`."""

    @property
    def name(self) -> str:
        """Return the scheduler's name, as nvFuser calls it."""
        ...

    def propose(self, segment: Fusion, target: Target) -> Proposal:
        """Return the price of running `segment` as this scheduler's kernels, or a refusal."""
        ...
