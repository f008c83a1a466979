"""The transpose scheduler: tiles, widths, refusals, and its kernels on the host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from families import assert_builds, estimate, plan_of, refused_rule, run_on_host, text_of

from fusec.ir.dtype import BF16, F32, F64, I8, DType
from fusec.ir.graph import Fusion
from fusec.ops.build import GraphBuilder


def turned(dtype: DType, *shape: int, order: tuple[int, ...] = (1, 0)) -> Fusion:
    builder = GraphBuilder("turned")
    x = builder.input("x", dtype, [builder.declare_dim(f"D{k}", e) for k, e in enumerate(shape)])
    y = builder.apply("permute", x, dims=order)
    builder.output(builder.apply("neg", y))
    return builder.finish()


def crossed(m: int, n: int) -> Fusion:
    """A straight and two crossed loads, vectors along both sides, two outputs."""
    builder = GraphBuilder("crossed")
    rows, columns = builder.declare_dim("M", m), builder.declare_dim("N", n)
    x, y = builder.input("x", F32, [rows, columns]), builder.input("y", BF16, [columns, rows])
    z = builder.input("z", F32, [columns, rows])
    row, side = builder.input("row", F32, [columns]), builder.input("side", F32, [rows, 1])
    total = x
    for other in (y, z):
        total = builder.apply("add", total, builder.apply("permute", other, dims=[1, 0]))
    total = builder.apply("mul", builder.apply("add", total, row), side)
    builder.output(total)
    builder.output(builder.apply("cast", total, dtype=BF16))
    return builder.finish()


def strided() -> Fusion:
    """An input that lies transposed in memory, with padded lines."""
    builder = GraphBuilder("strided")
    m, n = builder.declare_dim("M", 40), builder.declare_dim("N", 56)
    x = builder.input("x", F32, [m, n], stride_order=[0, 1], contiguity=[False, True])
    y = builder.input("y", F32, [m, n])
    builder.output(builder.apply("add", x, y))
    return builder.finish()


REPRESENTATIVE: dict[str, Callable[[], Fusion]] = {
    "square": lambda: turned(F32, 1024, 1024),
    "half": lambda: turned(BF16, 2048, 4096),
    "bytes": lambda: turned(I8, 512, 512),
    "double": lambda: turned(F64, 512, 512),
    "ragged": lambda: turned(F32, 1001, 333),
    "heads": lambda: turned(BF16, 4, 64, 8, 128, order=(0, 2, 3, 1)),
    "crossed": lambda: crossed(256, 512),
    "strided": strided,
}


@pytest.mark.parametrize("name", REPRESENTATIVE)
def test_kernels_build_without_spills(name: str) -> None:
    assert_builds(plan_of("transpose", REPRESENTATIVE[name]()))


@pytest.mark.parametrize(
    "fusion",
    [
        turned(F32, 40, 72),
        turned(F32, 33, 65),
        turned(BF16, 72, 130),
        turned(I8, 64, 72),
        turned(F64, 9, 8),
        turned(F32, 8, 16),
        turned(F32, 3, 33, 40, order=(0, 2, 1)),
        turned(F32, 33, 3, 40, order=(2, 1, 0)),
        crossed(40, 48),
        crossed(37, 19),
        strided(),
    ],
    ids=lambda f: f"{f.name}-{'x'.join(str(d.default) for d in f.dims if '.' not in d.name)}",
)
def test_kernels_compute_the_fusion(fusion: Fusion, tmp_path: Path) -> None:
    run_on_host("transpose", fusion, tmp_path)


@pytest.mark.parametrize(
    ("fusion", "tile", "read", "write"),
    [
        (turned(F32, 1024, 512), 32, 4, 4),
        (turned(BF16, 1024, 512), 64, 8, 8),
        (turned(F32, 1024, 510), 32, 2, 4),
        (turned(F32, 1023, 512), 32, 4, 1),
        (turned(F32, 1023, 511), 32, 1, 1),
    ],
)
def test_widths_of_both_sides(fusion: Fusion, tile: int, read: int, write: int) -> None:
    p = plan_of("transpose", fusion).parameters
    assert (p.tile, p.read_width, p.write_width) == (tile, read, write)


def test_the_tile_has_a_padding_and_the_threads_wait_for_it() -> None:
    text = text_of(plan_of("transpose", turned(F32, 64, 64)))
    assert "__shared__" in text
    assert "__syncthreads();" in text
    assert "kPitch = 33" in text


def test_the_price_is_every_input_and_output_once() -> None:
    assert estimate("transpose", turned(F32, 512, 256)).bytes == 2 * 512 * 256 * 4


def refusal(make: Callable[[GraphBuilder, Any], Any], *, alias: bool = False) -> Fusion:
    builder = GraphBuilder("refused")
    x = builder.input("x", F32, [64, 64])
    for value in make(builder, x):
        builder.output(value, alias=x if alias else None)
    return builder.finish()


def straight(b: GraphBuilder, x: Any) -> Any:
    return [b.apply("exp", x)]


def total(b: GraphBuilder, x: Any) -> Any:
    return [b.apply("sum", b.apply("permute", x, dims=[1, 0]), dims=[0])]


def narrow(b: GraphBuilder, x: Any) -> Any:
    return [b.apply("neg", b.apply("permute", b.input("y", F32, [4, 64]), dims=[1, 0]))]


def part(b: GraphBuilder, x: Any) -> Any:
    return [b.apply("pad", b.apply("permute", x, dims=[1, 0]), [1, 1, 1, 1])]


def symmetric(b: GraphBuilder, x: Any) -> Any:
    return [b.apply("add", x, b.apply("permute", x, dims=[1, 0]))]


@pytest.mark.parametrize(
    ("fusion", "rule"),
    [
        (refusal(straight), "no transposition"),
        (refusal(total), "operation"),
        (refusal(narrow), "tile"),
        (refusal(part), "conditions"),
        (refusal(symmetric, alias=True), "in_place"),
        (turned(F32, 0, 64), "empty"),
    ],
    ids=["straight", "sum", "narrow", "part", "in place", "empty"],
)
def test_refusals(fusion: Fusion, rule: str) -> None:
    assert refused_rule("transpose", fusion) == rule
