"""The verdict of a fusion that threads have run as its ranks, with sums over ranks as NCCL's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from streamed_programs import Threads, by_ranks

from fusec.commands.running.judge_ranks import expected_of_ranks
from fusec.commands.running.rank import assembled, parts_of
from fusec.driver import Compilation
from fusec.ir.graph import Fusion
from fusec.ir.sharding import Mesh
from fusec.lowering import division
from fusec.ops.communication import communicates
from fusec.options import CompileOptions
from fusec.rank import run_rank
from fusec.reference.errors.nodes import Model
from fusec.reference.verdict import Verdict, compare
from fusec.run.inputs import choose_sizes, random_inputs

Parts = Sequence[Any]
CHUNK = 24
"""Elements of a chunk, from rank to rank of which the ring begins one further on."""


def added_once(parts: Parts) -> Any:
    """Return the sum that is rounded once, as sockets, peer reads and NVLS take it."""
    half = parts[0].dtype.itemsize < 4
    with np.errstate(all="ignore"):
        total = parts[0].astype(np.float32) if half else parts[0].copy()
        for part in parts[1:]:
            total = total + part.astype(total.dtype)
    return total.astype(parts[0].dtype)


def added_in_a_ring(parts: Parts) -> Any:
    """Return the sum that NCCL takes around a ring: rounded by each rank, chunk after chunk."""
    flat = [np.ascontiguousarray(p).reshape(-1) for p in parts]
    found = np.empty_like(flat[0])
    for number, low in enumerate(range(0, found.size, CHUNK)):
        chunk = slice(low, low + CHUNK)
        order = [flat[(number + k) % len(flat)][chunk] for k in range(len(flat))]
        found[chunk] = order[0]
        for part in order[1:]:
            found[chunk] = added_once([found[chunk], part])
    return found.reshape(parts[0].shape)


def added_in_a_tree(parts: Parts) -> Any:
    """Return the sum of sums of neighbours, each of them rounded."""
    while len(parts) > 1:
        pairs = [added_once(parts[k : k + 2]) for k in range(0, len(parts) - 1, 2)]
        parts = [*pairs, *parts[len(parts) // 2 * 2 :]]
    return parts[0]


def transport_with(add: Callable[[Parts], Any]) -> type[Threads]:
    """Return transports between threads that add so."""

    class Adding(Threads):
        def added(self, came: Parts) -> Any:
            """Return the sum over ranks."""
            return add(came)

    return Adding


LOOPED = CompileOptions(without=("loops_by_cost",))
"""Loops also where they are too small to be worth it."""


def run_ranks(
    program: Compilation, inputs: Mapping[str, Any], kind: type[Threads] = Threads
) -> dict[str, Any]:
    """Return the whole outputs of a program that as many threads run as it has ranks."""
    fusion = program.original
    assert program.posts.posts  # planned once, before the threads start
    divided = division(fusion, program.options).partition
    mesh, shares = fusion.mesh or Mesh((("alone", 1),), (0,)), divided.fusion.hints

    def one(rank: int, transport: Threads) -> dict[str, Any]:
        own = parts_of(fusion, inputs, divided.placed, mesh, rank, shares)
        return run_rank(program, own, transport, rank)

    parts = by_ranks(mesh.size, one, kind)
    found, copies = assembled(fusion, parts, divided.placed, mesh, shares)
    assert copies == []
    return found


def collectives(program: Compilation) -> frozenset[str]:
    """Return the targets of all exchanges, as where NCCL carries each of them."""
    nodes = (node for segment in program.segmented.segments for node in segment.nodes)
    return frozenset(node.output.name for node in nodes if communicates(node))


def verdict_of(
    fusion: Fusion,
    inputs_kind: str = "ranges",
    options: CompileOptions = LOOPED,
    add: Callable[[Parts], Any] = added_once,
    *,
    nccl: bool = True,
) -> Verdict:
    """Run a fusion on threads, and compare it with what is expected of its ranks.

    add: how sums over ranks are taken, which is as NCCL takes them where `nccl` is set.
    """
    sizes, program = choose_sizes(fusion), Compilation(fusion, options)
    inputs = random_inputs(fusion, sizes, 3, inputs_kind)
    found = run_ranks(program, inputs, transport_with(add))
    carried = collectives(program) if nccl else ()
    spelled, model = expected_of_ranks(program, Model(), carried)
    return compare(spelled, sizes, inputs, found, model=model)
