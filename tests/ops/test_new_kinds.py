"""A scan, a movement and a contraction declared in a test go all the way, like any operation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from declared import temporary_ops
from families import run_on_host

from fusec import driver
from fusec.ir.access import Access, Branch, Condition, Coordinates, Pulled, needed, sample
from fusec.ir.dim import Dim, dim
from fusec.ir.graph import Fusion, Node, Operand, Type
from fusec.ir.op import Cost
from fusec.ir.roles import Combine, Product
from fusec.ops.declare import (
    Array,
    Axis,
    computes_in_result,
    contraction,
    movement,
    operation,
)
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.reference.evaluate import evaluate
from fusec.run.build import Source, build
from fusec.run.inputs import random_inputs

Operands = tuple[Operand, ...]

FUSIONS = {
    "scan": """
fusion: running_logsumexp
inputs:
  x: f32[6, 300]
ops:
  - y = cumlogsumexp(x, dim=1)
outputs: [y]
""",
    "pointwise": """
fusion: rolled
inputs:
  x: f32[12, 40]
ops:
  - y = mul(turned(x, places=3, dim=1), 2.0)
outputs: [y]
""",
    "matmul": """
fusion: with_turned_weight
inputs:
  x: bf16[64, 32]
  w: bf16[48, 32]
ops:
  - y = turned_product(x, w)
outputs: [y]
""",
}


def _same(operands: Operands, attributes: Any) -> tuple[Type, ...]:
    return (operands[0].type,)


def _pull_roll(node: Node, at: Coordinates) -> Pulled:
    axis: int = node.attributes["dim"]
    places, extent = dim(node.attributes["places"]), node.output.shape[axis]
    branches: list[Branch] = []
    for low, end, moved in (
        (places, extent, at[axis] - places),
        (dim(0), places, at[axis] - places + extent),
    ):
        where = needed(Condition(at[axis], low, end))
        branches.append(Branch(node.operands[0], (*at[:axis], moved, *at[axis + 1 :]), where))
    return Pulled(tuple(branches))


def _features(operands: Operands, attributes: Any) -> Iterable[tuple[Dim, Dim]]:
    yield operands[0].shape[-1], operands[1].shape[-1]


def _infer_product(operands: Operands, attributes: Any) -> tuple[Type, ...]:
    left, right = operands
    return (Type(left.type.dtype, (*left.shape[:-1], right.shape[0])),)


def _terms(size: Array) -> Array:
    return size + 1


@pytest.fixture(autouse=True)
def declared() -> Iterator[None]:
    with temporary_ops():

        @operation(
            "scan",
            infer=_same,
            compute=computes_in_result,
            combine=Combine.MONOTONE,
            cuda={
                "combine": "a == b ? a + 0.69314718f : "
                "(a > b ? a : b) + log1pf(expf(a > b ? b - a : a - b))",
                "identity": "-INFINITY",
            },
            cost=Cost(20, 2),
            accuracy=4.0,
            terms=_terms,
        )
        def cumlogsumexp(arg: Array, dim: Axis) -> Array:
            """Return the logarithm of the sum of exponentials up to each element."""
            return np.logaddexp.accumulate(arg, axis=dim)

        @movement(
            infer=_same,
            access=Access(_pull_roll, repeatable=True),
            samples=sample("f32[2, 3]", places=1, dim=1),
        )
        def turned(arg: Array, places: int, dim: Axis) -> Array:
            """Move elements by some places along a dim; those at the end come first."""
            return np.roll(arg, places, axis=dim)

        @contraction(infer=_infer_product, equal=_features, product=Product(transposed=True))
        def turned_product(x: Array, w: Array) -> Array:
            """Multiply by a transposed matrix."""
            return np.matmul(x, np.swapaxes(w, -1, -2))

        yield


def expected(family: str, inputs: Any) -> np.ndarray:
    x = np.asarray(inputs["x"]).astype(np.float64)
    if family == "scan":
        return np.log(np.cumsum(np.exp(x), axis=1))
    if family == "pointwise":
        return 2 * np.concatenate([x[:, -3:], x[:, :-3]], axis=1)
    return x @ np.asarray(inputs["w"]).astype(np.float64).T


def fusion(family: str) -> Fusion:
    return read_text(FUSIONS[family])


@pytest.mark.parametrize("family", FUSIONS)
def test_the_reference_computes_it(family: str) -> None:
    made = fusion(family)
    inputs = random_inputs(made, made.hints)
    (found,) = evaluate(made, inputs, made.hints).values()
    wanted = expected(family, inputs)
    rounding = 2.0**-8 if family == "matmul" else 1e-6
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=rounding, atol=1e-5)


@pytest.mark.parametrize("family", FUSIONS)
def test_it_is_one_segment_whose_text_builds(family: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    planned = driver.plan(fusion(family), CompileOptions(targets=("sm_90a",), targets_given=True))
    assert [s.scheduler for s in planned.segmented.segments] == [family]
    sources = [Source(s.name, s.text) for s in planned.kernel_sources]
    for artifact in build(sources, ["sm_90a"]).values():
        assert artifact.cubin.startswith(b"\x7fELF")


@pytest.mark.parametrize("family", ["scan", "pointwise"])
def test_its_kernel_computes_it(family: str, tmp_path: Path) -> None:
    run_on_host(family, fusion(family), tmp_path)


def test_a_movement_is_pulled_into_what_reads_it() -> None:
    text = FUSIONS["pointwise"].replace("mul(", "sum(").replace(", 2.0)", ", dims=[1])")
    (segment,) = driver.plan(read_text(text), CompileOptions()).segmented.segments
    assert segment.scheduler in ("reduction", "inner_persistent")


def test_a_dump_prints_it() -> None:
    from fusec.dumps.expressions import Printer
    from fusec.dumps.numbering import Numbering

    made = fusion("scan")
    ((_, text),) = Printer(Numbering(made), (), "head").expressions(made.nodes[0])
    assert "cumlogsumexp( T0_l_float[" in text
