"""Outputs that a kernel meets at several points of its domain: one of them stores."""

from __future__ import annotations

import pytest
from families import plan_of, text_of
from fuzz_on_cpu import compiled, results_of

from fusec.dev.draw import Run
from fusec.dev.work import Task
from fusec.index import domain as domains
from fusec.parse import read_text

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


@pytest.mark.parametrize("name", REPEATED)
def test_an_element_is_stored_by_one_thread(name: str) -> None:
    run = Run(read_text(f"fusion: f\n{REPEATED[name]}"))
    (result,) = results_of([compiled(Task(0, 0), run)])
    assert result.outcomes[0].status == "ok", result.outcomes[0].message


@pytest.mark.parametrize("name", ["in rows", "three times", "behind a pad"])
def test_elements_that_several_threads_store_are_seen(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(domains, "_one_period", lambda value, home: ())
    run = Run(read_text(f"fusion: f\n{REPEATED[name]}"))
    (result,) = results_of([compiled(Task(0, 0), run)])
    assert "overwrites what thread" in result.outcomes[0].kind


def test_the_condition_is_that_of_the_first_period() -> None:
    text = text_of(plan_of("pointwise", read_text(f"fusion: f\n{REPEATED['three times']}")))
    assert "< 64)" in text
