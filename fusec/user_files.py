"""Locations of the user's files of measured schedules."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fusec import trust
from fusec.options import environment

TUNED = "FUSEC_TUNED"
NO_FILES = "0"
"""The value of FUSEC_TUNED that also disables the files that come with fusec."""


def user_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the user's files if FUSEC_TUNED names none."""
    base = environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path(os.path.expanduser("~")) / ".config") / "fusec" / "tuned"


def user_file(arch: str) -> Path:
    """Return the user's file of a target, in the folder that FUSEC_TUNED names if it names one."""
    chosen = environment(TUNED)
    folder = user_folder() if chosen in (None, NO_FILES) else Path(chosen)
    return folder / f"{arch}.toml"


def check_own(path: Path) -> None:
    """Raise Untrusted if another user may have written a file of measured schedules."""
    trust.check(path.parent)
    trust.check(path)
