"""The order of tasks in which the least memory is in use at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

MOST = 20_000
"""Steps of the search for the best order, at most: a tenth of a second; then a simple one."""


@dataclass(frozen=True)
class Task:
    """Work in a program; what it needs is by numbers.

    after: the tasks before it. uses: the memory that it works with. extra: bytes that only it uses.
    """

    after: frozenset[int]
    uses: frozenset[int]
    extra: int = 0


@dataclass(frozen=True)
class Order:
    """An order of tasks and the bytes in use at once at most; least: no order has less."""

    tasks: tuple[int, ...]
    peak: int
    least: int


@dataclass(frozen=True)
class _State:
    """What is done, as a set of bits; the bytes in use after it, and at most so far."""

    peak: int
    live: int
    done: int
    tasks: tuple[int, ...]


class Sequencer:
    """Searches orders of tasks; each memory is in use from its first task to its last one."""

    def __init__(self, tasks: Sequence[Task], sizes: Sequence[int]) -> None:
        """Count who uses what."""
        self.tasks, self.sizes = tasks, sizes
        self.needs = [_bits(t.after) for t in tasks]
        self.users = [0] * len(sizes)
        for k, task in enumerate(tasks):
            for memory in task.uses:
                self.users[memory] |= 1 << k
        self.all = (1 << len(tasks)) - 1

    def peak(self, order: Sequence[int]) -> int:
        """Return the bytes in use at once at most in an order."""
        state = _State(0, 0, 0, ())
        for task in order:
            state = self._step(state, task)
        return state.peak

    def least(self, task: int) -> int:
        """Return the bytes that a task itself needs, in whatever order."""
        own = self.tasks[task]
        return sum(self.sizes[m] for m in own.uses) + own.extra

    def best(self, most: int = MOST) -> Order:
        """Return an order with the least peak, tasks early that are early as they are given.

        The states with the least peak come first, so the first that is complete is the best. A task
        that takes no more than was in use already, and leaves no more, is done at once: whatever
        order follows stays possible with no more memory.
        """
        heap: list[tuple[int, int, tuple[int, ...], _State]] = []
        seen, steps = set[int](), 0
        start = _State(0, 0, 0, ())
        heappush(heap, (0, 0, (), start))
        while heap and steps < most:
            state = self._freely(heappop(heap)[-1])
            if state.done == self.all:
                return Order(state.tasks, state.peak, state.peak)
            if state.done in seen:
                continue
            seen.add(state.done)
            for task in self._ready(state):
                steps += 1
                after = self._step(state, task)
                heappush(heap, (after.peak, -len(after.tasks), after.tasks, after))
        found = self._greedily(start)
        return Order(found.tasks, found.peak, heap[0][0] if heap else found.peak)

    def _ready(self, state: _State) -> list[int]:
        done = state.done
        return [k for k, n in enumerate(self.needs) if not done >> k & 1 and n & ~done == 0]

    def _step(self, state: _State, task: int) -> _State:
        """Return the state after one more task."""
        done = state.done | 1 << task
        uses = self.tasks[task].uses
        new = sum(self.sizes[m] for m in uses if not self.users[m] & state.done)
        over = sum(self.sizes[m] for m in uses if not self.users[m] & ~done)
        during = state.live + new + self.tasks[task].extra
        live = state.live + new - over
        return _State(max(state.peak, during), live, done, (*state.tasks, task))

    def _freely(self, state: _State) -> _State:
        """Return the state after all that can be done without more memory."""
        while True:
            steps = (self._step(state, task) for task in self._ready(state))
            free = (s for s in steps if s.peak == state.peak and s.live <= state.live)
            found = next(free, None)
            if found is None:
                return state
            state = found

    def _greedily(self, state: _State) -> _State:
        """Return a complete state: always the task that needs least, then that frees most."""
        while state.done != self.all:
            steps = [self._step(state, task) for task in self._ready(state)]
            state = self._freely(min(steps, key=lambda s: (s.peak, s.live, s.tasks[-1])))
        return state


def _bits(numbers: frozenset[int]) -> int:
    return sum(1 << n for n in numbers)
