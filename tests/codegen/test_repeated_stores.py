"""Outputs that a kernel meets at several points of its domain: one of them stores."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from families import plan_of, text_of
from fuzz_on_cpu import compiled, results_of

from fusec.index import domain as domains
from fusec.parse import read_text
from tools.draw import Run
from tools.work import Task

REPEATED = {
    "along an axis": (
        'inputs: {x: "f32[48]", w: "f32[20, 48]"}\n'
        "ops:\n  - y = exp(x)\n  - z = mul(w, y)\noutputs: [y, z]\n"
    ),
    "in rows": (
        'inputs: {x: "f32[16, 16]", w: "f32[16, 32]"}\nops:\n  - y = exp(x)\n'
        "  - b = broadcast_in_dim(y, shape=[16, 2, 16], broadcast_dims=[0, 2])\n"
        "  - z = mul(reshape(b, new_shape=[16, 32]), w)\noutputs: [y, z]\n"
    ),
    "each element": (
        'inputs: {x: "f32[48]", w: "f32[96]"}\nops:\n  - y = exp(x)\n'
        "  - b = broadcast_in_dim(y, shape=[48, 2], broadcast_dims=[0])\n"
        "  - z = mul(reshape(b, new_shape=[96]), w)\noutputs: [y, z]\n"
    ),
    "three times": (
        'inputs: {x: "f32[64]"}\nops:\n  - y = exp(x)\n  - z = repeat(y, [3])\noutputs: [y, z]\n'
    ),
    "behind a pad": (
        'inputs: {x: "i32[2]"}\nops:\n  - y = exp(x)\n  - c = cat([x, x])\n'
        "  - z = pad(trunc(c), pad_widths=[1, 5], value=1)\noutputs: [y, z]\n"
    ),
    "of any size": (
        'dims: {N: 40}\ninputs: {x: "f32[N]"}\nops:\n  - y = exp(x)\n  - z = repeat(y, [2])\n'
        "outputs: [y, z]\n"
    ),
    "in place": (
        'inputs: {x: "f32[64, 64]", w: "f32[64, 128]"}\nops:\n  - y = add(x, 1.0)\n'
        "  - b = broadcast_in_dim(y, shape=[64, 2, 64], broadcast_dims=[0, 2])\n"
        "  - z = mul(reshape(b, new_shape=[64, 128]), w)\noutputs:\n  - y: {alias: x}\n  - z\n"
    ),
}


def kinds_of(names: Iterable[str]) -> dict[str, tuple[str, str, str]]:
    """Return what becomes of some fusions whose kernels are compiled together."""
    runs = [Run(read_text(f"fusion: {n.replace(' ', '_')}\n{REPEATED[n]}")) for n in names]
    found = results_of([compiled(Task(0, 0), run) for run in runs])
    outcomes = [(r.outcomes[0].status, r.outcomes[0].kind, r.outcomes[0].message) for r in found]
    return dict(zip(names, outcomes, strict=True))


def test_an_element_is_stored_by_one_thread() -> None:
    for name, (status, _, message) in kinds_of(REPEATED).items():
        assert status == "ok", f"{name}: {message}"


def test_elements_that_several_threads_store_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "_one_period", lambda value, home: ())
    for name, (_, kind, _) in kinds_of(["in rows", "three times", "behind a pad"]).items():
        assert "overwrites what thread" in kind, name


def test_the_condition_is_that_of_the_first_period() -> None:
    text = text_of(plan_of("pointwise", read_text(f"fusion: f\n{REPEATED['three times']}")))
    assert "< 64)" in text
