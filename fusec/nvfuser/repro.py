"""Reproduction of a definition, with inputs similar to given ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fusec.nvfuser import multidevice
from fusec.parse.dsl.datatype import DataType
from fusec.parse.dsl.loops import ParallelType

if TYPE_CHECKING:
    from fusec.nvfuser.definition import FusionDefinition

_NAMES = {"DataType": DataType, "ParallelType": ParallelType, "multidevice": multidevice}
"""Names of nvFuser's modules that the calls of a definition use."""


class Description(str):
    """A call that creates an input like a given one."""

    __slots__ = ()


def call_for(value: Any) -> str:
    """Return a call of PyTorch that creates an input like a given one."""
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


def clone(source: FusionDefinition, target: FusionDefinition) -> None:
    """Define in `target` the fusion of `source`."""
    with target:
        define_by(source.calls.lines, target)


def define_by(lines: Sequence[str], target: FusionDefinition) -> None:
    """Make the calls of a definition, as `repr` prints them, on another one."""
    exec("\n".join(lines), {"fd": target, **_NAMES})


def names_of(lines: Sequence[str]) -> str:
    """Return the imports of a script whose definition has these lines."""
    used = [n for n in _NAMES if n == "DataType" or any(f"{n}." in line for line in lines)]
    return ", ".join(["FusionDefinition", *used])
