"""What is in order with what: accesses to shared and global memory, fences, barriers, waits.

All threads of a block are followed together. An access is remembered with the threads that did it
and the threads that are after it; a barrier puts its threads after what they had done before it.
Two accesses to one place, one of them a write, by threads of which neither is after the other are
a race. Places that are not known count as equal between different warps only: within a warp the
kernels choose distinct places by votes that this checker does not evaluate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .places import Access, is_scattered, overlap, past, place_name, repeats
from .values import Mask, Pointer

WARP = 32


@dataclass(frozen=True)
class Violation:
    """A rule that is broken."""

    rule: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.rule}: {self.message}"


@dataclass
class Flight:
    """A bulk store or reduction on its way to global memory."""

    line: int
    mask: Mask
    group: int | None = None
    state: str = "issued"  # issued, read (shared memory may be reused), written


class Order:
    """The state of a block."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.violations: dict[tuple[str, int, str], Violation] = {}
        self.accesses: dict[str, list[Access]] = {}
        self.flights: list[Flight] = []
        self.groups = {"bulk": 0, "copy": 0}
        self.acquired = self.none()
        self.unfenced = self.none()  # acquired something, and no proxy fence since
        self.early_reads: list[tuple[str, int]] = []  # of global memory, without an acquire
        self.written: set[str] = set()  # global buffers
        self.has_async = False

    def none(self) -> Mask:
        """Return a mask of no threads."""
        return np.zeros(self.threads, dtype=bool)

    def say(self, rule: str, line: int, message: str) -> None:
        """Report a violation, once."""
        self.violations.setdefault((rule, line, message), Violation(rule, line, message))

    # --- accesses ---

    def access(
        self, kind: str, place: Pointer, length: int | None, mask: Mask, line: int, **more: Any
    ) -> Access:
        """Note an access of all threads of `mask`, after comparing it with what went before."""
        new = Access(
            kind, place, length, mask.copy(), line, self.none(), self.none(), self.none(), **more
        )
        known = self.accesses.setdefault(place.root, [])
        for old in known if place.space == "shared" else ():
            self.compare(old, new)
        if not any(repeats(old, new) for old in known):
            known.append(new)
        return new

    def compare(self, old: Access, new: Access) -> None:
        """Report a race of two accesses."""
        if not (old.writes or new.writes) or (old.kind == new.kind == "atomic"):
            return
        if old.site and old.site == new.site and is_scattered(new.place):
            return  # one statement gives every element a place of its own
        if old.kind == "async_read":
            if new.writes and not self.is_after(old, new, old.done) and overlap(old, new, None):
                missing = (
                    "a barrier after that wait" if old.done else "wait_group_read or wait_group"
                )
                self.say(
                    "bulk source",
                    new.line,
                    f"written while the bulk copy of line {old.line} reads it: {missing} missing",
                )
            return
        if not old.done:
            if overlap(old, new, None):
                what = "copy_wait" if old.group is not None else "copy_commit and copy_wait"
                self.say(
                    "async copy",
                    new.line,
                    f"{new.kind} of what the copy of line {old.line} brings, without {what}",
                )
            return
        if old.settled:
            return
        left = new.mask & ~old.after
        if left.any() and overlap(old, replace(new, mask=left), WARP):
            rule = (
                "barrier before read"
                if new.kind == "read"
                else ("barrier before write" if old.kind == "read" else "barrier between writes")
            )
            self.say(
                rule,
                new.line,
                f"{new.kind} of {place_name(new.place)}, which other threads {past(old.kind)}"
                f" in line {old.line}: a barrier between them is missing",
            )

    def is_after(self, old: Access, new: Access, done: bool) -> bool:
        """Return whether all of `new` comes after `old`, which one thread does."""
        return bool(done and not (new.mask & ~old.after & ~old.mask).any())

    # --- barriers ---

    def barrier(self, mask: Mask) -> None:
        """Put the threads of `mask` in order."""
        whole, everyone, outside = bool(mask.all()), ~self.none(), ~mask
        for known in self.accesses.values():
            for old in list(known):
                if not old.done:
                    continue
                if whole:
                    if old.settled or old.mask.any() or old.after.any():
                        old.after, old.settled = everyone, True
                        if not (old.mask & ~old.fenced).any():
                            old.after_fence = everyone
                    continue
                taking = old.mask & mask
                if not taking.any() and not (old.after & mask).any():
                    continue
                if taking.any() and (old.mask & outside).any():
                    rest = replace(old, mask=old.mask & outside, after=old.after.copy())
                    rest.fenced, rest.after_fence = old.fenced.copy(), old.after_fence.copy()
                    known.append(rest)
                    old.mask = taking
                old.after = old.after | mask
                if not (old.mask & ~old.fenced).any():
                    old.after_fence = old.after_fence | mask
            known[:] = [a for a in known if self.matters(a)]
        for name in ("acquired", "unfenced"):
            if (getattr(self, name) & mask).any():
                setattr(self, name, getattr(self, name) | mask)

    def matters(self, old: Access) -> bool:
        """Return whether a later access may still race with `old`."""
        if not old.done:
            return True
        old.settled = old.settled or bool(old.after.all())
        if not old.settled or old.kind == "init":
            return True
        if not old.writes:
            return False
        return self.has_async and not old.after_fence.all()

    def cluster_barrier(self, mask: Mask) -> None:
        """Put the blocks of the cluster in order too."""
        self.barrier(mask)
        for known in self.accesses.values():
            for old in known:
                old.in_cluster = old.in_cluster or old.done

    def warp_barrier(self, mask: Mask) -> None:
        """Put the threads of each warp in order, where only that warp did the access."""
        warps = mask.reshape(-1, WARP)
        for known in self.accesses.values():
            for old in list(known):
                if not old.done:
                    continue
                touched = old.mask.reshape(-1, WARP).any(axis=1)
                if touched.sum() == 1:
                    old.after = old.after | (warps & touched[:, None]).reshape(-1)
                elif touched.any():
                    known.remove(old)
                    known.extend(self.by_warp(old, touched, warps))

    def by_warp(self, old: Access, touched: Any, warps: Any) -> list[Access]:
        """Return an access cut into one for each warp, whose lanes are after it."""
        parts: list[Access] = []
        for warp in np.flatnonzero(touched):
            own = np.zeros_like(warps)
            own[warp] = True
            own = own.reshape(-1)
            mask = warps.reshape(-1) & own
            parts.append(replace(old, mask=old.mask & own, after=old.after | mask))
        return parts

    # --- the asynchronous proxy ---

    def fence(self, mask: Mask, kinds: tuple[str, ...]) -> None:
        """Order own accesses before what the asynchronous proxy does after a barrier."""
        for known in self.accesses.values():
            for old in known:
                if old.kind in kinds and old.done:
                    old.fenced = old.fenced | (old.mask & mask)

    def async_read(self, place: Pointer, length: int | None, mask: Mask, line: int) -> Access:
        """Let the asynchronous proxy read shared memory: all writers have fenced before."""
        new = Access(
            "async_read", place, length, mask.copy(), line, self.none(), self.none(), self.none()
        )
        for old in self.accesses.get(place.root, []):
            if not old.writes or not overlap(old, new, None):
                continue
            if not old.done:
                self.say(
                    "async copy", line, f"reads what the copy of line {old.line} brings, unwaited"
                )
            elif (old.mask & ~old.fenced).any():
                self.say(
                    "proxy fence",
                    line,
                    f"reads by the async proxy what line {old.line} stored, without"
                    " fence_proxy_async_shared_cta by the threads that stored it",
                )
            elif (mask & ~old.after_fence & ~old.mask).any() or (
                (mask & ~old.after_fence).any() and old.mask.sum() > 1
            ):
                self.say(
                    "proxy fence",
                    line,
                    f"reads by the async proxy what line {old.line} stored, without a barrier"
                    " between the fence and here",
                )
        return new

    def async_store(self, place: Pointer, length: int | None, mask: Mask, line: int) -> None:
        """Begin a bulk store or reduction of shared into global memory."""
        if mask.sum() > 1:
            self.say("one issuer", line, f"{int(mask.sum())} threads issue one bulk copy")
        if (mask & self.unfenced).any():
            self.say(
                "acquire fence", line, "after an acquire, without fence_proxy_async between the two"
            )
        new = self.async_read(place, length, mask, line)
        new.done = False
        self.accesses.setdefault(place.root, []).append(new)
        self.flights.append(Flight(line, mask.copy()))

    def commit(self, mask: Mask) -> None:
        """Close a group of bulk stores."""
        self.groups["bulk"] += 1
        for each in [*self.flights, *self.of_kind("async_read")]:
            if each.group is None and not (each.mask & ~mask).any():
                each.group = self.groups["bulk"]

    def wait(self, mask: Mask, pending: int, state: str) -> None:
        """Wait for the groups of these threads but the `pending` last."""
        oldest = self.groups["bulk"] - pending
        for old in self.of_kind("async_read"):
            if not old.done and old.group is not None and old.group <= oldest:
                old.done = not (old.mask & ~mask).any()
        for flight in self.flights:
            if (
                flight.group is not None
                and flight.group <= oldest
                and not (flight.mask & ~mask).any()
            ):
                flight.state = state
        self.flights = [f for f in self.flights if f.state != "written"]

    def of_kind(self, kind: str) -> list[Access]:
        """Return the accesses of a kind."""
        return [a for known in self.accesses.values() for a in known if a.kind == kind]

    # --- cp.async ---

    def copy_commit(self, mask: Mask) -> None:
        """Close a group of asynchronous copies."""
        self.groups["copy"] += 1
        for known in self.accesses.values():
            for old in known:
                if not old.done and old.kind == "write" and old.group is None:
                    old.group = self.groups["copy"]

    def copy_wait(self, mask: Mask, pending: int | None) -> None:
        """Wait for all copies of these threads but those of the `pending` last groups."""
        for known in self.accesses.values():
            for old in known:
                if old.done or old.kind != "write" or (old.mask & ~mask).any():
                    continue
                if pending is None or (
                    old.group is not None and old.group <= self.groups["copy"] - pending
                ):
                    old.done, old.after, old.settled = True, self.none(), False

    # --- other blocks ---

    def release(self, mask: Mask, line: int) -> None:
        """Tell other blocks: all that the block wrote is in order before."""
        for flight in self.flights:
            self.say(
                "full wait",
                line,
                f"releases while the bulk copy of line {flight.line} may be under way: commit_group"
                " and wait_group<0> (not its .read form) are missing",
            )
        for root, known in self.accesses.items():
            for old in known:
                if root.startswith("global ") and old.writes and self.is_loose(old, mask):
                    self.say(
                        "release",
                        line,
                        f"releases what other threads wrote to {place_name(old.place)} in line"
                        f" {old.line}, without a barrier between",
                    )

    def is_loose(self, old: Access, mask: Mask) -> bool:
        """Return whether a releasing thread may be ahead of another thread's write."""
        ahead = mask & ~old.after
        if not ahead.any():
            return False
        return bool((ahead & ~old.mask).any() or (old.mask.sum() > 1 and mask.sum() == 1))

    def acquire(self, mask: Mask) -> None:
        """Learn what another block released."""
        self.acquired = self.acquired | mask
        self.unfenced = self.unfenced | mask

    def cluster_read(self, place: Pointer, length: int | None, mask: Mask, line: int) -> None:
        """Read the same place in another block of the cluster."""
        new = Access(
            "read", place, length, mask.copy(), line, self.none(), self.none(), self.none()
        )
        for old in self.accesses.get(place.root, []):
            if old.writes and not old.in_cluster and overlap(old, new, None):
                self.say(
                    "cluster barrier",
                    line,
                    f"reads in another block what line {old.line} stores there: a cluster_sync"
                    " between them is missing",
                )
        new.kind = "read"
        new.in_cluster = False
        self.accesses.setdefault(f"peer {place.root}", []).append(new)

    def check_peers(self, new: Access, line: int) -> None:
        """Report a write to what other blocks of the cluster may still read."""
        for old in self.accesses.get(f"peer {new.place.root}", []):
            if not old.in_cluster and overlap(old, new, None):
                self.say(
                    "cluster barrier",
                    line,
                    f"written while other blocks may read it (line {old.line}): a cluster_sync"
                    " between them is missing",
                )

    def leave(self, mask: Mask, line: int) -> None:
        """End these threads: their bulk copies have at least read shared memory."""
        for flight in self.flights:
            if flight.state == "issued" and (flight.mask & mask).any():
                self.say(
                    "full wait",
                    flight.line,
                    "the thread ends without commit_group and a wait_group for this bulk copy",
                )
