"""The device on which `fd.execute` runs, and the types of its results."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from fusec.diagnostics import FusecError
from fusec.parse.dsl.inputs import Actual, to_torch

Wrap = Callable[[Any, "tuple[int, ...] | None"], Any]
"""Converts an array and its stride order to a result of the caller's type."""


def index_of(device: Any) -> int | None:
    """Return the number of a GPU, given as a number, a name or torch.device; None for any."""
    if device is None or (isinstance(device, int) and not isinstance(device, bool)):
        return device
    named = re.fullmatch(r"cuda(?::(\d+))?", str(device))
    if named is None:
        raise FusecError(
            f"`{device}` is not a GPU", help="pass cuda, cuda:1 or a number, or omit `device`"
        )
    return None if named[1] is None else int(named[1])


def check_device(given: Sequence[Any], index: int | None) -> int | None:
    """Return the GPU of the inputs, or the requested one; FusecError if they differ."""
    for value in given:
        if not getattr(value, "is_cuda", False) or isinstance(value.device, str):
            continue
        own = value.device.index
        index = own if index is None else index
        if own != index:
            raise FusecError(
                f"an input is on cuda:{own}, but the fusion runs on cuda:{index}",
                help="move all inputs to one GPU and omit `device`",
            )
    return index


def all_on_gpu(given: Sequence[Any]) -> bool:
    """Return whether a call can use inputs directly: PyTorch tensors on a GPU, and numbers."""
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)
    tensors = 0
    for value in given:
        if kind is not None and isinstance(value, kind):
            if not value.is_cuda or value.data_ptr() % _ALIGNMENT or value.is_conj():
                return False
            tensors += 1
        elif not isinstance(value, (bool, int, float, complex)):
            return False
    return tensors > 0


_ALIGNMENT = 16
"""Required alignment of addresses in bytes; other inputs are copied first."""


def on_device(index: int | None) -> AbstractContextManager[Any]:
    """Make `index` PyTorch's current GPU within a context."""
    if index is None or "torch" not in sys.modules:
        return nullcontext()
    return sys.modules["torch"].cuda.device(index)


def wrap_for(actuals: Sequence[Actual], index: int | None, *, prefers_torch: bool) -> Wrap | None:
    """Return the conversion of results to the caller's type: that of the first non-NumPy input.

    Without such an input they are tensors on the GPU if `prefers_torch` and PyTorch is loaded.
    """
    for actual in actuals:
        if actual.wrap is not None and actual.shape is not None:
            return actual.wrap
    if any(a.shape is not None and a.shape for a in actuals) or not prefers_torch:
        return None
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda"):
        return None
    device = torch.device("cuda", index) if torch.cuda.is_available() else torch.device("cpu")
    return lambda result, order: to_torch(result, order, device)
