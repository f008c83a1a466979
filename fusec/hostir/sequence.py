"""Orders tasks to minimize peak memory."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count

from fusec.dataclasses import dataclass

MOST = 20_000
"""Maximum steps of the search for the best order: 0.1 s; beyond that, a greedy order."""


@dataclass(frozen=True)
class Task:
    """Work in a program; other tasks and memory are given by number.

    after: the tasks before it. uses: the memory that it works with. extra: bytes that only it uses.
    """

    after: frozenset[int]
    uses: frozenset[int]
    extra: int = 0


@dataclass(frozen=True)
class Order:
    """An order of tasks and its peak memory in bytes; least: no order has less."""

    tasks: tuple[int, ...]
    peak: int
    least: int


@dataclass(frozen=True)
class _State:
    """The tasks done, as a bit set; the bytes in use after them, and the peak so far.

    ready: the tasks that may come next, in order. last, before: the path to this state.
    """

    peak: int
    live: int
    done: int
    ready: tuple[int, ...]
    last: int = -1
    before: _State | None = None

    @property
    def tasks(self) -> tuple[int, ...]:
        """Return the tasks that are done, in order."""
        found: list[int] = []
        state = self
        while state.before is not None:
            found.append(state.last)
            state = state.before
        return tuple(reversed(found))


class Sequencer:
    """Searches orders of tasks; each memory is in use from its first to its last task."""

    def __init__(self, tasks: Sequence[Task], sizes: Sequence[int]) -> None:
        """Count the users of each memory."""
        self.tasks, self.sizes = tasks, sizes
        self.needs = [_bits(t.after) for t in tasks]
        self.users = [0] * len(sizes)
        for k, task in enumerate(tasks):
            for memory in task.uses:
                self.users[memory] |= 1 << k
        self.all = (1 << len(tasks)) - 1
        self.followers: list[list[int]] = [[] for _ in tasks]
        for k, task in enumerate(tasks):
            for other in task.after:
                self.followers[other].append(k)
        ready = tuple(k for k, task in enumerate(tasks) if not task.after)
        self.start = _State(0, 0, 0, ready)

    def peak(self, order: Sequence[int]) -> int:
        """Return the peak memory of an order, in bytes."""
        state = self.start
        for task in order:
            state = self._step(state, task)
        return state.peak

    def least(self, task: int) -> int:
        """Return the bytes that a task itself needs, in any order."""
        own = self.tasks[task]
        return sum(self.sizes[m] for m in own.uses) + own.extra

    def best(self, most: int = MOST) -> Order:
        """Return an order with minimal peak; ties follow the original order.

        Best-first search by peak, so the first complete state is optimal. A task that neither
        exceeds the memory in use nor increases it is run immediately: every continuation stays
        possible with no more memory.
        """
        numbers = count()
        heap = [(0, 0, 0, self.start)]
        seen, steps = set[int](), 0
        while heap and steps < most:
            state = self._freely(heappop(heap)[-1])
            if state.done == self.all:
                return Order(state.tasks, state.peak, state.peak)
            if state.done in seen:
                continue
            seen.add(state.done)
            for task in state.ready:
                after = self._step(state, task)
                heappush(heap, (after.peak, -after.done.bit_count(), next(numbers), after))
            steps += len(state.ready) ** 2
        found = self._greedily()
        return Order(found.tasks, found.peak, heap[0][0] if heap else found.peak)

    def _step(self, state: _State, task: int) -> _State:
        """Return the state after one more task."""
        done = state.done | 1 << task
        own = self.tasks[task]
        new = over = 0
        for memory in own.uses:
            users, size = self.users[memory], self.sizes[memory]
            if not users & state.done:
                new += size
            if not users & ~done:
                over += size
        during = state.live + new + own.extra
        freed = (k for k in self.followers[task] if self.needs[k] & ~done == 0)
        ready = sorted({*state.ready, *freed} - {task})
        live = state.live + new - over
        return _State(max(state.peak, during), live, done, tuple(ready), task, state)

    def _freely(self, state: _State) -> _State:
        """Return the state after all tasks that can run without more memory."""
        while True:
            steps = (self._step(state, task) for task in state.ready)
            free = (s for s in steps if s.peak == state.peak and s.live <= state.live)
            found = next(free, None)
            if found is None:
                return state
            state = found

    def _greedily(self) -> _State:
        """Return a complete state: always the task that needs least, then that frees most."""
        state = self._freely(self.start)
        while state.done != self.all:
            steps = [self._step(state, task) for task in state.ready]
            state = self._freely(min(steps, key=lambda s: (s.peak, s.live, s.last)))
        return state


def _bits(numbers: frozenset[int]) -> int:
    return sum(1 << n for n in numbers)
