"""What NVRTC and its assembler say, as data: warnings, and the first error."""

from __future__ import annotations

import re

# Remarks of the assembler have a code, as (C7511): wgmma that is serialized, waits that it adds.
_WARNING = re.compile(r"\bwarning\b|\(C\d+\)|Advisory", re.IGNORECASE)
_ERROR = re.compile(
    r"^(?P<file>[^\s(]+)\((?P<line>\d+)\): (?:catastrophic )?error: (?P<what>.*)$", re.MULTILINE
)


def parse_warnings(log: str) -> tuple[str, ...]:
    """Return the lines of the log that warn of something."""
    return tuple(line for line in log.splitlines() if _WARNING.search(line))


def first_error(log: str, file: str) -> tuple[str, int]:
    """Return the first error's text, and its line where it lies in `file`, else 0."""
    errors = list(_ERROR.finditer(log))
    for error in errors:
        if error.group("file") == file:
            return error.group("what"), int(error.group("line"))
    if errors:
        return f"{errors[0].group('file')}: {errors[0].group('what')}", 0
    return (log.splitlines() or ["no log"])[0], 0
