"""Inputs as the calls of PyTorch that make such ones."""

from __future__ import annotations

from typing import Any


class Description(str):
    """A call that makes an input like a given one."""

    __slots__ = ()


def call_for(value: Any) -> str:
    """Return a call of PyTorch that makes an input like a given one."""
    if isinstance(value, Description) or not hasattr(value, "stride"):
        return value if isinstance(value, Description) else Description(repr(value))
    size, strides = tuple(value.shape), tuple(value.stride())
    of = f"dtype={value.dtype}, device='{value.device}'"
    if value.is_contiguous():
        return Description(f"torch.testing.make_tensor({size}, {of})")
    length = 1 + sum((n - 1) * s for n, s in zip(size, strides, strict=True))
    return Description(
        f"torch.testing.make_tensor(({length},), {of}).as_strided({size}, {strides})"
    )
