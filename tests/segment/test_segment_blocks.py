"""Graphs of equal blocks: three of them are searched, and the result costs what a search finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from fake_schedulers import H200, usual
from segment_runs import check_structure

from benchmarks.transformer import Shape, transformer
from fusec import lowering
from fusec.ir.dtype import BF16, F32
from fusec.ir.graph import Fusion, Operand
from fusec.ops.builder.build import GraphBuilder
from fusec.options import CompileOptions
from fusec.segment import repeat
from fusec.segment.blocks import find_blocks
from fusec.segment.protocol import Proposal, Refusal, Scheduler
from fusec.segment.repeat import segment_blocks, without_blocks
from fusec.segment.resume import Resume
from fusec.segment.search import segment
from fusec.segment.segmented import SegmentedFusion
from fusec.target import Target

ROWS, WIDTH = 512, 256
SMALL = Shape(batch=1, length=128, heads=2, width=128, hidden=256)


def _normed(fd: GraphBuilder, x: Operand, name: str) -> Operand:
    wide = fd.apply("cast", x, dtype=F32)
    mean = fd.apply("mean", wide, dims=[1], keepdim=True)
    centred = fd.apply("sub", wide, mean)
    square = fd.apply("mean", fd.apply("mul", centred, centred), dims=[1], keepdim=True)
    scaled = fd.apply("mul", centred, fd.apply("rsqrt", fd.apply("add", square, 1e-5)))
    weight = fd.input(f"{name}_g", F32, (WIDTH,))
    return fd.apply("cast", fd.apply("mul", scaled, weight), dtype=BF16)


def chain(count: int, body: Callable[[GraphBuilder, Operand, Operand, int], Operand]) -> Fusion:
    """Return blocks one after the other; `body` makes one of the last one's result."""
    fd = GraphBuilder("chain")
    first = x = fd.input("x", BF16, (ROWS, WIDTH))
    for k in range(count):
        x = body(fd, x, first, k)
    fd.output(fd.apply("cast", x, dtype=F32))
    return fd.finish()


def norms(fd: GraphBuilder, x: Operand, _: Operand, k: int) -> Operand:
    made = fd.apply("matmul", _normed(fd, x, f"l{k}"), fd.input(f"l{k}_w", BF16, (WIDTH, WIDTH)))
    return fd.apply("add", x, fd.apply("tanh", made))


def kept(fd: GraphBuilder, x: Operand, _: Operand, k: int) -> Operand:
    """Make what a backward pass does: a gradient of the weights is stored by each block."""
    saved = fd.input(f"l{k}_x", BF16, (ROWS, WIDTH))
    weight = fd.input(f"l{k}_w", BF16, (WIDTH, WIDTH))
    fd.output(fd.apply("matmul", fd.apply("permute", saved, dims=[1, 0]), x))
    near = fd.apply("mul", fd.apply("matmul", x, weight), fd.apply("exp", saved))
    return _normed(fd, near, f"l{k}")


def shared(fd: GraphBuilder, x: Operand, first: Operand, k: int) -> Operand:
    """Make blocks that all read one tensor more."""
    made = fd.apply("matmul", _normed(fd, x, f"l{k}"), fd.input(f"l{k}_w", BF16, (WIDTH, WIDTH)))
    return fd.apply("add", fd.apply("sin", made), fd.apply("cos", first))


def dropout(fd: GraphBuilder, x: Operand, first: Operand, k: int) -> Operand:
    """Make blocks whose random numbers begin at other offsets."""
    made = norms(fd, x, first, k)
    return fd.apply("where", fd.apply("gt", fd.apply("rand_like", made), 0.1), made, 0.0)


GRAPHS: dict[str, Callable[[int], Fusion]] = {
    "inference": lambda n: transformer(n, SMALL),
    "training": lambda n: transformer(n, SMALL, training=True),
    "norms": lambda n: chain(n, norms),
    "gradients": lambda n: chain(n, kept),
    "shared input": lambda n: chain(n, shared),
    "dropout": lambda n: chain(n, dropout),
}


def graph(name: str, count: int) -> Fusion:
    return lowering.optimise(GRAPHS[name](count), CompileOptions())


