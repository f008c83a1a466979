"""The transpose scheduler: tiles, widths, refusals, and its kernels on the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from families import GPU, assert_builds, estimate, plan_of, refused_rule, run_on_host, text_of

from fusec.ir.dtype import BF16, F32, F64, I8, DType
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.parse import read_text
from fusec.passes import run_pipeline
from fusec.schedule.transpose.tile import Tile, shapes


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
        turned(F32, 2, 11, 9, 19, order=(0, 2, 3, 1)),  # lines of two axes
        turned(BF16, 2, 7, 5, 20, order=(0, 3, 1, 2)),  # columns of two
        turned(BF16, 3, 4, 5, 6, order=(2, 3, 0, 1)),  # both
        crossed(40, 48),
        crossed(37, 19),
        strided(),
    ],
    ids=lambda f: f"{f.name}-{'x'.join(str(d.default) for d in f.dims if '.' not in d.name)}",
)
def test_kernels_compute_the_fusion(fusion: Fusion, tmp_path: Path) -> None:
    run_on_host("transpose", fusion, tmp_path)


@pytest.mark.parametrize(
    ("order", "sides"),
    [
        ((0, 2, 3, 1), (180, 64)),
        ((0, 3, 1, 2), (20, 576)),
        ((2, 3, 0, 1), (180, 512)),
        ((3, 0, 2, 1), (20, 64)),
        ((3, 2, 1, 0), (20, 8)),
    ],
)
def test_axes_that_follow_each_other_everywhere_are_one(
    order: tuple[int, ...], sides: tuple[int, int]
) -> None:
    problem = plan_of("transpose", turned(BF16, 8, 64, 9, 20, order=order)).problem
    assert (problem.line.extent.value, problem.column.extent.value) == sides


@pytest.mark.parametrize(
    ("fusion", "tile", "read", "write"),
    [
        (turned(F32, 4096, 2048), (32, 128), 4, 4),
        (turned(BF16, 4096, 4096), (64, 128), 8, 8),
        (turned(I8, 8192, 8192), (128, 128), 16, 16),
        (turned(F64, 4096, 2048), (16, 128), 2, 2),
        (turned(F32, 4096, 2046), (32, 128), 2, 4),
        (turned(F32, 4095, 2048), (32, 128), 4, 1),
        (turned(F32, 4095, 2047), (64, 128), 4, 4),
        (crossed(2048, 2048), (64, 64), 8, 8),
    ],
)
def test_tiles_are_a_line_of_the_caches_wide_and_accesses_the_widest(
    fusion: Fusion, tile: tuple[int, int], read: int, write: int
) -> None:
    p: Any = plan_of("transpose", fusion).parameters
    assert (p.tile_lines, p.tile_columns) == tile
    assert (p.read_width, p.write_width) == (read, write)


@pytest.mark.parametrize("side", [64, 512, 2048])
def test_small_tensors_have_small_tiles_and_large_ones_large_ones(side: int) -> None:
    p: Any = plan_of("transpose", turned(BF16, side, side)).parameters
    tiles = -(-side // p.tile_lines) * -(-side // p.tile_columns)
    larger = [t for t in shapes(2) if t[0] * t[1] > p.tile_lines * p.tile_columns]
    assert all(-(-side // n) * -(-side // m) < 4 * GPU.sms for n, m in larger)
    assert tiles >= 4 * GPU.sms or p.tile_columns == 32


def test_all_vectors_are_loaded_before_the_first_is_turned() -> None:
    text = text_of(plan_of("transpose", turned(F32, 64, 64)))
    read, wait, write = (
        text.index(t) for t in ("store_transposed", "__syncthreads();", "load<kWriteVec>")
    )
    assert text.index("load_readonly") < read < wait < write


def banks(addresses: list[int], size: int) -> int:
    """Return the most words of a bank that one access of a warp asks for, each counted once.

    An access of 8 or 16 bytes a thread is one for each half or quarter of a warp (CUDA programming
    guide, shared memory).
    """
    at_once = 32 * 4 // max(4, size)
    most = 0
    for start in range(0, len(addresses), at_once):
        part = addresses[start : start + at_once]
        words = {a // 4 + k for a in part for k in range(max(1, size // 4))}
        most = max(most, max(Counter(w % 32 for w in words).values()))
    return most


def place(p: Any, size: int, line: int, column: int) -> int:
    """Return the byte at which transposed.cuh puts an element."""
    unit = max(p.write_width, 16 // size)
    mask = min(8, p.tile_columns // unit) - 1
    swizzled = column // unit ^ (line // p.read_width & mask)
    return (line * p.tile_columns + swizzled * unit + column % unit) * size


@pytest.mark.parametrize("dtype", [I8, BF16, F32, F64], ids=str)
def test_shared_memory_is_written_and_read_without_bank_conflicts(dtype: DType) -> None:
    p: Any = plan_of("transpose", turned(dtype, 8192, 8192)).parameters
    size, tile = dtype.size, Tile(p, (dtype.size,))
    line_vectors, column_vectors = p.tile_lines // p.read_width, p.tile_columns // p.write_width
    warp = range(32)
    for v in range(p.read_width):
        at = [(t % line_vectors * p.read_width + v, t // line_vectors * tile.pack) for t in warp]
        assert banks([place(p, size, *each) for each in at], size * tile.pack) == 1
    at = [(t // column_vectors, t % column_vectors * p.write_width) for t in warp]
    assert banks([place(p, size, *each) for each in at], size * p.write_width) == 1
    assert size * tile.pack >= 4
    assert size * p.write_width == 16


def test_lines_that_are_not_swizzled_would_conflict() -> None:
    assert banks([line * 8 * 256 + 4 * j for j in range(4) for line in range(8)], 4) == 8


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


RESHAPED = {
    "bf16[33, 7, 128]": ([56, 528], "relu"),
    "u8[33, 7, 128]": ([56, 528], "abs"),
    "f8e4m3[33, 7, 128]": ([56, 528], "relu"),
    "bf16[48, 40, 64]": ([96, 1280], "relu"),
}


@pytest.mark.parametrize("type_", RESHAPED)
def test_a_transpose_of_a_reshape(type_: str, tmp_path: Path) -> None:
    """Whose quotients and remainders one side of the kernel may not see through."""
    shape, op = RESHAPED[type_]
    ops = f"  - y = cast({op}(permute(reshape(x, {shape}), [1, 0])), f32)\n"
    text = f"fusion: f\ninputs:\n  x: {type_}\nops:\n{ops}outputs: [y]\n"
    run_on_host("transpose", run_pipeline(read_text(text)), tmp_path)


def test_two_parts_of_one_input_keep_their_tiles(tmp_path: Path) -> None:
    text = """fusion: f
inputs:
  x: bf16[80, 96]
ops:
  - a = permute(slice(x, [9, 0], [73, 96]), [1, 0])
  - b = permute(slice(x, [12, 0], [76, 96]), [1, 0])
  - y = sub(a, mul(b, 3.0))
outputs: [y]
"""
    run_on_host("transpose", run_pipeline(read_text(text)), tmp_path)
