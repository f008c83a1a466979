"""What a call of a function of the table does."""

from __future__ import annotations

from typing import Any

import numpy as np

from .effects import Effect
from .order import WARP
from .phases import Step
from .scopes import DYNAMIC
from .syntax import Node
from .values import Either, Pointer, Unknown, is_exact, is_uniform

WARPGROUP = 128
BLOCK_BYTES = 64 * 128  # of the 64 x 64 piece of an operand that multiply_stage takes


class Effects:
    """One call of a function of the table."""

    def __init__(self, walk: Any, node: Node, effect: Effect, barrier: Pointer | None = None):
        self.walk = walk
        self.order = walk.order
        self.node = node
        self.effect = effect
        self.mask = walk.mask
        self.line = walk.line(node)
        running = {n for n, state in walk.sums.items() if state == "running"}
        kids = node.kids[1:]
        if effect.kind == "multiply_stage":
            kids = kids[1:]
        self.arguments = [walk.value(kid) for kid in kids]
        if effect.kind == "multiply_stage":
            self.arguments.insert(0, None)
        self.running = running
        self.barrier = barrier

    def happen(self) -> Any:
        """Do the effect and return the call's value."""
        return getattr(self, self.effect.kind)()

    def pointer(self, number: int | None) -> Pointer | None:
        """Return the pointer that a parameter is, or None."""
        value = self.arguments[number] if number is not None else None
        return value if isinstance(value, Pointer) else None

    def template(self, number: int) -> int | None:
        """Return a template argument's number."""
        given = self.node.arguments or []
        return self.walk.constant(given[number]) if number < len(given) else None

    def bytes(self) -> int | None:
        """Return how many bytes are moved, where that is known."""
        value = None if self.effect.bytes is None else self.arguments[self.effect.bytes]
        return int(value) if is_exact(value) and not isinstance(value, np.ndarray) else None

    def length(self, place: Pointer) -> int | None:
        """Return how many units of a place's index are accessed."""
        if self.effect.bytes is None:
            return self.walk.length(place, self.template(0) or 1)
        size = place.size
        if size is None or (place.size == 1 and place.root not in DYNAMIC):
            return 1
        return self.effect.bytes

    def key(self, place: Pointer | None, what: str = "") -> tuple[str, int] | None:
        """Return the name of an mbarrier, None where its place is not known."""
        at = place.index[-1] if place is not None and place.index else None
        if place is None or (at is not None and (not is_exact(at) or isinstance(at, np.ndarray))):
            self.walk.say("barrier place", self.node, "which mbarrier this is cannot be told")
            return None
        return place.root, int(at or 0)

    def step(self, kind: str, value: int | None = None, **more: Any) -> None:
        """Note a step on the way of these threads."""
        self.walk.steps.append(Step(kind, self.line, self.mask.copy(), value=value, **more))

    def pure(self) -> Any:
        """Change nothing."""
        return self.walk.unknown(self.node.text, True)

    def uniform(self) -> Any:
        """Return something that all threads agree on."""
        return Unknown(self.node.text)

    def warpgroup(self) -> Any:
        """Return the number of each thread's warpgroup."""
        return np.arange(self.walk.threads) // WARPGROUP

    def elect(self) -> Any:
        """Return true in one lane of each warp."""
        return np.arange(self.walk.threads) % WARP == 0

    def read(self) -> Any:
        """Read some elements."""
        place = self.pointer(self.effect.shared)
        if place is None:
            return self.walk.unknown("load", True)
        if place.space == "shared":
            return self.walk.load(place, self.node, self.length(place))
        return self.walk.load(place, self.node)

    def read_constant(self) -> Any:
        """Read through the path for data that nothing writes."""
        place = self.pointer(self.effect.shared)
        if place is not None and place.space == "global":
            self.walk.constant_reads.append((place.root, self.line))
        return self.walk.unknown("load", True)

    def write(self) -> None:
        """Write some elements."""
        place = self.pointer(self.effect.shared)
        if place is not None:
            self.walk.store(place, self.node, self.length(place))

    def atomic(self) -> Any:
        """Change one element, in order with other such changes."""
        place = self.pointer(self.effect.shared)
        if place is not None and place.space == "shared":
            self.order.access("atomic", place, self.walk.length(place), self.mask, self.line)
        return self.walk.unknown("atomic", True)

    # --- barriers ---

    def block_barrier(self) -> None:
        """Meet all threads of the block."""
        self.meet(np.ones_like(self.mask))
        self.order.barrier(self.mask)
        self.step("sync")

    def meet(self, all_threads: Any) -> None:
        """Report threads that do not come to a barrier."""
        walk = self.walk
        if (all_threads & ~self.mask).any() or walk.doubtful or self.maybe_left():
            walk.say(
                "barrier for all", self.node, "not all threads of the block come to this barrier"
            )

    def maybe_left(self) -> bool:
        """Return whether some threads may have left on the way here."""
        walk = self.walk
        return any(f.maybe_left for f in [*walk.frames, *walk.loops])

    def warp_barrier(self) -> None:
        """Meet the lanes of the warp."""
        self.order.warp_barrier(self.mask)

    def named_barrier(self) -> None:
        """Meet as many threads as the barrier is told."""
        count = self.template(0)
        if count != int(self.mask.sum()) or self.walk.doubtful:
            self.walk.say(
                "barrier for all",
                self.node,
                f"{int(self.mask.sum())} threads come to a barrier of {count}",
            )
        self.order.barrier(self.mask)
        self.step("sync")

    def cluster_sync(self) -> None:
        """Meet all threads of all blocks of the cluster."""
        self.meet(np.ones_like(self.mask))
        self.order.cluster_barrier(self.mask)
        self.step("sync")

    def thread_fence(self) -> None:
        """Order own writes at gpu scope, as the counters of grid.cuh do by themselves."""

    # --- the asynchronous proxy ---

    def fence_shared(self) -> None:
        """Order own shared accesses before the asynchronous proxy's."""
        self.order.fence(self.mask, ("write", "atomic"))

    def fence_all(self) -> None:
        """The same for all memory, so also after an acquire."""
        self.fence_shared()
        self.fence_global()

    def fence_global(self) -> None:
        """Order what was acquired before the asynchronous proxy's accesses."""
        self.order.unfenced = self.order.unfenced & ~self.mask

    def async_store(self) -> None:
        """Begin a bulk store or reduction."""
        place, target = self.pointer(self.effect.shared), self.pointer(self.effect.target)
        if target is not None:
            self.order.written.add(target.root)
        if place is not None:
            size = self.bytes()
            self.order.async_store(place, size, self.mask, self.line)

    def bulk_commit(self) -> None:
        """Close a group."""
        self.order.commit(self.mask)

    def bulk_wait(self) -> None:
        """Wait until the writes of older groups have happened."""
        self.order.wait(self.mask, self.template(0) or 0, "written")

    def bulk_wait_read(self) -> None:
        """Wait until the shared memory of older groups has been read."""
        self.order.wait(self.mask, self.template(0) or 0, "read")

    def copy_async(self) -> None:
        """Begin a copy of this thread."""
        place = self.pointer(self.effect.shared)
        if place is not None:
            self.order.access("write", place, self.length(place), self.mask, self.line, done=False)

    def load_tile_rows(self) -> Any:
        """Begin to copy a run of elements to a tile, of which each thread has a part."""
        place = self.pointer(self.effect.shared)
        if place is None:
            return self.walk.unknown("tile", False)
        length = self.walk.length(place, self.template(1) or 1)
        self.order.access("write", place, length, self.mask, self.line, done=False)
        return place

    def store_tile_rows(self) -> None:
        """Read a tile's run of elements, which is stored."""
        place = self.pointer(self.effect.shared)
        if place is not None:
            length = self.walk.length(place, self.template(1) or 1)
            self.order.access("read", place, length, self.mask, self.line)

    def no_shift(self) -> int:
        """Return that a run begins where a vector does."""
        return 0

    def copy_commit(self) -> None:
        """Close a group of copies."""
        self.order.copy_commit(self.mask)

    def copy_wait(self) -> None:
        """Wait for older groups."""
        self.order.copy_wait(self.mask, self.template(0) or 0)

    # --- other blocks ---

    def acquire(self) -> Any:
        """See what was released with the flag."""
        self.order.acquire(self.mask)
        return self.walk.unknown("flag", True)

    def ticket(self) -> Any:
        """Take a number."""
        return self.walk.unknown("ticket", False)

    def release(self) -> None:
        """Release what the block wrote."""
        self.order.release(self.mask, self.line)

    def exchange(self) -> Any:
        """Release and acquire."""
        self.order.release(self.mask, self.line)
        self.order.acquired = self.order.acquired | self.mask
        return self.walk.unknown("count", True)

    def cluster_load(self) -> Any:
        """Read a peer's shared memory."""
        place = self.pointer(self.effect.shared)
        if place is not None:
            self.order.cluster_read(place, self.walk.length(place), self.mask, self.line)
        varies = place is None or not all(is_uniform(i) for i in place.index)
        return self.walk.unknown("peer", varies)

    def cluster_send(self) -> None:
        """Send words to a peer: its place is written when its barrier says so.

        All blocks do alike: what this one sends to others, they send to it.
        """
        self.barrier = self.pointer(self.effect.barrier)
        self.used()

    # --- mbarriers ---

    def number(self) -> int | None:
        """Return the argument that is a number, the same in all threads."""
        value = self.arguments[self.effect.count or 0]
        if isinstance(value, np.ndarray):
            held = np.unique(value[self.mask])
            value = int(held[0]) if len(held) == 1 else None
        if is_exact(value):
            return int(value)
        self.walk.say("barrier place", self.node, "the number given to the mbarrier cannot be told")
        return None

    def barrier_init(self) -> None:
        """Set the arrivals of a phase."""
        key = self.key(self.barrier)
        if key and self.barrier:
            self.step("init", self.number(), barrier=key)
            self.order.access("init", self.barrier, 8, self.mask, self.line)

    def fence_barrier_init(self) -> None:
        """Show own initialised barriers to the cluster and the asynchronous proxy."""
        self.order.fence(self.mask, ("init",))

    def barrier_invalidate(self) -> None:
        """End a barrier."""

    def used(self) -> tuple[str, int] | None:
        """Return the name of the barrier used, which was initialised in order before."""
        key = self.key(self.barrier)
        for old in self.order.accesses.get(key[0], []) if key else []:
            if old.kind != "init" or int(old.place.index[-1]) != key[1]:
                continue
            if (old.mask & ~old.fenced).any():
                self.walk.say(
                    "barrier init",
                    self.node,
                    f"the mbarrier of line {old.line} is used without fence_barrier_init",
                )
            elif (self.mask & ~old.after_fence).any():
                self.walk.say(
                    "barrier init",
                    self.node,
                    f"the mbarrier of line {old.line} is used without a barrier after its init",
                )
        return key

    def barrier_arrive(self) -> None:
        """Arrive, and announce bytes where they are given."""
        key = self.used()
        if key:
            self.step("arrive", self.bytes() or 0, barrier=key)

    def barrier_expect(self) -> None:
        """Announce bytes."""
        key = self.used()
        if key:
            self.step("expect", self.bytes() or 0, barrier=key)

    def barrier_arrive_remote(self) -> None:
        """Arrive in a block of the cluster: what this one tells others they tell it."""
        self.barrier_arrive()

    def barrier_wait(self) -> None:
        """Wait for a phase."""
        key = self.used()
        if not key:
            return
        parity = self.arguments[self.effect.count or 0]
        if isinstance(parity, Either):
            parity = parity.first
        self.arguments[self.effect.count or 0] = parity
        self.step("wait", self.number(), barrier=key)

    def barrier_try_wait(self) -> Any:
        """Ask for a phase: as good as waiting where it is asked until it says yes."""
        self.barrier_wait()
        return 1

    def async_load(self) -> None:
        """Begin a copy into shared memory."""
        self.fill(self.bytes())

    def load_operand(self) -> None:
        """Begin the copies of an operand's tile: kExtent x 64 elements of 16 bits.

        Where those along K do not lie side by side, in boxes of 64 rows.
        """
        extent, is_along_k = self.template(0), self.template(1)
        if extent is not None and is_along_k == 0:
            extent = -(-extent // 64) * 64
        self.fill(None if extent is None else extent * 128)

    def fill(self, size: int | None) -> None:
        """Begin copies of so many bytes, which complete on a barrier."""
        place, self.barrier = self.pointer(self.effect.shared), self.pointer(self.effect.barrier)
        key = self.used()
        if key is None or place is None:
            return
        at = place.index[-1]
        if size is None or not is_exact(at) or isinstance(at, np.ndarray):
            self.walk.say("unknown", self.node, "what this copy fills cannot be told")
            return
        if self.mask.sum() > 1:
            self.walk.say("one issuer", self.node, f"{int(self.mask.sum())} threads issue one copy")
        self.step("load", size, barrier=key, span=(place.root, int(at), int(at) + size))

    def wgmma_fence(self) -> None:
        """Order the accumulators before the next products."""
        self.walk.fenced_sums = True

    def wgmma(self) -> None:
        """Multiply by descriptors, whose addresses cannot be told."""
        self.walk.say(
            "unknown", self.node, "call multiply_stage: the operands' place cannot be told"
        )

    def multiply_stage(self) -> None:
        """Begin products of what lies in shared memory."""
        walk = self.walk
        sums = self.node.kids[1].text
        if walk.sums.get(sums) != "running" and not walk.fenced_sums:
            walk.say("wgmma fence", self.node, f"{sums} is summed up without wgmma_fence before")
        walk.sums[sums] = "running"
        blocks = self.template(4) or 1
        for number, size in ((1, blocks * BLOCK_BYTES), (2, (self.template(1) or 64) * 128)):
            place = self.pointer(number)
            at = place.index[-1] if place is not None and place.index else None
            if place is None or not is_exact(at):
                walk.say("unknown", self.node, "what is multiplied cannot be told")
                continue
            values = np.broadcast_to(np.asarray(at), self.mask.shape)
            for first in np.unique(values[self.mask]):
                before, walk.mask = walk.mask, self.mask & (values == first)
                span = (place.root, int(first), int(first) + size)
                where = Pointer(place.root, "shared", (int(first),))
                self.order.async_read(where, size, walk.mask, self.line)
                walk.open.append(walk.read_step(span, self.node, ends=False))
                walk.mask = before

    def wgmma_commit(self) -> None:
        """Close a group of products."""
        self.walk.pending.append(self.walk.open)
        self.walk.open = []

    def wgmma_wait(self) -> None:
        """Wait for all but the last groups."""
        walk = self.walk
        keep = self.template(0) or 0
        while len(walk.pending) > keep:
            for number in walk.pending.pop(0):
                begun = walk.steps[number]
                step = Step("end", self.line, begun.mask, value=number, span=begun.span)
                walk.steps.append(step)
        if not walk.pending and not walk.open:
            walk.sums = {name: "ready" for name in walk.sums}
            walk.fenced_sums = False
