"""Symbols bound at run time: loop indices, and the index of a rank along an axis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fusec.diagnostics import Unsupported
from fusec.emit.expressions import divisors
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    EncodeTensorMap,
    For,
    Instruction,
    Launch,
    Post,
    Receive,
    Send,
    SetStream,
)
from fusec.hostir.program import HostProgram, every
from fusec.ir.dim import Dim, dim
from fusec.ir.sharding import Mesh
from fusec.schedule.plan import SizeArgument


def local_bounds(program: HostProgram, mesh: Mesh | None) -> dict[str, Dim]:
    """Return upper bounds of the symbols bound at run time, by symbol."""
    axes = () if mesh is None else mesh.axes
    bounds = {f"{axis}.place": dim(size) for axis, size in axes}
    loops = (i for i in every(program.instructions) if isinstance(i, For))
    return bounds | {loop.index: loop.count for loop in loops}


def sizes_of(instruction: Instruction) -> Iterator[Dim]:
    """Yield the sizes of an instruction that are computed at run time."""
    match instruction:
        case Alias():
            yield instruction.offset
        case EncodeTensorMap(_, described):
            yield from (*described.extents, *described.strides)
        case Launch():
            yield from instruction.grid
            yield from (a.value for a in instruction.arguments if isinstance(a, SizeArgument))
        case For():
            yield instruction.count
        case Send() | Receive():
            yield instruction.place
        case Collective(root=Dim() as root):
            yield root
        case _:
            pass


def streams_of(program: HostProgram) -> int:
    """Return how many streams a program's instructions use in addition to the caller's."""
    numbers = [0]
    for instruction in every(program.instructions):
        if isinstance(instruction, For):
            numbers.append(instruction.streams)
        elif isinstance(instruction, SetStream) and instruction.stream.is_const:
            numbers.append(instruction.stream.value)
    return max(numbers)


def check_program(program: HostProgram, mesh: Mesh | None) -> None:
    """Raise Unsupported for instructions of a host program that C cannot express."""
    known = local_bounds(program, mesh)
    for instruction in program.instructions:
        if isinstance(instruction, For):
            _check_body(program, instruction)
    for instruction in every(program.instructions):
        if isinstance(instruction, Post):
            _refuse(
                program,
                instruction,
                f"the CPU evaluates segment {instruction.segment}",
                "remove its `scheduler: host`",
            )
        for value in _checked_ahead(instruction, known):
            _refuse(program, instruction, f"`{value}` depends on the iteration or the rank")


def _check_body(program: HostProgram, loop: For) -> None:
    for instruction in every(loop.body):
        if isinstance(instruction, Allocate | Post | For):
            _refuse(program, instruction, "it is in a loop")


def _checked_ahead(instruction: Instruction, known: Mapping[str, Dim]) -> Iterator[Dim]:
    """Yield the sizes that are checked before a run although they are bound at run time."""
    yield from _local(divisors(sizes_of(instruction)), known)
    if isinstance(instruction, EncodeTensorMap):
        yield from _local(sizes_of(instruction), known)
    elif isinstance(instruction, Launch):
        sizes = (a for a in instruction.arguments if isinstance(a, SizeArgument) and not a.wide)
        yield from _local((*instruction.grid, *(a.value for a in sizes)), known)


def _local(values: Iterable[Dim], known: Mapping[str, Dim]) -> Iterator[Dim]:
    yield from (v for v in values if not v.symbols.isdisjoint(known))


def _refuse(program: HostProgram, instruction: Instruction, why: str, help: str = "") -> None:
    raise Unsupported(
        f"`{program.name}` cannot be emitted as C: {why}",
        notes=(f"the instruction is `{instruction}`",),
        help=help or "remove the loop (`stream:` of an output), or the ranks that hold a value",
    )
