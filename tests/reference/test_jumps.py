"""Which elements may jump: those whose interval meets it, and no others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fusec.ir.dtype import BF16, BOOL, F32, F64, I8, I32
from fusec.ir.graph import Value
from fusec.ops.builder.build import GraphBuilder
from fusec.reference.errors.estimate import LIMIT, Estimate
from fusec.reference.errors.pointwise import Arithmetic, pointwise
from fusec.reference.stream import estimate


def doubts(
    define: Callable[[GraphBuilder, Value], Value], x: np.ndarray, dtype=F32
) -> tuple[bool, ...]:
    builder = GraphBuilder("jumps")
    builder.output(define(builder, builder.input("x", dtype, [x.size])))
    fusion = builder.finish()
    (found,) = estimate(fusion, {"x": x.astype(dtype.numpy)}, {}).values()
    # A bool may turn, an integer may be another one, a float may jump.
    return tuple(found.sigma > (1e-3 if dtype == F64 else 1e-2))


NEAR = np.array([1.5e-4, 0.1, -1.5e-4, 2.0])


def near_zero(b: GraphBuilder, x: Value) -> Value:
    """Return what f32 rounds to 0 where x is small, and x * x / 2 in truth."""
    return b.apply("sub", b.apply("cosh", x), 1.0)


@pytest.mark.parametrize("op", ["eq", "ne", "lt", "ge"])
def test_a_point_within_an_interval_is_met(op: str):
    """Both ends of the interval lie beside it, and on one side of it for most."""
    found = doubts(lambda b, x: b.apply(op, b.apply("cosh", x), 1.0), NEAR)
    assert found == (True, False, True, False)


@pytest.mark.parametrize(
    "define",
    [
        lambda b, x: b.apply("cast", near_zero(b, x), dtype=BOOL),
        lambda b, x: b.apply("logical_not", near_zero(b, x)),
        lambda b, x: b.apply("logical_and", near_zero(b, x), True),
    ],
)
def test_a_truth_is_in_doubt_near_0_alone(define: Callable[[GraphBuilder, Value], Value]):
    assert doubts(define, NEAR) == (True, False, True, False)


def test_both_sides_of_a_compare_may_move():
    """Neither bound alone reaches from one side to the other."""

    def define(b: GraphBuilder, x: Value) -> Value:
        above = b.apply("mul", x, 3.0)
        return b.apply("lt", above, b.apply("mul", above, 1.0 + 2.0**-23 * 1.5))

    # Some of the products are floats.
    assert np.mean(doubts(define, np.linspace(0.1, 1, 64))) > 0.9


def test_nothing_differs_from_itself():
    def define(b: GraphBuilder, x: Value) -> Value:
        difference = b.apply("sub", b.apply("exp", x), 1.0)
        return b.apply("lt", difference, difference)

    assert not any(doubts(define, NEAR))


def test_rounding_of_the_reference_is_no_jump():
    """The ends of a short interval are rounded, too: one may change and not the other."""
    x = np.random.default_rng(1).uniform(0.1, 2, 4096)
    assert not any(doubts(lambda b, x: b.apply("atan2", b.apply("add", x, 1e-16), x), x, F64))


def test_integers_at_their_ends_are_sure():
    """What is far beyond an integer type is its end, however far it may be off."""
    x = np.array([60.0, -0.5, 80.0, 21.0])
    assert doubts(lambda b, x: b.apply("cast", b.apply("exp", x), dtype=I32), x) == (
        False, False, False, True,
    )  # fmt: skip
    assert not any(doubts(lambda b, x: b.apply("cast", b.apply("exp", x), dtype=I8), x[:3]))


def test_an_overflow_of_one_side_alone_is_open():
    """Halfway from the largest float to the next power of 2, and only if an operand is off."""
    largest, half = np.finfo(np.float32).max, np.float32(2.0**103)
    x = np.full(4, largest)
    y = np.array([np.nextafter(half, 0), half, 2.0**80, largest / 4], np.float32)
    third = np.float32(1 / 3)

    def sums(scale: float) -> Estimate:
        builder = GraphBuilder("overflow")
        a, b = (builder.input(name, F32, [4]) for name in "xy")
        scaled = b if scale == 1 else builder.apply("mul", b, float(third))
        builder.output(builder.apply("add", a, scaled))
        arrays = {"x": x, "y": y if scale == 1 else (y / third).astype(np.float32)}
        (found,) = estimate(builder.finish(), arrays, {}).values()
        return found

    certain = sums(1)
    assert not np.isinf(certain.sigma).any()
    assert certain.value.astype(np.float32).tolist() == [largest, np.inf, largest, np.inf]
    assert np.isinf(sums(third).sigma).tolist() == [True, True, False, False]
    x /= 2
    assert not np.isinf(sums(third).sigma).any()


def limit_of(op: str, value: float, off: float, *others: float) -> float:
    """Return the limit of an operation whose last operand may be off by so much."""
    builder = GraphBuilder("jumps")
    x = builder.input("x", F32, [1])
    near = builder.apply("add", builder.apply("mul", x, 0.0), value)
    builder.output(builder.apply(op, *others, near))
    fusion = builder.finish()
    node = fusion.nodes[-1]
    known = [Estimate(np.full(1, o)) for o in others]
    last = Estimate(np.array([value]), np.square(np.array([off]) / LIMIT), None, 1)
    return LIMIT * float(pointwise(node, [*known, last], {}, Arithmetic.DECLARED).sigma[0])


@pytest.mark.parametrize(
    ("op", "value", "others", "reach", "change"),
    [
        ("fmod", -0.3157894453915304, (2490.0,), 2.9e-8, 0.3),  # 7885 and a bit turns
        ("remainder", 0.5, (100.2,), 1.1e-3, 0.4),
        ("frac", 7.75, (), 0.26, 1.0),
        ("tan", 1.5, (), 0.08, np.inf),
        ("reciprocal", 1e-3, (), 1.1e-3, np.inf),
        ("div", -1e-3, (3.0,), 1.1e-3, np.inf),
        ("lgamma", -1e-49, (), 1.5e-49, np.inf),
        ("lgamma", -2.9, (), 0.11, np.inf),
    ],
)
def test_what_lies_between_both_ends_counts(
    op: str, value: float, others: tuple[float, ...], reach: float, change: float
):
    assert limit_of(op, value, reach, *others) >= change
    assert limit_of(op, value, reach / 4, *others) < change


def test_there_is_no_jump_at_0_where_the_sign_is_kept():
    assert limit_of("frac", 1e-3, 0.01) < 0.02
    assert limit_of("fmod", 5.0, 0.1, 0.01) < 0.02


def test_an_infinite_mean_in_half_precision_may_be_no_number():
    """One pass subtracts infinities, another adds them up."""
    builder = GraphBuilder("mean")
    x = builder.input("x", BF16, [2, 4])
    builder.output(builder.call("welford", [x], {"dims": [1]})[0])
    given = {"x": np.array([[1, np.inf, 2, 3], [1, 2, 3, 4]], BF16.numpy)}
    (found,) = estimate(builder.finish(), given, {}).values()
    assert np.isinf(found.sigma).tolist() == [True, False]


@pytest.mark.parametrize("op", ["sin", "cos"])
@pytest.mark.parametrize("off", [1.6, 2.2, 2.9, 3.1, 4.0])
def test_a_wave_turns_around_within_the_bound(op: str, off: float):
    for value in np.linspace(0.03, 6.3, 17):
        wave = {"sin": np.sin, "cos": np.cos}[op]
        reached = wave(value + np.linspace(-off, off, 999)) - wave(value)
        assert limit_of(op, value, off) >= 0.98 * np.abs(reached).max()
