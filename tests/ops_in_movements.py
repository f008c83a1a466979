"""Fusions with each elementwise, random or positional operation inside movements that branch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fusec.diagnostics import FusecError
from fusec.ir.dtype import BOOL, C64, F16, F32, F64, I32, I64, DType
from fusec.ir.graph import Fusion, Value
from fusec.ops import TABLE
from fusec.ops.builder.build import GraphBuilder

SHAPES = ((4, 64), (3, 5))
"""One shape whose rows are whole vectors, one whose rows are not."""
Make = Callable[[GraphBuilder, tuple[int, ...]], Value]
"""Applies an operation; the result has the given shape."""
Move = Callable[[GraphBuilder, Value, Value], Any]
"""Puts the second value, the operation's result, inside a movement; the first is an input."""


@dataclass(frozen=True)
class Case:
    """A fusion of one operation inside of movements."""

    name: str
    fusion: Fusion


def in_cat(builder: GraphBuilder, x: Value, made: Value) -> Any:
    """Return both beside each other, along rows and columns."""
    return builder.apply("cat", [builder.apply("cat", [x, made], 1)] * 2, 0)


def in_pad(builder: GraphBuilder, x: Value, made: Value) -> Any:
    """Return the result with a border."""
    return builder.apply("pad", made, pad_widths=[3, 1, 0, 2], value=x.dtype.kind == "bool")


def in_where(builder: GraphBuilder, x: Value, made: Value) -> Any:
    """Return either of both."""
    chosen = builder.input("chosen", BOOL, x.shape)
    return builder.apply("where", chosen, x, made)


def in_slice(builder: GraphBuilder, x: Value, made: Value) -> Any:
    """Return a part of the result beside the input."""
    part = builder.apply("slice", made, start_indices=[1, 1], end_indices=[3, 5], strides=[1, 2])
    return builder.apply("cat", [builder.apply("slice", x, [0, 0], [2, 3]), part], 1)


def in_flip(builder: GraphBuilder, x: Value, made: Value) -> Any:
    """Return the result turned around, beside itself."""
    return builder.apply("cat", [made, builder.apply("flip", made, [0, 1])], 1)


def in_update(builder: GraphBuilder, x: Value, made: Value) -> Any:
    """Return the input with a part of the result in it."""
    part = builder.apply("slice", made, [0, 0], [2, 3])
    return builder.apply("update_slice", x, part, [1, 1])


MOVES: Mapping[str, Move] = {
    "cat": in_cat,
    "pad": in_pad,
    "where": in_where,
    "slice": in_slice,
    "flip": in_flip,
    "update": in_update,
}


def fusion_in(name: str, move: Move, make: Make, shape: tuple[int, ...]) -> Fusion:
    """Return the fusion of an operation inside of a movement."""
    builder = GraphBuilder(name)
    made = make(builder, shape)
    builder.output(move(builder, builder.input("other", made.dtype, shape), made))
    return builder.finish()


def pointwise(op: str, dtype: DType) -> Make:
    """Return what applies an elementwise operation to inputs of a type."""

    def make(builder: GraphBuilder, shape: tuple[int, ...]) -> Any:
        operands = [
            builder.input(f"x{k}", BOOL if p.name == "condition" else dtype, shape)
            for k, p in enumerate(TABLE[op].operands)
        ]
        return builder.apply(op, *operands, **({"dtype": I32} if op == "cast" else {}))

    return make


def elementwise() -> Iterator[tuple[str, Make]]:
    """Yield each elementwise operation, on the first type that it takes."""
    for op in TABLE.values():
        if op.family != "pointwise":
            continue
        for dtype in (F32, I32, BOOL, C64):
            try:
                made = pointwise(op.name, dtype)(GraphBuilder(), (4, 64))
            except FusecError:
                continue
            if made.dtype.kind != "complex":
                yield op.name, pointwise(op.name, dtype)
                break


def _scalar_seed(builder: GraphBuilder) -> tuple[Any, Any]:
    return builder.input("seed", I64, None), builder.input("offset", I64, None)


def _tensor_seed(builder: GraphBuilder) -> tuple[Any, Any]:
    """Return an element of a tensor, one more than it, as seed and offset."""
    many = builder.input("seeds", I64, [3])
    one = builder.apply("reshape", builder.apply("slice", many, [1], [2]), [])
    return one, builder.apply("add", one, 1)


SEEDS: Mapping[str, Callable[[GraphBuilder], tuple[Any, Any]]] = {
    "unseeded": lambda builder: (None, None),
    "literal": lambda builder: (7, 12),
    "scalar": _scalar_seed,
    "tensor": _tensor_seed,
}


def random(op: str, dtype: DType, seeds: str) -> Make:
    """Return what samples random numbers."""

    def make(builder: GraphBuilder, shape: tuple[int, ...]) -> Any:
        return builder.apply(op, 0.25, 2.0, shape, *SEEDS[seeds](builder), dtype=dtype)

    return make


def _iota(dtype: DType) -> Make:
    def make(builder: GraphBuilder, shape: tuple[int, ...]) -> Any:
        row = builder.apply("iota", shape[1], 1, 2, dtype=dtype)
        return builder.apply("broadcast_in_dim", row, shape=shape, broadcast_dims=[1])

    return make


def _selected(op: str) -> Make:
    def make(builder: GraphBuilder, shape: tuple[int, ...]) -> Any:
        x = builder.input("x", F32, (9, shape[1]))
        if op == "gather":
            return builder.apply("gather", x, builder.input("i", I64, shape), 0)
        return builder.apply("index_select", x, builder.input("i", I32, (shape[0],)), 0)

    return make


def positional() -> Iterator[tuple[str, Make]]:
    """Yield operations whose elements depend on their positions."""
    for op in ("uniform", "normal"):
        for dtype in (F32, F16, F64):
            for seeds in SEEDS:
                yield f"{op}_{dtype}_{seeds}", random(op, dtype, seeds)
    for dtype in (I32, F32):
        yield f"iota_{dtype}", _iota(dtype)
    for op in ("gather", "index_select"):
        yield op, _selected(op)


def _cases(
    makes: Iterator[tuple[str, Make]], shapes: tuple[tuple[int, ...], ...]
) -> Iterator[Case]:
    for op, make in makes:
        for moved, move in MOVES.items():
            for number, shape in enumerate(shapes):
                name = f"{op}_in_{moved}_{number}"
                yield Case(name, fusion_in(name, move, make, shape))


def cases() -> list[Case]:
    """Return all fusions, always in the same order; each has its own name."""
    return [*_cases(positional(), SHAPES), *_cases(elementwise(), SHAPES[:1])]
