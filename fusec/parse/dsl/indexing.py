"""`t[:, 1:4]`: Python's indexing as slices, selections and new dims."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from fusec.dataclasses import dataclass
from fusec.ir.dim import Dim, dim
from fusec.ir.graph import Value
from fusec.parse.dsl.taken import taken_by_tensors
from fusec.parse.subscripts import steps_of

if TYPE_CHECKING:
    from fusec.parse.dsl.handles import Tensor


@dataclass(frozen=True)
class Extent:
    """The size of a dim, looked up when the definition's steps are performed."""

    tensor: Tensor
    axis: int

    def size(self) -> Dim:
        """Return the current size."""
        return self.tensor.operand.shape[self.axis]

    @property
    def known_size(self) -> Dim | None:
        """Return the size, or None while the steps before it wait for sizes."""
        shape = self.tensor.known_shape
        return shape[self.axis] if shape else None


def index(tensor: Tensor, key: Any) -> Tensor:
    """Return `tensor[key]`: ints and scalars take one element of a dim, None adds a dim."""
    given: Sequence[Any] = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else [key]
    return _indexed(tensor, given, named=True)


def _indexed(tensor: Tensor, given: Sequence[Any], named: bool) -> Tensor:
    """Return a tensor at a key; named: it gets the name that the script assigns it to."""
    taken = taken_by_tensors(tensor, given, _indexed)
    if taken is not None:
        return taken
    extent = partial(Extent, tensor)
    steps = steps_of(given, tensor.ndim, extent, f"it is {tensor!r}")
    result = tensor
    for left, (name, arguments) in zip(reversed(range(len(steps))), steps, strict=True):
        # Only the last result gets the name that the script assigns.
        options = {"name": ()} if left or not named else {}
        result = tensor.definition.call(name, [result, *arguments], options)
    return result


def written_update(tensor: Tensor, key: Any, value: Any) -> str:
    """Return what to write for `tensor[key] = value`: an operation with the changed tensor."""
    keys: Sequence[Any] = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else [key]
    shape, operand = tensor.known_shape, tensor.operand
    whole = slice(None)
    pairs = zip([*keys, *[whole] * (len(shape) - len(keys))], shape, strict=False)
    parts = [_part(entry, size) for entry, size in pairs]
    known = [part for part in parts if part is not None]
    if not isinstance(operand, Value) or not known or len(known) < max(len(keys), len(shape)):
        return "y = fd.ops.update_slice(x, source, start_indices) is x with a slice replaced"
    starts = ", ".join(str(low) for low, _ in known)
    extents = ", ".join(str(extent) for _, extent in known)
    name, is_number = operand.name, isinstance(value, (int, float))
    source = f"fd.ops.full([{extents}], {value}, dtype={name}.dtype)" if is_number else "source"
    shown = "" if is_number else f" with a source of shape [{extents}]"
    line = f"{name}_2 = fd.ops.update_slice({name}, {source}, [{starts}])"
    return f"write `{line}`{shown}, and `{name}_2` for `{name}` in the lines below"


def _part(entry: Any, size: Dim) -> tuple[Dim, Dim] | None:
    """Return the start and the extent of an entry of a key; None if they are unknown."""
    low: Any = entry
    high: Any = None
    if isinstance(entry, slice):
        bounds = cast("slice[Any, Any, Any]", entry)
        low = 0 if bounds.start is None else bounds.start
        high = size if bounds.stop is None else bounds.stop
        if bounds.step not in (None, 1):
            return None
    elif isinstance(entry, int):
        high = entry + 1
    if any(isinstance(e, bool) or not isinstance(e, (int, Dim)) for e in (low, high)):
        return None
    start, end = dim(low), dim(high)
    return None if start.is_const and start.value < 0 else (start, end - start)
