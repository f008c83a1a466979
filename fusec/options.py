"""Options of a compilation, and every environment variable, declared once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_TARGET = "sm_90a"

ENVIRONMENT = {
    "FUSEC_CACHE_DIR": "folder of the kernel cache (default: $XDG_CACHE_HOME/fusec, ~/.cache/fusec)",
    "FUSEC_TARGET": f"target when --target is not given (default: the GPU at hand, else {DEFAULT_TARGET})",
    "FUSEC_TRACEBACK": "set to 1 to see the traceback of an internal error",
    "NVFUSER_DUMP": "comma list of nvFuser's dump names, printed while `fusec run script.py` runs",
}
"""Environment variables and what they do."""


def environment(name: str) -> str | None:
    """Return the value of a declared environment variable, None where it is unset or empty."""
    assert name in ENVIRONMENT, f"{name} is not declared in fusec.options"
    return os.environ.get(name) or None


@dataclass(frozen=True)
class CompileOptions:
    """What a compilation depends on besides the fusion.

    targets: architectures to build for; decisions are made for the first; targets_given: whether the user
    chose them. without: passes left out;
    stop_after: last pass to run. pins: whether `segments:` of the file hold. jobs: parallel builds.
    """

    targets: tuple[str, ...] = (DEFAULT_TARGET,)
    targets_given: bool = False
    without: tuple[str, ...] = ()
    stop_after: str | None = None
    jobs: int | None = None
    use_cache: bool = True
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def target(self) -> str:
        """Return the target that decisions are made for."""
        return self.targets[0]
