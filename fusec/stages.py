"""Stages: functions whose values are computed on first use, timed and verified."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, overload

from fusec.activity import activity
from fusec.dataclasses import dataclass, field
from fusec.options import CompileOptions

T = TypeVar("T")


class Recorded:
    """A value computed by an earlier process; read: decodes it."""

    def __init__(self, read: Callable[[], Any]) -> None:
        """Create without decoding."""
        self.read = read


def made_earlier(program: Staged, name: str) -> Any:
    """Return a value that is computed or recorded, decoded once; None if it is neither."""
    found = program.made.get(name)
    if isinstance(found, Recorded):
        found = program.made[name] = found.read()
    return found


@dataclass
class Timings:
    """Seconds by stage, in order; of: the name of what is compiled, for logs."""

    of: str = ""
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def measure(self, stage: str, function: Callable[[], T]) -> T:
        """Return the result of `function`, adding its time to `stage`."""
        start = time.perf_counter()
        with activity(f"{stage} {self.of}".rstrip()):
            result = function()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start
        return result


class Staged(Protocol):
    """An object with stages, as a program: `made` holds their results so far, by attribute."""

    options: CompileOptions
    timings: Timings
    made: dict[str, Any]


class Stage(Generic[T]):
    """A stage of a program: timed by its name, it computes one value from those of other stages.

    run: takes these values and the options; raises FusecError for invalid input. verify: raises
    InternalError for an invalid value. dumps: the DUMP_KINDS that show the value.
    """

    gives: str

    def __init__(
        self,
        name: str,
        run: Callable[..., T],
        *takes: str,
        verify: Callable[[T], None] | None = None,
        dumps: tuple[str, ...] = (),
    ) -> None:
        """Create a stage that takes the attributes of a program in `takes`."""
        self.name, self.run, self.takes = name, run, takes
        self.verify, self.dumps = verify, dumps

    def __set_name__(self, owner: type, name: str) -> None:
        self.gives = name

    @overload
    def __get__(self, program: None, owner: type) -> Stage[T]: ...
    @overload
    def __get__(self, program: Staged, owner: type) -> T: ...
    def __get__(self, program: Staged | None, owner: type) -> Stage[T] | T:
        if program is None:
            return self
        if made_earlier(program, self.gives) is None:
            taken = [getattr(program, name) for name in self.takes]
            program.made[self.gives] = program.timings.measure(
                self.name, lambda: self._verified(self.run(*taken, program.options))
            )
        return program.made[self.gives]

    def _verified(self, value: T) -> T:
        if self.verify is not None:
            self.verify(value)
        return value
