"""Indexing, scatters, scans, order, masks and layouts: values, types and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fusec.diagnostics import FusecError, Unsupported
from fusec.ir import dtype as dtypes
from fusec.ir.dim import symbol
from fusec.ir.graph import Fusion, Value
from fusec.ops import REFUSED, TABLE, find_op
from fusec.ops.builder.build import GraphBuilder
from fusec.reference.evaluate import evaluate

SPECIAL = ("indexing", "scatter", "scan", "sort", "random")
NAN = float("nan")


def run(op: str, *given: Any, kinds: str = "", **attributes: Any) -> list[Any]:
    """Return the results of one operation on arrays (inputs) and numbers (literals)."""
    builder = GraphBuilder()
    names = kinds.split() or [None] * len(given)
    arrays: dict[str, Any] = {}
    operands: list[Any] = []
    for k, (array, kind) in enumerate(zip(given, names, strict=True)):
        if not isinstance(array, (list, np.ndarray)):
            operands.append(array)
            continue
        values = np.asarray(array)
        dtype = dtypes.find(kind) if kind else dtypes.of_numpy(values.dtype)
        arrays[f"x{k}"] = values.astype(dtype.numpy)
        operands.append(builder.input(f"x{k}", dtype, values.shape))
    results = builder.call(op, operands, attributes)
    for value in results:
        builder.output(value)
    fusion = builder.finish()
    found = evaluate(fusion, arrays, fusion.hints)
    return [found[o.value.name] for o in fusion.outputs]


ROWS = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]

# Operation, operands, attributes, results: worked out by hand.
VALUES: list[tuple[str, list[Any], dict[str, Any], list[Any]]] = [
    ("index_select", [ROWS, [1, 1, 0]], {"dim": 0}, [[ROWS[1], ROWS[1], ROWS[0]]]),
    ("index_select", [ROWS, [2]], {"dim": -1}, [[[3], [6]]]),
    ("index_select", [ROWS, np.asarray(2)], {"dim": 1}, [[[3], [6]]]),
    ("select", [ROWS, np.asarray(1)], {"dim": 0}, [[4, 5, 6]]),
    ("select", [ROWS, 2], {"dim": 1}, [[3, 6]]),
    ("select", [ROWS, -3], {"dim": 1}, [[1, 4]]),
    ("gather", [ROWS, [[0, 2], [1, 1]]], {"dim": 1}, [[[1, 3], [5, 5]]]),
    ("gather", [ROWS, [[1, 0]]], {"dim": 0}, [[[4, 2]]]),
    ("gather", [ROWS, [[1]]], {"dim": 1}, [[[2]]]),
    ("take_along_axis", [ROWS, [[2], [0]]], {"dim": 1}, [[[3], [4]]]),
    ("take_along_axis", [ROWS, [[2, 2, 1, 0]]], {"dim": 1}, [[[3, 3, 2, 1], [6, 6, 5, 4]]]),
    ("take_along_axis", [[[7.0], [8.0]], [[1, 0, 1]]], {"dim": 0}, [[[8, 7, 8]]]),
    ("embedding_fwd", [[[1, 0], [1, 1]], ROWS], {}, [[[ROWS[1], ROWS[0]], [ROWS[1], ROWS[1]]]]),
    ("embedding_fwd", [np.asarray(1), ROWS], {}, [ROWS[1]]),
    ("scatter", [ROWS, [[0, 0, 2]], [[7.0, 8.0, 9.0]]], {"dim": 1}, [[[8, 2, 9], [4, 5, 6]]]),
    ("scatter", [ROWS, [[1, 0, 1]], 0], {"dim": 0}, [[[1, 0, 3], [0, 5, 0]]]),
    ("scatter", [ROWS, [[1], [0]], [[7.0, 1.0], [8.0, 1.0]]], {"dim": 0}, [[[8, 2, 3], [7, 5, 6]]]),
    ("scatter_add", [ROWS, [[0, 0, 2]], [[7.0, 8.0, 9.0]]], {"dim": 1}, [[[16, 2, 12], [4, 5, 6]]]),
    ("scatter_add", [[[1, 2]], [[1, 1]], 3], {"dim": 1}, [[[1, 8]]]),
    ("index_add", [ROWS, [0, 0], [[1.0] * 3, [2.0] * 3]], {"dim": 0}, [[[4, 5, 6], [4, 5, 6]]]),
    ("index_add", [ROWS, [2], [[1.0], [2.0]]], {"dim": 1}, [[[1, 2, 4], [4, 5, 8]]]),
    ("index_put_accumulate", [ROWS, [[1], [1]], ROWS], {}, [[[1, 2, 3], [9, 12, 15]]]),
    ("cumsum", [ROWS], {"dim": 1}, [[[1, 3, 6], [4, 9, 15]]]),
    ("cumsum", [ROWS, 10.0], {"dim": 0}, [[[11, 12, 13], [15, 17, 19]]]),
    ("cumsum", [[True, True, False, True]], {"dim": 0}, [[1, 2, 2, 3]]),
    ("cumprod", [[2, 3, 4]], {"dim": -1}, [[2, 6, 24]]),
    ("cumprod", [[2.0, 3.0, 4.0], 0.5], {"dim": 0}, [[1, 3, 12]]),
    ("cummax", [[1.0, 3.0, 2.0, NAN, 9.0]], {"dim": 0}, [[1, 3, 3, NAN, NAN]]),
    ("cummin", [[5, 3, 4, 1]], {"dim": 0}, [[5, 3, 3, 1]]),
    ("cummin", [[5.0, 3.0], 4.0], {"dim": 0}, [[4, 3]]),
    ("cumsum", [np.asarray(4.0)], {"dim": -1}, [4]),
    ("cumprod", [np.asarray(4.0), 2.0], {"dim": 0}, [8]),
    ("cummin", [np.asarray(True)], {"dim": 0}, [True]),
    ("sort", [np.asarray(4.0)], {"dim": -1, "descending": True}, [4, 0]),
    ("topk", [np.asarray(4)], {"k": 1}, [4, 0]),
    ("argsort", [np.asarray(4)], {"dim": 0}, [0]),
    ("sum", [np.asarray(4.0)], {"dims": [-1]}, [4]),
    ("argmax", [np.asarray(4.0)], {"dims": 0}, [0]),
    ("mean", [np.asarray(4.0)], {"dims": [0], "keepdim": True}, [4]),
    ("argsort", [[3.0, 1.0, 3.0, 2.0]], {"dim": 0}, [[1, 3, 0, 2]]),
    ("argsort", [[3.0, 1.0, 3.0, 1.0]], {"dim": 0, "descending": True}, [[0, 2, 1, 3]]),
    ("argsort", [[NAN, 1.0, 2.0]], {}, [[1, 2, 0]]),
    ("argsort", [[1.0, NAN, 2.0]], {"descending": True}, [[1, 2, 0]]),
    ("sort", [[[3, 1], [2, 5]]], {"dim": 0}, [[[2, 1], [3, 5]], [[1, 0], [0, 1]]]),
    ("sort", [[True, False, True]], {}, [[False, True, True], [1, 0, 2]]),
    ("topk", [[5.0, 9.0, 5.0, 9.0]], {"k": 3}, [[9, 9, 5], [1, 3, 0]]),
    ("topk", [[5.0, 9.0, 5.0, 9.0]], {"k": 3, "largest": False}, [[5, 5, 9], [0, 2, 1]]),
    ("topk", [ROWS], {"k": 1, "dim": 0}, [[[4, 5, 6]], [[1, 1, 1]]]),
    ("topk", [ROWS], {"k": 0}, [[[], []], [[], []]]),
    ("argmax", [[[1.0, 7.0, 7.0], [NAN, 8.0, NAN]]], {"dims": 1}, [[1, 0]]),
    ("argmin", [[[1, 7, 1], [3, 2, 2]]], {"dims": [-1]}, [[0, 1]]),
    ("argmax", [ROWS], {}, [5]),
    ("argmax", [ROWS], {"dims": [0], "keepdim": True}, [[[1, 1, 1]]]),
    ("argmin", [np.arange(24.0).reshape(2, 3, 4)[::-1]], {"dims": [0, 2]}, [[4, 4, 4]]),
    ("triu", [np.ones((2, 3))], {}, [[[1, 1, 1], [0, 1, 1]]]),
    ("triu", [np.ones((2, 3)), 1], {}, [[[0, 1, 1], [0, 0, 1]]]),
    ("tril", [np.ones((2, 3), np.int32), -1], {}, [[[0, 0, 0], [1, 0, 0]]]),
    ("triu", [np.ones((1, 2, 2), bool)], {}, [[[[True, True], [False, True]]]]),
    ("flip", [ROWS], {"dims": [0, -1]}, [[[6, 5, 4], [3, 2, 1]]]),
    ("repeat", [[1, 2]], {"repeats": [3]}, [[1, 2, 1, 2, 1, 2]]),
    ("repeat", [[[1], [2]]], {"repeats": [2, 1, 2]}, [[[[1, 1], [2, 2]], [[1, 1], [2, 2]]]]),
    ("repeat", [[1, 2]], {"repeats": [2, 1]}, [[[1, 2], [1, 2]]]),
    ("repeat", [[1, 2]], {"repeats": [0]}, [[]]),
    ("grouped_mm", [np.eye(3), np.ones((2, 3, 1)) * [[[1.0]], [[5.0]]], [1, 3]], {},
     [[[1], [5], [5]]]),
    ("grouped_mm", [np.ones((2, 1, 2)), [[1.0, 2.0], [3.0, 4.0]], [2, 2]], {}, [[[4, 6]]]),
    ("grouped_mm", [[[1.0, 2.0, 3.0]], [[1.0], [1.0], [1.0]], [2, 3]], {}, [[[[3]], [[3]]]]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "given", "attributes", "expected"),
    VALUES,
    ids=[f"{v[0]}-{k}" for k, v in enumerate(VALUES)],
)
def test_values(op: str, given: list[Any], attributes: dict[str, Any], expected: list[Any]) -> None:
    found = run(op, *given, **attributes)
    assert len(found) == len(expected)
    for array, want in zip(found, expected, strict=True):
        np.testing.assert_array_equal(array, np.asarray(want, np.float64).astype(array.dtype))


def test_every_operation_of_these_families_has_a_worked_value() -> None:
    families = {n for n, op in TABLE.items() if op.family in SPECIAL and op.family != "random"}
    assert families <= {v[0] for v in VALUES}


@pytest.mark.parametrize(
    ("op", "specs", "attributes", "expected"),
    [
        ("index_select", "bf16[V,H] i32[N]", {"dim": 0}, ["bf16[N, H]"]),
        ("index_select", "bf16[V,H] i64[]", {"dim": 1}, ["bf16[V, 1]"]),
        ("select", "bool[V,H] i64", {"dim": 1}, ["bool[V]"]),
        ("gather", "f16[V,H] i64[N,H]", {"dim": 0}, ["f16[N, H]"]),
        ("take_along_axis", "f64[V,1] i64[V,N]", {"dim": 1}, ["f64[V, N]"]),
        ("take_along_axis", "f64[1,H] i64[V,N]", {"dim": 1}, ["f64[V, N]"]),
        ("embedding_fwd", "i64[N,3] bf16[V,H]", {}, ["bf16[N, 3, H]"]),
        ("scatter", "bf16[V,H] i64[N,H] bf16[N,H]", {"dim": 0}, ["bf16[V, H]"]),
        ("index_add", "f32[V,H] i64[N] f32[V,N]", {"dim": 1}, ["f32[V, H]"]),
        ("cumsum", "i32[V,H]", {"dim": 1}, ["i64[V, H]"]),
        ("cumprod", "bf16[V,H]", {"dim": 1}, ["bf16[V, H]"]),
        ("cummax", "i32[V]", {"dim": 0}, ["i32[V]"]),
        ("argsort", "bf16[V,H]", {"dim": 0}, ["i64[V, H]"]),
        ("sort", "u8[V,H]", {}, ["u8[V, H]", "i64[V, H]"]),
        ("topk", "bf16[V,H]", {"k": 2}, ["bf16[V, 2]", "i64[V, 2]"]),
        ("argmax", "bf16[V,H]", {"dims": 1}, ["i64[V]"]),
        ("argmin", "bool[V,H]", {}, ["i64[]"]),
        ("triu", "bf16[V,H]", {}, ["bf16[V, H]"]),
        ("flip", "i8[V,H]", {"dims": 0}, ["i8[V, H]"]),
        ("repeat", "f16[V,H]", {"repeats": [3, 1]}, ["f16[V * 3, H]"]),
        ("grouped_mm", "bf16[N,H] bf16[4,H,V] i32[4]", {}, ["bf16[N, V]"]),
        ("grouped_mm", "bf16[4,N,H] bf16[H,V] i32[4]", {}, ["bf16[N, V]"]),
        ("grouped_mm", "bf16[N,H] bf16[H,V] i32[4]", {}, ["bf16[4, N, V]"]),
    ],
)
def test_types(op: str, specs: str, attributes: dict[str, Any], expected: list[str]) -> None:
    builder = GraphBuilder()
    found = builder.call(op, inputs(builder, specs), attributes)
    assert [str(value.type) for value in found] == expected


def inputs(builder: GraphBuilder, specs: str) -> list[Value]:
    dims = {n: builder.declare_dim(n, size) for n, size in (("V", 11), ("H", 6), ("N", 5))}
    made: list[Value] = []
    for k, spec in enumerate(specs.split()):
        kind, _, shape = spec.partition("[")
        extents = [dims.get(e) or int(e) for e in shape.rstrip("]").split(",") if e]
        made.append(builder.input(f"x{k}", dtypes.find(kind), extents if _ else None))
    return made


MISTAKES: list[tuple[str, str, Mapping[str, Any], str]] = [
    ("index_select", "f32[4,6] i64[3]", {"dim": 2}, r"dim 2 of `index_select` is out of range"),
    ("index_select", "f32[4,6] f32[3]", {"dim": 0}, r"must be integers, got f32"),
    ("index_select", "f32[4,6] bool[3]", {"dim": 0}, r"must be integers, got bool"),
    ("index_select", "f32[4,6] i64[3,1]", {"dim": 0}, r"2 dims, expected at most 1"),
    ("index_select", "f32[] i64[3]", {"dim": 0}, r"a 0-dim tensor has none"),
    ("select", "f32[4,6] i64[3]", {"dim": 0}, r"scalar or a 0-dim tensor"),
    ("gather", "f32[4,6] i64[3]", {"dim": 0}, r"the index has 1 dims, the tensor 2"),
    ("gather", "f32[4,6] i64[3,7]", {"dim": 0}, r"extent 7 of dim 1 of `x1` exceeds 6 of `x0`"),
    ("take_along_axis", "f32[4,6] i64[3,2]", {"dim": 1}, r"except 1 must agree: 4 and 3"),
    ("take_along_axis", "f32[V,6] i64[N,2]", {"dim": 1}, r"except 1 must agree: V and N"),
    ("embedding_fwd", "i64[4] f32[6]", {}, r"1 dims, expected \[rows, columns\]"),
    ("embedding_fwd", "f32[4] f32[6,2]", {}, r"must be integers"),
    ("scatter", "f32[4,6] i64[2,6] f32[1,6]", {"dim": 0}, r"extent 2 of dim 0 of `x1` exceeds 1"),
    ("scatter", "f32[4,6] i64[2,6] bf16[2,6]", {"dim": 0}, r"`scatter` of bf16 into f32"),
    ("scatter", "i32[4,6] i64[2,6] f32", {"dim": 0}, r"`scatter` of a float into i32"),
    ("scatter_add", "f32[4,6] i64[4,6] f32[4]", {"dim": 1}, r"2 entries for 1 dims|1 entries|dims"),
    ("index_add", "f32[4,6] i64[3] f32[2,6]", {"dim": 0}, r"must agree: 3 and 2"),
    ("index_add", "f32[4,6] i64[3] f32[3,5]", {"dim": 0}, r"must agree: 6 and 5"),
    ("cumsum", "f32[4]", {"dim": -2}, r"dim -2 of `cumsum` is out of range: expected -1 to 0"),
    ("cumsum", "i32[4] f32", {"dim": 0}, r"init of `cumsum` is a float, its result i64"),
    ("cummax", "f32[4] f32[4]", {"dim": 0}, r"init of `cummax` must be a scalar"),
    ("argsort", "f32[]", {"dim": 1}, r"dim 1 of `argsort` is out of range: expected -1 to 0"),
    ("topk", "f32[]", {"k": 0}, r"k of `topk` of a 0-dim tensor is 0, it must be 1"),
    ("sum", "f32[]", {"dims": [1]}, r"dim 1 of `sum` is out of range: a 0-dim tensor has none"),
    ("topk", "f32[4,6]", {"k": 7}, r"k is 7, larger than the extent 6 of dim 1"),
    ("topk", "f32[4,6]", {"k": -1}, r"k is -1, it must be at least 0"),
    ("topk", "f32[4,6]", {"k": 2.5}, r"`k` of `topk` must hold sizes"),
    ("argmax", "f32[4,6]", {"dims": [2]}, r"dim 2 of `argmax` is out of range"),
    ("argmax", "f32[4,6]", {"dims": []}, r"dims of `argmax` is empty"),
    ("triu", "f32[4]", {}, r"`triu` needs at least 2 dims"),
    ("tril", "f32[4,6] f32", {}, r"the diagonal of `tril` must be an integer"),
    ("flip", "f32[4,6]", {"dims": [0, -2]}, r"dim 0 of `flip` is specified twice"),
    ("repeat", "f32[4,6]", {"repeats": [2]}, r"1 repeats for 2 dims"),
    ("repeat", "f32[4]", {"repeats": [-2]}, r"counts are at least 0"),
    ("stride_order", "f32[4,6]", {"stride_order": [1, 1]}, r"not a permutation of 0 to 1"),
    ("grouped_mm", "f32[4,6] f32[2,5,3] i32[2]", {}, r"must agree: 6 and 5"),
    ("grouped_mm", "f32[4,6] f32[2,6,3] i32[3]", {}, r"must agree: 2 and 3"),
    ("grouped_mm", "f32[4,6] f32[2,6,3] f32[2]", {}, r"must be integers"),
    ("grouped_mm", "f32[4,6] bf16[2,6,3] i32[2]", {}, r"one float type"),
    ("grouped_mm", "f32[6] f32[6,3] i32[2]", {}, r"needs \[M, K\]"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "specs", "attributes", "message"),
    MISTAKES,
    ids=[f"{m[0]}-{k}" for k, m in enumerate(MISTAKES)],
)
def test_mistakes(op: str, specs: str, attributes: dict[str, Any], message: str) -> None:
    builder = GraphBuilder()
    with pytest.raises(FusecError, match=message) as caught:
        builder.call(op, inputs(builder, specs), attributes)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("op", "given", "attributes", "message"),
    [
        ("index_select", [ROWS, [0, 2]], {"dim": 0},
         r"`index_select`: index 2 at \[1\] is out of bounds for an extent of 2"),
        ("index_select", [ROWS, [-1]], {"dim": 0}, r"index -1 at \[0\] is out of bounds"),
        ("select", [ROWS, np.asarray(3)], {"dim": 1}, r"`select`: index 3 is out of bounds"),
        ("select", [ROWS, 3], {"dim": 1}, r"index 3 is out of bounds for dim 1 of extent 3"),
        ("gather", [ROWS, [[5]]], {"dim": 1}, r"`gather`: index 5 at \[0, 0\]"),
        ("take_along_axis", [ROWS, [[-1]]], {"dim": 1}, r"`take_along_axis`: index -1"),
        ("embedding_fwd", [[9], ROWS], {}, r"`embedding_fwd`: index 9 at \[0\]"),
        ("scatter", [ROWS, [[3]], 1.0], {"dim": 1}, r"`scatter`: index 3"),
        ("scatter_add", [ROWS, [[3]], 1.0], {"dim": 1}, r"`scatter_add`: index 3"),
        ("index_add", [ROWS, [2], [ROWS[0]]], {"dim": 0}, r"`index_add`: index 2"),
        ("grouped_mm", [np.eye(3), np.ones((2, 3, 1)), [2, 1]], {}, r"\[2, 1\] must increase"),
        ("grouped_mm", [np.eye(3), np.ones((2, 3, 1)), [2, 4]], {}, r"at most 3"),
    ],
)  # fmt: skip
def test_indices_out_of_bounds(
    op: str, given: list[Any], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(FusecError, match=message):
        run(op, *given, **attributes)


def test_symbolic_sizes_are_checked_when_they_are_known() -> None:
    builder = GraphBuilder()
    x, index, src = inputs(builder, "f32[V,H] i64[N,H] f32[N,V]")
    for value in builder.call("topk", [x], {"k": builder.declare_dim("K", 3)}):
        builder.output(value)
    builder.output(builder.call("gather", [x, index], {"dim": 1})[0])
    builder.output(builder.call("scatter", [x, index, src], {"dim": 1})[0])
    fusion = builder.finish()
    values = [o.value.name for o in fusion.outputs]

    def compute(name: str, **sizes: int) -> None:
        known = {**fusion.hints, **sizes}
        arrays = {
            "x0": np.zeros((known["V"], known["H"])),
            "x1": np.zeros((known["N"], known["H"]), np.int64),
            "x2": np.zeros((known["N"], known["V"])),
        }
        evaluate(fusion, arrays, known, [name])

    compute(values[0])
    with pytest.raises(FusecError, match="k is 9, larger than the extent 6"):
        compute(values[0], K=9)
    compute(values[2])
    with pytest.raises(FusecError, match="exceeds"):
        compute(values[2], N=12)
    compute(values[3])
    with pytest.raises(FusecError, match=r"exceeds a source"):
        compute(values[3], H=12)


@pytest.mark.parametrize(
    ("op", "specs", "attributes", "message"),
    [
        ("topk", "f32[H]", {"k": "V"}, "k is V, 11 by default, and dim 0 has H, 6 by default"),
        ("gather", "f32[H] i64[V]", {"dim": 0}, ""),
        ("gather", "f32[H,H] i64[V,H]", {"dim": 1}, "the index has 11 elements in dim 0, `x0` 6"),
        ("scatter", "f32[H] i64[H] f32[N]", {"dim": 0}, "6 elements in dim 0, `x2` 5"),
        ("scatter_add", "f32[H,N] i64[H,V] f32[H,V]", {"dim": 0}, "11 elements in dim 1, `x0` 5"),
    ],
)
def test_symbolic_sizes_are_checked_at_their_defaults(
    op: str, specs: str, attributes: dict[str, Any], message: str
) -> None:
    builder = GraphBuilder()
    operands = inputs(builder, specs)
    given = {k: symbol(v) if isinstance(v, str) else v for k, v in attributes.items()}

    def made() -> None:
        builder.output(builder.call(op, operands, given)[0])
        builder.finish()

    if not message:
        made()  # any number of elements may be gathered
        return
    with pytest.raises(FusecError, match=message):
        made()


def test_halves_are_rounded_once() -> None:
    x = np.full((1, 300), 1.0 + 2.0**-7)
    (found,) = run("cumsum", x, kinds="bf16", dim=1)
    exact = np.cumsum(x, axis=1)
    assert np.array_equal(found, exact.astype(dtypes.BF16.numpy).astype(np.float64))
    index = np.zeros((1, 300), np.int64)
    (found,) = run("scatter_add", np.zeros((1, 2)), index, x, kinds="bf16 i64 bf16", dim=1)
    assert found[0, 0] == float(exact[0, -1].astype(dtypes.BF16.numpy))


def test_a_literal_source_is_rounded_to_the_type() -> None:
    (found,) = run("scatter", np.zeros((1, 2)), [[1]], 0.1, kinds="bf16 i64 f64", dim=1)
    assert found[0, 1] == float(np.asarray(0.1, dtypes.BF16.numpy))


def test_extents_of_zero() -> None:
    assert run("index_select", ROWS, np.zeros(0, np.int64), dim=0)[0].shape == (0, 3)
    assert run("cumsum", np.zeros((2, 0)), dim=1)[0].shape == (2, 0)
    assert run("argsort", np.zeros((0, 3)), dim=1)[0].shape == (0, 3)
    assert run("any", np.zeros((2, 0)), dims=1)[0].tolist() == [False, False]
    np.testing.assert_array_equal(
        run("scatter_add", ROWS, np.zeros((0, 3), np.int64), np.zeros((0, 3)), dim=0)[0], ROWS
    )


def test_stride_order_lays_an_output_out() -> None:
    builder = GraphBuilder()
    (x,) = inputs(builder, "f32[V,H]")
    turned = builder.apply("stride_order", x, [0, 1])
    builder.output(turned)
    builder.output(turned, stride_order=[1, 0])
    builder.output(turned)
    fusion = builder.finish()
    assert [o.stride_order for o in fusion.outputs] == [(0, 1), (1, 0), (0, 1)]


def test_what_steers_the_backward_of_an_embedding_does_not_tell_nodes_apart() -> None:
    def build(**attributes: Any) -> Fusion:
        builder = GraphBuilder()
        index, weight = inputs(builder, "i64[N] f32[V,H]")
        builder.output(builder.apply("embedding_fwd", index, weight, **attributes))
        return builder.finish()

    assert build(padding_idx=3, norm_type=2.0, sparse=True).structure() == build().structure()
    with pytest.raises(Unsupported, match="max_norm"):
        build(max_norm=1.0)


def test_argmax_does_not_become_a_squeeze() -> None:
    from fusec.passes.squeeze_unit_reductions import squeeze_unit_reductions

    builder = GraphBuilder()
    x = builder.input("x", dtypes.I64, [4, 1])
    builder.output(builder.apply("argmax", x, 1))
    fusion = squeeze_unit_reductions(builder.finish())
    (found,) = evaluate(fusion, {"x": np.full((4, 1), 7)}, {}).values()
    assert found.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("name", REFUSED)
def test_refused_operations_are_named_with_the_reason(name: str) -> None:
    assert name not in TABLE
    with pytest.raises(Unsupported, match=f"`{name}`: ") as caught:
        find_op(name)
    assert caught.value.exit_code == 3
