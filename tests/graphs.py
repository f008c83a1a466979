"""Small fusions of the usual kinds, for the tests of meaning and verification."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fusec.ir.annotations import Pin
from fusec.ir.dtype import BF16, F16, F32, I64, DType
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder

Shape = tuple[int, ...]


def pinned(fusion: Fusion, scheduler: str) -> Fusion:
    """Return a fusion as one segment of a scheduler."""
    names = tuple(v.name for node in fusion.nodes for v in node.outputs)
    return replace(fusion, pins=(Pin("whole", names, scheduler),))


def softmax() -> Fusion:
    """Return softmax over the last axis, written out."""
    b = GraphBuilder("softmax")
    x = b.input("x", BF16, [b.declare_dim("B", 37), b.declare_dim("H", 129)])
    xf = b.apply("cast", x, dtype=F32)
    top = b.apply("max", xf, dims=[1], keepdim=True)
    e = b.apply("exp", b.apply("sub", xf, top))
    y = b.apply("div", e, b.apply("sum", e, dims=[1], keepdim=True))
    b.output(b.apply("cast", y, dtype=BF16))
    return b.finish()


def layer_norm() -> Fusion:
    """Return layer norm with its statistics."""
    b = GraphBuilder("layer_norm")
    rows, columns = b.declare_dim("B", 33), b.declare_dim("H", 130)
    x = b.input("x", BF16, [rows, columns])
    w, bias = b.input("w", F32, [columns]), b.input("b", F32, [columns])
    xf = b.apply("cast", x, dtype=F32)
    var, mean = b.call("var_mean", [xf], {"dims": [1], "correction": 0, "keepdim": True})
    rstd = b.apply("rsqrt", b.apply("add", var, 1e-5))
    y = b.apply("mul", b.apply("sub", xf, mean), rstd)
    b.output(b.apply("add", b.apply("mul", y, w), bias))
    b.output(rstd)
    return b.finish()


def batch_norm() -> Fusion:
    """Return batch norm over N and HW of an NCHW tensor."""
    b = GraphBuilder("batch_norm")
    shape = [b.declare_dim(n, d) for n, d in (("N", 8), ("C", 5), ("S", 77))]
    x = b.input("x", F16, shape)
    w = b.input("w", F32, [shape[1]])
    xf = b.apply("cast", x, dtype=F32)
    var, mean = b.call("var_mean", [xf], {"dims": [0, 2], "correction": 0, "keepdim": True})
    rstd = b.apply("rsqrt", b.apply("add", var, 1e-5))
    y = b.apply("mul", b.apply("sub", xf, mean), rstd)
    scale = b.apply("broadcast_in_dim", w, shape=shape, broadcast_dims=[1])
    b.output(b.apply("cast", b.apply("mul", y, scale), dtype=F16))
    return b.finish()


def matmul() -> Fusion:
    """Return a matrix product with a bias and relu."""
    b = GraphBuilder("matmul")
    m, n, k = b.declare_dim("M", 45), b.declare_dim("N", 38), b.declare_dim("K", 200)
    product = b.apply("matmul", b.input("a", BF16, [m, k]), b.input("b", BF16, [k, n]))
    total = b.apply("add", b.apply("cast", product, dtype=F32), b.input("bias", F32, [n]))
    b.output(b.apply("relu", total))
    return b.finish()


def transpose() -> Fusion:
    """Return a transpose."""
    b = GraphBuilder("transpose")
    x = b.input("x", F16, [b.declare_dim("M", 70), b.declare_dim("N", 51)])
    b.output(b.apply("permute", x, dims=[1, 0]))
    return b.finish()


def column_sums() -> Fusion:
    """Return sums over rows and what is computed from them: two sweeps over the rows."""
    b = GraphBuilder("column_sums")
    rows, columns = b.declare_dim("B", 61), b.declare_dim("H", 40)
    x = b.input("x", F32, [rows, columns])
    total = b.apply("sum", x, dims=[0])
    y = b.apply("div", x, b.apply("add", b.apply("abs", total), 1.0))
    b.output(total)
    b.output(b.apply("sum", y, dims=[1]))
    var, mean = b.call("var_mean", [x], {"dims": [0], "correction": 1})
    b.output(var)
    b.output(mean)
    b.output(b.apply("max", x, dims=[0]))
    return b.finish()


def windows() -> Fusion:
    """Return rotations of halves, with slices, a cat, a pad and a reshape."""
    b = GraphBuilder("windows")
    rows, half = b.declare_dim("B", 21), b.declare_dim("D", 12)
    x = b.input("x", BF16, [rows, half * 2])
    xf = b.apply("cast", x, dtype=F32)
    first = b.apply("slice", xf, start_indices=[0, 0], end_indices=[rows, half])
    second = b.apply("slice", xf, start_indices=[0, half], end_indices=[rows, half * 2])
    turned = b.apply("cat", [b.apply("neg", second), first], 1)
    y = b.apply("mul", b.apply("add", xf, turned), 0.5)
    b.output(b.apply("reshape", b.apply("cast", y, dtype=BF16), new_shape=[rows, 2, half]))
    b.output(b.apply("pad", first, [1, 2], 1.0))
    return b.finish()


KINDS: dict[str, Callable[[], Fusion]] = {
    f.__name__: f
    for f in (softmax, layer_norm, batch_norm, matmul, transpose, column_sums, windows)
}


def reduce(op: str, dtype: DType, shape: Shape, dims: Shape, **attributes: Any) -> Fusion:
    """Return a fusion of one reduction; floats that are not f64 are cast to f32 before it."""
    builder = GraphBuilder(f"reduce_{op}")
    extents = [builder.declare_dim(f"D{k}", e) for k, e in enumerate(shape)]
    x = builder.input("x", dtype, extents)
    operand = builder.apply("cast", x, dtype=F32) if dtype.is_half else x
    for result in builder.call(op, [operand], {"dims": dims, **attributes}):
        builder.output(result)
    return builder.finish()


def scattered(
    op: str,
    dtype: DType,
    shape: Shape,
    index: Shape,
    source: Shape,
    dim: int,
    in_place: bool = False,
) -> Fusion:
    """Return a fusion of one scatter; a source of no dims is a number."""
    builder = GraphBuilder("scattered")
    x, places = builder.input("x", dtype, shape), builder.input("places", I64, index)
    src: Any = builder.input("src", dtype, source) if source else 3
    found = builder.apply(op, x, places, src, dim)
    builder.output(found, alias="x" if in_place else None)
    return builder.finish()
