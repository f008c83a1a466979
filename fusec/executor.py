"""Who runs a fusion where a plain program calls `fd.execute`: given by the package's root.

A front end stands below the stages that run what it reads, and imports none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from fusec.ir.graph import Fusion

Execute = Callable[["Fusion", Sequence[Any]], list[Any]]
"""Returns one array per output for one array per input, of NumPy."""


class Called(Protocol):
    """A program: called with tensors on a GPU, and numbers."""

    def __call__(self, *arguments: Any) -> Any:
        """Return the output, or a tuple of several."""
        ...

    def again(self, *arguments: Any) -> Any:
        """Return the same for arguments that look as the last ones did, else NotImplemented."""
        ...


ProgramOf = Callable[["Fusion"], Called]
"""Returns the program of a fusion, the same one for the same fusion."""

Describe = Callable[["Fusion", str], str]
"""Returns what a fusion is compiled to: `cuda`, its kernels, `segments`, nvFuser's dump, or the
names of `schedulers`."""


class Ranks(Protocol):
    """Which rank this process is, of all and of those of its host."""

    @property
    def rank(self) -> int:
        """Return the number of the rank, from 0 on."""
        ...

    @property
    def size(self) -> int:
        """Return how many ranks there are."""
        ...

    @property
    def local_rank(self) -> int:
        """Return the number among the ranks of its host."""
        ...

    @property
    def local_size(self) -> int:
        """Return how many ranks the host has; 0 where nobody tells."""
        ...


RanksOf = Callable[[], Ranks]
"""Returns the ranks that the process was started among."""

Barrier = Callable[[], None]
"""Waits until all ranks are there."""

_given: list[Execute] = []
_program: list[ProgramOf] = []
_describe: list[Describe] = []
_ranks: list[RanksOf] = []
_barrier: list[Barrier] = []


def give(
    execute: Execute, program: ProgramOf, describe: Describe, ranks: RanksOf, barrier: Barrier
) -> None:
    """Let `execute` and programs run fusions, `describe` print them, and `ranks` say who runs."""
    _given[:] = [execute]
    _program[:] = [program]
    _describe[:] = [describe]
    _ranks[:] = [ranks]
    _barrier[:] = [barrier]


def execute(fusion: Fusion, arrays: Sequence[Any]) -> list[Any]:
    """Run a fusion on its inputs."""
    return _given[0](fusion, arrays)


def program(fusion: Fusion) -> Called:
    """Return the program that runs a fusion on tensors of a GPU."""
    return _program[0](fusion)


def describe(fusion: Fusion, what: str) -> str:
    """Return what a fusion is compiled to, as text, or as a `page` for notebooks."""
    return _describe[0](fusion, what)


def ranks() -> Ranks:
    """Return the ranks that this process was started among: one where nobody has said more."""
    return _ranks[0]()


def barrier() -> None:
    """Wait until all ranks are there."""
    _barrier[0]()
