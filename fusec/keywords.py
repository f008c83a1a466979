"""Keyword arguments of `fusec.compile` and `fusec.segmentation`, as options of a compilation."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypedDict, cast

import numpy as np

from fusec.diagnostics import FusecError
from fusec.left_out import check_pass_names
from fusec.options import (
    MOST_CHUNKS,
    MOST_STREAMS,
    REDEFINITIONS,
    CompileOptions,
    ShouldMerge,
)


class Options(TypedDict, total=False):
    """The keyword arguments of `fusec.compile` and `fusec.segmentation` that are in CompileOptions.

    target: an architecture. They have the meaning of the command line's flags of these names;
    should_merge and segments are as in CompileOptions.
    """

    target: str | None
    sizes: Mapping[str, int] | None
    schedule: str | None
    check_bounds: bool
    precise: bool
    as_written: bool
    without: Collection[str]
    with_: Collection[str]
    stop_after: str | None
    redefine: str
    untuned: bool
    overlap: bool
    streams: int
    sum_chunks: int
    should_merge: ShouldMerge | None
    segments: Mapping[str, Sequence[str]]


_KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "target": (lambda v: v is None or isinstance(v, str), "the name of an architecture"),
    "sizes": (
        lambda v: v is None or _is_dict(v, _is_int),
        "a dict of integers by the names of dims",
    ),
    "schedule": (lambda v: v is None or isinstance(v, (str, os.PathLike)), "the path of a file"),
    "without": (lambda v: _is_names(v), "a list of names"),
    "with_": (lambda v: _is_names(v), "a list of names"),
    "stop_after": (lambda v: v is None or isinstance(v, str), "the name of a pass"),
    "redefine": (lambda v: v in REDEFINITIONS, "one of " + ", ".join(REDEFINITIONS)),
    "streams": (
        lambda v: _is_int(v) and 1 <= v <= MOST_STREAMS,
        f"an integer from 1 to {MOST_STREAMS}",
    ),
    "sum_chunks": (
        lambda v: _is_int(v) and 0 <= v <= MOST_CHUNKS,
        f"an integer from 0 to {MOST_CHUNKS}",
    ),
    "should_merge": (lambda v: v is None or callable(v), "a function of two fusions"),
    "segments": (
        lambda v: _is_dict(v, _is_names),
        "a dict of lists of values by the names of segments",
    ),
}
"""Valid values of an option: a test, and its text in the error. Others are True or False."""


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_dict(value: Any, fits: Callable[[Any], bool]) -> bool:
    if not isinstance(value, Mapping):
        return False
    given = cast("Mapping[Any, Any]", value)
    return all(isinstance(name, str) and fits(each) for name, each in given.items())


def _is_names(value: Any) -> bool:
    if isinstance(value, str) or not isinstance(value, Collection):
        return False
    return all(isinstance(each, str) for each in cast("Collection[Any]", value))


def _check_kind(caller: str, name: str, value: Any) -> None:
    """Raise FusecError for a value that an option cannot have."""
    fits, expected = _KINDS.get(name, (lambda v: isinstance(v, bool), "True or False"))
    if not fits(value):
        raise FusecError(f"{caller}(): `{name}` is {value!r}", help=expected)


def options_of(caller: str, given: Options) -> CompileOptions:
    """Return the options that keyword arguments set; FusecError for an unknown or invalid one.

    caller: the function that they are passed to, for error messages.
    """
    rest: dict[str, Any] = dict(given)
    for name in rest:
        if name not in Options.__annotations__:
            close = difflib.get_close_matches(name, Options.__annotations__, n=1)
            hint = f"did you mean `{close[0]}`?" if close else ", ".join(Options.__annotations__)
            raise FusecError(f"{caller}() has no argument `{name}`", help=hint)
        _check_kind(caller, name, rest[name])
    target = rest.pop("target", None)
    if target is not None:
        rest |= {"targets": (target,), "targets_given": True}
    rest["sizes"] = rest.get("sizes") or {}
    for name in ("without", "with_"):
        rest[name] = tuple(rest.get(name, ()))
    rest["segments"] = {k: tuple(v) for k, v in rest.get("segments", {}).items()}
    options = CompileOptions(**rest)
    check_pass_names(options)
    return options
