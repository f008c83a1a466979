"""Operations that are named as in PyTorch: expansions against references and known answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_ops_breadth_composites import build, normal

from fusec.diagnostics import FusecError, Unsupported
from fusec.ir import dtype as dtypes
from fusec.ops import TABLE
from fusec.parse import read_text
from fusec.reference.evaluate import evaluate

X, Y, CUBE = normal(4, 6), normal(3, 4, 6)[1], normal(2, 4, 6)
FAR = np.asarray([[-800.0, -20.0, -3.0, 0.0, 2.0, 900.0]])
UNIT = 1 / (1 + np.exp(-X))
MASK = Y > 0
WHOLE = np.asarray([[-7, -6, -1, 0, 1, 7]])
STRANGE = np.asarray([[np.nan, np.inf, -np.inf, -0.0, 0.0, 1.5]])
HEADS = [normal(2, 3, 7, 4), normal(2, 3, 5, 4), normal(2, 3, 5, 8)]

CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    *[(name, [array], {}) for name in (
        "square", "softplus", "leaky_relu", "elu", "celu", "selu", "mish", "softsign",
        "tanhshrink", "logsigmoid", "relu6", "hardtanh", "hardsigmoid", "hardswish", "hardshrink",
        "softshrink", "deg2rad", "rad2deg",
    ) for array in (X, FAR)],
    ("softplus", [X, 2.0, 1.0], {}),
    ("elu", [X, 0.7], {}),
    ("celu", [X, 0.7], {}),
    ("glu", [X], {}),
    ("glu", [X], {"dim": 0}),
    ("logaddexp", [X, Y], {}),
    ("logaddexp", [FAR, -FAR], {}),
    ("logaddexp", [STRANGE, STRANGE], {}),
    ("logit", [UNIT], {}),
    ("xlogy", [np.where(X > 0, X, 0), np.abs(Y)], {}),
    ("xlogy", [np.zeros((1, 6)), STRANGE], {}),
    ("copysign", [X, np.asarray([[1.0, -0.0, 0.0, -2, 3, -1]])], {}),
    ("hypot", [X, Y], {}),
    ("fmin", [X, STRANGE], {}),
    ("fmax", [STRANGE, X], {}),
    ("floor_divide", [X, Y], {}),
    ("floor_divide", [WHOLE, np.asarray([[2, -4, 3, 5, -3, -2]])], {}),
    ("masked_fill", [X, MASK, -np.inf], {}),
    ("logical_xor", [X > 0, MASK], {}),
    ("logical_xor", [np.where(X > 0, X, 0), Y], {}),
    ("nan_to_num", [STRANGE], {}),
    ("nan_to_num", [STRANGE, 1.0, 2.0, 3.0], {}),
    ("addcdiv", [X, Y, np.abs(X) + 1, 0.5], {}),
    ("isclose", [X, X * (1 + 1e-6)], {}),
    ("isclose", [STRANGE, STRANGE], {}),
    ("isclose", [X, Y, 0.5, 0.1], {}),
    ("unsqueeze", [X], {"dim": 1}),
    ("unsqueeze", [X], {"dim": -1}),
    ("transpose", [CUBE], {"dim0": 0, "dim1": -1}),
    ("movedim", [CUBE], {"source": [0], "destination": [2]}),
    ("movedim", [CUBE], {"source": [0, -1], "destination": [-1, 0]}),
    ("flatten", [CUBE], {}),
    ("flatten", [CUBE], {"start_dim": 1}),
    ("flatten", [CUBE], {"start_dim": -3, "end_dim": -2}),
    ("unflatten", [X], {"dim": -1, "sizes": [2, 3]}),
    ("unflatten", [np.concatenate([X, X])], {"dim": 0, "sizes": [2, -1]}),
    ("narrow", [CUBE], {"dim": 2, "start": 1, "length": 3}),
    ("narrow", [CUBE], {"dim": 1, "start": -2, "length": 2}),
    ("roll", [X], {"shifts": [2], "dims": [1]}),
    ("roll", [CUBE], {"shifts": [-1, 9], "dims": [0, -1]}),
    ("repeat_interleave", [CUBE], {"repeats": 3, "dim": 1}),
    *[("logsumexp", [X], {"dims": d, "keepdim": k}) for d in ([1], [0, 1], None) for k in (0, 1)],
    ("logsumexp", [np.asarray([[-np.inf] * 3, [np.inf, 1, 2], [900.0, 900, 0]])], {"dims": [1]}),
    ("std", [X], {"dims": [1]}),
    ("std", [X], {"dims": [0], "correction": 0, "keepdim": True}),
    *[("norm", [X], {"p": p, "dims": [1]}) for p in (1.0, 2.0, 3.0, np.inf, -np.inf)],
    ("norm", [X], {}),
    ("normalize", [X], {}),
    ("normalize", [np.where(X > 0, X, 0) * 0], {"p": 1.0, "dim": 0}),
    ("cosine_similarity", [X, Y], {}),
    ("cosine_similarity", [X, Y], {"dim": 0}),
    ("softmin", [X], {"dim": 1}),
    ("count_nonzero", [np.where(X > 0, X, 0)], {"dims": [1]}),
    ("nansum", [np.where(X > 0, X, np.nan)], {"dims": [1], "keepdim": True}),
    ("full_like", [X, 2.5], {}),
    ("zeros_like", [X], {}),
    ("ones_like", [X], {}),
    ("one_hot", [np.asarray([[0, 3], [2, 1]])], {"num_classes": 4}),
    *[(name, [X, Y], {"reduction": r}) for r in ("mean", "sum", "none")
      for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")],
    ("smooth_l1_loss", [X, Y, 0.3], {}),
    ("huber_loss", [X, Y, 0.3], {}),
    ("binary_cross_entropy", [UNIT, np.clip(Y, 0, 1)], {}),
    ("binary_cross_entropy", [np.asarray([[0.0, 1, 1]]), np.asarray([[1.0, 0, 1]])], {}),
    ("binary_cross_entropy", [UNIT, UNIT, np.abs(Y)], {"reduction": "none"}),
    ("binary_cross_entropy_with_logits", [X, UNIT], {}),
    ("binary_cross_entropy_with_logits", [FAR, np.abs(np.sign(FAR))], {"reduction": "none"}),
    ("binary_cross_entropy_with_logits", [X, UNIT, np.abs(Y), np.abs(X)], {"reduction": "sum"}),
    ("scaled_dot_product_attention", HEADS, {}),
    ("scaled_dot_product_attention", [*HEADS, None, 0.0, True], {}),
    ("scaled_dot_product_attention", [*HEADS, normal(7, 5) > 0, 0.0, False, 0.3], {}),
]  # fmt: skip
IDS = [f"{c[0]}-{k}" for k, c in enumerate(CASES)]
BY_HAND = {"stack", "split", "chunk", "unbind", "arange", "eye", "zeros", "ones"}
MODULES = ("activations", "dims", "summaries", "filled", "elementwise_losses")


def reference(op: str, given: list[Any], attributes: dict[str, Any]) -> Any:
    names = [p.name for p in TABLE[op].operands]
    attributes = {k: tuple(v) if isinstance(v, list) else v for k, v in attributes.items()}
    complete = {p.name: p.default for p in TABLE[op].attributes} | attributes
    complete["keepdim"] = bool(complete.get("keepdim"))
    known = {p.name for p in TABLE[op].attributes}
    return TABLE[op].reference(
        **dict(zip(names, given, strict=False)),
        **{k: v for k, v in complete.items() if k in known},
    )


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("op", "given", "attributes"), CASES, ids=IDS)
def test_expansions_mean_what_the_reference_says(
    op: str, given: list[Any], attributes: dict[str, Any], symbolic: bool
) -> None:
    if symbolic and op in ("glu", "unflatten"):
        return  # of sizes that may be odd
    if "keepdim" in attributes:
        attributes = {**attributes, "keepdim": bool(attributes["keepdim"])}
    (found,) = build(op, given, dtypes.F64, symbolic, **attributes)
    expected = np.asarray(reference(op, given, attributes))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_every_named_operation_is_tried() -> None:
    tried = {c[0] for c in CASES} | BY_HAND
    made = {n for n, op in TABLE.items() if op.reference.__module__.split(".")[-1] in MODULES}
    assert made <= tried


@pytest.mark.parametrize("op", ["softplus", "mish", "logsumexp", "normalize", "huber_loss", "std"])
def test_16_bit_results_are_rounded_once(op: str) -> None:
    given = [X, Y] if op == "huber_loss" else [X]
    attributes = {"dims": [1]} if op in ("logsumexp", "std") else {}
    (exact,) = build(op, [g.astype(dtypes.BF16.numpy).astype(float) for g in given],
                     dtypes.F64, False, **attributes)  # fmt: skip
    (found,) = build(op, given, dtypes.BF16, False, **attributes)
    np.testing.assert_array_equal(found, exact.astype(dtypes.BF16.numpy).astype(float))


HEAD = """fusion: f
dims: {B: 4, H: {default: 6, multiple_of: 2}, F: 3}
inputs: {x: 'f64[B, H]', z: 'f64[B, 2 * F]', e: 'f64[4, 6]'}
ops:
"""


def results(*lines: str, outputs: str) -> list[Any]:
    text = HEAD + "".join(f"  - {line}\n" for line in lines) + f"outputs: [{outputs}]\n"
    fusion = read_text(text)
    found = evaluate(fusion, {"x": X, "z": X, "e": X}, fusion.hints)
    return [found[o.value.name] for o in fusion.outputs]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("a, b = chunk(x, 2, 1)", [X[:, :3], X[:, 3:]]),
        ("a, b = chunk(z, 2, dim=-1)", [X[:, :3], X[:, 3:]]),
        ("a, b, c = chunk(e, 4, dim=-1)", [X[:, :2], X[:, 2:4], X[:, 4:]]),
        ("a, b = split(z, F, 1)", [X[:, :3], X[:, 3:]]),
        ("a, b = split(e, 4, 1)", [X[:, :4], X[:, 4:]]),
        ("a, b, c = split(e, [1, 2, 3], 1)", [X[:, :1], X[:, 1:3], X[:, 3:]]),
        ("a, b = split(x, [H // 2, H // 2], 1)", [X[:, :3], X[:, 3:]]),
        ("a, b, c, d = unbind(e)", list(X)),
        ("a = stack([x, x * 2], 1)", [np.stack([X, X * 2], 1)]),
        ("a = stack([x, x], -1)", [np.stack([X, X], -1)]),
        ("a = arange(2, H)", [np.arange(2, 6)]),
        ("a = arange(5)", [np.arange(5)]),
        ("a = arange(9, 1, -3)", [np.arange(9, 1, -3)]),
        ("a = arange(H - 1, -1, -1)", [np.arange(5, -1, -1)]),
        ("a = eye(3)", [np.eye(3)]),
        ("a = eye(H, B)", [np.eye(6, 4)]),
        ("a = zeros([H])", [np.zeros(6)]),
        ("a = ones([2, 3], dtype=i32)", [np.ones((2, 3))]),
        ("a = x // 0.5", [X // 0.5]),
    ],
)
def test_parts_and_sequences(line: str, parts: list[Any]) -> None:
    names = line.partition(" = ")[0]
    for found, expected in zip(results(line, outputs=names), parts, strict=True):
        np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(
    ("line", "kind", "told"),
    [
        ("a, b, c = chunk(x, 3, 1)", FusecError, "declare `H: {default: 6, multiple_of: 6}`"),
        ("a, b = chunk(e, 3, 1)", FusecError, "has 3 results, got 2 names"),
        ("a, b = split(x, 3, 1)", Unsupported, "the number of parts is not a constant"),
        ("a, b = split(e, [3, 2], 1)", FusecError, "add up to 5, and dim 1 is 6"),
        ("a, b = unbind(x)", Unsupported, "`select(x, index, dim)`"),
        ("a = roll(x, [1, 1], [0])", FusecError, "2 shifts for 1 dims"),
        ("a = narrow(e, 1, 4, 3)", FusecError, "leaves the extent 6"),
        ("a = unsqueeze(x, 3)", FusecError, "out of range"),
        ("a = mse_loss(x, z, reduction=all)", FusecError, "mean, sum, none"),
        ("a = norm(x, 0)", FusecError, "count_nonzero"),
    ],
)
def test_what_they_refuse(line: str, kind: type[FusecError], told: str) -> None:
    with pytest.raises(kind) as caught:
        results(line, outputs="a")
    assert told in caught.value.render()
