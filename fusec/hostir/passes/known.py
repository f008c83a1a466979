"""What passes over host programs know besides the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Known:
    """What passes know besides the program.

    sizes: that it is planned for, by name. streams: how many there are besides the caller's.
    seconds: the predicted time of each segment, by name, where there is one.
    """

    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    streams: int = 4
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
