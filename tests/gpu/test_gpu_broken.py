"""What is left out of kernels, and of calls, is seen by the tests that run them again and again."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from gpu_broken import ARRIVAL, LOST, NO_RESET, NO_TURN, NO_WRAP, broken, share_lanes
from gpu_runs import Differences, arenas, at_once, called, counters, program_of, repeated, replayed
from gpu_variants import VARIANTS
from paths import TESTS

import fusec
from fusec import FusecError

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

SLICES, TURNS = VARIANTS["slices"], VARIANTS["serial_tma"]


def test_sums_in_the_order_of_arrival_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    program = broken(TURNS.fusion, ARRIVAL, monkeypatch)
    assert repeated(program, TURNS, 1000) > 0
    assert repeated(program, TURNS, 20, exact=True) == 0  # integers are the same in any order


def test_a_counter_that_does_not_start_over_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    program = broken(SLICES.fusion, NO_WRAP, monkeypatch)
    assert repeated(program, SLICES, 20) > 0
    assert any(any(counters(arena)) for arena in arenas(program))
    wrong, left = replayed(broken(SLICES.fusion, NO_WRAP, monkeypatch), SLICES, 20, own=True)
    assert wrong > 0
    assert any(left)


def test_a_semaphore_that_stays_set_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    program = broken(TURNS.fusion, NO_RESET, monkeypatch)
    assert repeated(program, TURNS, 20) > 0
    assert any(any(counters(arena)) for arena in arenas(program))


def test_a_slice_that_is_lost_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    program, found = broken(SLICES.fusion, LOST, monkeypatch), Differences()
    given = SLICES.inputs(3, exact=True)
    found.exactly(called(program, given), SLICES.results(given))
    assert found.count == 1


@pytest.mark.parametrize("name", VARIANTS)
def test_results_of_other_inputs_are_seen(name: str) -> None:
    variant, found = VARIANTS[name], Differences()
    given, other = (variant.inputs(seed, exact=True) for seed in (3, 4))
    results = called(program_of(name), given)
    found.exactly(results, variant.results(other))
    assert found.count == len(results)


def test_streams_that_share_memory_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    share_lanes(monkeypatch)
    program = fusec.compile(SLICES.fusion)
    # Beside other processes' kernels, those of both streams may happen to follow each other.
    assert any(at_once(program, SLICES, 200) > 0 for _ in range(20))


TRAPPED = """
import pytest
import paths
from test_gpu_broken import trapped
trapped("{name}", pytest.MonkeyPatch())
"""


def trapped(name: str, patch: pytest.MonkeyPatch) -> None:
    """Call a program whose first turn is not handed on; the context is lost then."""
    program, given = (
        broken(VARIANTS[name].fusion, NO_TURN, patch),
        VARIANTS[name].inputs(0, exact=True),
    )
    for word in ("trapped", "refused"):  # and every later call says so
        try:
            called(program, given)
            torch.cuda.synchronize()
        except (FusecError, RuntimeError) as error:
            print(word, type(error).__name__, flush=True)


@pytest.mark.parametrize("name", ["serial_tma", "serial"])
def test_a_turn_that_never_comes_traps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, for the context of a kernel that trapped is lost."""
    monkeypatch.setenv("FUSEC_DEBUG", "1")
    ran = subprocess.run(
        [sys.executable, "-c", TRAPPED.format(name=name)],
        cwd=TESTS, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "trapped" in ran.stdout, ran.stderr
    assert "refused" in ran.stdout, ran.stderr
