"""Transformer-like graphs of any size, to measure how long compilation takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fusec.ir.dtype import BF16, F32
from fusec.ir.graph import Fusion, Operand
from fusec.ops.builder.build import GraphBuilder


@dataclass(frozen=True)
class Shape:
    """The sizes of a model: a batch of sequences, and the width of its layers."""

    batch: int = 4
    length: int = 512
    heads: int = 8
    width: int = 1024
    hidden: int = 4096


def transformer(layers: int, shape: Shape | None = None, *, training: bool = False) -> Fusion:
    """Return a model of `layers` pre-norm layers: attention, then a gated feed-forward part.

    `training`: with what the backward pass needs as outputs, and with rotary positions, whose
    tables every layer reads.
    """
    return _Model(shape or Shape(), f"transformer_{layers}", training).built(layers)


def of_nodes(count: int, shape: Shape | None = None) -> Fusion:
    """Return the model with about `count` nodes."""
    one, two = (len(transformer(layers, shape).nodes) for layers in (1, 2))
    return transformer(max(1, round((count - one) / (two - one)) + 1), shape)


class _Model:
    def __init__(self, shape: Shape, name: str, training: bool) -> None:
        self.shape = shape
        self.training = training
        self.saved: list[Operand] = []
        self.tables: list[Operand] = []
        self.fd = GraphBuilder(name)
        self.rows = shape.batch * shape.length

    def built(self, layers: int) -> Fusion:
        x = self.input("x", self.rows, self.shape.width)
        mask = self.fd.input("mask", F32, (self.shape.length, self.shape.length))
        if self.training:
            sizes = (self.shape.length, self.shape.width // self.shape.heads)
            self.tables = [self.fd.input(name, F32, sizes) for name in ("cosines", "sines")]
        for layer in range(layers):
            x = self.call("add", x, self.attention(f"l{layer}a", x, mask))
            x = self.call("add", x, self.feed_forward(f"l{layer}f", x))
        self.fd.output(self.call("cast", x, dtype=BF16))
        for value in self.saved:
            self.fd.output(value)
        return self.fd.finish()

    def input(self, name: str, *sizes: int) -> Operand:
        return self.fd.input(name, BF16, sizes)

    def call(self, op: str, *operands: Any, **attributes: Any) -> Operand:
        return self.fd.apply(op, *operands, **attributes)

    def norm(self, name: str, x: Operand) -> Operand:
        """Return the layer norm of the rows, as bf16."""
        wide = self.call("cast", x, dtype=F32)
        mean = self.call("mean", wide, dims=[1], keepdim=True)
        centred = self.call("sub", wide, mean)
        square = self.call("mul", centred, centred)
        variance = self.call("mean", square, dims=[1], keepdim=True)
        scale = self.call("rsqrt", self.call("add", variance, 1e-5))
        plain = self.call("mul", centred, scale)
        self.save(x, scale)
        weighted = self.call("mul", plain, self.input(f"{name}_w", self.shape.width))
        shifted = self.call("add", weighted, self.input(f"{name}_b", self.shape.width))
        return self.call("cast", shifted, dtype=BF16)

    def save(self, *values: Operand) -> None:
        if self.training:
            self.saved += [v for v in values if v not in self.saved]

    def rotated(self, x: Operand) -> Operand:
        """Return queries or keys turned by their positions."""
        if not self.training:
            return x
        wide, half = self.call("cast", x, dtype=F32), self.shape.width // self.shape.heads // 2
        start, end = [0, 0, 0, 0], [*x.shape[:3], half]
        left = self.call("slice", wide, start_indices=start, end_indices=end)
        start, end = [0, 0, 0, half], [*x.shape[:3], 2 * half]
        right = self.call("slice", wide, start_indices=start, end_indices=end)
        turned = self.call("cat", [self.call("neg", right), left], dim=-1)
        cosines, sines = self.tables
        mixed = self.call("add", self.call("mul", wide, cosines), self.call("mul", turned, sines))
        return self.call("cast", mixed, dtype=BF16)

    def attention(self, name: str, x: Operand, mask: Operand) -> Operand:
        s = self.shape
        normed = self.norm(name, x)
        query, key, value = (self.heads(f"{name}{part}", normed) for part in "qkv")
        query, key = self.rotated(query), self.rotated(key)
        scores = self.call("matmul", query, self.call("permute", key, dims=[0, 1, 3, 2]))
        wide = self.call("mul", self.call("cast", scores, dtype=F32), 0.125)
        masked = self.call("add", wide, mask)
        highest = self.call("max", masked, dims=[3], keepdim=True)
        powers = self.call("exp", self.call("sub", masked, highest))
        total = self.call("sum", powers, dims=[3], keepdim=True)
        weights = self.call("cast", self.call("div", powers, total), dtype=BF16)
        self.save(query, key, value, weights)
        mixed = self.call("permute", self.call("matmul", weights, value), dims=[0, 2, 1, 3])
        flat = self.call("reshape", mixed, new_shape=[self.rows, s.width])
        return self.call("matmul", flat, self.input(f"{name}_o", s.width, s.width))

    def heads(self, name: str, x: Operand) -> Operand:
        s = self.shape
        product = self.call("matmul", x, self.input(f"{name}_p", s.width, s.width))
        split = [s.batch, s.length, s.heads, s.width // s.heads]
        return self.call(
            "permute", self.call("reshape", product, new_shape=split), dims=[0, 2, 1, 3]
        )

    def feed_forward(self, name: str, x: Operand) -> Operand:
        s = self.shape
        normed = self.norm(name, x)
        gate = self.call("matmul", normed, self.input(f"{name}_g", s.width, s.hidden))
        up = self.call("matmul", normed, self.input(f"{name}_u", s.width, s.hidden))
        wide = self.call("cast", gate, dtype=F32)
        active = self.call("mul", wide, self.call("sigmoid", wide))
        joined = self.call("cast", self.call("mul", active, up), dtype=BF16)
        self.save(gate, up)
        return self.call("matmul", joined, self.input(f"{name}_d", s.hidden, s.width))
