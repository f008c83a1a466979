"""Where a program's own memory lies in one workspace: each buffer's place, and what shares one."""

from __future__ import annotations

from dataclasses import dataclass

from fusec.hostir.instructions import Allocate, Free, Memset
from fusec.hostir.program import HostProgram
from fusec.ir.dim import Dim


@dataclass
class Place:
    """Bytes of a workspace, for buffers one after the other; zeroed: once, before all else."""

    bytes: Dim
    buffers: list[str]
    zeroed: bool = False


def places(program: HostProgram) -> tuple[Place, ...]:
    """Return the places of all memory that no caller gives, those that are zeroed once first.

    What was freed is used again where it is surely large enough: the stream keeps the order.
    """
    once = {i.buffer for i in program.instructions if isinstance(i, Memset) and i.once}
    found: list[Place] = []
    free: list[Place] = []
    for instruction in program.instructions:
        if isinstance(instruction, Free):
            free += [p for p in found if p.buffers[-1] == instruction.buffer]
        if not isinstance(instruction, Allocate) or is_given(program, instruction.buffer):
            continue
        buffer = program.buffer[instruction.buffer]
        size = buffer.elements * buffer.dtype.size
        kept = buffer.name in once
        fitting = next((p for p in free if p.bytes.at_least(size) and not kept), None)
        if fitting is None:
            found.append(Place(size, [buffer.name], kept))
        else:
            free.remove(fitting)
            fitting.buffers.append(buffer.name)
    return tuple(sorted(found, key=lambda p: not p.zeroed))


def is_given(program: HostProgram, name: str) -> bool:
    """Return whether the caller gives a buffer that is allocated: an output with its own memory."""
    in_place = {output for output, _ in program.aliases}
    return program.buffer[name].role == "output" and name not in in_place
