"""`t[:, 1:4]`: Python's indexing as slices, selections and new dims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.dim import Dim

if TYPE_CHECKING:
    from fusec.parse.dsl.handles import Tensor


@dataclass(frozen=True)
class Extent:
    """The size of a dim, whichever it has when the definition's steps are taken."""

    tensor: Tensor
    axis: int

    def size(self) -> Dim:
        """Return it as it is now."""
        return self.tensor.operand.shape[self.axis]


def index(tensor: Tensor, key: Any) -> Tensor:
    """Return `tensor[key]`: ints and scalars take one element of a dim, None adds a dim.

    A slice cuts at the ends of its dim, as everywhere in Python; what else may stand in brackets
    elsewhere is Unsupported, by name.
    """
    given: Sequence[Any] = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else [key]
    entries = _entries(tensor, given)
    axes = dict(enumerate(entry for entry in entries if entry is not None))
    cuts = [axes[axis] if isinstance(axes[axis], slice) else slice(None) for axis in axes]
    kept = [entry is None for entry in entries if entry is None or isinstance(entry, slice)]
    steps: list[tuple[str, list[Any]]] = []
    if any(bound is not None for cut in cuts for bound in (cut.start, cut.stop, cut.step)):
        steps.append(("slice", _bounds(tensor, cuts)))
    taken = [axis for axis in reversed(axes) if not isinstance(axes[axis], slice)]
    steps += [("select", [axes[axis], axis]) for axis in taken]
    if any(kept):
        steps.append(("broadcast", [kept]))
    result = tensor
    for left, (name, arguments) in zip(reversed(range(len(steps))), steps, strict=True):
        # The last result alone is what the script assigns to a name.
        options = {"name": ()} if left else {}
        result = tensor.definition.call(name, [result, *arguments], options)
    return result


def _entries(tensor: Tensor, key: Sequence[Any]) -> list[Any]:
    """Return an entry for each dim and each new one, `...` and what is left out written out."""
    for entry in key:
        _check(entry)
    used = sum(entry is not None and entry is not ... for entry in key)
    left = tensor.ndim - used
    if left < 0:
        raise FusecError(
            f"{used} indices for a tensor of {tensor.ndim} dims", notes=[f"it is {tensor!r}"]
        )
    places = [k for k, entry in enumerate(key) if entry is ...]
    if len(places) > 1:
        raise FusecError("an index with more than one `...`", help="write one, and `:` for others")
    at = places[0] if places else len(key)
    return [*key[:at], *[slice(None)] * left, *key[at + 1 :]]


def _bounds(tensor: Tensor, cuts: list[slice]) -> list[Any]:
    """Return the arguments of the operation `slice`."""
    starts = [0 if cut.start is None else cut.start for cut in cuts]
    ends = [Extent(tensor, axis) if c.stop is None else c.stop for axis, c in enumerate(cuts)]
    return [starts, ends, [1 if cut.step is None else cut.step for cut in cuts]]


def _is_list(entry: Any) -> bool:
    return isinstance(entry, Sequence) and not isinstance(entry, (str, bytes))


def _check(entry: Any) -> None:
    """Raise for what is no index: Unsupported where other libraries take it."""
    if isinstance(entry, bool):
        raise Unsupported("indexing with a bool", help="t[None] adds a dim")
    if _is_list(entry) or getattr(entry, "ndim", 0):
        raise Unsupported(
            "indexing with a list or a tensor",
            help="fd.ops.index_select(t, index, dim) takes a 1-dim index, fd.ops.gather one of "
            "t's rank; in place of a mask fd.ops.where chooses by element",
        )
    if isinstance(entry, slice):
        _check_step(cast("slice[Any, Any, Any]", entry).step)
    elif not (entry is None or entry is ... or _is_place(entry)):
        raise FusecError(
            f"{entry!r} is no index", help="indices are integers, slices, `...` and None"
        )


def _check_step(step: Any) -> None:
    if step is not None and (not isinstance(step, int) or step < 1):
        raise Unsupported(
            f"a slice with the step {step!r}",
            help="steps are positive constants; fd.ops.flip(t, dims) turns a dim around",
        )


def _is_place(entry: Any) -> bool:
    """Return whether an entry is an integer, a size, or a scalar or 0-dim tensor of the fusion."""
    return isinstance(entry, Dim) or hasattr(entry, "__index__") or hasattr(entry, "definition")
