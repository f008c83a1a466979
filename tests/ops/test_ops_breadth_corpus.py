"""The references agree with an independent evaluator that lies beside this repository."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
from paths import ROOT

from fusec.ir import dtype as dtypes
from fusec.ops.builder.build import GraphBuilder
from fusec.reference.evaluate import evaluate

JUDGE = ROOT.parent / "shared" / "corpus" / "reference.py"


@pytest.fixture(scope="module")
def judge() -> Any:
    if not JUDGE.exists():
        pytest.skip("the shared corpus is not here")
    spec = importlib.util.spec_from_file_location("corpus_reference", JUDGE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


def index(limit: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, limit, shape)


X = normal(5, 6)
UNIQUE = np.argsort(normal(5, 6), axis=0)[:3]
Q, K, V = (normal(2, 3, n, 4) for n in (7, 5, 5))
SEEDS = (np.zeros(2, np.uint64), np.zeros((), np.uint64))
EMBEDDING = dict.fromkeys(("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"))
ATTENTION = {"dropout_p": None, "scale": None}

# Operation, operands, attributes as both evaluators take them.
CALLS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("index_select", [X, index(6, 4)], {"dim": 1}),
    ("index_select", [X, np.asarray(3)], {"dim": 0}),
    ("select", [X, np.asarray(3)], {"dim": 0}),
    ("gather", [X, index(5, 3, 4)], {"dim": 0}),
    ("take_along_axis", [X, index(6, 5, 2)], {"dim": 1}),
    ("take_along_axis", [X[:, :1], index(5, 2, 6)], {"dim": 0}),
    ("embedding_fwd", [index(5, 3, 2), X], EMBEDDING),
    ("scatter", [X, UNIQUE, normal(3, 6)], {"dim": 0}),
    ("scatter", [X, UNIQUE, 2.5], {"dim": 0}),
    ("index_put_accumulate", [X, index(5, 9, 1), normal(9, 6)], {}),
    ("cumsum", [index(9, 5, 6).astype(np.int32)], {"dim": 1}),
    *[(op, [X], {"dim": d}) for op in ("cumsum", "cumprod", "cummax", "cummin") for d in (0, -1)],
    ("argsort", [index(3, 5, 9)], {"dim": 1, "descending": False}),
    ("argsort", [index(3, 5, 9)], {"dim": 0, "descending": True}),
    ("triu", [X], {"diagonal": -2}),
    ("grouped_mm", [X, normal(2, 6, 4), np.asarray([2, 5])], {}),
    ("grouped_mm", [normal(2, 3, 5), X, np.asarray([4, 6])], {}),
    ("grouped_mm", [X, normal(6, 4), np.asarray([1, 6])], {}),
    ("sdpfa_fwd", [Q, K, V, None, None], {"is_causal": False, **ATTENTION}),
    ("sdpfa_fwd", [Q, K, V, None, index(2, 7, 5) > 0], {"is_causal": True, **ATTENTION}),
    ("sdpfa_fwd", [Q, K, V, normal(7, 5), normal(7, 5)], {"is_causal": None, **ATTENTION}),
]  # fmt: skip
IDS = [f"{c[0]}-{k}" for k, c in enumerate(CALLS)]


def ours(op: str, operands: list[Any], attributes: dict[str, Any]) -> list[Any]:
    builder = GraphBuilder()
    arrays: dict[str, Any] = {}
    values: list[Any] = []
    for k, given in enumerate(operands):
        if isinstance(given, np.ndarray):
            arrays[f"x{k}"] = given
            given = builder.input(f"x{k}", dtypes.of_numpy(given.dtype), given.shape)
        values.append(given)
    named = {k: v for k, v in attributes.items() if k not in EMBEDDING}
    if op == "sdpfa_fwd":
        values += [named.pop(k) for k in ("dropout_p", "is_causal", "scale")]
    elif op == "sdpfa_bwd":
        first, last = [named.pop(k) for k in ("dropout_p", "is_causal")], named.pop("scale")
        values = [*values[:6], *first, *values[6:], last]
    elif op == "triu":
        values.append(named.pop("diagonal"))
    given = {k: v for k, v in named.items() if v is not None}
    for value in builder.call(op, values, given):
        builder.output(value)
    fusion = builder.finish()
    found = evaluate(fusion, arrays, fusion.hints)
    return [found[o.value.name] for o in fusion.outputs]


@pytest.mark.parametrize(("op", "operands", "attributes"), CALLS, ids=IDS)
def test_both_evaluators_agree(
    judge: Any, op: str, operands: list[Any], attributes: dict[str, Any]
) -> None:
    inner = judge.Ev({"inputs": [], "scalars": []}, [])
    names: list[Any] = []
    for k, given in enumerate(operands):
        if isinstance(given, np.ndarray):
            kind = str(given.dtype)
            inner.env[f"x{k}"] = judge.V(judge.conv(given, kind), kind)
            given = {"ref": f"x{k}"}
        names.append(given)
    with np.errstate(all="ignore"):
        expected = inner.op(op, names, attributes)
    expected = expected if isinstance(expected, list) else [expected]
    found = ours(op, operands, attributes)
    assert len(found) == len(expected)
    for array, want in zip(found, expected, strict=True):
        assert array.shape == want.a.shape
        np.testing.assert_allclose(array, want.a, rtol=1e-12, atol=1e-13)


def test_attention_gradients_agree(judge: Any) -> None:
    inner = judge.Ev({"inputs": [], "scalars": []}, [])
    grad = normal(2, 3, 7, 4)
    arrays = [a.astype(np.float64) for a in (grad, Q, K, V)]
    for k, array in enumerate(arrays):
        inner.env[f"x{k}"] = judge.V(array, "float64")
    options = {"is_causal": True, **ATTENTION}
    names = [{"ref": f"x{k}"} for k in range(4)]
    forward = inner.op("sdpfa_fwd", [*names[1:], None, None], options)
    expected = inner.op("sdpfa_bwd", names, options)
    found = ours("sdpfa_bwd", [*arrays, forward[0].a, forward[1].a, *SEEDS], options)
    for array, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(array, want.a, rtol=1e-10, atol=1e-12)


def test_top_k_agrees(judge: Any) -> None:
    for largest in (True, False):
        inner = judge.Ev({"inputs": [], "scalars": []}, [])
        array = index(4, 5, 9).astype(np.float64)
        inner.env["x"] = judge.V(array, "float64")
        options = {"dim": 1, "largest": largest}
        expected = inner.op("topk", [{"ref": "x"}, 3], options)
        found = ours("topk", [array], {"k": 3, **options})
        for ours_, want in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours_, want.a)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_agrees(judge: Any, training: bool) -> None:
    inner = judge.Ev({"inputs": [], "scalars": []}, [])
    arrays = [
        normal(4, 3, 5, dtype=np.float64),
        *(np.abs(normal(3, dtype=np.float64)) + k for k in (1, 2, 3, 4)),
    ]
    for k, array in enumerate(arrays):
        inner.env[f"x{k}"] = judge.V(array, "float64")
    options = {"training": training, "eps": 1e-3, "channels_last": False}
    expected = inner.op("batch_norm", [{"ref": f"x{k}"} for k in range(5)], options)
    found = ours("batch_norm", [*arrays, 0.1, 1e-3], {"training": training})
    np.testing.assert_allclose(found[0], expected[0].a, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found[2], expected[2].a, rtol=1e-12)
