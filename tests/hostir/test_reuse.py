"""Results of segments where what they read for the last time lies: a pass that is asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cuda_on_cpu import run_plan

from fusec.call.placing import memory_of
from fusec.diagnostics import FusecError
from fusec.driver import Compilation
from fusec.hostir.instructions import Alias
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.run.arrays import lay_out

OPTIONS = CompileOptions(targets=("sm_90a",), untuned=True, with_=("reuse_in_place",))


def planned(
    ops: str, pins: str, outputs: str = "y", options: CompileOptions = OPTIONS
) -> Compilation:
    """Return the program of a fusion of x and w whose operations are cut as pinned."""
    lines = "".join(f"  - {line}\n" for line in ops.split("; "))
    cuts = "".join(f"  p{k}: [{names}]\n" for k, names in enumerate(pins.split("; ")))
    text = (
        "fusion: reused\ninputs: {x: 'f32[32, 32]', w: 'f32[32, 32]'}\n"
        f"ops:\n{lines}segments:\n{cuts}outputs: [{outputs}]\n"
    )
    return Compilation(read_text(text, "reused.yaml"), options)


def views(program: Compilation) -> dict[str, str]:
    """Return what lies where, by name."""
    return {i.buffer: i.of for i in program.host.instructions if isinstance(i, Alias)}


CHAIN = "a = exp(x); b = mul(a, w); m = max(b, dims=[1], keepdim=true); y = sub(b, m)"
CUTS = "a; b; m; y"


def test_a_result_lies_in_the_memory_of_what_is_read_last() -> None:
    program = planned(CHAIN, CUTS)
    assert views(program) == {"b": "a"}
    kept = planned(CHAIN, CUTS, options=replace(OPTIONS, with_=()))
    assert views(kept) == {}
    assert memory_of(kept.host, {}).scratch == 2 * 32 * 32 * 4
    assert memory_of(program.host, {}).scratch == 32 * 32 * 4 + 256


def test_results_do_not_move(tmp_path: Path) -> None:
    """The kernel that writes in place computes what the one with memory for its result does."""
    plan = planned(CHAIN, CUTS).plans[1]
    assert [a.name for a in plan.kernels[0].arguments] == ["w", "a"]
    rng = np.random.default_rng(0)
    a, w = (rng.standard_normal((32, 32), np.float32) for _ in "aw")
    given = {name: lay_out(array.copy(), (32, 1)) for name, array in (("a", a), ("w", w))}
    found = run_plan(plan, given, tmp_path)
    np.testing.assert_array_equal(found["b"], a * w)


@pytest.mark.parametrize(
    ("ops", "pins", "outputs"),
    [
        ("a = exp(x); b = mul(a, w); y = add(a, b)", "a; b; y", "y"),  # a is read again
        ("a = exp(x); b = neg(permute(a, [1, 0])); y = add(b, w)", "a; permute_1, b; y", "y"),
        ("a = exp(x); b = sum(a, dims=[1]); y = neg(b)", "a; b; y", "y"),  # b is smaller
        ("a = exp(x); b = cast(a, bf16); y = neg(b)", "a; b; y", "y"),
        ("a = exp(x); b = neg(a)", "a; b", "a, b"),  # both are the caller's
        ("b = exp(x); y = neg(b)", "b; y", "y"),  # x is the caller's
    ],
    ids=["read_again", "permuted", "smaller", "other_type", "outputs", "inputs"],
)
def test_nothing_else_is_overwritten(ops: str, pins: str, outputs: str) -> None:
    assert views(planned(ops, pins, outputs)) == {}


def test_what_it_changed_is_told() -> None:
    program = planned(CHAIN, CUTS)
    found = [d for d in program.segmented.decisions if d.action == "reuse in place"]
    assert [d.subject for d in found] == [("b", "a")]
    assert found[0].because == "s1 is its last reader, and reads each element before overwriting it"


def test_a_pass_that_cannot_be_asked_for() -> None:
    with pytest.raises(FusecError, match="unknown pass `order_segments`"):
        _ = planned(CHAIN, CUTS, options=replace(OPTIONS, with_=("order_segments",))).segmented
