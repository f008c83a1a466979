"""Sums of what ranks have, read where it lies: chosen by price, the same bits, between barriers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from paths import ROOT
from peer_links import quick_barriers  # noqa: F401
from streamed_programs import Threads, by_ranks

from fusec.commands.running.rank import parts_of
from fusec.driver import Compilation
from fusec.explain.record import explain
from fusec.explain.text import explanation
from fusec.files import with_sizes
from fusec.hostir.instructions import (
    Alias,
    Launch,
    Share,
    Unshare,
)
from fusec.hostir.shared import copied_argument
from fusec.ir.graph import Output
from fusec.ops.communication import PEER_VIEWS, make_node
from fusec.options import CompileOptions
from fusec.parse import read_file, read_text
from fusec.passes.copy_unaligned import copy_unaligned
from fusec.rank import run_rank
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.shard.partition import partitioned

pytestmark = pytest.mark.usefixtures("quick_barriers")
EXAMPLES = ROOT / "examples" / "parallel"
NORM = EXAMPLES / "allreduce_residual_rmsnorm.yaml"


def compiled(rows: int, **options: Any) -> Compilation:
    chosen = CompileOptions(sizes={"B": rows}, **options)
    return Compilation(with_sizes(read_file(NORM), {"B": rows}), chosen)


def kinds(program: Compilation) -> list[str]:
    return [n.op.name for s in program.segmented.segments for n in s.nodes if "_" in n.op.name]


# The choice.


@pytest.mark.parametrize(("rows", "read"), [(1, True), (16, True), (512, False), (8192, False)])
def test_few_rows_are_read_where_they_lie(rows: int, read: bool) -> None:
    program = compiled(rows)
    assert ("peer_views" in kinds(program)) == read
    assert ("all_reduce" in kinds(program)) != read
    assert "all_reduce" in kinds(compiled(rows, without=("peer_reads",)))
    assert "all_reduce" in kinds(compiled(rows, redefine="never"))


@pytest.mark.parametrize("rows", [1, 16, 64])
def test_few_bytes_are_pushed_unless_barriers_are_quick(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    program = compiled(rows)
    assert "all_reduce" in kinds(program)
    (found,) = [s.exchange for s in explain(program).segments if s.exchange is not None]
    assert found.carrier == "pushed sums"


@pytest.mark.parametrize(("rows", "said"), [(8, "saves"), (512, "rather than")])
def test_explain_tells_both_prices(rows: int, said: str) -> None:
    program = compiled(rows)
    text = " ".join(explanation(explain(program)).split())
    found = text[text.index("peer_reads: ") :].split(" us")
    assert said in found[0] + found[1]
    assert " of " in found[1] or "rather than" in found[1]


@pytest.mark.parametrize(
    ("shared", "copied"),
    [
        ("relu(x)", False),
        ("reshape(relu(x), [4, 16])", False),
        ("reshape(x, [4, 16])", True),
        ("slice(relu(x), [1, 0], [5, 8], [1, 1])", True),
    ],
)
def test_what_is_shared_has_memory_of_its_own(shared: str, copied: bool) -> None:
    """Not that of an input, nor a place in another tensor, which might not be aligned."""
    text = f'fusion: f\ninputs: {{x: "f32[8, 8]"}}\nops:\n  - a = {shared}\n  - b = neg(a)\n'
    fusion = read_text(f"{text}outputs: [b]\n")
    (value,) = next(n.inputs for n in fusion.nodes if n.op.name == "neg")
    views = make_node(PEER_VIEWS, value, "v", axis="m", ranks=2)
    nodes = [views if n.op.name == "neg" else n for n in fusion.nodes]
    changed = replace(fusion, nodes=tuple(nodes), outputs=(Output(views.outputs[0]),))
    assert bool(copy_unaligned(changed)[1]) == copied


@pytest.mark.parametrize(
    ("shared", "argument"),
    [
        ("set(x)", "x"),
        ("set(reshape(x, [4, 16]))", "x"),
        ("set(squeeze(broadcast(x, [true, false, false]), [0]))", "x"),
        ("set(permute(x, [1, 0]))", ""),
        ("set(slice(x, [1, 0], [5, 8], [1, 1]))", ""),
        ("set(flip(x, [0]))", ""),
        ("relu(x)", ""),
        ("set(t)", ""),
        ("set(u)", ""),
    ],
)
def test_copies_of_arguments_are_known(shared: str, argument: str) -> None:
    """Those of all elements in order; not of what lies otherwise, or is written into."""
    text = (
        'fusion: f\ninputs: {x: "f32[8, 8]", t: {type: "f32[8, 8]", strides: [1, 8]}, '
        'u: "f32[8, 8]"}\n'
        f"ops:\n  - a = {shared}\n  - b = add(u, 1.0)\n  - c = neg(t)\n  - d = neg(x)\n"
        "outputs: [a, b: {alias: u}, c, d]\n"
    )
    fusion = read_text(text.replace("b: {alias: u}", "{b: {alias: u}}"))
    (value,) = [n.output for n in fusion.nodes if n.output.name == "a"]
    assert copied_argument(fusion, value) == argument


def test_one_kernel_sums_and_what_it_reads_is_a_copy_of_an_input() -> None:
    program = compiled(8)
    assert [s.scheduler for s in program.segmented.segments][-2:] == [
        "communication", "inner_persistent",
    ]  # fmt: skip
    posted = [p for p in program.posts.posts if any("peer_views" in n for n in p.inputs)]
    assert len(posted) == 1
    shares = [i for i in program.posts.instructions if isinstance(i, Share)]
    given = {b.name for b in program.posts.inputs}
    of = {i.buffer: i.of for i in program.posts.instructions if isinstance(i, Alias)}
    assert shares[0].source not in given
    assert of.get(shares[0].source) not in given
    assert shares[0].copy_of in given


LAYERS = """
fusion: layers
mesh: [4]
dims: {B: 8, D: 1024, F: 4096}
inputs:
  x: {type: "bf16[B, D]", shard: {}}
  u: {type: "bf16[F, D]", shard: {0: mesh}}
  d: {type: "bf16[D, F]", shard: {1: mesh}}
  u2: {type: "bf16[F, D]", shard: {0: mesh}}
  d2: {type: "bf16[D, F]", shard: {1: mesh}}
