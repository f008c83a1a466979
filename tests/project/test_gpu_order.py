"""Early tests begin first, in every process of a run with `--dist worksteal`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_order import early_first


def item(name: str, case: str | None, early: bool) -> Any:
    call = {} if case is None else {"callspec": SimpleNamespace(id=case)}
    return SimpleNamespace(
        name=name, path=Path("f.py"), get_closest_marker=lambda _: early or None, **call
    )


@pytest.mark.parametrize("processes", [1, 3, 4, 16])
@pytest.mark.parametrize("others", [0, 5, 200])
def test_early_tests_begin_first_and_share_by_case(others: int, processes: int) -> None:
    plain = [item(f"plain {k}", None, False) for k in range(others)]
    early = [item(f"{t} {c}", c, True) for t in "ab" for c in ("c1", "c2", "c3")]
    early.append(item("alone", None, True))
    given = [*plain[: others // 2], *early, *plain[others // 2 :]]
    found: list[Any] = early_first(given, processes)
    assert sorted(i.name for i in found) == sorted(i.name for i in given)
    assert [i for i in found if i in plain] == plain
    for case in ("c1", "c2", "c3"):
        first, second = (k for k, i in enumerate(found) if i.name.endswith(case))
        assert second == first + 1
    if others < 200:
        return
    at = 0
    for number in range(processes):  # as xdist's worksteal divides the tests
        part = found[at : at + (len(found) - at) // (processes - number)]
        at += len(part)
        is_early = [i in early for i in part]
        assert is_early == sorted(is_early, reverse=True)
        assert any(is_early) == (number < 4)
