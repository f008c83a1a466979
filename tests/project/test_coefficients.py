"""Coefficients of the cost model are data of a target: floats left in schedulers are listed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from package_trees import tree_of
from paths import ROOT

SCHEDULE = ROOT / "fusec" / "schedule"

MARGIN = "how much better a choice must be than a simpler one"
COUNT = "a count of instructions or operations"

LEFT: Mapping[str, str] = {
    "schedule/attention/backward/values.py:_FAR": "a score that stands for minus infinity",
    "schedule/rows/inner_outer_persistent/choice.py:EQUAL": MARGIN,
    "schedule/settings/listing.py:_time_text": "microseconds of a second",
    "schedule/matmul/operands/packed.py:_codes": "the range of a byte",
    "schedule/matmul/cost/work.py:_TOTAL": COUNT,
    "schedule/matmul/cost/work.py:_COMPUTED": COUNT,
    "schedule/pointwise/choice.py:ROWS": COUNT,
    "schedule/pointwise/choice.py:_cost": COUNT,
    "schedule/rows/reduction/choice.py:LARGER": MARGIN,
    "schedule/rows/inner_persistent/ring.py:IDLE": MARGIN,
    "schedule/transpose/family.py:MOST_UNITS": MARGIN,
    "schedule/settings/tuned.py:MOST_DISTANCE": "how far sizes may be from the measured ones",
    "schedule/settings/tuned.py:DEARER": MARGIN,
}
"""`file:definition` of each, and why it is no coefficient that was fitted to times on a GPU."""

PLAIN = (0.0, 0.5, 1.0, 2.0)
"""Of formulas."""


def floats_in(tree: ast.Module) -> Iterator[tuple[str, float]]:
    """Yield each float of a module that is not plain, with the top-level name that has it."""
    for node in tree.body:
        for inner in ast.walk(node):
            value = inner.value if isinstance(inner, ast.Constant) else None
            if isinstance(value, float) and value not in PLAIN:
                yield _name(node), value


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    return next(n.id for n in ast.walk(node) if isinstance(n, ast.Name))


def test_coefficients_are_in_target_files() -> None:
    """A fitted number in a scheduler would be used for every GPU without a word."""
    found = {
        f"{path.relative_to(SCHEDULE.parent).as_posix()}:{name}": value
        for path in sorted(SCHEDULE.rglob("*.py"))
        for name, value in floats_in(tree_of(path))
    }
    assert {at: value for at, value in found.items() if at not in LEFT} == {}
    assert LEFT.keys() - found.keys() == set()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("_RATE = 0.9", [("_RATE", 0.9)]),
        ("_RATES = {1: 0.65, 2: 1.0}", [("_RATES", 0.65)]),
        ("def seconds(x: float) -> float:\n    return 2.0 * x + 1e-6", [("seconds", 1e-6)]),
        ("TILES = (8, 16)\nHALF = 0.5", []),
    ],
)
def test_floats_are_found(text: str, found: list[tuple[str, float]]) -> None:
    assert list(floats_in(ast.parse(text))) == found


def test_every_coefficient_is_read() -> None:
    """A key that no formula reads is one whose fit has no effect."""
    from dataclasses import fields

    from fusec.schedule.pressure import WEIGHED
    from fusec.target.costs import Costs, RegisterWeights

    text = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("schedule", "segment")
        for path in sorted((ROOT / "fusec" / folder).rglob("*.py"))
    )
    own = Path(ROOT / "fusec" / "target" / "costs.py").read_text(encoding="utf-8")
    names = {f.name for table in fields(Costs) for f in fields(table.type)}
    unread = {n for n in names if f".{n}" not in text and f"self.{n}" not in own}
    assert unread == set()
    assert tuple(f.name for f in fields(RegisterWeights)) == WEIGHED
