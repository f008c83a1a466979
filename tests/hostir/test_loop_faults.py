"""Loops over streams that once were refused, or ended in internal errors."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from local_fusions import Local
from program_races import races
from streamed_programs import Threads, by_ranks

from fusec import driver
from fusec.commands.running.rank import assembled, parts_of
from fusec.driver import Compilation
from fusec.hostir.instructions import For
from fusec.ir.dim import dim, symbol
from fusec.ir.graph import Node
from fusec.ir.op import OpDef
from fusec.ir.sharding import Mesh
from fusec.ops.communication import ALL_GATHER, SEND_SLICE, STREAM_STACK
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.rank import run_rank
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.shard.loops import settle_loops
from fusec.shard.partition import partitioned

LOOPED = CompileOptions(without=("loops_by_cost",))


def check(text: str, ranks: int = 1) -> Compilation:
    """Run a fusion on all ranks, in drawn orders, and compare it to the bit; return its program."""
    fusion = read_text(f"fusion: f\n{text}", "f.yaml")
    sizes, program = choose_sizes(fusion), Compilation(fusion, LOOPED)
    inputs, divided = random_inputs(fusion, sizes, 0, "integers"), partitioned(fusion)
    mesh = fusion.mesh or Mesh((("alone", 1),), (0,))
    assert mesh.size == ranks
    assert program.posts.name  # planned once, before the threads start
    shares = divided.fusion.hints
    for seed in (None, 0, 1):

        def one(rank: int, transport: Threads, seed: int | None = seed) -> dict[str, Any]:
            own = parts_of(fusion, inputs, divided.placed, mesh, rank, shares)
            order = None if seed is None else Random(seed)
            return run_rank(program, own, transport, rank, draw=order)

        found, copies = assembled(fusion, by_ranks(ranks, one), divided.placed, mesh, shares)
        assert copies == []
        for name, wanted in driver.reference(fusion, inputs, sizes).items():
            np.testing.assert_array_equal(found[name], wanted, err_msg=name)
    return program


def loops(program: Compilation) -> int:
    return sum(isinstance(i, For) and i.streams > 0 for i in program.posts.instructions)


def test_complex_numbers_whose_second_part_is_the_same_in_all_slices() -> None:
    program = check(
        """
dims: {B: 8}
inputs:
  x: {type: "f32[B, 4]", stream: {0: 2}}
ops:
  - y = cast(x, c64)
  - z = mul(y, y)
outputs:
  - y: {stream: {0: 2}}
  - z: {stream: {0: 2}}
"""
    )
    assert loops(program) == 1


N, WIDE = symbol("N"), symbol("WIDE")


def left_of_no_loop(op: OpDef, **attributes: Any) -> list[Node]:
    """Return the nodes of a fusion in which what leaves a loop reads what is in none, settled."""
    b = Local("left", N=2, WIDE=3)
    made = b.op("a", "neg", b.input("x", N, WIDE))
    return list(settle_loops(b.finish(b.part("z", op, made, **attributes))).nodes)


def test_what_is_stacked_of_no_loop_is_repeated() -> None:
    nodes = left_of_no_loop(STREAM_STACK, dim=1, parts=dim(4))
    assert [n.op.name for n in nodes] == ["neg", "broadcast_in_dim", "reshape"]
    assert nodes[1].output.shape == (N, dim(4), WIDE)
    assert (nodes[2].output.name, nodes[2].output.shape) == ("z", (N, WIDE * 4))


def test_what_is_sent_of_no_loop_is_gathered() -> None:
    nodes = left_of_no_loop(SEND_SLICE, axis="tp", ranks=4)
    assert [n.op for n in nodes][-1] is ALL_GATHER
    assert nodes[-1].output.shape == (N * 4, WIDE)


@pytest.mark.parametrize("source", ["x", "a"])
@pytest.mark.parametrize("view", ["reshape(SOURCE, [B, C])", "permute(SOURCE, [1, 0])"])
def test_a_view_that_is_put_out_and_sliced(source: str, view: str) -> None:
    """A slice reads it where it lies, and is no part of a kernel that computes it again."""
    program = check(
        f"""
dims: {{B: 8, C: 4}}
inputs:
  x: "f32[C, B]"
ops:
  - a = neg(x)
  - t0 = {view.replace("SOURCE", source)}
  - t2 = neg(t0)
outputs:
  - t2: {{stream: {{0: 2}}}}
  - t0
  - a
"""
    )
    assert loops(program) == 1


@pytest.mark.parametrize("op", ["add(x, z)", "add(neg(x), mul(z, z))"])
def test_slices_that_go_around_the_ranks_of_two_axes(op: str) -> None:
    """Each in a loop of its own: the first keeps its slices for the second."""
    program = check(
        f"""
mesh: {{dp: 2, tp: 2}}
dims: {{B: 8}}
inputs:
  x: {{type: "f32[B, 4]", shard: {{0: dp}}}}
  z: {{type: "f32[B, 4]", shard: {{0: tp}}}}
ops:
  - y = {op}
outputs:
  - y: {{shard: {{}}, stream: {{0: 2}}}}
""",
        4,
    )
    assert loops(program) == 2
    places = {"dp.place": 1, "tp.place": 0}
    assert not races(program.posts, {**program.local.hints, **places})