def by_blocks(
    fusion: Fusion, takers: Sequence[Scheduler] | None = None
) -> tuple[SegmentedFusion | None, int]:
    """Return the segments, and how many tensors of fusions the search was asked for.

    The offsets of random numbers have no dims: each adds to the one before.
    """
    searched: list[int] = []
    asked = takers or usual()

    def search(part: Fusion) -> SegmentedFusion:
        searched.append(sum(bool(n.output.shape) for n in part.nodes))
        return segment(part, asked, H200)

    def resume(part: Fusion, start: Resume) -> SegmentedFusion:
        return segment(part, asked, H200, resume=start)

    return segment_blocks(fusion, search, resume), sum(searched)


SLOW = ("inference", "training", "dropout", "norms")
NAMES = [pytest.param(n, marks=pytest.mark.nightly if n in SLOW else ()) for n in GRAPHS]


@pytest.mark.parametrize("name", NAMES)
def test_blocks_cost_what_a_search_of_the_whole_finds(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeat, "LARGE", 0)
    fusion = graph(name, 6)
    found, _ = by_blocks(fusion)
    assert found is not None
    check_structure(found)
    assert found.fusion == fusion
    whole = segment(fusion, usual(), H200)
    assert found.seconds(H200) == pytest.approx(whole.seconds(H200), rel=1e-9)
    assert [d.action for d in found.decisions].count("repeat") == 1


@pytest.mark.parametrize("name", NAMES)
def test_what_is_searched_does_not_grow_with_the_blocks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeat, "LARGE", 0)
    few, many = (by_blocks(graph(name, n))[1] for n in (9, 12))
    assert few == many


class Plain:
    """A scheduler of GEMMs that reads no operand through a factor."""

    name = "matmul"

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    def propose(self, segment: Fusion, target: Target) -> Proposal:
        if any(n.op.name == "mul" for n in segment.nodes):
            return Refusal("operand", "an operand has a factor")
        return self.scheduler.propose(segment, target)


def scaled(fd: GraphBuilder, x: Operand, _: Operand, k: int) -> Operand:
    """Make blocks whose second GEMM reads a factor that every reader would compute again."""
    made = fd.apply("matmul", x, fd.input(f"l{k}_w", BF16, (WIDTH, WIDTH)))
    half = fd.apply("cast", fd.apply("mul", fd.apply("cast", made, dtype=F32), 0.7), dtype=BF16)
    kept = fd.apply("matmul", half, fd.input(f"l{k}_v", BF16, (WIDTH, WIDTH)))
    return fd.apply("add", made, fd.apply("tanh", fd.apply("sin", fd.apply("cos", kept))))


def test_blocks_store_what_no_scheduler_reads_through_a_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repeat, "LARGE", 0)
    takers = [Plain(s) if s.name == Plain.name else s for s in usual()]
    fusion = lowering.optimise(chain(7, scaled), CompileOptions())
    found, _ = by_blocks(fusion, takers)
    assert found is not None
    assert len(found.uncopied) >= 7
    whole = segment(fusion, takers, H200)
    assert found.uncopied == whole.uncopied
    assert found.seconds(H200) == pytest.approx(whole.seconds(H200), rel=1e-9)
    assert [d.action for d in found.decisions].count("repeat") == 1


def test_small_graphs_are_searched_as_a_whole() -> None:
    assert by_blocks(graph("norms", 6))[0] is None


def test_a_reader_of_every_block_leaves_nothing_out() -> None:
    fd = GraphBuilder("gathered")
    x = first = fd.input("x", BF16, (ROWS, WIDTH))
    total: Operand | None = None
    for k in range(6):
        x = norms(fd, x, first, k)
        total = x if total is None else fd.apply("add", total, fd.apply("relu", x))
    fd.output(x)
    fd.output(fd.apply("cat", [x, total], dim=0))
    fusion = lowering.optimise(fd.finish(), CompileOptions())
    blocks = find_blocks(fusion)
    small = None if blocks is None else without_blocks(fusion, blocks)
    assert small is None or len(small.outputs) == len(fusion.outputs)
