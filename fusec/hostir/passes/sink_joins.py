"""Moves the joins of loops over streams after the loop, so that iterations do not wait."""

from __future__ import annotations

from fusec.dataclasses import replace
from fusec.hostir.instructions import For, Instruction, Synchronize, loop_name
from fusec.hostir.passes.known import Known
from fusec.hostir.program import HostProgram
from fusec.ir.dim import minimum, symbol


def sink_joins(program: HostProgram, _: Known) -> HostProgram:
    """Let the caller's stream wait for the streams of a loop once, after the loop.

    A wait for a stream within an iteration would make the next iteration wait for it, too.
    """
    if not any(_joins_within(i) for i in program.instructions):
        return program
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        if isinstance(instruction, For) and _joins_within(instruction):
            name = f"{loop_name(instruction)}.join"
            stream = 1 + symbol(name, extent=False)
            streams = minimum(instruction.count, instruction.streams)
            instructions += [
                replace(instruction, body=instruction.body[:-1]),
                For(name, streams, (Synchronize(stream),)),
            ]
        else:
            instructions.append(instruction)
    return replace(program, instructions=tuple(instructions))


def _joins_within(instruction: Instruction) -> bool:
    return (
        isinstance(instruction, For)
        and instruction.streams > 0
        and isinstance(instruction.body[-1], Synchronize)
    )
