"""Cost of an execution, as far as fusec measures it: host time, and the definitions that ran."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fusec import executor
from fusec.dataclasses import dataclass
from fusec.nvfuser.caches import form
from fusec.parse.dsl.inputs import adopt
from fusec.parse.dsl.refused import refuse

if TYPE_CHECKING:
    from fusec.ir.graph import Fusion
    from fusec.nvfuser.definition import FusionDefinition

Ran = Callable[[], "Fusion"]
"""Returns the fusion that ran."""


@dataclass(frozen=True)
class KernelProfile:
    """One segment that ran, by the name of its scheduler."""

    scheduler: str

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise refuse("profile", "KernelProfile")


@dataclass(frozen=True)
class FusionProfile:
    """Host milliseconds of all executions while the profiler was on."""

    host_time_ms: float = 0.0
    ran: tuple[Ran, ...] = ()

    @property
    def kernel_profiles(self) -> list[KernelProfile]:
        """Return the segments that ran, communication between ranks among them."""
        names = (executor.describe(fusion(), "schedulers") for fusion in self.ran)
        return [KernelProfile(name) for listed in names for name in listed.split()]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise refuse("profile", "FusionProfile")


_last = FusionProfile()
_active: list[PythonProfiler] = []


def get_fusion_profile() -> FusionProfile:
    """Return the measurements of the last profiler."""
    return _last


def note(definition: FusionDefinition, inputs: Iterable[Any]) -> Iterable[Any]:
    """Notify the active profilers of a definition that runs with some inputs; return the inputs."""
    if not _active:
        return inputs
    given = list(inputs)
    forms = tuple(form(actual) for actual in adopt(given))
    for profiler in _active:
        profiler.ran.append(lambda: definition.graph_for(forms))
    return given


class PythonProfiler:
    """Measures executions inside of `with PythonProfiler() as profiler:`."""

    def __init__(self, auto_scheduled: bool = True) -> None:
        """Start without measurements."""
        self.profile = FusionProfile()
        self.ran: list[Ran] = []

    def __enter__(self) -> PythonProfiler:
        _active.append(self)
        self._begin = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        global _last
        took = (time.perf_counter() - self._begin) * 1e3
        _active.remove(self)
        _last = self.profile = FusionProfile(took, tuple(self.ran))
