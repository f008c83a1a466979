"""What the fuzzer draws: fusions whose results say something of the kernels."""

from __future__ import annotations

import random

from fusec.ir.dtype import F32, F64, I32
from fusec.ir.graph import Value
from tools.sketch import Sketch, Unfit
from tools.values import LONGEST_PRODUCT, converted, reduced


def sketch_of(shape: list[int]) -> tuple[Sketch, Value]:
    sketch = Sketch(random.Random(1), "draws")
    return sketch, sketch.builder.input("x", F32, shape)


def test_values_are_rough_behind_sums_and_powers() -> None:
    sketch, x = sketch_of([4, 6])
    doubled = sketch.apply("permute", sketch.apply("add", x, x), dims=[1, 0])
    assert not sketch.is_rough(doubled)
    total = sketch.apply("sum", doubled, dims=[0], keepdim=True)
    assert sketch.is_rough(total)
    assert sketch.is_rough(sketch.apply("neg", sketch.apply("mul", x, sketch.apply("exp", x))))
    assert sketch.is_rough(
        sketch.apply("cat", [doubled, sketch.apply("mul", doubled, total)], dim=1)
    )
    assert not sketch.is_rough(sketch.apply("argmax", total, dims=[0]))


def test_rough_values_are_seldom_truncated() -> None:
    sketch, x = sketch_of([4, 6])
    rough = sketch.apply("tanh", x)
    made = 0
    for _ in range(200):
        assert converted(sketch, x, I32).dtype == I32
        assert converted(sketch, rough, F64).dtype == F64
        try:
            made += converted(sketch, rough, I32).dtype == I32
        except Unfit:
            continue
    assert 0 < made < 30


def test_long_products_are_not_drawn() -> None:
    sketch, x = sketch_of([2, LONGEST_PRODUCT])
    assert reduced(sketch, x, "prod", [1], keep=False)
    for op, fits in (("prod", False), ("sum", True)):
        try:
            reduced(sketch, x, op, [0, 1], keep=False)
            assert fits
        except Unfit:
            assert not fits
