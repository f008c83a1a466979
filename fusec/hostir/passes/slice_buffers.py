"""Limits buffers of loops over streams to one slice per stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fusec.dataclasses import replace
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    For,
    Free,
    Instruction,
    reads,
    stream_number,
    writes,
)
from fusec.hostir.passes.known import Known
from fusec.hostir.program import HostProgram
from fusec.ir.dim import minimum


def slice_buffers(program: HostProgram, _: Known) -> HostProgram:
    """Give temporaries of a loop iteration as many slices as there are streams.

    Iterations on one stream are serial, so that a later one may overwrite the slice of an earlier
    one.
    """
    for loop in program.instructions:
        if isinstance(loop, For) and loop.streams:
            program = _sliced(program, loop)
    return program


def _sliced(program: HostProgram, loop: For) -> HostProgram:
    count = minimum(loop.count, loop.streams)
    outside = set(program.outputs)
    for instruction in program.instructions:
        if instruction is not loop:
            outside |= set(_mentioned(instruction))
    found = [
        i
        for i in loop.body
        if isinstance(i, Alias) and i.of not in outside and _is_sliced(program, loop, i)
    ]
    names = {i.of for i in found if program.buffer[i.of].shape[0] != count}
    if not names:
        return program
    buffers = tuple(
        replace(b, shape=(count, *b.shape[1:])) if b.name in names else b for b in program.buffers
    )
    own = stream_number(loop)
    body = tuple(
        replace(i, offset=own * program.buffer[i.of].strides[0])
        if isinstance(i, Alias) and i.of in names
        else i
        for i in loop.body
    )
    instructions = tuple(replace(loop, body=body) if i is loop else i for i in program.instructions)
    return replace(program, buffers=buffers, instructions=instructions)


def _is_sliced(program: HostProgram, loop: For, part: Alias) -> bool:
    """Return whether a buffer has one slice for each iteration, which sees no other one."""
    buffer = program.buffer[part.of]
    return (
        buffer.role == "temporary"
        and buffer.shape[:1] == (loop.count,)
        and part.buffer in {name for i in loop.body for name in writes(i)}
        and all(i.of != part.of or i == part for i in loop.body if isinstance(i, Alias))
        and not any(part.of in reads(i) | writes(i) for i in loop.body)
    )


def _mentioned(instruction: Instruction) -> Iterator[str]:
    """Yield the buffers that an instruction names, other than to allocate or free them."""
    if isinstance(instruction, For):
        yield from _all_mentioned(instruction.body)
    elif isinstance(instruction, Alias):
        yield from (instruction.buffer, instruction.of)
    elif not isinstance(instruction, (Allocate, Free)):
        yield from reads(instruction) | writes(instruction)


def _all_mentioned(body: Iterable[Instruction]) -> Iterator[str]:
    for instruction in body:
        yield from _mentioned(instruction)
