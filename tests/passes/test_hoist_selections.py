"""Selections move before what computes the rows that they leave out."""

from __future__ import annotations

import importlib
import re
from random import Random

import numpy as np
import pytest
from draws import times
from strategies import random_inputs

from fusec import driver
from fusec.diagnostics import FusecError
from fusec.explain.record import record_of
from fusec.ir.graph import Fusion, Node, Value
from fusec.ir.verify import verify
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.passes import run_pipeline
from fusec.passes.hoist_selections import hoist_selections
from fusec.reference.evaluate import evaluate

X = 'x: "f32[R, 48]"'
SELECTIONS = {
    "slice": "slice({}, [5, 0], [20, 48])",
    "steps": "slice({}, [1, 0], [64, 48], [4, 1])",
    "select": "select({}, 7, dim=0)",
    "last": "select({}, -1, dim=0)",
    "number": "select({}, k, dim=0)",
    "size": "select({}, R - 2, dim=0)",
    "tail": "slice({}, [R - 5, 0], [R, 48])",
    "index": "index_select({}, i, 0)",
    "embedding": "embedding_fwd(i, {})",
    "matrix of indices": "embedding_fwd(j, {})",
}
ROWS = {
    "softmax": ["s = softmax(x, 1)"],
    "rms": ["m = mean(mul(x, x), [1], keepdim=True)", "s = mul(mul(x, rsqrt(m)), w)"],
    "scan": ["s = cumsum(x, 1)"],
    "turned": ["s = permute(softmax(permute(x, [1, 0]), 0), [1, 0])"],
}


def read(*ops: str, outputs: str = "y") -> Fusion:
    lines = "".join(f"  - {op}\n" for op in ops)
    inputs = f'{X}, w: "f32[48]", v: "f32[48, 16]", i: "i64[9]", j: "i64[2, 3]", k: i64'
    return read_text(
        f"fusion: f\ndims: {{R: 64}}\ninputs: {{{inputs}}}\nops:\n{lines}outputs: [{outputs}]\n"
    )


def given(fusion: Fusion, seed: int = 0) -> dict[str, np.ndarray]:
    arrays = random_inputs(fusion)
    rng = np.random.default_rng(seed)
    for name in {"i", "j"} & arrays.keys():
        arrays[name] = rng.integers(0, 64, arrays[name].shape)
    if any(entry.value.name == "k" for entry in fusion.inputs):
        arrays["k"] = int(rng.integers(0, 64))
    return arrays


def assert_same(before: Fusion, after: Fusion, seed: int = 0) -> None:
    verify(after)
    arrays = given(before, seed)
    sizes = {"R": 64, **({"k": arrays["k"]} if "k" in arrays else {})}
    expected, found = evaluate(before, arrays, sizes), evaluate(after, arrays, sizes)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-12)  # GEMMs differ in their order


def elements(value: Value) -> int:
    return int(np.prod([e.evaluate({"R": 64}) for e in value.shape]))


