"""`t[:, 1:4]`: Python's indexing as slices, selections and new dims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from fusec.ir.dim import Dim
from fusec.parse.subscripts import steps_of

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
    """Return `tensor[key]`: ints and scalars take one element of a dim, None adds a dim."""
    given: Sequence[Any] = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else [key]
    extent = partial(Extent, tensor)
    steps = steps_of(given, tensor.ndim, extent, f"it is {tensor!r}")
    result = tensor
    for left, (name, arguments) in zip(reversed(range(len(steps))), steps, strict=True):
        # The last result alone is what the script assigns to a name.
        options = {"name": ()} if left else {}
        result = tensor.definition.call(name, [result, *arguments], options)
    return result
