"""Expands segments of a host program into the launches of their kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from fusec.codegen.equal import kernels_launched
from fusec.codegen.source import KernelSource
from fusec.dataclasses import dataclass, replace
from fusec.hostir.alignment import aligned
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    EncodeTensorMap,
    For,
    Instruction,
    Launch,
    Memset,
    Post,
    stream_number,
)
from fusec.hostir.joined_sums import pushed_of, with_sums
from fusec.hostir.launch_groups import views_of
from fusec.hostir.program import Buffer, HostProgram, check_program, dense_strides
from fusec.ir.dim import ceildiv, dim, minimum
from fusec.ir.dtype import U64
from fusec.ir.index_errors import INDEX_ERRORS
from fusec.schedule.plan import (
    Argument,
    Guard,
    KernelPlan,
    PushedKernel,
    TensorMapArgument,
    WorkspaceArgument,
)
from fusec.segment.segmented import SegmentedFusion

WORKSPACE_ALIGNMENT = 256
"""Alignment in bytes of the workspaces of several streams within one buffer."""


def expand(
    program: HostProgram,
    segmented: SegmentedFusion,
    plans: Sequence[KernelPlan],
    sources: Sequence[Sequence[KernelSource]] | None = None,
) -> HostProgram:
    """Return a program whose segments, each with its plan, are launches of kernels.

    sources: the plans' sources, which determine the alignment of their accesses and which kernels
    are equal; without them the alignment is the maximum, and no kernels are equal.
    """
    own = {s.name: plan for s, plan in zip(segmented.segments, plans, strict=True)}
    launched = kernels_launched(s for each in sources or () for s in each)
    loops = _loops(program.instructions)
    spaces = {n: tuple(_workspaces(n, plan, loops.get(n))) for n, plan in own.items()}
    inside = _made_inside(segmented, plans)
    buffers = [b for b in program.buffers if b.name not in inside]
    first: list[Instruction] = []
    for name, each in spaces.items():
        buffers += [b for b in program.buffers if inside.get(b.name) == name]
        buffers += [b for w in each for b in w.buffers]
        first += [i for w in each for i in w.first]
    if any(check.index is None for check in program.checks):
        shape = (dim(2),)
        buffers.append(Buffer(INDEX_ERRORS, "workspace", U64, shape, dense_strides(shape)))
        first += [Allocate(INDEX_ERRORS), Memset(INDEX_ERRORS)]
    ahead = tuple(takewhile(lambda i: _is_ahead(i, inside), program.instructions))
    rest, summed = with_sums(program.instructions[len(ahead) :], own)
    expanded = _Expanded(own, spaces, launched, summed)
    instructions = (*ahead, *first, *expanded.of(rest))
    guards: tuple[Guard, ...] = ()
    if sources is not None:
        spans = {v.name: n.span for n in segmented.fusion.nodes for v in n.outputs}
        buffers, guards = aligned(buffers, instructions, sources, spans)
    whole = replace(
        program,
        buffers=tuple(buffers),
        instructions=instructions,
        guards=(*program.guards, *guards),
    )
    check_program(whole)
    return whole


def _made_inside(segmented: SegmentedFusion, plans: Sequence[KernelPlan]) -> dict[str, str]:
    """Return the buffers allocated inside segments, with the name of the segment."""
    final = {o.value for o in segmented.fusion.outputs}
    found: dict[str, str] = {}
    for segment, plan in zip(segmented.segments, plans, strict=True):
        views = {name for name, _ in views_of(segment, plan)}
        values = (o.value for o in segment.fusion.outputs)
        found |= {v.name: segment.name for v in values if v.name in views or v not in final}
    return found


def _is_ahead(instruction: Instruction, inside: Mapping[str, str]) -> bool:
    """Return whether an instruction allocates memory that exists from the start."""
    return isinstance(instruction, (Allocate, Alias)) and instruction.buffer not in inside


@dataclass(frozen=True)
class _Workspace:
    """Scratch memory of a segment, with its setup before the program and before each launch."""

    buffers: tuple[Buffer, ...]
    first: tuple[Instruction, ...]
    each: tuple[Instruction, ...]


def _loops(instructions: Iterable[Instruction]) -> dict[str, For]:
    """Return the loop of each segment that runs round-robin on several streams."""
    found = [i for i in instructions if isinstance(i, For) and i.streams > 1]
    return {i.segment: loop for loop in found for i in loop.body if isinstance(i, Post)}


def _workspaces(segment: str, plan: KernelPlan, loop: For | None) -> Iterator[_Workspace]:
    """Yield a segment's workspaces; in a loop each stream has its own."""
    for workspace in plan.workspaces:
        name, dtype = f"{segment}.{workspace.name}", workspace.dtype
        shape, every = (workspace.size,), "" if loop is None else f"{name}.streams"
        buffers = [Buffer(name, "workspace", dtype, shape, dense_strides(shape))]
        each = list[Instruction]()
        if loop is not None:
            step = ceildiv(workspace.size * dtype.size, WORKSPACE_ALIGNMENT) * (
                WORKSPACE_ALIGNMENT // dtype.size
            )
            shape = (minimum(loop.count, loop.streams), step)
            buffers.append(Buffer(every, "workspace", dtype, shape, dense_strides(shape)))
            each.append(Alias(name, every, stream_number(loop) * step))
        first: list[Instruction] = [Allocate(every or name)]
        if workspace.init == "zeroed once":
            first.append(Memset(every or name, once=True))
        elif workspace.init == "zeroed per launch":
            each.append(Memset(name))
        yield _Workspace(tuple(buffers), tuple(first), tuple(each))


