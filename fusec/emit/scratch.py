"""Placement of a program's own memory in one workspace, with reuse."""

from __future__ import annotations

from collections.abc import Iterator

from fusec.dataclasses import dataclass
from fusec.diagnostics import InternalError
from fusec.hostir.instructions import Allocate, Free, Memset, SetStream, Share, Unshare
from fusec.hostir.program import Buffer, HostProgram, dense_strides
from fusec.ir.dim import Dim, ceildiv

ALIGNMENT = 256
"""Alignment in bytes of the parts that ranks share."""


@dataclass
class Place:
    """Bytes of a workspace, reused by several buffers; zeroed: once, before everything else."""

    bytes: Dim
    buffers: list[str]
    zeroed: bool = False


def places(program: HostProgram) -> tuple[Place, ...]:
    """Return the places of all memory not passed by the caller, those zeroed once first.

    Freed memory is reused where it is provably large enough: the caller's stream, which waits for
    the streams of loops, keeps the order. With segments on several streams nothing is reused.
    """
    once = {i.buffer for i in program.instructions if isinstance(i, Memset) and i.once}
    ordered = not any(isinstance(i, SetStream) for i in program.instructions)
    found: list[Place] = []
    free: list[Place] = []
    for name, size in _given_and_freed(program):
        if size is None:
            free += [p for p in found if p.buffers[-1] == name and ordered]
            continue
        kept = name in once
        fitting = next((p for p in free if p.bytes.at_least(size) and not kept), None)
        if fitting is None:
            found.append(Place(size, [name], kept))
        else:
            free.remove(fitting)
            fitting.buffers.append(name)
    return tuple(sorted(found, key=lambda p: not p.zeroed))


def _given_and_freed(program: HostProgram) -> Iterator[tuple[str, Dim | None]]:
    """Yield buffers in order as they are allocated, with their bytes, and freed, with None."""
    for instruction in program.instructions:
        match instruction:
            case Allocate(name) if not is_given(program, name):
                yield name, _reach(program.buffer[name])
            case Free(name):
                yield name, None
            case Share(source, views):
                yield ranks_memory_of(source), len(views) * part_bytes(program, source)
            case Unshare(source):
                yield ranks_memory_of(source), None
            case _:
                pass


def _reach(buffer: Buffer) -> Dim:
    """Return the bytes spanned by a buffer, whose outermost dim may have gaps."""
    if buffer.strides == dense_strides(buffer.shape):
        return buffer.dense_bytes
    if buffer.strides[1:] != dense_strides(buffer.shape[1:]):
        raise InternalError(f"`{buffer}` has memory of its own, and is not dense")
    return buffer.shape[0] * buffer.strides[0] * buffer.dtype.size


def ranks_memory_of(source: str) -> str:
    """Return the name of the memory with all ranks' parts of a shared buffer."""
    return f"{source} of all ranks"


def part_bytes(program: HostProgram, source: str) -> Dim:
    """Return the stride in bytes between consecutive ranks' parts of a shared buffer."""
    return ceildiv(program.buffer[source].dense_bytes, ALIGNMENT) * ALIGNMENT


def is_given(program: HostProgram, name: str) -> bool:
    """Return whether the caller passes an allocated buffer: an output with its own memory."""
    in_place = {output for output, _ in program.aliases}
    return program.buffer[name].role == "output" and name not in in_place
