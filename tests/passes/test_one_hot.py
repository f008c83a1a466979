"""One-hot rows: scatters into constants become comparisons, sums over many classes scatters."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from draws import times

from fusec import driver
from fusec.ir.graph import Fusion
from fusec.ir.verify import verify
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.passes import run_pipeline
from fusec.passes.rewrite import rewrite
from fusec.passes.scatters_as_selects import scatters_as_selects
from fusec.reference.evaluate import evaluate
from fusec.schedule.rows import one_hot


def read(inputs: str, *ops: str) -> Fusion:
    lines = "".join(f"  - {op}\n" for op in ops)
    return read_text(f"fusion: f\ninputs: {{{inputs}}}\nops:\n{lines}outputs: [y]\n")


def assert_same(before: Fusion, after: Fusion, given: dict[str, np.ndarray]) -> None:
    verify(after)
    expected, found = (evaluate(f, given, {})["y"] for f in (before, after))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    assert np.array_equal(np.signbit(found), np.signbit(expected))


def test_a_scatter_of_one_element_a_row_is_a_comparison() -> None:
    draw = Random(3)
    for _ in range(times(40)):
        shape = [draw.randint(1, 5) for _ in range(draw.randint(1, 3))]
        axis = draw.randrange(len(shape))
        one = [1 if k == axis else e for k, e in enumerate(shape)]
        dtype, index = draw.choice(["f32", "bf16", "i64", "i32"]), draw.choice(["i64", "i32", "u8"])
        op = draw.choice(["scatter", "scatter_add"])
        fill = draw.choice([0, 0, 3]) if op == "scatter" else 0
        source, more = draw.choice([("s", f', s: "{dtype}{one}"'), ("1", ""), ("2", "")])
        fusion = read(
            f'i: "{index}{one}"{more}', f"z = full({shape}, {fill}, dtype={dtype})",
            f"y = {op}(z, i, {source}, dim={axis})",
        )  # fmt: skip
        after = scatters_as_selects(fusion)
        rng = np.random.default_rng(draw.randrange(1 << 20))
        given = {
            "i": rng.integers(0, shape[axis], one).astype(
                index.replace("i", "int").replace("u8", "uint8")
            )
        }
        given["s"] = np.array([-0.0, 1.0, 2.5])[rng.integers(0, 3, one)]
        given["s"] = given["s"].astype(
            np.float32 if dtype in ("f32", "bf16") else dtype.replace("i", "int")
        )
        assert not any(n.op.family == "scatter" for n in after.nodes)
        assert_same(fusion, after, {e.value.name: given[e.value.name] for e in fusion.inputs})


@pytest.mark.parametrize(
    ("inputs", "ops"),
    [
        ('i: "i64[4, 2]"', ["z = full([4, 3], 0, dtype=i64)", "y = scatter(z, i, 1, dim=1)"]),
        ('i: "i64[2, 1]"', ["z = full([4, 3], 0, dtype=i64)", "y = scatter(z, i, 1, dim=1)"]),
        ('i: "i64[4, 1]", z: "i64[4, 3]"', ["y = scatter(z, i, 1, dim=1)"]),
        ('i: "i64[4, 1]"', ["z = full([4, 3], 1, dtype=i64)", "y = scatter_add(z, i, 1, dim=1)"]),
    ],
)
def test_other_scatters_stay(inputs: str, ops: list[str]) -> None:
    fusion = read(inputs, *ops)
    assert scatters_as_selects(fusion) is fusion


def test_indices_are_still_checked() -> None:
    fusion = read('i: "i64[4, 1]"', "z = full([4, 3], 0, dtype=i64)", "y = scatter(z, i, 1, dim=1)")
    checked = driver.plan(fusion, CompileOptions(check_bounds=True)).fusion
    assert [n.op.name for n in checked.nodes].count("check_index") == 1


FORMS = {
    "where": ["e = where(eq(a, r), 1, 0)"],
    "cast": ["e = cast(eq(r, a), i64)"],
    "weights": ["e = where(eq(a, r), w, 0)"],
    "scatter": ["z = full([{m}, {n}], 0, dtype=i64)", "e = scatter(z, a, w, dim=1)"],
}


def counts(form: str, rows: int, classes: int) -> Fusion:
    lines = [line.format(m=rows, n=classes) for line in FORMS[form]]
    return read(
        f'i: "i64[{rows}]", w: "i64[{rows}, 1]"', "a = broadcast(i, [false, true])",
        f"r = broadcast(iota({classes}), [true, false])", *lines, "y = sum(e, [0])",
    )  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_sum_of_one_hot_rows_is_a_scatter(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_hot, "LEAST_COMPARED", 0)
    fusion = counts(form, 37, 8)
    known = run_pipeline(fusion)
    (offered,) = one_hot.sums_of_one_hot(known)
    assert offered.rule is not None
    after = rewrite(known, offered.rule)
    assert after.producer[after.outputs[0].value].op.name == "scatter_add"
    rng = np.random.default_rng(5)
    # Rows without a class add nothing, where that is defined.
    low, high = (0, 8) if form == "scatter" else (-3, 12)
    assert_same(
        fusion, after, {"i": rng.integers(low, high, 37), "w": rng.integers(-9, 9, (37, 1))}
    )


@pytest.mark.parametrize(("rows", "classes", "expected"), [(4096, 64, 0), (16384, 32000, 1)])
@pytest.mark.parametrize("form", FORMS)
def test_the_predicted_time_decides(form: str, rows: int, classes: int, expected: int) -> None:
    segmented = driver.plan(counts(form, rows, classes), CompileOptions()).segmented
    assert len(segmented.segments) == 1
    assert sum(s.scheduler == "scatter" for s in segmented.segments) == expected


def test_a_cast_that_may_cut_values_is_left() -> None:
    fusion = read(
        'i: "i64[16384]", w: "i64[16384, 1]"', "a = broadcast(i, [false, true])",
        "r = broadcast(iota(32000), [true, false])",
        "y = sum(cast(where(eq(a, r), w, 0), i8), [0])",
    )  # fmt: skip
    assert not one_hot.sums_of_one_hot(run_pipeline(fusion))


def test_sums_of_floats_keep_their_order() -> None:
    fusion = read(
        'i: "i64[16384]", w: "f32[16384, 1]"', "a = broadcast(i, [false, true])",
        "r = broadcast(iota(32000), [true, false])", "y = sum(where(eq(a, r), w, 0.0), [0])",
    )  # fmt: skip
    segmented = driver.plan(fusion, CompileOptions()).segmented
    assert [s.scheduler for s in segmented.segments] != ["scatter"]
