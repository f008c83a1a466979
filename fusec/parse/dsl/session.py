"""The executor that `fd.execute` of a script uses, and the definitions of the script."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fusec.dataclasses import dataclass, field
from fusec.executor import execute
from fusec.ir.graph import Fusion

if TYPE_CHECKING:
    from fusec.parse.dsl.definition import FusionDefinition
    from fusec.parse.dsl.inputs import Actual

Executor = Callable[[Fusion, "tuple[Actual, ...]"], "Sequence[Any] | None"]
"""Runs a fusion on its inputs and returns one array per output, or None if it only records it."""


@dataclass
class Session:
    """The current executor, and the definitions created while it is current."""

    executor: Executor
    definitions: list[FusionDefinition] = field(default_factory=list["FusionDefinition"])

    @property
    def calls(self) -> bool:
        """Return whether fusions run directly, without being recorded."""
        return self.executor is _execute


def _execute(fusion: Fusion, actuals: tuple[Actual, ...]) -> Sequence[Any]:
    return execute(fusion, [a.array() for a in actuals])


_sessions: list[Session] = [Session(_execute)]


def current() -> Session:
    """Return the current session."""
    return _sessions[-1]


def set_executor(executor: Executor | None) -> None:
    """Make `executor` run fusions from now on; None: the default one."""
    current().executor = executor or _execute


@contextmanager
def recording(executor: Executor) -> Generator[Session]:
    """Make `executor` current within a context, and collect the definitions created in it."""
    session = Session(executor)
    _sessions.append(session)
    try:
        yield session
    finally:
        _sessions.remove(session)
