"""The names in `schedules:`, as far as they can be checked before there are segments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from keyword import iskeyword

from fusec.diagnostics import FusecError
from fusec.ir.annotations import Override
from fusec.ir.graph import Fusion
from fusec.options import SCHEDULERS

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
WORD = r"([A-Za-z_][A-Za-z0-9_]*|[0-9]+x[0-9]+)\Z"
"""A field value other than a number: a word, or two extents as `4x2`."""
SEGMENT = r"s(0|[1-9][0-9]{0,5})\Z"
"""Names of segments by number."""

_CLOSE = 0.75
"""Minimum similarity to suggest a scheduler: `softmx` is an operation, not the sort scheduler."""


def check_overrides(fusion: Fusion, overrides: Sequence[Override]) -> None:
    """Raise FusecError if an override names nothing, or sets a field twice."""
    made = [v.name for n in fusion.nodes for v in n.outputs]
    known = {*made, *(p.name for p in fusion.pins), *SCHEDULERS}
    inputs = {i.value.name for i in fusion.inputs}
    first: dict[tuple[str, str], Override] = {}
    for each in overrides:
        if each.of in inputs:
            raise FusecError(
                f"`{each.of}` is an input: schedules apply to computed values",
                span=each.of_span,
                help="name a result of an op",
            )
        if each.of not in known and not re.match(SEGMENT, each.of):
            import difflib

            own = sorted(known.difference(SCHEDULERS))
            close = difflib.get_close_matches(each.of, own, n=1)
            close = close or difflib.get_close_matches(each.of, SCHEDULERS, n=1, cutoff=_CLOSE)
            output = fusion.outputs[0].value.name
            raise FusecError(
                f"unknown value, segment or scheduler `{each.of}`",
                span=each.of_span,
                help=f"did you mean `{close[0]}`?"
                if close
                else f"name a computed value, as `{output}`, a segment (`s0`, or a name in "
                "`segments:`), or a scheduler for all of its segments, as `fusec check` prints "
                "them; an operation is named by its result",
            )
        if fusion.phases and each.of not in known:
            message = f"segment `{each.of}` is ambiguous: the fusion has several phases"
            raise FusecError(
                message, span=each.of_span, help="name a value that the segment computes"
            )
        if not IDENTIFIER.match(each.name) or iskeyword(each.name):
            raise FusecError(f"no schedule has a parameter `{each.name}`", span=each.name_span)
        if isinstance(each.value, str) and not re.match(WORD, each.value):
            plain = each.value.lstrip("-").isdigit()
            raise FusecError(
                f"`{each.name}` cannot be the text `{each.value}`",
                span=each.span,
                help=f"write {each.value} without quotes"
                if plain
                else "values are integers, "
                "bools and words: `fusec dump FILE --schedule-space` lists them",
            )
        earlier = first.setdefault((each.of, each.name), each)
        if earlier is not each:
            place = f"first at {earlier.span.place()}" if earlier.span else "first before"
            message = f"`{each.name}` of `{each.of}` is set twice"
            raise FusecError(message, span=each.span, notes=[place])