ops:
  - y = add(linear(relu(linear(x, u)), d), x)
  - z = add(linear(relu(linear(y, u2)), d2), y)
outputs: [z]
"""


def test_what_layers_repeat_is_decided_once_and_each_part_is_read_once() -> None:
    segmented = Compilation(read_text(LAYERS), CompileOptions()).segmented
    taken = [d for d in segmented.decisions if "peer_reads" in d.because]
    assert [d.action for d in taken] == ["redefine"]
    assert "the same for 2 similar sums" in taken[0].because
    read = [i.value for s in segmented.segments for i in s.fusion.inputs]
    views = [v for n in segmented.fusion.nodes if n.op.name == "peer_views" for v in n.outputs]
    assert len(views) == 8
    assert all(read.count(view) == 1 for view in views)


def test_no_kernel_starts_ahead_of_a_barrier() -> None:
    program = Compilation(read_text(LAYERS), CompileOptions(overlap=True)).host
    parted, overlapped = True, 0
    for instruction in program.instructions:
        if isinstance(instruction, Launch):
            assert not (parted and instruction.overlapped)
            parted, overlapped = False, overlapped + instruction.overlapped
        parted = parted or isinstance(instruction, Share | Unshare)
    assert overlapped


@pytest.mark.parametrize("ranks", [2, 4])
def test_all_ranks_have_the_same_bits(ranks: int) -> None:
    text = NORM.read_text().replace("[4, B", f"[{ranks}, B").replace("[4]", f"[{ranks}]")
    fusion = read_text(text.replace("B: 512, H: 8192", "B: 3, H: 40"))
    sizes, program = choose_sizes(fusion), Compilation(fusion, CompileOptions())
    assert "peer_views" in kinds(program)
    inputs, mesh = random_inputs(fusion, sizes, 3), fusion.mesh
    assert mesh is not None
    divided = partitioned(fusion)

    def one(rank: int, transport: Threads) -> Any:
        own = parts_of(fusion, inputs, divided.placed, mesh, rank, divided.fusion.hints)
        return run_rank(program, own, transport, rank)

    found = by_ranks(ranks, one)
    for other in found[1:]:
        for name, array in found[0].items():
            assert array.tobytes() == other[name].tobytes()
    total = np.zeros((3, 40), np.float32)
    for part in inputs["parts"].array:
        total += part.astype(np.float32)
    residual = inputs["residual"].array
    half = residual.dtype
    expected = total.astype(half).astype(np.float32) + residual.astype(np.float32)
    assert found[0]["r"].tobytes() == expected.astype(half).tobytes()


@pytest.mark.parametrize(("rows", "read"), [(1, False), (64, False), (512, True)])
def test_two_gpus_read_many_rows_where_they_lie(
    rows: int, read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured on 2 x H200: pushed sums are faster up to 64 rows, reads at 512."""
    monkeypatch.undo()
    text = NORM.read_text().replace("[4, B", "[2, B").replace("[4]", "[2]")
    fusion = with_sizes(read_text(text), {"B": rows})
    program = Compilation(fusion, CompileOptions(sizes={"B": rows}))
    assert ("peer_views" in kinds(program)) == read


@pytest.mark.parametrize("size", [1 << 10, 1 << 20, 1 << 22, 1 << 24])
def test_sums_that_nothing_reads_are_pushed(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    text = (
        f"fusion: total\nmesh: [2]\ndims: {{N: {size // 2}}}\ninputs:\n"
        '  x: {type: "bf16[2, N]", shard: {0: mesh}}\n'
        "ops:\n  - y = sum(x, dims=[0])\noutputs: [y]\n"
    )
    assert "all_reduce" in kinds(Compilation(read_text(text), CompileOptions()))
