"""What passes over host programs know besides the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Known:
    """What passes know besides the program.

    sizes: that it is planned for, by name. streams: how many there are besides the caller's. By
    segment: seconds: the predicted time, where there is one; filled: the part of the GPU that its
    kernels fill, the whole where that is not said; scratch: bytes of its workspaces. event: seconds
    that one stream takes to wait for another.
    """

    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    streams: int = 4
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    filled: Mapping[str, float] = field(default_factory=dict[str, float])
    scratch: Mapping[str, int] = field(default_factory=dict[str, int])
    event: float = 0.0
