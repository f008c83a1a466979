"""Workloads that nothing can be tuned to: shapes and layouts drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from random import Random

from benchmarks.rows import Row
from fusec.run.arrays import dense_strides

COUNT = 60
LEAST, MOST = 64 << 20, 256 << 20
"""Bytes of the largest input."""
SIZES = {"bf16": 2, "f16": 2, "f32": 4}

Shape = tuple[int, ...]


def odd(draw: Random, elements: int) -> Shape:
    """Return two odd extents."""
    columns = draw.randrange(1001, 40000, 2)
    return elements // columns | 1, columns


def tall(draw: Random, elements: int) -> Shape:
    """Return millions of rows of a few elements."""
    columns = draw.randint(2, 15)
    return -(-elements // columns), columns


def short(draw: Random, elements: int) -> Shape:
    """Return about a million short rows."""
    columns = draw.randint(16, 200)
    return -(-elements // columns), columns


def flat(draw: Random, elements: int) -> Shape:
    """Return a few rows of millions."""
    rows = draw.randint(2, 9)
    return rows, -(-elements // rows)


def ranked(draw: Random, elements: int) -> Shape:
    """Return three to five extents."""
    rest = [draw.randint(2, 48) for _ in range(draw.randint(1, 3))] + [draw.randint(17, 2000)]
    return max(2, -(-elements // prod(rest))), *rest


SHAPES: tuple[Callable[[Random, int], Shape], ...] = (odd, tall, short, flat, ranked)


def dense(draw: Random, shape: Shape) -> Shape:
    """Return row-major strides."""
    return dense_strides(shape)


def padded(draw: Random, shape: Shape) -> Shape:
    """Return the strides of a tensor whose rows are parts of longer ones."""
    return dense_strides((*shape[:-1], shape[-1] + draw.randint(1, 9)))


def transposed(draw: Random, shape: Shape) -> Shape:
    """Return the strides of a tensor whose dims lie in memory in another order."""
    order = list(range(len(shape)))
    while order == sorted(order):
        draw.shuffle(order)
    inner = dense_strides([shape[axis] for axis in order])
    known = dict(zip(order, inner, strict=True))
    return tuple(known[axis] for axis in range(len(shape)))


def expanded(draw: Random, shape: Shape) -> Shape:
    """Return the strides of a tensor that is repeated along a dim."""
    axis = draw.randrange(len(shape))
    strides = dense_strides([1 if k == axis else e for k, e in enumerate(shape)])
    return tuple(0 if k == axis else s for k, s in enumerate(strides))


LAYOUTS: tuple[Callable[[Random, Shape], Shape], ...] = (dense, padded, transposed, expanded)


@dataclass(frozen=True)
class Body:
    """What a fusion computes, named as its PyTorch function.

    second: whether it takes another tensor of the shape; weight: whether it takes a vector.
    """

    name: str
    ops: str
    second: bool = False
    weight: bool = False


BODIES = (
    Body(
        "scaled_sum",
        """
  - y = cast(add(mul(cast(x, f32), 1.5), cast(z, f32)), {dtype})""",
        second=True,
    ),
    Body(
        "row_softmax",
        """
  - y = cast(softmax(cast(x, f32), {last}), {dtype})""",
    ),
    Body(
        "row_norm",
        """
  - xf = cast(x, f32)
  - rstd = rsqrt(add(mean(mul(xf, xf), dims=[{last}], keepdim=true), 1e-6))
  - y = cast(mul(mul(xf, rstd), cast(w, f32)), {dtype})""",
        weight=True,
    ),
    Body("row_sum", "\n  - y = sum(cast(x, f32), dims=[{last}])"),
    Body("column_sum", "\n  - y = sum(cast(x, f32), dims=[0])"),
    Body(
        "sliced",
        """
  - part = slice(x, {starts}, {ends})
  - y = cast(mul(cast(part, f32), 1.5), {dtype})""",
    ),
)
SLICE = 3
"""Where the slices of `sliced` begin along the last dim: no row of theirs is aligned."""


def rows(seed: int, count: int = COUNT) -> tuple[Row, ...]:
    """Return the workloads of a seed."""
    draw = Random(seed)
    return tuple(_row(draw, f"g{number:02}", number) for number in range(count))


def rows_of(seeds: Sequence[int]) -> tuple[Row, ...]:
    """Return the workloads of one seed, as suites are asked for them."""
    (seed,) = seeds
    return rows(seed)


def _row(draw: Random, name: str, number: int) -> Row:
    """Return one workload; every kind of shape comes in turn, all else is drawn."""
    kind, body = SHAPES[number % len(SHAPES)], draw.choice(BODIES)
    dtype = draw.choice(tuple(SIZES))
    # Evenly on a logarithmic scale.
    size = round(LEAST * (MOST / LEAST) ** draw.random())
    shape = kind(draw, -(-size // SIZES[dtype]))
    inputs = [("x", shape, draw.choice((dense, dense, padded, transposed))(draw, shape))]
    if body.second:
        inputs.append(("z", shape, draw.choice(LAYOUTS)(draw, shape)))
    if body.weight:
        inputs.append(("w", shape[-1:], (1,)))
    text = _text(name, body, dtype, shape, inputs)
    extents = "x".join(map(str, shape))
    return Row(f"{name}_{body.name}_{kind.__name__}_{dtype}_{extents}", name, text=text,
               function=body.name)  # fmt: skip


def _text(
    name: str,
    body: Body,
    dtype: str,
    shape: Shape,
    inputs: Sequence[tuple[str, Shape, Shape]],
) -> str:
    lines = [f"fusion: {name}", "inputs:"]
    for tensor, extents, strides in inputs:
        lines.append(f"  {tensor}: {{type: '{dtype}{list(extents)}', strides: {list(strides)}}}")
    starts = [0] * (len(shape) - 1) + [min(SLICE, shape[-1] - 1)]
    last = len(shape) - 1
    ops = body.ops.format(dtype=dtype, last=last, starts=starts, ends=list(shape))
    return "\n".join(lines) + "\nops:" + ops + "\noutputs: [y]\n"