@dataclass(frozen=True)
class _Expanded:
    """Replaces segments by their launches.

    plans, spaces: by segment; launched: by kernel; summed: the segments after an all-reduce that
    their kernel may replace.
    """

    plans: Mapping[str, KernelPlan]
    spaces: Mapping[str, Sequence[_Workspace]]
    launched: Mapping[str, str]
    summed: frozenset[str]

    def of(self, instructions: Iterable[Instruction]) -> Iterator[Instruction]:
        """Yield instructions with the launches of segments, also inside loops."""
        for instruction in instructions:
            match instruction:
                case Post(segment) if self.plans[segment].kernels:
                    for workspace in self.spaces[segment]:
                        yield from workspace.each
                    yield from self._launches(segment)
                case For(_, _, body):
                    yield replace(instruction, body=tuple(self.of(body)))
                case _:
                    yield instruction

    def _launches(self, segment: str) -> Iterator[Instruction]:
        plan, launched = self.plans[segment], self.launched
        own = {w.name for w in plan.workspaces}
        for kernel in plan.kernels:
            if isinstance(kernel, PushedKernel):
                continue
            arguments = tuple(_resolve(a, segment, kernel.name, own) for a in kernel.arguments)
            for argument in arguments:
                if isinstance(argument, TensorMapArgument):
                    yield EncodeTensorMap(argument.name, argument)
            yield Launch(
                launched.get(kernel.name, kernel.name),
                segment,
                kernel.grid,
                kernel.block,
                arguments,
                kernel.shared_bytes,
                kernel.cluster,
                kernel.overlapped,
                pushed_of(plan, launched) if segment in self.summed else None,
            )


def _resolve(argument: Argument, segment: str, kernel: str, workspaces: set[str]) -> Argument:
    """Return an argument with the program's names: workspaces and maps are private to a segment."""
    if isinstance(argument, WorkspaceArgument) and argument.name != INDEX_ERRORS:
        return replace(argument, name=f"{segment}.{argument.name}")
    if isinstance(argument, TensorMapArgument):
        inside = argument.buffer in workspaces
        buffer = f"{segment}.{argument.buffer}" if inside else argument.buffer
        return replace(argument, name=f"{kernel}.{argument.name}", buffer=buffer)
    return argument
