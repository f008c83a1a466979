"""Elements and rows at the positions that a tensor of integers of any rank holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusec.parse import read_text
from fusec.reference.evaluate import evaluate

HEAD = """fusion: f
dims: {V: 6, E: 3, A: 4, L: 2}
inputs:
  v: f64[V]
  t: f64[V, E]
  c: f64[A, V, E]
  i0: i64[]
  i1: i64[A]
  i2: i64[A, L]
  i3: i64[L, A, L]
ops:
"""
RNG = np.random.default_rng(5)
SHAPES = {"v": (6,), "t": (6, 3), "c": (4, 6, 3)}
INDEX_SHAPES = {"i0": (), "i1": (4,), "i2": (4, 2), "i3": (2, 4, 2)}
GIVEN: dict[str, Any] = {name: RNG.normal(size=shape) for name, shape in SHAPES.items()}
GIVEN |= {name: RNG.integers(0, 3, shape) for name, shape in INDEX_SHAPES.items()}


def value(line: str) -> Any:
    fusion = read_text(f"{HEAD}  - y = {line}\noutputs: [y]\n")
    return evaluate(fusion, GIVEN, fusion.hints)["y"]


@pytest.mark.parametrize("index", INDEX_SHAPES)
@pytest.mark.parametrize("tensor", SHAPES)
def test_take_keeps_the_shape_of_the_index(tensor: str, index: str) -> None:
    x, i = GIVEN[tensor], GIVEN[index]
    for call in (f"torch.take({tensor}, {index})", f"{tensor}.take({index})",
                 f"np.take({tensor}, {index})", f"jnp.take({tensor}, {index})"):  # fmt: skip
        np.testing.assert_array_equal(value(call), np.take(x, i), call, strict=True)
    for axis in (*range(x.ndim), -1):
        found = value(f"jnp.take({tensor}, {index}, axis={axis})")
        np.testing.assert_array_equal(found, np.take(x, i, axis), strict=True)


@pytest.mark.parametrize("index", INDEX_SHAPES)
@pytest.mark.parametrize("tensor", SHAPES)
def test_a_tensor_of_integers_of_any_rank_is_an_index(tensor: str, index: str) -> None:
    x, i = GIVEN[tensor], GIVEN[index]
    for axis in range(x.ndim):
        found = value(f"{tensor}[{':, ' * axis}{index}]")
        np.testing.assert_array_equal(found, np.take(x, i, axis), strict=True)


WITH_OTHERS = (
    "c[i1, 0]", "c[..., i1]", "c[None, i2]", "c[1:, i2, ::2]", "c[:, 0, i1]", "c[(0, 1)]",
    "c[:, ::-1, 1:]", "c[0, [0, 2]]", "c[..., [0, 2]]", "c[range(A), i1]", "c[range(A), i1][:, 1]",
    "c[range(2), 1]", "c[range(2), :, 1]", "t[range(4), 2]", "c[[2], 1:]",
)  # fmt: skip


def test_other_entries_are_taken_before_a_tensor() -> None:
    known = {**GIVEN, "range": np.arange, "A": 4}
    for line in WITH_OTHERS:
        np.testing.assert_array_equal(value(line), eval(line, {}, known), line, strict=True)
