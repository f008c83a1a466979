"""Drawn host programs, and a machine that runs them: streams in any order that their events allow.

Contents are symbols: what a segment writes says which segment it was and what it has read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from hypothesis import strategies as st

from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Copy,
    Free,
    Instruction,
    Memset,
    Post,
    SetStream,
    Synchronize,
)
from fusec.hostir.placement import placement
from fusec.hostir.program import Buffer, HostProgram, check_program, dense_strides
from fusec.ir.dim import Dim, dim, symbol
from fusec.ir.dtype import F32

UNIT = 64
"""Elements of the smallest memory that is told apart: 256 bytes."""
SIZES = {"N": 2 * UNIT}
N = symbol("N")
Address = tuple[str, int]
Choose = Callable[[Sequence[int]], int]
"""Of the places of instructions that can run next, the one that does."""


def buffer(name: str, role: str, shape: Sequence[Dim | int]) -> Buffer:
    extents = tuple(dim(e) if isinstance(e, int) else e for e in shape)
    return Buffer(name, role, F32, extents, dense_strides(extents))


def program_of(
    buffers: Sequence[Buffer],
    instructions: Sequence[Instruction],
    aliases: Sequence[tuple[str, str]] = (),
    check: bool = True,
) -> HostProgram:
    """Return a program, checked where nothing else is said; outputs are buffers with that role."""
    outputs = tuple(b.name for b in buffers if b.role == "output")
    found = HostProgram(
        "drawn", tuple(buffers), (), tuple(instructions), outputs, (), tuple(aliases)
    )
    if check:
        check_program(found)
    return found


def with_memory(
    posts: Sequence[Post], sizes: Mapping[str, int], inputs: Sequence[str], outputs: Sequence[str]
) -> HostProgram:
    """Return a program of segments, whose temporaries live from their writer to the last reader.

    sizes: of all buffers, in units.
    """
    role = {**dict.fromkeys(inputs, "input"), **dict.fromkeys(outputs, "output")}
    buffers = [buffer(n, role.get(n, "temporary"), (units * UNIT,)) for n, units in sizes.items()]
    instructions: list[Instruction] = [Allocate(n) for n in outputs]
    last = {n: k for k, p in enumerate(posts) for n in (*p.inputs, *p.outputs)}
    for k, post in enumerate(posts):
        instructions += [Allocate(n) for n in post.outputs if n not in role]
        instructions.append(post)
        instructions += [Free(n) for n, end in last.items() if end == k and n not in role]
    return program_of(buffers, instructions)


@st.composite
def programs(draw: st.DrawFn, most: int = 8) -> HostProgram:
    """Return segments that read some of what is there; some write into an input or a view of one.

    What overwrites an input does so in the memory of an output that is a view of it.
    """
    posts: list[Post] = []
    units = {"x": draw(st.integers(1, 3)), "w": draw(st.integers(1, 3))}
    made: list[str] = []
    count = draw(st.integers(1, most))
    for k in range(count):
        known = ["x", "w", *made]
        read = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
        names = tuple(f"t{k}_{m}" for m in range(draw(st.integers(1, 2))))
        units |= {n: draw(st.integers(1, 6)) for n in names}
        made += names
        posts.append(Post(f"s{k}", tuple(read), names))
    unread = [n for n in made if all(n not in p.inputs for p in posts)]
    program = with_memory(posts, units, ["x", "w"], unread)
    if not draw(st.booleans()):
        return program
    into = draw(st.sampled_from(["x", "w"]))
    place = draw(st.integers(0, len(program.instructions)))
    there = {n for i in program.instructions[:place] if isinstance(i, Post) for n in i.outputs}
    there -= {i.buffer for i in program.instructions[:place] if isinstance(i, Free)}
    writer = Post("update", (into, *sorted(there)[:2]), ("new",))
    instructions = (
        *program.instructions[:place],
        Alias("new", into, dim(0)),
        writer,
        *program.instructions[place:],
    )
    shape = program.buffer[into].shape
    buffers = [*program.buffers, buffer("new", "output", shape)]
    return program_of(buffers, instructions, [("new", into)])


class Machine:
    """Runs a flat program: its instructions wait in their streams, and run in a chosen order."""

    def __init__(self, program: HostProgram, sizes: Mapping[str, int], shared: bool) -> None:
        """Place the buffers: `shared`, where the program's placement has them; else apart."""
        self.program, self.sizes = program, sizes
        kept = [b.name for b in program.buffers if b.role in ("input", "output")]
        offsets = placement(program, sizes, own=kept).offsets if shared else {}
        self.start: dict[str, Address] = {b.name: (b.name, 0) for b in program.buffers}
        self.start |= {name: ("arena", offset // 256) for name, offset in offsets.items()}
        self.contents: dict[Address, int] = {}
        for instruction in program.instructions:
            if isinstance(instruction, Alias):
                space, unit = self.start[instruction.of]
                step = instruction.offset.evaluate(sizes) // UNIT
                self.start[instruction.buffer] = space, unit + step

    def run(self, choose: Choose = min) -> dict[str, tuple[int, ...]]:
        """Return what the caller sees in outputs and inputs, on its own stream.

        There the inputs are written before everything else, and all is read after it.
        """
        waiting, needs = self._issued()
        end, done = len(self.program.instructions), set[int]()
        seen: dict[str, tuple[int, ...]] = {}
        while any(waiting.values()):
            heads = (queue[0] for queue in waiting.values() if queue)
            able = sorted(k for k in heads if needs[k] <= done)
            place = choose(able)
            next(q for q in waiting.values() if q and q[0] == place).pop(0)
            if place < 0:
                for given in self.program.inputs:
                    self._write(given.name, lambda u, n=given.name: hash((n, u)))
            elif place == end:
                kept = (b for b in self.program.buffers if b.role in ("input", "output"))
                seen = {b.name: self._read(b.name) for b in kept}
            else:
                self._do(self.program.instructions[place])
            done.add(place)
        return seen

    def _issued(self) -> tuple[dict[int, list[int]], dict[int, set[int]]]:
        """Return the instructions of each stream, and which must be over before each.

        Stream 0 has what the caller does, too: before the first instruction, for which all streams
        wait, and after the last, which waits for all.
        """
        queues: dict[int, list[int]] = {0: [-1]}
        needs: dict[int, set[int]] = {-1: set()}
        current = 0
        for k, instruction in enumerate(self.program.instructions):
            needs[k] = {-1}
            if isinstance(instruction, SetStream):
                current = instruction.stream.evaluate(self.sizes)
            elif isinstance(instruction, Synchronize):
                other = instruction.stream.evaluate(self.sizes)
                needs[k] = set(queues.get(other, ()))
            queues.setdefault(current, []).append(k)
        end = len(self.program.instructions)
        queues[0].append(end)
        needs[end] = set(range(end))
        return queues, needs

    def _do(self, instruction: Instruction) -> None:
        match instruction:
            case Post(segment, inputs, outputs):
                read = tuple(self._read(name) for name in inputs)
                for name in outputs:
                    self._write(name, lambda u, n=name: hash((segment, n, u, read)))
            case Copy(target, source):
                read = self._read(source)
                self._write(target, lambda u: read[u])
            case Memset(name):
                self._write(name, lambda _: 0)
            case _:
                pass

    def _units(self, name: str) -> Iterator[Address]:
        space, unit = self.start[name]
        count = -(-self.program.buffer[name].bytes(self.sizes) // 256)
        return ((space, unit + k) for k in range(count))

    def _read(self, name: str) -> tuple[int, ...]:
        return tuple(self.contents.get(a, hash(("before", a))) for a in self._units(name))

    def _write(self, name: str, content: Callable[[int], int]) -> None:
        for number, address in enumerate(self._units(name)):
            self.contents[address] = content(number)


def results(program: HostProgram, choose: Choose = min, shared: bool = True) -> object:
    """Return what a program computes."""
    return Machine(program, SIZES, shared).run(choose)


def late(place: int) -> Choose:
    """Return the choice that leaves an instruction until nothing else can run."""
    return lambda able: next((k for k in able if k != place), able[0])


def every_late(program: HostProgram) -> Iterator[object]:
    """Yield the results with each instruction in turn as late as events allow.

    What an instruction must come after, and events do not keep before it, comes after it in one.
    """
    for place in range(-1, len(program.instructions)):
        yield results(program, late(place))
