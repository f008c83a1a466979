"""The order of GPU tests: those marked `early` begin first, each process of a run with some."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby, islice

import pytest
from _pytest.mark import ParameterSet


def marked_early(name: str, early: Collection[str]) -> ParameterSet | str:
    """Return a test's parameter, marked where it is one of those that take long."""
    return pytest.param(name, marks=pytest.mark.early) if name in early else name


def early_first(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    """Return tests so that the early ones are at the starts of the parts that processes get.

    `--dist worksteal` gives each process an equal part of the tests in their order, and others
    take from its end. Early tests of a file with the same parameters share what they compute, and
    stay together.
    """
    early = [i for i in items if i.get_closest_marker("early") is not None]
    rest = iter([i for i in items if i.get_closest_marker("early") is None])
    groups = [list(group) for _, group in groupby(sorted(early, key=_shared), key=_shared)]
    starts: list[list[pytest.Item]] = [[] for _ in range(processes)]
    for number, group in enumerate(groups):
        starts[number % processes] += group
    ordered: list[pytest.Item] = []
    for number, start in enumerate(starts):
        size = (len(items) - len(ordered)) // (processes - number)
        # More early tests than a part has are the next part's.
        ordered += start
        ordered += islice(rest, max(size - len(start), 0))
    return [*ordered, *rest]


def _shared(item: pytest.Item) -> tuple[str, str]:
    call = getattr(item, "callspec", None)
    return str(item.path), item.name if call is None else call.id
