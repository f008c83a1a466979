"""Moves waits for communication as late as possible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fusec.dataclasses import replace
from fusec.hostir.instructions import (
    Alias,
    Collective,
    For,
    Free,
    GetStream,
    Instruction,
    Receive,
    Send,
    SetStream,
    Synchronize,
    Wait,
    reads,
    writes,
)
from fusec.hostir.passes.known import Known
from fusec.hostir.program import HostProgram


def sink_waits(program: HostProgram, _: Known) -> HostProgram:
    """Wait for communication where its result is first used, not where it was started.

    Sent buffers stay unchanged until then, and their memory is freed after the wait.
    """
    roots = _roots(program.instructions)
    instructions = _late(program.instructions, roots)
    if instructions == program.instructions:
        return program
    return replace(program, instructions=instructions)


def _late(instructions: Sequence[Instruction], roots: Mapping[str, str]) -> tuple[Instruction, ...]:
    left: list[Instruction] = []
    for instruction in reversed(instructions):
        if isinstance(instruction, Wait):
            begun = _begun(instructions, instruction)
            at, freed = _place(left, begun, roots)
            kept = [i for i in left[:at] if i not in freed]
            left[:at] = [*kept, instruction, *freed]
        elif isinstance(instruction, For):
            left.insert(0, replace(instruction, body=_late(instruction.body, roots)))
        else:
            left.insert(0, instruction)
    return tuple(left)


def _begun(instructions: Sequence[Instruction], wait: Wait) -> Sequence[Instruction]:
    """Return what a wait completes: a collective, or the sends and receives since another wait."""
    at = next(k for k, i in enumerate(instructions) if i is wait)
    group: list[Instruction] = []
    for instruction in reversed(instructions[:at]):
        if isinstance(instruction, Collective) and instruction.target == wait.buffer:
            return (instruction,)
        if isinstance(instruction, (Send, Receive)):
            group.append(instruction)
        elif isinstance(instruction, Wait) and group:
            break
    return group


def _place(
    following: Sequence[Instruction], begun: Sequence[Instruction], roots: Mapping[str, str]
) -> tuple[int, Sequence[Instruction]]:
    """Return how many of the instructions after a wait can move before it, except some frees.

    The second result is the instructions that free sent buffers.
    """
    targets = _memory({name for i in begun for name in writes(i)}, roots)
    sources = _memory({name for i in begun for name in reads(i)}, roots)
    freed: list[Instruction] = []
    for k, instruction in enumerate(following):
        if isinstance(instruction, (Send, Receive, GetStream, SetStream, Synchronize)):
            return k, freed
        if isinstance(instruction, Free) and roots.get(instruction.buffer, instruction.buffer) in (
            sources - targets
        ):
            freed.append(instruction)
            continue
        changed = _memory(_ended(instruction) | writes(instruction), roots)
        if changed & (targets | sources) or _memory(reads(instruction), roots) & targets:
            return k, freed
    return len(following), freed


def _ended(instruction: Instruction) -> frozenset[str]:
    return frozenset({instruction.buffer}) if isinstance(instruction, Free) else frozenset()


def _memory(names: Iterable[str], roots: Mapping[str, str]) -> frozenset[str]:
    return frozenset(roots.get(name, name) for name in names)


def _roots(
    instructions: Iterable[Instruction], known: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return, for each view, the buffer that owns its memory."""
    roots = dict(known or {})
    for instruction in instructions:
        if isinstance(instruction, Alias):
            roots[instruction.buffer] = roots.get(instruction.of, instruction.of)
        elif isinstance(instruction, For):
            roots = _roots(instruction.body, roots)
    return roots
