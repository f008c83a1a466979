"""Who runs a fusion when a script calls `fd.execute`, and which definitions a script has made."""

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
"""Runs a fusion on its inputs and returns one array per output, or None if it only takes note."""


@dataclass
class Session:
    """The executor in charge and the definitions made while it is."""

    executor: Executor
    definitions: list[FusionDefinition] = field(default_factory=list["FusionDefinition"])

    @property
    def calls(self) -> bool:
        """Return whether fusions just run: nobody takes note of them."""
        return self.executor is _execute


def _execute(fusion: Fusion, actuals: tuple[Actual, ...]) -> Sequence[Any]:
    return execute(fusion, [a.array() for a in actuals])


_sessions: list[Session] = [Session(_execute)]


def current() -> Session:
    """Return the session in charge."""
    return _sessions[-1]


def set_executor(executor: Executor | None) -> None:
    """Let `executor` run fusions from now on; None: as at the start."""
    current().executor = executor or _execute


@contextmanager
def recording(executor: Executor) -> Generator[Session]:
    """Put `executor` in charge for a while and collect the definitions that are made."""
    session = Session(executor)
    _sessions.append(session)
    try:
        yield session
    finally:
        _sessions.remove(session)
