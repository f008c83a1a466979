"""Simulates a loop over slices: serial kernels, with communication overlapped."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from fusec.dataclasses import dataclass
from fusec.diagnostics import InternalError
from fusec.hostir.launch_groups import ring
from fusec.ops.communication import SEND_SLICE
from fusec.segment.segmented import Segment
from fusec.target import Target


@dataclass(frozen=True)
class Stage:
    """A communication operation in each iteration of a loop.

    seconds: of the links, for one slice; latency: of the flags around its copy, which a stream
    waits for one after the other. slows: the seconds that kernels lose per iteration to its memory
    traffic. ranks, pieces: for communication with one peer at a time, as in its operation; 1 for
    others. crowding, serial: as of `Link`.
    """

    seconds: float
    latency: float
    slows: float
    sends: bool
    ranks: int = 1
    pieces: int = 1
    crowding: float = 0.0
    serial: float = 0.0

    @classmethod
    def of(cls, segment: Segment, target: Target) -> Stage:
        """Return the stage of a segment in its loop."""
        node, estimate = segment.nodes[0], segment.estimate
        assert estimate is not None
        latency = estimate.latency(target)
        seconds = estimate.seconds(target) - latency
        slows = target.contention * estimate.bytes / target.bandwidth
        if ring(node) is None:
            return cls(seconds, latency, slows, sends=False)
        ranks, pieces = node.attributes["ranks"], node.attributes["pieces"]
        # The estimate is the mean over all iterations; a rank does not transfer its own slice.
        others = ranks / (ranks - 1) if ranks > 1 else 0.0
        sends, link = node.op is SEND_SLICE, target.links[estimate.exchange]
        seconds *= others
        return cls(seconds, latency, slows, sends, ranks, pieces, link.crowding, link.serial)

    def peer(self, index: int, *, own_first: bool) -> int | None:
        """Return the peer of an iteration, None for the rank's own slice."""
        if self.ranks == 1:
            return 0
        at = index // self.pieces
        return None if at == (0 if own_first else self.ranks - 1) else at


@dataclass
class _Copy:
    """A slice of an iteration in transfer from or to another rank.

    number: of its stage. left: the seconds of the links that it still needs; begins: when its
    transfer begins, None while unknown.
    """

    stage: Stage
    number: int
    index: int
    left: float
    begins: float | None = None


def pipeline_seconds(
    count: int, kernel: float, launch: float, stages: Sequence[Stage], streams: int
) -> float:
    """Return when the last of `count` iterations is done.

    kernel: seconds that an iteration computes, including `launch` before its first block runs,
    which kernels of other streams hide. Ranks start with their own slices where they receive some,
    and end with them where they only send. An iteration starts when the previous one on its stream
    is over. Copies to one rank are serial; those to several share the links.
    """
    return _Loop(count, kernel, launch, stages, streams).end()


class _Loop:
    """The iterations so far: when each kernel has ended, and each slice arrived."""

    def __init__(
        self, count: int, kernel: float, launch: float, stages: Sequence[Stage], streams: int
    ) -> None:
        self.count, self.kernel, self.launch, self.streams = count, kernel, launch, streams
        self.computed = list[float]()
        self.stages = stages
        self.receives = any(not s.sends for s in stages)
        # By iteration and number of a stage: the arrival time of the slice, None before.
        self.exchanged: list[dict[int, float | None]] = [{} for _ in range(count)]
        queues: dict[tuple[int, int], deque[_Copy]] = {}
        for number, stage in enumerate(stages):
            for index in range(count):
                peer = stage.peer(index, own_first=self.receives)
                if peer is not None:
                    queue = queues.setdefault((number, peer), deque())
                    queue.append(_Copy(stage, number, index, stage.seconds))
                    self.exchanged[index][number] = None
        self.queues = [*queues.values()]
        self.free = [0.0] * len(self.queues)
        self.flagged = 0.0

    def end(self) -> float:
        """Return when all iterations are over."""
        now = 0.0
        while True:
            self._compute()
            heads = dict(self._heads())
            if not heads:
                break
            later = [b for c in heads.values() if (b := c.begins) is not None and b > now]
            active = {k: c for k, c in heads.items() if c.begins is not None and c.begins <= now}
            if not active:
                now = min(later)
                continue
            crowding = max(c.stage.crowding for c in active.values())
            slower = len(active) * (1 + crowding * (len(active) - 1))
            shortest = min(c.left for c in active.values())
            step = min(slower * shortest, *(b - now for b in later), float("inf"))
            now += step
            for queue, copy in active.items():
                arrives = slower * copy.left <= step
                copy.left -= step / slower
                if arrives:
                    self.exchanged[copy.index][copy.number] = self.free[queue] = now
                    self.queues[queue].popleft()
        over = [self._over(index) for index in range(self.count)]
        ends = [end for end in over if end is not None]
        if len(ends) < self.count:
            raise InternalError("iterations of a loop wait for one another")
        return max(ends)

    def _compute(self) -> None:
        """Run the kernels whose dependences are complete."""
        while (index := len(self.computed)) < self.count:
            arrivals = self.exchanged[index].items()
            waits = [t for number, t in arrivals if not self.stages[number].sends]
            # Kernels of a loop that only sends have their own stream.
            begun = self._begun(index) if self.receives else 0.0
            known = [t for t in (begun, *waits) if t is not None]
            if len(known) <= len(waits):
                return
            last = self.computed[-1] if self.computed else 0.0
            self.computed.append(max(last - self.launch, *known) + self.kernel)

    def _heads(self) -> Iterator[tuple[int, _Copy]]:
        """Yield the first copy of each queue, by its number, whose start time is known.

        Flags of several copies are handled partly serially, except at the start.
        """
        first = [(number, queue[0]) for number, queue in enumerate(self.queues) if queue]
        ready = [
            (max(at, self.free[number]), number, copy)
            for number, copy in first
            if copy.begins is None and (at := self._ready(copy)) is not None
        ]
        for at, _, copy in sorted(ready, key=lambda found: found[:2]):
            serial = copy.stage.serial if at else 0.0
            self.flagged = max(at, self.flagged) + serial
            copy.begins = self.flagged + copy.stage.latency - serial
        yield from ((number, copy) for number, copy in first if copy.begins is not None)

    def _ready(self, copy: _Copy) -> float | None:
        """Return when a copy's stream reaches it, None while unknown."""
        begun = self._begun(copy.index)
        if not copy.stage.sends or begun is None:
            return begun
        made = self.computed[copy.index] if copy.index < len(self.computed) else None
        return None if made is None else max(begun, made)

    def _begun(self, index: int) -> float | None:
        """Return when the last iteration on the stream of this one is over."""
        return 0.0 if index < self.streams else self._over(index - self.streams)

    def _over(self, index: int) -> float | None:
        """Return when an iteration is over, None while unknown."""
        if index >= len(self.computed):
            return None
        ends = [self.computed[index]]
        for arrived in self.exchanged[index].values():
            if arrived is None:
                return None
            ends.append(arrived)
        return max(ends)
