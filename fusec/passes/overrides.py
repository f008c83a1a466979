"""Schedule overrides of values that a pass removes: they are moved to nearby values."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from fusec.dataclasses import replace
from fusec.ir.annotations import Override
from fusec.ir.graph import Fusion, Value


def carry_overrides(before: Fusion, after: Fusion) -> Fusion:
    """Return a fusion whose overrides name computed values, if one is near.

    A value that a pass computes differently or removes is looked up in the graph before the pass:
    the nearest value computed from it, else the nearest that it is computed from. The name of a
    complex output means both of its parts.
    """
    if not after.schedules or after is before:
        return after
    kept = {value.name for node in after.nodes for value in node.outputs}
    kept |= {output.part.of for output in after.outputs if output.part is not None}
    gone = {
        value.name: value
        for node in before.nodes
        for value in node.outputs
        if value.name not in kept
    }
    if not any(override.of in gone for override in after.schedules):
        return after
    carried: dict[tuple[str, str], Override] = {}
    for override in after.schedules:
        value = gone.get(override.of)
        near = None if value is None else _nearest(before, value, kept)
        found = override if near is None else replace(override, of=near)
        carried.setdefault((found.of, found.name), found)
    return replace(after, schedules=tuple(carried.values()))


def _nearest(before: Fusion, value: Value, kept: set[str]) -> str | None:
    for forward in (True, False):
        seen, queue = {value}, deque([value])
        while queue:
            current = queue.popleft()
            if current.name in kept:
                return current.name
            neighbours = _after(before, current) if forward else _before(before, current)
            for other in neighbours:
                if other not in seen:
                    seen.add(other)
                    queue.append(other)
    return None


def _after(fusion: Fusion, value: Value) -> Iterator[Value]:
    for node in fusion.users.get(value, ()):
        yield from node.outputs


def _before(fusion: Fusion, value: Value) -> Iterator[Value]:
    if value in fusion.producer:
        yield from fusion.producer[value].inputs
