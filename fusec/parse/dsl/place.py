"""Locations of calls in the user's script: the span, and the names assigned to."""

from __future__ import annotations

import contextlib
import inspect
import linecache
import os
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import FusecError, Span

_PACKAGE = str(Path(__file__).resolve().parents[2]) + os.sep
_SKIPPED = (_PACKAGE, contextlib.__file__)
_ASSIGNMENT = re.compile(r"\s*([A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*)\s*(?::[^=]*)?=\s*\(?\s*")
_SHOWN_WIDTH = 200


@dataclass(frozen=True)
class Place:
    """A call in a script: its span, the names that it is assigned to, the script's docstring."""

    span: Span
    targets: tuple[str, ...] = ()
    doc: str = ""


def is_own(frame: FrameType) -> bool:
    """Return whether a frame belongs to fusec itself."""
    return frame.f_code.co_filename.startswith(_SKIPPED)


def here() -> Place | None:
    """Return the location of the innermost call outside fusec."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and is_own(frame):
        frame = frame.f_back
    if frame is None:
        return None
    place = of_frame(frame.f_code, frame.f_lasti, frame.f_lineno)
    return replace(place, doc=inspect.cleandoc(frame.f_globals.get("__doc__") or ""))


@contextmanager
def placed() -> Generator[Place | None]:
    """Yield the location of the script's call, and add it to errors that have none."""
    place = here()
    try:
        yield place
    except FusecError as error:
        raise error.at(None if place is None else place.span) from None


def of_frame(code: CodeType, instruction: int, line: int) -> Place:
    """Return the location of one instruction."""
    start, end, column, end_column = _positions(code)[instruction // 2]
    start = start or line
    text = linecache.getline(code.co_filename, start).rstrip("\n")
    if column is None or not text:
        return Place(Span(code.co_filename, line, 1, 1, text[:_SHOWN_WIDTH]))
    # Positions count bytes of UTF-8, spans count characters.
    encoded = text.encode()
    first = len(encoded[:column].decode(errors="ignore"))
    last = len(text)
    if end == start and end_column is not None:
        last = len(encoded[:end_column].decode(errors="ignore"))
    assignment = _ASSIGNMENT.fullmatch(text[:first])
    # In `y = x.sum(0).exp()` the sum is also right of the `=`, but it is not the value of y.
    after = linecache.getline(code.co_filename, end or start).encode()[end_column:].decode()
    if not re.match(r"\s*\)?\s*(#|$)", after):
        assignment = None
    targets = re.split(r"\s*,\s*", assignment[1]) if assignment else []
    width = max(1, min(last, _SHOWN_WIDTH) - first)
    return Place(
        Span(code.co_filename, start, first + 1, width, text[:_SHOWN_WIDTH]), tuple(targets)
    )


@lru_cache(maxsize=256)
def _positions(code: CodeType) -> list[tuple[int | None, int | None, int | None, int | None]]:
    return list(code.co_positions())
