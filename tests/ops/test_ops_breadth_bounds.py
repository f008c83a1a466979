"""Error bounds, blocks and random inputs of indexing, scatters, scans, order and positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusec.ir import dtype as dtypes
from fusec.ir.dtype import F32, I32, I64
from fusec.ir.evaluate import apply_reference, evaluate_attributes
from fusec.ir.graph import Fusion, Value
from fusec.ops import TABLE
from fusec.ops.builder.build import GraphBuilder
from fusec.reference import sweeps
from fusec.reference.errors.estimate import LIMIT
from fusec.reference.evaluate import evaluate
from fusec.reference.stream import estimate
from fusec.run.inputs import choose_sizes, random_inputs

ROWS, COLUMNS, COUNT = 40, 24, 30

# Operation, how the value with an error takes part, the rest of the call.
CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("index_select", "x i", {"dim": 0}),
    ("select", "x 3", {"dim": 1}),
    ("gather", "x g", {"dim": 0}),
    ("take_along_axis", "x t", {"dim": 1}),
    ("embedding_fwd", "i x", {}),
    ("scatter", "x g s", {"dim": 0}),
    ("scatter", "x g 1.5", {"dim": 0}),
    ("scatter_add", "x g s", {"dim": 0}),
    ("scatter_add", "s h x", {"dim": 0}),
    ("index_add", "x i s", {"dim": 0}),
    ("cumsum", "x", {"dim": 0}),
    ("cumsum", "x 2.0", {"dim": 1}),
    ("cumprod", "x", {"dim": 1}),
    ("cummax", "x", {"dim": 0}),
    ("cummin", "x -1.0", {"dim": 1}),
    ("sort", "x", {"dim": 0}),
    ("sort", "x", {"descending": True}),
    ("argsort", "x", {"dim": 1}),
    ("topk", "x", {"k": 5}),
    ("topk", "x", {"k": 5, "dim": 0, "largest": False}),
    ("argmax", "x", {"dims": 1}),
    ("argmin", "x", {"dims": 0}),
    ("argmax", "x", {}),
    ("flip", "x", {"dims": 0}),
    ("triu", "x", {}),
]
IDS = [f"{c[0]}-{k}" for k, c in enumerate(CALLS)]


def build(op: str, spec: str, attributes: dict[str, Any]) -> Fusion:
    """Return a fusion of the operation on 0.3 * x + 0.1, of which the last bits are open."""
    builder = GraphBuilder()
    r, c, n = (
        builder.declare_dim(d, s) for d, s in zip("RCN", (ROWS, COLUMNS, COUNT), strict=True)
    )
    x = builder.input("x", F32, [r, c])
    known: dict[str, Any] = {
        "x": builder.apply("add", builder.apply("mul", x, 0.3), 0.1),
        "s": builder.input("s", F32, [n, c]),
        "i": builder.input("i", I64, [n]),
        "g": builder.input("g", I32, [n, c]),
        "h": builder.input("h", I32, [r, c]),
        "t": builder.input("t", I64, [r, 7]),
    }
    operands = [known[w] if w in known else float(w) if "." in w else int(w) for w in spec.split()]
    for value in builder.call(op, operands, attributes):
        builder.output(value)
    return builder.finish()


def arrays_of(fusion: Fusion) -> dict[str, Any]:
    drawn = random_inputs(fusion, choose_sizes(fusion), seed=3)
    return {name: np.asarray(array) for name, array in drawn.items()}


@pytest.mark.parametrize(("op", "spec", "attributes"), CALLS, ids=IDS)
def test_errors_are_within_what_f32_arithmetic_does(
    op: str, spec: str, attributes: dict[str, Any]
) -> None:
    """The reference on the operand as f32 arithmetic has it stays within the limits."""
    fusion = build(op, spec, attributes)
    arrays = arrays_of(fusion)
    expected = estimate(fusion, arrays, fusion.hints)
    rounded = (arrays["x"] * np.float32(0.3)).astype(np.float32) + np.float32(0.1)
    exact = evaluate(fusion, arrays, fusion.hints)
    node = next((n for n in fusion.nodes if n.op.name == op), None)
    if node is None:
        return  # a composite: its parts are covered by name
    values = {**arrays, "add_1": rounded.astype(np.float64)}
    operands = [
        values[o.name] if isinstance(o, Value) else np.asarray(o.value) for o in node.operands
    ]
    found = apply_reference(node.op, operands, evaluate_attributes(node.attributes, fusion.hints))
    for value, array in zip(node.outputs, found, strict=True):
        held = expected[value.name]
        np.testing.assert_array_equal(held.value, exact[value.name])
        error = np.abs(np.asarray(array, np.float64) - held.value)
        allowed, known = LIMIT * held.sigma, np.isfinite(held.sigma)
        assert np.all(error <= allowed)
        assert float(np.max(allowed[known], initial=0.0)) < 1e-4
        assert known.mean() > 0.99


@pytest.mark.parametrize(("op", "spec", "attributes"), CALLS, ids=IDS)
def test_blocks_give_what_the_whole_gives(
    op: str, spec: str, attributes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fusion = build(op, spec, attributes)
    arrays = arrays_of(fusion)
    whole = estimate(fusion, arrays, fusion.hints)
    monkeypatch.setattr(sweeps, "WHOLE_ELEMENTS", 64)
    monkeypatch.setattr(sweeps, "BLOCK_ELEMENTS", 100)
    plan = sweeps.choose_plan(fusion, fusion.nodes, fusion.hints)
    if not attributes and op == "argmax":
        assert plan.band is None  # there is no axis beside the reduced ones
        return
    assert plan.band is not None
    assert plan.step < plan.band.extent
    parts = estimate(fusion, arrays, fusion.hints)
    for name, held in whole.items():
        np.testing.assert_array_equal(parts[name].value, held.value)
        # What is really taken in f32 to learn its error is taken block by block.
        some = held.sigma > 0
        ratio = parts[name].sigma[some] / held.sigma[some]
        assert np.all((ratio > 0.3) & (ratio < 3))
        assert not parts[name].sigma[~some].any()


def near_ties(op: str, **attributes: Any) -> Any:
    """Return which positions in [1, 1 + 2e-8, 3, 7] * 0.3 computed in f32 are open."""
    builder = GraphBuilder()
    x = builder.input("x", dtypes.F64, [1, 4])
    y = builder.apply("mul", builder.apply("cast", x, F32), 0.3)
    builder.output(builder.call(op, [y], attributes)[-1])
    fusion = builder.finish()
    given = {"x": np.asarray([[1.0, 1.0 + 2e-8, 3.0, 7.0]])}
    (held,) = estimate(fusion, given, fusion.hints).values()
    return np.isinf(held.sigma)


def test_positions_of_near_ties_are_open() -> None:
    assert near_ties("argsort", dim=1).tolist() == [[True, True, False, False]]
    assert near_ties("topk", k=3, dim=1).tolist() == [[False, False, True]]
    assert near_ties("argmin", dims=1).tolist() == [True]
    assert near_ties("argmax", dims=1).tolist() == [False]


def test_exact_ties_are_known() -> None:
    builder = GraphBuilder()
    x = builder.input("x", F32, [2, 4])
    for op, attributes in (("argsort", {}), ("argmax", {"dims": 1}), ("topk", {"k": 2})):
        builder.output(builder.call(op, [x], attributes)[-1])
    fusion = builder.finish()
    found = estimate(fusion, {"x": np.ones((2, 4))}, {})
    assert all(e.exact for e in found.values())


def test_of_what_an_open_index_reads_nothing_is_known() -> None:
    builder = GraphBuilder()
    x = builder.input("x", dtypes.F64, [2, 2])
    y = builder.apply("mul", builder.apply("cast", x, F32), 0.3)
    first = builder.apply("argmin", y, 1)
    builder.output(builder.apply("index_select", x, first, 0))
    builder.output(builder.apply("embedding_fwd", first, x))
    index = builder.apply("broadcast", first, [False, True])
    builder.output(builder.apply("gather", x, index, 1))
    builder.output(builder.apply("scatter", x, index, 1.0, 1))
    fusion = builder.finish()
    given = {"x": np.asarray([[1.0, 1.0 + 2e-8], [1.0, 2.0]])}
    found = [np.isinf(e.sigma) for e in estimate(fusion, given, {}).values()]
    select, rows, picked, placed = found
    assert select.tolist() == [[True, True], [False, False]]
    assert rows.tolist() == [[True, True], [False, False]]
    assert picked.tolist() == [[True], [False]]
    assert placed.all()


def test_a_scatter_add_counts_what_meets() -> None:
    builder = GraphBuilder()
    arg, src = builder.input("a", F32, [3]), builder.input("s", F32, [100])
    index = builder.input("i", I64, [100])
    builder.output(builder.apply("index_add", arg, index, src, 0))
    fusion = builder.finish()
    where = np.asarray([0] * 99 + [1])
    rng = np.random.default_rng(0)
    given = {"a": rng.random(3, np.float32), "s": rng.random(100, np.float32), "i": where}
    (held,) = estimate(fusion, given, {}).values()
    many, one, none = held.sigma
    assert many > 20 * one > 0
    assert none == 0


def test_random_indices_lie_inside() -> None:
    builder = GraphBuilder()
    rows = builder.declare_dim("V", 7)
    table = builder.input("table", F32, [rows, 3])
    plain = builder.input("plain", I64, [50])
    cast = builder.input("cast", I32, [50])
    both = builder.input("both", I64, [50])
    far = builder.input("far", I64, [50], low=2, high=4)
    ends = builder.input("ends", I32, [4])
    builder.output(builder.apply("index_select", table, plain, 0))
    builder.output(builder.apply("embedding_fwd", builder.apply("cast", cast, I64), table))
    chosen = builder.apply("where", builder.apply("ne", both, -100), both, 0)
    builder.output(builder.apply("index_select", table, chosen, 1))
    builder.output(builder.apply("index_select", table, far, 0))
    matrices = builder.input("matrices", F32, [4, 3, 2])
    builder.output(builder.apply("grouped_mm", table, matrices, ends))
    fusion = builder.finish()
    drawn = {k: np.asarray(v) for k, v in random_inputs(fusion, choose_sizes(fusion)).items()}
    assert {*drawn["plain"].tolist()} == {*drawn["cast"].tolist()} == set(range(7))
    assert {*drawn["both"].tolist()} == {0, 1, 2}
    assert {*drawn["far"].tolist()} == {2, 3, 4}
    assert drawn["ends"].tolist() == sorted(drawn["ends"].tolist())
    assert drawn["ends"][-1] == 7
    evaluate(fusion, drawn, fusion.hints)


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (2, 2)])
def test_grouped_products_err_like_products(shape: tuple[int, int]) -> None:
    builder = GraphBuilder()
    left = {2: [8, 6] if shape[1] == 3 else [5, 9], 3: [2, 5, 6]}[shape[0]]
    right = {3: [2, 6, 4], 2: [left[-1], 9]}[shape[1]]
    a, b = builder.input("a", F32, left), builder.input("b", F32, right)
    ends = builder.input("ends", I64, [2])
    scaled = builder.apply("mul", a, 0.3)
    builder.output(builder.apply("grouped_mm", scaled, b, ends))
    fusion = builder.finish()
    arrays = arrays_of(fusion)
    (held,) = estimate(fusion, arrays, {}).values()
    rounded = (arrays["a"] * np.float32(0.3)).astype(np.float64)
    found = TABLE["grouped_mm"].reference(rounded, arrays["b"].astype(np.float64), arrays["ends"])
    assert np.all(np.abs(found - held.value) <= LIMIT * held.sigma)
    assert 0 < float(held.sigma.max()) < 1e-5
