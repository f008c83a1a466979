"""The phases of mbarriers: the warps of a block run against each other, copies finish as late as
possible, and every read must know its copy, every refill must know the reads before it.

What a warp knows are numbers of finished copies and reads; it hands them on by arriving and takes
them over by waiting. Two orders are run: the first warps go ahead, and the last ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .order import WARP

Say = Callable[[str, int, str], None]


@dataclass(frozen=True)
class Step:
    """An event on the way of some threads; `barrier` is the place of an mbarrier."""

    kind: str  # init, wait, arrive, expect, load, begin, end, sync
    line: int
    mask: Any
    barrier: tuple[str, int] | None = None
    value: int | None = None  # arrivals, parity, bytes, or the number of the read that ends
    span: tuple[str, int, int] | None = None  # of shared memory


@dataclass
class Phase:
    """An mbarrier."""

    arrivals: int
    left: int
    number: int = 0
    expected: int = 0
    brought: int = 0  # by copies that were issued
    landed: int = 0
    knows: set[int] = field(default_factory=set[int])
    done: set[int] = field(default_factory=set[int])  # known since the last complete phase
    line: int = 0


@dataclass
class Copy:
    """A copy into shared memory under way."""

    number: int
    barrier: tuple[str, int]
    bytes: int
    line: int


class Race:
    """One run of all warps."""

    def __init__(self, steps: list[Step], threads: int, say: Say) -> None:
        self.say = say
        self.steps = steps
        self.ways: list[list[tuple[int, int]]] = [[] for _ in range(threads // WARP)]
        for i, step in enumerate(steps):
            lanes = step.mask.reshape(-1, WARP).sum(axis=1)
            for warp in np.flatnonzero(lanes):
                self.ways[warp].append((i, int(lanes[warp])))
        self.at = [0] * len(self.ways)
        self.knows: list[set[int]] = [set() for _ in self.ways]
        self.phases: dict[tuple[str, int], Phase] = {}
        self.copies: list[Copy] = []
        self.loads: list[tuple[int, tuple[str, int, int], int]] = []
        self.reads: list[tuple[int, tuple[str, int, int], int]] = []
        self.synced: dict[int, set[int]] = {}
        self.numbers = 0

    def run(self, backwards: bool) -> None:
        """Run all warps to their ends."""
        order = list(range(len(self.ways)))
        if backwards:
            order.reverse()
        while True:
            moved = [self.advance(warp) for warp in order]
            if any(moved):
                continue
            if not self.copies:
                break
            self.land(self.copies.pop(0))
        self.check_end()

    def advance(self, warp: int) -> bool:
        """Run one warp until it waits; return whether it moved."""
        start = self.at[warp]
        while self.at[warp] < len(self.ways[warp]):
            i, lanes = self.ways[warp][self.at[warp]]
            if not self.does(warp, i, self.steps[i], lanes):
                break
            self.at[warp] += 1
        return self.at[warp] > start

    def does(self, warp: int, i: int, step: Step, lanes: int) -> bool:
        """Do one step of a warp; return whether it could."""
        knows = self.knows[warp]
        if step.kind == "sync":
            return self.sync(warp, i, step)
        if step.kind in ("begin", "end"):
            assert step.span is not None
            self.read(knows, step, i * 64 + warp)
            return True
        assert step.barrier is not None
        if step.kind == "init":
            self.phases[step.barrier] = Phase(step.value or 0, step.value or 0, line=step.line)
            return True
        phase = self.phases.get(step.barrier)
        if phase is None:
            self.say("barrier init", step.line, "this mbarrier cannot be initialised")
            phase = self.phases[step.barrier] = Phase(1, 1)
        if step.kind == "wait":
            if phase.number & 1 == step.value:
                return False
            knows |= phase.done
        elif step.kind == "arrive":
            phase.left -= lanes
            phase.expected += step.value or 0
            phase.knows |= knows
            self.complete(step.barrier, phase, step.line)
        elif step.kind == "expect":
            phase.expected += step.value or 0
        else:
            self.load(knows, step, phase)
        return True

    def sync(self, warp: int, i: int, step: Step) -> bool:
        """Meet the other warps of a barrier."""
        met = self.synced.setdefault(i, set())
        met.add(warp)
        warps = set(np.flatnonzero(step.mask.reshape(-1, WARP).any(axis=1)).tolist())
        if met != warps:
            return False
        union = set().union(*(self.knows[w] for w in warps))
        for other in warps:
            self.knows[other] |= union
            if other != warp:
                self.at[other] += 1
        return True

    def load(self, knows: set[int], step: Step, phase: Phase) -> None:
        """Issue a copy: what it overwrites has been read, and is known to be."""
        assert step.span is not None
        assert step.barrier is not None
        for number, span, line in [*self.reads, *self.loads]:
            if meets(span, step.span) and number not in knows:
                self.say(
                    "refill",
                    step.line,
                    f"fills what line {line} uses, without having waited for those who use it",
                )
        self.numbers -= 1
        self.loads.append((self.numbers, step.span, step.line))
        phase.brought += step.value or 0
        self.copies.append(Copy(self.numbers, step.barrier, step.value or 0, step.line))

    def read(self, knows: set[int], step: Step, number: int) -> None:
        """Begin or end reading a span."""
        assert step.span is not None
        for load, span, line in self.loads:
            if meets(span, step.span) and load not in knows:
                self.say(
                    "copy wait",
                    step.line,
                    f"uses what the copy of line {line} fills, without having waited for it",
                )
        if step.kind == "begin":
            self.reads.append((number, step.span, step.line))
        else:
            first = step.value or 0
            knows.add(first * 64 + number % 64)

    def land(self, copy: Copy) -> None:
        """Finish a copy."""
        phase = self.phases[copy.barrier]
        phase.landed += copy.bytes
        phase.knows.add(copy.number)
        self.complete(copy.barrier, phase, copy.line)

    def complete(self, barrier: tuple[str, int], phase: Phase, line: int) -> None:
        """Go on to the next phase when all arrivals and bytes are in."""
        if phase.left < 0:
            self.say(
                "arrivals",
                line,
                f"more arrivals in a phase than the {phase.arrivals} of line {phase.line}",
            )
            phase.left = 0
        if phase.left or phase.landed < phase.expected:
            return
        if phase.brought != phase.expected:
            self.say(
                "bytes",
                line,
                f"a phase ends with {phase.brought} bytes, {phase.expected} were announced",
            )
        phase.number += 1
        phase.left = phase.arrivals
        phase.expected = phase.brought = phase.landed = 0
        phase.done = set(phase.knows)

    def check_end(self) -> None:
        """Report a warp that waits for ever, and a copy that nobody waited for."""
        for warp, way in enumerate(self.ways):
            if self.at[warp] < len(way):
                step = self.steps[way[self.at[warp]][0]]
                phase = self.phases.get(step.barrier) if step.barrier else None
                if phase is None:
                    continue
                self.say(
                    "waits for ever",
                    step.line,
                    f"phase {phase.number} of the mbarrier: {phase.arrivals - phase.left} of"
                    f" {phase.arrivals} arrivals, {phase.landed} of {phase.expected} bytes;"
                    f" the wait is for parity {step.value}",
                )
                return
        known = set().union(*self.knows)
        for number, _, line in self.loads:
            if number not in known:
                self.say("copy wait", line, "the block ends without having waited for this copy")


def meets(a: tuple[str, int, int], b: tuple[str, int, int]) -> bool:
    """Return whether two spans of shared memory have a byte in common."""
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]


def check_phases(steps: list[Step], threads: int, say: Say) -> None:
    """Report what goes wrong in either order of the warps."""
    if not any(step.kind in ("wait", "arrive", "load") for step in steps):
        return
    for backwards in (False, True):
        found: list[bool] = []

        def once(rule: str, line: int, message: str, found: list[bool] = found) -> None:
            found.append(True)
            say(rule, line, message)

        Race(steps, threads, once).run(backwards)
        if found:
            return