def rows_reduced(fusion: Fusion) -> list[int]:
    """Return the extents of rows of all reductions and scans that outputs need."""
    found = (n for n in run_pipeline(fusion).nodes if n.op.family in ("reduction", "scan"))
    return sorted(
        {int(np.prod([e.evaluate({"R": 64}) for e in n.inputs[0].shape])) // 48 for n in found}
    )


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("rows", ROWS)
def test_rows_are_selected_before_what_reduces_them(rows: str, selection: str) -> None:
    fusion = read(*ROWS[rows], "y = " + SELECTIONS[selection].format("s"))
    after = hoist_selections(run_pipeline(fusion, without=["hoist_selections", "approximate"]))
    assert_same(fusion, after)
    kept = int(np.prod([e.evaluate({"R": 64}) for e in fusion.outputs[0].value.shape])) // 48
    assert rows_reduced(fusion) == [kept]


EARLY = {
    "slice": ["t = slice(x, [5, 0], [20, 48])"],
    "steps": ["t = slice(x, [1, 0], [64, 48], [4, 1])"],
    "index": ["t = index_select(x, i, 0)"],
    "embedding": ["t = embedding_fwd(i, x)"],
}


@pytest.mark.parametrize("rows", ["softmax", "rms", "scan"])
@pytest.mark.parametrize("selection", EARLY)
def test_either_order_has_the_same_bound_bytes_and_time(rows: str, selection: str) -> None:
    late = read(*ROWS[rows], "y = " + SELECTIONS[selection].format("s"))
    ops = [re.sub(r"\bx\b", "t", op) for op in ROWS[rows]]
    early = read(*EARLY[selection], *ops, outputs="s")
    first, second = (record_of(driver.plan(f, CompileOptions()), "sm_90a") for f in (late, early))
    assert first.floor_bytes == second.floor_bytes
    assert first.bytes == second.bytes
    assert first.seconds == pytest.approx(second.seconds, rel=0.05)


def test_a_gemm_of_the_last_rows_computes_no_others() -> None:
    fusion = read("p = matmul(softmax(x, 1), v)", "y = select(p, -1, dim=0)")
    after = run_pipeline(fusion)
    assert_same(fusion, hoist_selections(fusion))
    (product,) = (n for n in after.nodes if n.op.family == "contraction")
    assert [str(e) for e in product.output.shape] == ["1", "16"]
    assert rows_reduced(fusion) == [1]


@pytest.mark.parametrize(
    ("ops", "outputs"),
    [
        (["s = softmax(x, 1)", "y = slice(s, [0, 0], [33, 48])"], "y"),  # more than half
        (["s = softmax(x, 1)", "y = slice(s, [0, 0], [8, 48])"], "y, s"),  # an output
        (["s = softmax(x, 0)", "y = slice(s, [0, 0], [8, 48])"], "y"),  # across rows
        (["s = softmax(x, 1)", "y = slice(s, [0, 0], [R, 8])"], "y"),  # columns
        (["s = softmax(x, 1)", "a = select(s, 3, dim=0)", "b = select(s, 4, dim=0)",
          "y = add(a, b)"], "y"),  # several readers
        (["s = softmax(x, 1)", "n = argmax(sum(s, [1]), 0)", "y = select(s, n, dim=0)"], "y"),
        (["s = exp(x)", "y = slice(s, [0, 0], [8, 48])"], "y"),  # nothing to gain
        (["p = matmul(x, v)", "y = slice(p, [0, 0], [16, 16])"], "y"),  # a quarter of a GEMM
    ],
)  # fmt: skip
def test_what_is_left_where_it_is(ops: list[str], outputs: str) -> None:
    fusion = read(*ops, outputs=outputs)
    assert hoist_selections(fusion) is fusion


class Rows:
    """A random function of rows, of which a random selection is read."""

    def __init__(self, seed: int) -> None:
        draw = Random(seed)
        self.lines, values = list[str](), ["x"]
        for number in range(draw.randint(1, 6)):
            x, other = draw.choice(values), draw.choice(values)
            op = draw.choice([
                "neg({x})", "add({x}, {other})", "mul({x}, w)", "cumsum({x}, 1)",
                "sub({x}, max({x}, [1], keepdim=True))", "softmax({x}, 1)", "sin({x})",
                "add({x}, sum({other}, [1], keepdim=True))", "add({x}, min(x, [0], keepdim=True))",
                "permute(neg(permute({x}, [1, 0])), [1, 0])",
            ])  # fmt: skip
            self.lines.append(f"a{number} = " + op.format(x=x, other=other))
            values.append(f"a{number}")
        outputs = ["y"]
        self.lines.append("y = " + draw.choice(list(SELECTIONS.values())).format(values[-1]))
        if draw.random() < 0.3:
            outputs.append(draw.choice(values[1:]))
        self.fusion = read(*self.lines, outputs=", ".join(outputs))


def test_random_functions_of_rows_keep_their_numbers() -> None:
    moved = 0
    for seed in range(times(60)):
        fusion = Rows(seed).fusion
        after = hoist_selections(fusion)
        assert_same(fusion, after, seed)
        moved += after is not fusion
    assert moved > times(60) // 5


def test_a_selection_along_a_reduced_axis_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a pass takes any axis for one along which results are computed one by one."""

    def all_axes(maker: Node, place: int) -> dict[int, int]:
        operand = maker.operands[place]
        rank = len(operand.shape) if isinstance(operand, Value) else 0
        return {axis: axis for axis in range(min(rank, len(maker.output.shape)))}

    module = importlib.import_module("fusec.passes.hoist_selections")
    monkeypatch.setattr(module, "_linked", all_axes)
    with pytest.raises((AssertionError, FusecError)):
        test_random_functions_of_rows_keep_their_numbers()
