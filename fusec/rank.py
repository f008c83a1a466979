"""Runs a program on one rank, alone or with others, without a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusec.dataclasses import replace
from fusec.diagnostics import FusecError

if TYPE_CHECKING:
    from random import Random

    from fusec.driver import Compilation
    from fusec.ir.evaluate import Array
    from fusec.ir.graph import Fusion
    from fusec.run.interpret import Observe
    from fusec.run.transports.protocol import Transport


def run_rank(
    program: Compilation,
    inputs: Mapping[str, Any],
    transport: Transport | None,
    rank: int,
    *,
    draw: Random | None = None,
    observe: Observe | None = None,
) -> dict[str, Array]:
    """Return the outputs of one rank, given its inputs; segments run by the reference.

    `draw`: selects random orders that streams allow. observe: is called for each step.
    """
    from fusec.run.distributed.exchange import Member
    from fusec.run.inputs import bind_sizes
    from fusec.run.interpret import interpret

    mesh = program.original.mesh
    if mesh is not None and transport is None and mesh.size > 1:
        raise FusecError(
            f"`{program.original.name}` runs on {mesh.size} ranks",
            help=f"fusec run --ranks {mesh.size}",
        )
    member = Member(mesh, rank, transport) if mesh is not None and transport is not None else None
    segments = {s.name: s.fusion for s in program.segmented.segments}
    given = bind_sizes(program.local, inputs), member
    return interpret(program.posts, segments, inputs, *given, draw=draw, observe=observe)


def execute(fusion: Fusion, arrays: Sequence[Any]) -> list[Any]:
    """Return this rank's outputs of a plain Python program on several ranks, by the reference.

    Each rank passes its parts of inputs, and calls it for the same fusions in the same order.
    """
    from fusec.driver import Compilation
    from fusec.options import CompileOptions

    whole = replace(fusion, phases=())  # all inputs are passed at once
    inputs = {i.value.name: a for i, a in zip(whole.inputs, arrays, strict=True)}
    results = called(Compilation(whole, CompileOptions()), inputs)
    return [results[o.value.name] for o in whole.outputs]


def called(program: Compilation, inputs: Mapping[str, Any]) -> dict[str, Array]:
    """Return the outputs of this process's rank, given its inputs, by the reference."""
    from fusec.run.distributed.process import check_ranks, links
    from fusec.run.distributed.ranks import from_environment
    from fusec.run.transports.host import HostTransport

    fusion, ranks = program.original, from_environment()
    assert fusion.mesh is not None
    check_ranks(f"`{fusion.name}`", fusion.mesh)
    transport = HostTransport(links()) if ranks.size > 1 else None
    return run_rank(program, inputs, transport, ranks.rank)
