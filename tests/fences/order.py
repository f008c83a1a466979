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

from .values import Mask, Pointer, Unknown

WARP = 32


@dataclass(frozen=True)
class Violation:
    """A rule that is broken."""

    rule: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.rule}: {self.message}"


@dataclass(eq=False)
class Access:
    """One access to memory by the threads of `mask`, in the source line `line`."""

    kind: str  # read, write, atomic, async_read (by a bulk store), init (of a barrier)
    place: Pointer
    length: int | None
    mask: Mask
    line: int
    after: Mask  # threads that are after it
    fenced: Mask  # threads of `mask` that have executed the fence that it needs
    after_fence: Mask  # threads that are after the fence
    group: int | None = None  # of an asynchronous one; open until it is committed
    done: bool = True  # False: asynchronous, and not waited for
    in_cluster: bool = False  # the other blocks of the cluster are after it
    site: tuple[int, ...] = ()  # the statement that writes, by lines of calls

    @property
    def writes(self) -> bool:
        """Whether it changes memory."""
        return self.kind not in ("read", "async_read")


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
                missing = "a barrier after that wait" if old.done else "wait_group_read or wait_group"
                self.say(
                    "bulk source",
                    new.line,
                    f"written while the bulk copy of line {old.line} may read it: {missing} is missing",
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
        left = new.mask & ~old.after
        if left.any() and overlap(old, replace(new, mask=left), WARP):
            rule = "barrier before read" if new.kind == "read" else (
                "barrier before write" if old.kind == "read" else "barrier between writes"
            )
            self.say(
                rule,
                new.line,
                f"{new.kind} of {place_name(new.place)}, which other threads {past(old.kind)} in line"
                f" {old.line}: a barrier between them is missing",
            )

    def is_after(self, old: Access, new: Access, done: bool) -> bool:
        """Return whether all of `new` comes after `old`, which one thread does."""
        return bool(done and not (new.mask & ~old.after & ~old.mask).any())

    # --- barriers ---

    def barrier(self, mask: Mask) -> None:
        """Put the threads of `mask` in order."""
        for known in self.accesses.values():
            for old in list(known):
                if not old.done:
                    continue
                taking = old.mask & mask
                if not taking.any() and not (old.after & mask).any():
                    continue
                if taking.any() and (old.mask & ~mask).any():
                    rest = replace(old, mask=old.mask & ~mask, after=old.after.copy())
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
        if not old.done or not old.after.all():
            return True
        if old.kind == "init":
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
        new = Access("async_read", place, length, mask.copy(), line, self.none(), self.none(), self.none())
        for old in self.accesses.get(place.root, []):
            if not old.writes or not overlap(old, new, None):
                continue
            if not old.done:
                self.say("async copy", line, f"reads what the copy of line {old.line} brings, unwaited")
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
                    f"reads by the async proxy what line {old.line} stored, without a barrier between"
                    " the fence and here",
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
            if flight.group is not None and flight.group <= oldest and not (flight.mask & ~mask).any():
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
                    old.done, old.after = True, self.none()

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
        new = Access("read", place, length, mask.copy(), line, self.none(), self.none(), self.none())
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


def repeats(old: Access, new: Access) -> bool:
    """Return whether an access adds nothing to an older one."""
    return (
        old.line == new.line
        and old.kind == new.kind
        and old.done == new.done
        and old.group == new.group
        and not old.after.any()
        and not old.fenced.any()
        and same_place(old.place, new.place)
        and bool((old.mask == new.mask).all())
    )


def is_scattered(place: Pointer) -> bool:
    """Return whether each thread goes to a place that only data tells."""
    return any(isinstance(i, Unknown) and i.varies for i in place.index)


def same_place(a: Pointer, b: Pointer) -> bool:
    """Return whether two pointers are the same in every thread."""
    if len(a.index) != len(b.index):
        return False
    return all(
        type(x) is type(y) and (bool(np.all(x == y)) if not isinstance(x, Unknown) else x is y)
        for x, y in zip(a.index, b.index, strict=True)
    )


def place_name(place: Pointer) -> str:
    """Return the name of an array as the text calls it."""
    return place.root.removeprefix("global ").split("@")[0]


def past(kind: str) -> str:
    """Return what other threads did."""
    return {"read": "read", "atomic": "changed", "init": "initialised"}.get(kind, "wrote")


def overlap(old: Access, new: Access, warp: int | None) -> bool:
    """Return whether two accesses may touch one place, by different threads if `warp` is given."""
    if warp is None and (spans := spans_meet(old, new)) is not None:
        return spans
    keys = aligned(old, new)
    if keys is None or not keys[2]:
        if warp is None:
            return bool(old.mask.any() and new.mask.any())
        owners_old = np.unique(np.flatnonzero(old.mask) // warp)
        owners_new = np.unique(np.flatnonzero(new.mask) // warp)
        if keys is None:
            return not (len(owners_old) == len(owners_new) == 1 and owners_old[0] == owners_new[0])
        warp_of = warp
    else:
        warp_of = 1
    a, b, _ = keys
    owners_a = np.broadcast_to((np.flatnonzero(old.mask) // warp_of)[:, None], a.shape).ravel()
    owners_b = np.broadcast_to((np.flatnonzero(new.mask) // warp_of)[:, None], b.shape).ravel()
    a, b = a.ravel(), b.ravel()
    if not len(a) or not len(b):
        return False
    sorting = np.argsort(a, kind="stable")
    a, owners_a = a[sorting], owners_a[sorting]
    starts = np.flatnonzero(np.concatenate(([True], a[1:] != a[:-1])))
    lowest = np.minimum.reduceat(owners_a, starts)
    highest = np.maximum.reduceat(owners_a, starts)
    codes = a[starts]
    at = np.minimum(np.searchsorted(codes, b), len(codes) - 1)
    hit = codes[at] == b
    if warp is None:
        return bool(hit.any())
    return bool((hit & ((lowest[at] != owners_b) | (highest[at] != owners_b))).any())


def spans_meet(old: Access, new: Access) -> bool | None:
    """Return whether two runs of memory meet; None where neither is the same in all threads."""
    if len(old.place.index) != 1 or len(new.place.index) != 1 or not old.length or not new.length:
        return None
    x, y = old.place.index[0], new.place.index[0]
    if isinstance(x, Unknown) or isinstance(y, Unknown):
        return None
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        return None
    met = np.logical_and(x < y + new.length, y < x + old.length)
    mask = old.mask if isinstance(x, np.ndarray) else new.mask
    return bool((np.broadcast_to(met, mask.shape) & mask).any())


def aligned(old: Access, new: Access) -> tuple[Any, Any, bool] | None:
    """Return comparable numbers of the places of both, and whether they are exact.

    One row for each thread, one column for each unit of the access; None where nothing is known.
    """
    count = min(len(old.place.index), len(new.place.index))
    exact = count == max(len(old.place.index), len(new.place.index))
    a: Any = np.zeros((int(old.mask.sum()), 1), dtype=np.int64)
    b: Any = np.zeros((int(new.mask.sum()), 1), dtype=np.int64)
    known = count == 0
    for i in range(count):
        x, y = old.place.index[i], new.place.index[i]
        if isinstance(x, Unknown) and isinstance(y, Unknown) and x.text == y.text and not x.varies:
            x, y = x.offset, y.offset
        if isinstance(x, Unknown) or isinstance(y, Unknown):
            exact = False
            continue
        known = True
        x, y = per_thread(x, old.mask), per_thread(y, new.mask)
        if i == count - 1:
            if old.length is None or new.length is None:
                return None
            unit = int(np.gcd(old.length, new.length))
            if unit > 1:
                x, y = x // unit, y // unit
            x = x[:, None] + np.arange(old.length // unit)
            y = y[:, None] + np.arange(new.length // unit)
        else:
            x, y = x[:, None], y[:, None]
        a = a * (1 << 20) + x
        b = b * (1 << 20) + y
    return (a, b, exact) if known else None


def per_thread(value: Any, mask: Mask) -> Any:
    """Return a value for each thread of a mask."""
    if isinstance(value, np.ndarray):
        return value[mask].astype(np.int64)
    return np.full(int(mask.sum()), int(value), dtype=np.int64)


