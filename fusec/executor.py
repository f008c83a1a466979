"""The implementation of `fd.execute` for plain Python programs, injected by the root package.

A front end is a layer below the stages that run its fusions, and imports none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from fusec.ir.graph import Fusion

Execute = Callable[["Fusion", Sequence[Any]], list[Any]]
"""Returns one NumPy array per output for one per input."""


class Called(Protocol):
    """A program: called with tensors on a GPU, and numbers."""

    def __call__(self, *arguments: Any) -> Any:
        """Return the output, or a tuple of several."""
        ...

    def again(self, *arguments: Any) -> Any:
        """Return the same for arguments that match the last ones, else NotImplemented."""
        ...


ProgramOf = Callable[["Fusion"], Called]
"""Returns the program of a fusion, the same one for the same fusion."""

Describe = Callable[["Fusion", str], str]
"""Returns the compilation of a fusion as text.

`cuda`: its kernels, `segments`: nvFuser's dump, or the names of `schedulers`.
"""


class Ranks(Protocol):
    """The rank of this process, among all and among those of its host."""

    @property
    def rank(self) -> int:
        """Return the index of the rank, from 0."""
        ...

    @property
    def size(self) -> int:
        """Return the number of ranks."""
        ...

    @property
    def local_rank(self) -> int:
        """Return the index among the ranks of its host."""
        ...

    @property
    def local_size(self) -> int:
        """Return the number of ranks on the host; 0 where it is unknown."""
        ...


RanksOf = Callable[[], Ranks]
"""Returns the ranks of the process's run."""

Barrier = Callable[[], None]
"""Waits for all ranks."""

_given: list[Execute] = []
_program: list[ProgramOf] = []
_describe: list[Describe] = []
_ranks: list[RanksOf] = []
_barrier: list[Barrier] = []


def give(
    execute: Execute, program: ProgramOf, describe: Describe, ranks: RanksOf, barrier: Barrier
) -> None:
    """Inject the functions that run fusions, make programs, print them, and return the ranks."""
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
    """Return the compilation of a fusion as text, or as a `page` for notebooks."""
    return _describe[0](fusion, what)


def ranks() -> Ranks:
    """Return the ranks of the process's run; a single one by default."""
    return _ranks[0]()


def barrier() -> None:
    """Wait for all ranks."""
    _barrier[0]()
