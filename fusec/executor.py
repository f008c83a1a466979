"""Who runs a fusion where a plain program calls `fd.execute`: given by the package's root.

A front end stands below the stages that run what it reads, and imports none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusec.ir.graph import Fusion

Execute = Callable[["Fusion", Sequence[Any]], list[Any]]
"""Returns one array per output for one array per input: NumPy's, or tensors on a GPU."""

Describe = Callable[["Fusion", str], str]
"""Returns what a fusion is compiled to: `cuda`, its kernels, or `segments`, nvFuser's dump."""

_given: list[Execute] = []
_describe: list[Describe] = []


def give(execute: Execute, describe: Describe) -> None:
    """Let `execute` run fusions, and `describe` print them, from now on."""
    _given[:] = [execute]
    _describe[:] = [describe]


def execute(fusion: Fusion, arrays: Sequence[Any]) -> list[Any]:
    """Run a fusion on its inputs."""
    return _given[0](fusion, arrays)


def describe(fusion: Fusion, what: str) -> str:
    """Return what a fusion is compiled to, as text."""
    return _describe[0](fusion, what)
