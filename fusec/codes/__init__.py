"""Every code of errors, by number; where an error is raised, it names its code."""

from __future__ import annotations

from fusec.codes import (
    calls,
    declarations,
    document,
    names,
    segments,
    shapes,
    unsupported,
    usage,
)
from fusec.codes.code import Code

THEMES = (document, names, calls, declarations, shapes, segments, usage, unsupported)
CODES: dict[str, Code] = {
    value.number: value
    for theme in THEMES
    for value in vars(theme).values()
    if isinstance(value, Code)
}
"""Each code by its number, in order."""
RETIRED: frozenset[str] = frozenset()
"""Numbers of kinds that there are no more: nothing else may have them."""
