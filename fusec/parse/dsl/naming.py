"""Names of values: those that the script assigns them to, made unique."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fusec.ops.builder.build import GraphBuilder
from fusec.ops.names import MOST_LETTERS, UNUSED, is_name, label_of
from fusec.parse.dsl.place import Place


def _is_usable(name: str) -> bool:
    return is_name(name) and name != UNUSED


def fusion_name(source: str) -> str:
    """Return the name of a fusion from the script's file name."""
    stem = Path(source).stem
    return stem if _is_usable(stem) and len(stem) <= MOST_LETTERS else "fusion"


def input_name(builder: GraphBuilder, place: Place | None, given: str | None, else_: str) -> str:
    """Return the name of a new input: as given, as assigned to, or `else_`."""
    if given is not None:
        return given
    targets = place.targets if place is not None else ()
    if len(targets) == 1 and _is_usable(targets[0]):
        return builder.fresh_name(targets[0])
    return builder.fresh_name(else_)


def result_names(
    builder: GraphBuilder, place: Place | None, given: Any, count: int
) -> list[str] | None:
    """Return the names of `count` results, as given or as assigned to; None if there are none."""
    if given is not None:
        return [given] if isinstance(given, str) else list(given) or None
    targets = place.targets if place is not None else ()
    wanted = [t for t in targets if t != UNUSED]
    one_each = len(targets) == count and len(set(wanted)) == len(wanted) > 0
    if not one_each or not all(_is_usable(t) for t in wanted):
        return None
    return [builder.fresh_name(label_of(t, k)) for k, t in enumerate(targets)]
