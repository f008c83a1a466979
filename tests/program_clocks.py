"""What is surely done before each instruction of a flat program: the order that streams keep."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.diagnostics import InternalError
from fusec.hostir.instructions import For, Instruction, SetStream, Synchronize


class Clocks:
    """The order of a flat program's instructions; its streams are numbers.

    stream, place: of each instruction its stream, counted from 0, and its number in it. done: how
    many instructions of each stream are over when it begins.
    """

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        """Follow the program from the caller's stream on."""
        asked = [_number(i) for i in instructions if isinstance(i, (SetStream, Synchronize))]
        numbers = {s: k for k, s in enumerate(sorted({0, *asked}))}
        self.streams = len(numbers)
        self.stream: list[int] = []
        self.place: list[int] = []
        self.done: list[tuple[int, ...]] = []
        current = numbers[0]
        over = [[0] * self.streams for _ in range(self.streams)]
        for instruction in instructions:
            if isinstance(instruction, For):
                raise InternalError("a program with loops has no order; unroll it first")
            if isinstance(instruction, SetStream):
                current = numbers[_number(instruction)]
            own = over[current]
            if isinstance(instruction, Synchronize):
                other = over[numbers[_number(instruction)]]
                own[:] = map(max, own, other)
            self.stream.append(current)
            self.place.append(own[current])
            self.done.append(tuple(own))
            own[current] += 1

    def before(self, first: int, second: int) -> bool:
        """Return whether an instruction is surely over when another one begins."""
        return self.done[second][self.stream[first]] > self.place[first]


def _number(instruction: SetStream | Synchronize) -> int:
    if not instruction.stream.is_const:
        raise InternalError(f"`{instruction}` has no number; unroll the program first")
    return instruction.stream.value
