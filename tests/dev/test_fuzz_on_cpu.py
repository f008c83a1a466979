"""Random GEMMs and attention whose kernels run on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import cuda_on_cpu
import fuzz_on_cpu
import pytest
from draws import times
from fuzz_on_cpu import compiled, results, results_of
from test_overlapping_stores import CLAMPED, GUARDED

from fusec.parse import read_text
from tools.draw import PRODUCTS, Run
from tools.trial import Outcome
from tools.work import Task

COUNT = times(2)


def test_random_contractions_are_right_in_two_orders() -> None:
    found = list(results(2026, 0, COUNT, inf, tuple(PRODUCTS), size=4))
    assert len(found) >= 2
    failed = [
        (r.task.number, o.signature) for r in found for o in r.outcomes if o.status == "failed"
    ]
    assert failed == []


PRODUCT = """fusion: product
inputs: {a: "bf16[200, 64]", b: "bf16[64, 64]", r: "bf16[200, 64]"}
ops:
  - y = permute(add(matmul(a, b), r), [1, 0])
outputs: [y]
schedules:
  matmul: {kernel: wgmma, tile_m: 64, tile_n: 64, staged: true}
"""


def outcome_of(
    text: str, monkeypatch: pytest.MonkeyPatch, edit: Callable[[str], str] = str
) -> Outcome:
    def build_all(kernels: Any, folder: Path) -> Any:
        return cuda_on_cpu.build_all(kernels, folder, edit)

    monkeypatch.setattr(fuzz_on_cpu, "build_all", build_all)
    (result,) = results_of([compiled(Task(0, 0), Run(read_text(text)))])
    return result.outcomes[0]


EDITS: dict[str, tuple[Callable[[str], str], str]] = {
    "rows past the end are stored": (
        lambda text: GUARDED.sub(CLAMPED, text), "emulate: emulator: overwrites what thread"
    ),
    "a wrong value": (
        lambda text: text.replace("acc[i]", "(1.01f * acc[i])"),
        "verify: mismatch",
    ),
    "no C++": (lambda text: text.replace("constexpr int kWidth", "constexpr in kWidth"), ": g++"),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_a_broken_kernel_is_reported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    edit, signature = EDITS[name]
    outcome = outcome_of(PRODUCT, monkeypatch, edit)
    assert outcome.status == "failed"
    assert signature in outcome.signature


def test_kernels_that_fail_to_compile_leave_the_others_of_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build_all(kernels: Any, folder: Path) -> Any:
        if len({k.name for k, _ in kernels}) > 1:
            raise AssertionError("together they do not compile")
        return cuda_on_cpu.build_all(kernels, folder)

    monkeypatch.setattr(fuzz_on_cpu, "build_all", build_all)
    texts = [
        f'fusion: {name}\ninputs: {{x: "f32[70]"}}\nops: [y = neg(x)]\noutputs: [y]\n'
        for name in ("first", "second")
    ]
    found = results_of([compiled(Task(0, n), Run(read_text(t))) for n, t in enumerate(texts)])
    assert [r.outcomes[0].status for r in found] == ["ok", "ok"]
