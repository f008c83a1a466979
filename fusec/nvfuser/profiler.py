"""What an execution cost, as far as fusec measures it: the time on the host."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from fusec.parse.dsl.refused import refuse


@dataclass(frozen=True)
class FusionProfile:
    """The milliseconds on the host, of all that ran while the profiler was on."""

    host_time_ms: float = 0.0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise refuse("profile", "FusionProfile")


_last = FusionProfile()


def get_fusion_profile() -> FusionProfile:
    """Return what the last profiler measured."""
    return _last


class PythonProfiler:
    """Measures what runs inside of `with PythonProfiler() as profiler:`."""

    def __init__(self, auto_scheduled: bool = True) -> None:
        """Measure nothing yet."""
        self.profile = FusionProfile()

    def __enter__(self) -> PythonProfiler:
        self._begin = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        global _last
        _last = self.profile = FusionProfile((time.perf_counter() - self._begin) * 1e3)
