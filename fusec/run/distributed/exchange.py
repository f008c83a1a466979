"""A rank of a multi-GPU program: its indices in the mesh, and its communication."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import FusecError, InternalError
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    EncodeTensorMap,
    Free,
    Launch,
    Receive,
    Wait,
)
from fusec.run.arrays import dense_strides, layout_of
from fusec.run.transports.protocol import Begin, DeviceTransport, Exchange, Joined, Transport

if TYPE_CHECKING:
    from fusec.hostir.program import Buffer, HostProgram
    from fusec.hostir.steps import Step
    from fusec.ir.evaluate import Sizes
    from fusec.ir.sharding import Mesh
    from fusec.run.operations import Place

HOST_ONLY = (Allocate, Alias, Free, EncodeTensorMap)
"""Instructions that put no work on a stream."""


@dataclass(frozen=True)
class Member:
    """One rank of a mesh, with the transport of its process."""

    mesh: Mesh
    rank: int
    transport: Transport

    @property
    def places(self) -> Mapping[str, int]:
        """Return the index of the rank along each axis, by the symbol that programs use for it."""
        return {f"{axis}.place": place for axis, place in self.mesh.place(self.rank).items()}

    def exchange(
        self,
        step: Step,
        target: Any,
        source: Any,
        *,
        order: Hashable = None,
    ) -> Begin:
        """Return the communication that a step starts, on memory that the transport can access.

        order: see `Begin`.
        """
        exchange = step.instruction
        assert isinstance(exchange, Exchange)
        named = (
            replace(exchange, target=step.tag)
            if isinstance(exchange, Collective | Receive)
            else replace(exchange, source=step.tag)
        )
        group = self.mesh.group(self.rank, exchange.axis)
        place = self.mesh.place(self.rank)[exchange.axis]
        return Begin(named, target, source, group, place, order=order)

    def begin(self, exchange: Begin) -> None:
        """Start a communication operation."""
        given = (exchange.target, exchange.source, exchange.group, exchange.place)
        self.transport.begin(exchange.exchange, *given)


def member_for(step: Step, member: Member | None) -> Member:
    """Return the rank that runs a step; FusecError where there is none."""
    if member is None:
        raise FusecError(
            f"`{step.instruction}` needs several ranks",
            help="run it with `fusec run --ranks N`",
        )
    return member


def device_transport(member: Member) -> DeviceTransport:
    """Return the transport of a rank that runs on a GPU."""
    transport = member.transport
    if not isinstance(transport, DeviceTransport):
        raise InternalError(f"{type(transport).__name__} carries nothing between GPUs")
    return transport


def immediate_waits(steps: Sequence[Step]) -> frozenset[int]:
    """Return the numbers of the steps whose communication their stream awaits right away."""
    found, last = set[int](), dict[int, int]()
    for number, step in enumerate(steps):
        begun = last.get(step.stream)
        waits = isinstance(step.instruction, Wait)
        if waits and begun is not None and steps[begun].tag == step.tag:
            found.add(begun)
        if not isinstance(step.instruction, HOST_ONLY):
            last[step.stream] = number
    return frozenset(found)


def joined_launches(
    steps: Sequence[Step], place: Callable[[str], Place], functions: Mapping[str, Any]
) -> dict[int, Joined]:
    """Return, by the step of an all-reduce, a kernel that can replace it and a later launch."""
    found, begun = dict[int, Joined](), dict[str, int]()
    for number, step in enumerate(steps):
        instruction = step.instruction
        if isinstance(instruction, Collective):
            begun[instruction.target] = number
        pushed = instruction.pushed if isinstance(instruction, Launch) else None
        if pushed is not None:
            buffers = tuple(map(place, pushed.buffers))
            shape = pushed.columns, pushed.threads, pushed.blocks
            function = functions[pushed.kernel]
            found[begun[pushed.target]] = Joined(pushed.kernel, function, buffers, *shape, number)
    return found


@runtime_checkable
class UsesNccl(Protocol):
    """A transport that may delegate to NCCL; has_nccl: whether all ranks have it."""

    has_nccl: bool


def gathered_by_nccl(
    steps: Sequence[Step], program: HostProgram, sizes: Sizes, member: Member | None
) -> frozenset[str]:
    """Return the outputs that NCCL gathers directly into the caller's memory; 3 or more ranks.

    Copy engines would write them into memory that other ranks have mapped, which then has to be
    copied to the caller's memory, and copies from several GPUs slow each other down.
    """
    transport = None if member is None else member.transport
    if not isinstance(transport, UsesNccl) or not transport.has_nccl:
        return frozenset()
    from fusec.schedule.gathered_outputs import is_gathered_by_nccl

    at_once = (steps[number].instruction for number in immediate_waits(steps))
    return frozenset(
        i.target
        for i in at_once
        if isinstance(i, Collective) and i.target in program.outputs
        if is_gathered_by_nccl(i.kind, i.ranks, program.buffer[i.target].bytes(sizes))
    )


def circumstances(
    steps: Sequence[Step], place: Callable[[str], Place], executable: Any, sizes: Sizes
) -> dict[int, dict[str, Any]]:
    """Return by step number the fields of `Begin` that depend on the surrounding program.

    executable: runs the program, at these sizes; has its functions and member.
    """
    at_once = immediate_waits(steps)
    joined = joined_launches(steps, place, executable.functions)
    gathered = gathered_by_nccl(steps, executable.program, sizes, executable.member)
    return {
        number: {
            "waits_immediately": number in at_once,
            "joined": joined.get(number),
            "by_nccl": isinstance(step.instruction, Collective)
            and step.instruction.target in gathered,
        }
        for number, step in enumerate(steps)
    }


def dense_elements(buffer: Buffer, sizes: Sizes, step: Step) -> int:
    """Return the number of elements to communicate; InternalError if the buffer is not dense."""
    shape, strides = layout_of(buffer, sizes)
    steps = zip(shape, strides, dense_strides(shape), strict=True)
    if any(extent > 1 and found != wanted for extent, found, wanted in steps):
        raise InternalError(f"`{step.instruction}`: `{buffer.name}` is not dense")
    return prod(shape)
