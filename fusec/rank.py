"""Run a program on one rank, by itself or among others, without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError

if TYPE_CHECKING:
    from random import Random

    from fusec.driver import Compilation
    from fusec.ir.evaluate import Array
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
    """Return the outputs of one rank, whose own inputs are given; segments by the reference.

    draw: chooses among the orders that streams allow. observe: is told of each step.
    """
    from fusec.run.exchange import Member
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
