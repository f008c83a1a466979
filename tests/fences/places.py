"""Accesses to memory, and whether two of them may touch one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .values import Mask, Pointer, Unknown


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
    settled: bool = False  # known that all threads are after it

    @property
    def writes(self) -> bool:
        """Whether it changes memory."""
        return self.kind not in ("read", "async_read")


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
    if apart(old, new):
        return False
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


def apart(old: Access, new: Access) -> bool:
    """Return whether all of one surely ends before the other begins, as most accesses do."""
    if not (len(old.place.index) == len(new.place.index) == 1 and old.length and new.length):
        return False
    (x,), (y,) = old.place.index, new.place.index
    if isinstance(x, Unknown) or isinstance(y, Unknown):
        return False
    return bool(np.max(x) + old.length <= np.min(y) or np.max(y) + new.length <= np.min(x))


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
