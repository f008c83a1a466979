"""Parses the log of NVRTC and ptxas: warnings, and the first error."""

from __future__ import annotations

import re

# Remarks of ptxas have a code, as (C7511): wgmma that is serialized, inserted waits.
_WARNING = re.compile(r"\bwarning\b|\(C\d+\)|Advisory", re.IGNORECASE)
_ERROR = re.compile(
    r"^(?P<file>[^\s(]+)\((?P<line>\d+)\): (?:catastrophic )?error: (?P<what>.*)$", re.MULTILINE
)


def parse_warnings(log: str) -> tuple[str, ...]:
    """Return the lines of the log that are warnings."""
    return tuple(line for line in log.splitlines() if _WARNING.search(line))


def first_error(log: str, file: str) -> tuple[str, int]:
    """Return the first error's message, and its line if it is in `file`, else 0."""
    errors = list(_ERROR.finditer(log))
    for error in errors:
        if error.group("file") == file:
            return error.group("what"), int(error.group("line"))
    if errors:
        return f"{errors[0].group('file')}: {errors[0].group('what')}", 0
    return (log.splitlines() or ["no log"])[0], 0
