"""Positions where errors decide: those of rivals are right, others differ."""

from __future__ import annotations

import numpy as np
import pytest

from fusec.parse import read_text
from fusec.reference.errors import rivals
from fusec.reference.verdict import NOT_DECIDED, Verdict, compare

COUNT = 16
TIED = (3, 9)
"""Elements of each row that are as large as one another, but for their roundings."""


def rows(tied: tuple[int, ...] = TIED) -> np.ndarray:
    """Return rows whose largest elements are sums of the same terms in another order."""
    x = np.zeros((8, COUNT, 4), np.float32)
    x[:, :, 0] = -np.arange(1, COUNT + 1)
    rng = np.random.default_rng(0)
    terms = rng.uniform(1, 2, (8, 4)).astype(np.float32)
    for number, k in enumerate(tied):
        x[:, k] = np.roll(terms, number, axis=1)
    return x


def judged(call: str, outputs: dict[str, np.ndarray], x: np.ndarray) -> Verdict:
    text = f"""
fusion: f
inputs: {{x: "f32[8, {COUNT}, 4]"}}
ops:
  - s = sum(x, dims=[2])
  - {call}
outputs: [{", ".join(outputs)}]
"""
    return compare(read_text(text, "f.yaml"), {}, {"x": x}, outputs)


def test_many_positions_in_a_row_are_counted_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    x, reach = rng.uniform(0, 1, (4, 40)), rng.uniform(0, 0.5, (4, 40))
    ends = np.sort(x - reach, axis=1), np.sort(x + reach, axis=1)
    found = rivals.rivals_in_order(x, reach, 1, ends)
    _, is_open = found.judged(np.zeros((4, 40), np.int64))
    monkeypatch.setattr(rivals, "FEW", 40)
    _, again = found.judged(np.zeros((4, 40), np.int64))
    assert np.array_equal(is_open, again)
    assert 0 < np.count_nonzero(is_open) < is_open.size


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_a_tie_is_decided_by_what_may_be_found(name: str) -> None:
    x = rows() if name == "argmax" else -rows()
    call = f"y = {name}(s, dims=[1])"

    def verdict(position: int) -> Verdict:
        return judged(call, {"y": np.full(8, position, np.int64)}, x)

    for position in TIED:
        assert verdict(position).ok
    wrong = verdict(4).outputs[0]
    assert wrong.wrong == 8
    assert "expected 3" in wrong.text()
    assert "inf" not in wrong.text()
    for outside in (-1, COUNT):
        assert verdict(outside).outputs[0].wrong == 8


def test_rivals_of_most_of_a_row_prove_nothing() -> None:
    x = rows(tuple(range(COUNT - 3)))
    found = judged("y = argmax(s, dims=[1])", {"y": np.full(8, 2, np.int64)}, x)
    assert found.word == NOT_DECIDED
    assert found.outputs[0].open == 8


def test_positions_in_order_are_decided_by_what_may_be_found() -> None:
    x = rows()
    s = np.sum(x, axis=2)
    order = np.argsort(-s, axis=1, kind="stable")
    turned = order.copy()
    turned[:, :2] = turned[:, 1::-1]
    wrong = order.copy()
    wrong[:, :3] = np.roll(wrong[:, :3], 1, axis=1)
    call = "y = argsort(s, dim=1, descending=true)"
    assert judged(call, {"y": order}, x).ok
    assert judged(call, {"y": turned}, x).ok
    assert judged(call, {"y": wrong}, x).outputs[0].wrong >= 8


def test_positions_of_the_largest_elements() -> None:
    x = rows()
    s = np.sum(x, axis=2)
    order = np.argsort(-s, axis=1, kind="stable")[:, :3]
    turned = order[:, [1, 0, 2]]

    def verdict(places: np.ndarray) -> Verdict:
        values = np.take_along_axis(s, places, 1)
        return judged("v, y = topk(s, k=3, dim=1)", {"v": values, "y": places}, x)

    assert verdict(order).ok
    assert verdict(turned).ok
    assert not verdict(order[:, [2, 0, 1]]).ok
