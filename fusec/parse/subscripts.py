"""`t[:, 1:4]`: Python's indexing as slices, selections and new dims, in scripts and in files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.dim import Dim

Step = tuple[str, list[Any]]
"""An operation, and its arguments after the tensor."""


def steps_of(
    key: Sequence[Any],
    ndim: int,
    extent: Callable[[int], Any],
    what: str,
    is_multiple: Callable[[int, int], bool] = lambda axis, step: False,
) -> list[Step]:
    """Return the operations equivalent to `tensor[key]`, to be called in order.

    Integers, sizes and scalars take one element of a dim, None adds a dim, a slice is clamped to
    its dim. extent: the size of a dim. is_multiple: returns whether a dim that is not a constant is
    a multiple of a step: `x[1::2]` is then element 1 of pairs, of extent D // 2 exactly. Other keys
    that other libraries accept are Unsupported.
    """
    entries = _entries(key, ndim, what)
    axes = dict(enumerate(entry for entry in entries if entry is not None))
    kept = [entry is None for entry in entries if entry is None or isinstance(entry, slice)]
    steps: list[Step] = []
    for axis in reversed(axes):
        if _is_residue(axes[axis]) and is_multiple(axis, axes[axis].step):
            steps.append(("unflatten", [axis, [-1, axes[axis].step]]))
            steps.append(("select", [axes[axis].start or 0, axis + 1]))
            axes[axis] = slice(None)
    cuts = [axes[axis] if isinstance(axes[axis], slice) else slice(None) for axis in axes]
    if any(bound is not None for cut in cuts for bound in (cut.start, cut.stop, cut.step)):
        steps.append(("slice", _bounds(cuts, extent)))
    taken = [axis for axis in reversed(axes) if not isinstance(axes[axis], slice)]
    steps += [("select", [axes[axis], axis]) for axis in taken]
    if any(kept):
        steps.append(("broadcast", [kept]))
    return steps


def _is_residue(entry: Any) -> bool:
    """Return whether a slice takes every element with the same remainder by its step."""
    if not isinstance(entry, slice):
        return False
    start, stop, step = _parts(entry)
    known = isinstance(step, int) and step > 1 and (start is None or isinstance(start, int))
    return known and stop is None and 0 <= (start or 0) < step


def _parts(entry: Any) -> tuple[Any, Any, Any]:
    def plain(bound: Any) -> Any:
        return bound.value if isinstance(bound, Dim) and bound.is_const else bound

    return plain(entry.start), plain(entry.stop), plain(entry.step)


def _entries(key: Sequence[Any], ndim: int, what: str) -> list[Any]:
    """Return an entry for each dim and each new one, expanding `...` and omitted dims."""
    for entry in key:
        _check(entry)
    used = sum(entry is not None and entry is not ... for entry in key)
    left = ndim - used
    if left < 0:
        raise FusecError(f"{used} indices for a tensor of {ndim} dims", notes=[what])
    places = [k for k, entry in enumerate(key) if entry is ...]
    if len(places) > 1:
        raise FusecError(
            "an index with more than one `...`", help="write one, and `:` for other dims"
        )
    at = places[0] if places else len(key)
    return [*key[:at], *[slice(None)] * left, *key[at + 1 :]]


def _bounds(cuts: list[slice], extent: Callable[[int], Any]) -> list[Any]:
    """Return the arguments of the operation `slice`."""
    starts = [0 if cut.start is None else cut.start for cut in cuts]
    ends = [extent(axis) if cut.stop is None else cut.stop for axis, cut in enumerate(cuts)]
    return [starts, ends, [1 if cut.step is None else cut.step for cut in cuts]]


def _is_list(entry: Any) -> bool:
    return isinstance(entry, Sequence) and not isinstance(entry, (str, bytes))


def _has_dims(entry: Any) -> bool:
    rank = getattr(entry, "ndim", None)
    shape = getattr(entry, "shape", ())
    return rank > 0 if isinstance(rank, int) else not callable(shape) and bool(shape)


def _check(entry: Any) -> None:
    """Raise FusecError for an invalid index, Unsupported if other libraries accept it."""
    if isinstance(entry, bool):
        raise Unsupported("indexing with a bool", help="t[None] adds a dim")
    if _is_list(entry) or _has_dims(entry):
        raise Unsupported(
            "indexing with several lists or tensors",
            help="index_select(flatten(t, 0, 1), i * t.size(1) + j, 0) is t[i, j] of two tensors; "
            "gather(t, index, dim) takes an index of t's rank",
        )
    if isinstance(entry, slice):
        _check_step(cast("slice[Any, Any, Any]", entry).step)
    elif not (entry is None or entry is ... or _is_place(entry)):
        raise FusecError(
            f"{entry!r} is not an index", help="an index is an integer, a slice, `...` or None"
        )


def _check_step(step: Any) -> None:
    if step is not None and (not isinstance(step, int) or step < 1):
        raise Unsupported(
            f"a slice with the step {step!r}",
            help="steps must be positive constants; flip(t, dims) reverses a dim",
        )


def _is_place(entry: Any) -> bool:
    """Return whether an entry is an integer, a size, or a scalar or 0-dim tensor of the fusion."""
    known = ("__index__", "definition", "type")
    return isinstance(entry, Dim) or any(hasattr(entry, name) for name in known)
