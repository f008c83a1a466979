"""Keyword arguments of `fusec.compile` and `fusec.segmentation`, as options of a compilation."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypedDict

from fusec.diagnostics import FusecError
from fusec.options import REDEFINITIONS, CompileOptions, ShouldMerge


class Options(TypedDict, total=False):
    """The keyword arguments of `fusec.compile` and `fusec.segmentation` that CompileOptions has.

    target: an architecture. They mean what the command line's flags of these names do;
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


def options_of(caller: str, given: Options) -> CompileOptions:
    """Return the options that keyword arguments ask for; FusecError for one that is none.

    caller: the function that they are given to, as errors say it.
    """
    rest: dict[str, Any] = dict(given)
    for name in rest:
        if name not in Options.__annotations__:
            close = difflib.get_close_matches(name, Options.__annotations__, n=1)
            hint = f"did you mean `{close[0]}`?" if close else ", ".join(Options.__annotations__)
            raise FusecError(f"{caller}() has no argument `{name}`", help=hint)
    target = rest.pop("target", None)
    if target is not None:
        rest |= {"targets": (target,), "targets_given": True}
    rest["sizes"] = rest.get("sizes") or {}
    for name in ("without", "with_"):
        if isinstance(rest.get(name), str):
            raise FusecError(f"{caller}(): `{name}` is a string, expected a list of names")
        rest[name] = tuple(rest.get(name, ()))
    if rest.get("redefine", "after") not in REDEFINITIONS:
        message = f"{caller}(): `redefine` is {rest['redefine']!r}"
        raise FusecError(message, help="one of " + ", ".join(REDEFINITIONS))
    rest["segments"] = {k: tuple(v) for k, v in rest.get("segments", {}).items()}
    return CompileOptions(**rest)
