"""What threads of an evaluation wait for: the interpreter's lock, and memory from the system."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from resource import RUSAGE_SELF, getrusage
from typing import Any

import numpy as np
import pytest

from fusec.ir.dtype import F32
from fusec.parse.reader import read_text
from fusec.reference import part, stream, sweeps
from fusec.reference.cost import SERIAL, speedup, useful_threads
from fusec.reference.errors.arrangements import ARRANGED
from fusec.reference.errors.order import Order, Stage
from fusec.reference.errors.sums import Rules, taken
from fusec.reference.memory import keep_freed
from fusec.reference.stream import outputs_of
from fusec.reference.verdict import compare
from fusec.run.inputs import random_inputs

GRADIENTS = """
fusion: t
inputs: {d: 'f16[2, 4, 38400]', m: 'bool[2, 4, 38400]', x: 'f32[2, 4, 38400]'}
ops:
  - g = cast(where(m, d, 0.0), f32)
  - b = sum(g, dims=[0, 2])
  - w = sum(mul(g, x), dims=[0, 2])
outputs: [b, w]
"""
"""Of the bias and weight of a norm behind a mask: terms repeat, and each block has one sum."""
ELEMENTS_FOR_A_CALL = 10
"""Elements of the largest value, at least, for each function that is called to verify all."""


def calls_of(function: Callable[[], Any]) -> int:
    """Return how many functions, Python's and NumPy's, are called in this thread."""
    counts = {"call": 0, "c_call": 0}

    def note(_frame: Any, event: str, _argument: Any) -> None:
        if event in counts:
            counts[event] += 1

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return sum(counts.values())


@pytest.mark.parametrize("shape", [(40000,), (4000,), (4, 400)])
def test_arrangements_of_a_sum_are_evaluated_together(shape: tuple[int, ...]) -> None:
    x = np.round(np.random.default_rng(0).standard_normal(shape), 1)
    rules = Rules((Order((Stage(16, 0, 256, 4),)),), shape[-1])

    def evaluate() -> int:
        return len(taken(x, (x.ndim - 1,), F32, rules)["taken 0"])

    assert evaluate() > ARRANGED // 4
    assert calls_of(evaluate) < 1000


def test_threads_seldom_hold_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, they are as fast as the functions that are called one at a time."""
    monkeypatch.setattr(stream, "usable_processors", lambda: 1)
    monkeypatch.setattr(part, "usable_processors", lambda: 1)
    monkeypatch.setattr(sweeps, "WHOLE_ELEMENTS", 1)
    fusion = read_text(GRADIENTS, "t.yaml")
    inputs = random_inputs(fusion, {})
    outputs = outputs_of(fusion, inputs, {})

    def verify() -> None:
        assert compare(fusion, {}, inputs, outputs, limit=float("inf")).ok

    assert calls_of(verify) < np.size(inputs["x"]) / ELEMENTS_FOR_A_CALL


def test_more_processors_are_never_predicted_to_be_slower() -> None:
    times = [speedup(count) for count in range(1, 65)]
    assert times == sorted(times)
    assert times[0] == 1
    assert all(speedup(count) <= min(count, 1 / SERIAL) for count in range(1, 65))
    assert [useful_threads(count) for count in (1, 2, 4, 64)] == [1, 2, 4, 7]


def test_memory_that_threads_free_is_reused() -> None:
    """A page that was given back is a fault when it is written again: all threads wait for it."""

    def evaluate(_: int) -> None:
        for _ in range(50):
            assert [np.ones(1 << 17) for _ in range(4)]

    with keep_freed(), ThreadPoolExecutor(2) as pool:
        list(pool.map(evaluate, range(2)))
        faults = getrusage(RUSAGE_SELF).ru_minflt
        list(pool.map(evaluate, range(2)))
        assert getrusage(RUSAGE_SELF).ru_minflt - faults < 1000
