"""Who runs a fusion when a script calls `fd.execute`, and which definitions a script has made."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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


def _execute_with_driver(fusion: Fusion, actuals: tuple[Actual, ...]) -> Sequence[Any]:
    # The driver stands above the front ends: looked up only when a plain program needs it.
    driver = importlib.import_module("fusec.driver")
    return driver.execute(fusion, [a.array() for a in actuals])


_sessions: list[Session] = [Session(_execute_with_driver)]


def current() -> Session:
    """Return the session in charge."""
    return _sessions[-1]


def set_executor(executor: Executor | None) -> None:
    """Let `executor` run fusions from now on; None: the driver, as at the start."""
    current().executor = executor or _execute_with_driver


@contextmanager
def recording(executor: Executor) -> Generator[Session]:
    """Put `executor` in charge for a while and collect the definitions that are made."""
    session = Session(executor)
    _sessions.append(session)
    try:
        yield session
    finally:
        _sessions.remove(session)
