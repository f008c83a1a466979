"""Runs a program of a variant on the GPU many times, and counts there how often results differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from gpu_variant import Variant, tupled
from gpu_variants import VARIANTS

import fusec
from fusec.call.memory import Arena
from fusec.call.program import Program

POISON = 0xFF
"""A byte: floats of it are no numbers."""


@cache
def program_of(name: str) -> Program:
    """Return the program of a variant, built once in a process."""
    return fusec.compile(VARIANTS[name].fusion)


def called(program: Program, given: Sequence[Any]) -> tuple[Any, ...]:
    """Return the results of a call as a tuple."""
    return tupled(program(*given))


def into(program: Program, given: Sequence[Any], out: Sequence[Any]) -> None:
    """Call a program with memory for its results."""
    program(*given, out=out[0] if len(out) == 1 else tuple(out))


def bits(tensor: Any) -> Any:
    """Return a tensor's memory as bytes or words."""
    import torch

    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(words[tensor.element_size()])


def poison(tensors: Sequence[Any]) -> None:
    """Fill tensors with what no kernel computes."""
    for tensor in tensors:
        bits(tensor).fill_(-1 if tensor.element_size() > 1 else POISON)


class Differences:
    """Counts on the GPU how often tensors were not what they should be; nothing waits for it."""

    def __init__(self) -> None:
        """Begin with none."""
        import torch

        self._count = torch.zeros((), dtype=torch.int64, device="cuda")

    def compare(self, found: Sequence[Any], wanted: Sequence[Any]) -> None:
        """Count one more where a bit differs."""
        for one, other in zip(found, wanted, strict=True):
            self._count += (bits(one) != bits(other)).any()

    def exactly(self, found: Sequence[Any], wanted: Sequence[Any]) -> None:
        """Count one more where a number differs from that in fp64, rounded to its type."""
        for one, other in zip(found, wanted, strict=True):
            self._count += (one != other.to(one.dtype)).any()

    @property
    def count(self) -> int:
        """Return how many there were, once all is done."""
        return int(self._count)


def arenas(program: Program) -> list[Arena]:
    """Return what the calls of a program share, stream by stream."""
    return [lane.arena for lane in program._lanes.values()]


def poison_scratch(arena: Arena) -> None:
    """Fill the work buffers with what is no number; counters stay as they are."""
    piece = arena.scratch
    if piece.address:
        arena.device.call("cuMemsetD8Async", piece.address, POISON, piece.size, arena.stream)


def counters(arena: Arena) -> bytes:
    """Return the semaphores, tickets and counters that a launch leaves for the next one."""
    import torch

    torch.cuda.synchronize()
    piece = arena.counters
    if not piece.address:
        return b""
    return arena.device.download(piece.address, piece.size).tobytes()


@contextmanager
def busy() -> Iterator[Callable[[], None]]:
    """Yield what gives another stream work for the GPU's processors."""
    import torch

    stream = torch.cuda.Stream()
    factor = torch.randn(1024, 1024, device="cuda").bfloat16()
    product = torch.empty_like(factor)
    stream.wait_stream(torch.cuda.current_stream())  # its memory may be in use till then

    def more() -> None:
        with torch.cuda.stream(stream):
            torch.matmul(factor, factor, out=product)

    yield more
    stream.synchronize()


def repeated(
    program: Program, variant: Variant, runs: int, *, exact: bool = False, seed: int = 0
) -> int:
    """Return how many of some runs gave other bits than the first one.

    Results and work buffers are poisoned before some runs, and another stream works beside some.
    """
    import torch

    given = variant.inputs(seed, exact=exact)
    kept = [r.clone() for r in called(program, given)]
    out = [torch.empty_like(r) for r in kept]
    found = Differences()
    with torch.cuda.device(0), busy() as more:
        for run in range(runs):
            poison(out)
            if run % 3 == 0:
                for arena in arenas(program):
                    poison_scratch(arena)
            if run % 4 == 0:
                more()
            into(program, given, out)
            found.compare(out, kept)
    return found.count


def at_once(program: Program, variant: Variant, runs: int) -> int:
    """Return how many of some calls on two streams, with other inputs each, were wrong."""
    import torch

    streams = [torch.cuda.Stream() for _ in range(2)]
    inputs = [variant.inputs(seed, exact=True) for seed in (1, 2)]
    wanted = [[r.clone() for r in called(program, given)] for given in inputs]
    out = [[torch.empty_like(r) for r in each] for each in wanted]
    found = [Differences() for _ in streams]
    for each in zip(streams, inputs, out, strict=True):
        with torch.cuda.stream(each[0]):  # the first call of a stream waits for its memory
            into(program, *each[1:])
    torch.cuda.synchronize()
    for stream in streams:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)  # until the host has issued much of the rest
    for _ in range(runs):
        for number, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                poison(out[number])
                into(program, inputs[number], out[number])
                found[number].compare(out[number], wanted[number])
    torch.cuda.synchronize()
    return sum(each.count for each in found)


def graphs_at_once(program: Program, variant: Variant, runs: int) -> int:
    """Return how many replays of two graphs on two streams, with other inputs each, were wrong."""
    import torch

    streams = [torch.cuda.Stream() for _ in range(2)]
    inputs = [variant.inputs(seed, exact=True) for seed in (1, 2)]
    wanted = [variant.results(given) for given in inputs]
    graphs = [program.graph(*given) for given in inputs]
    found = [Differences() for _ in streams]
    torch.cuda.synchronize()
    for _ in range(runs):
        for number, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                out = tupled(graphs[number]())
                found[number].exactly(out, wanted[number])
                poison(out)
    torch.cuda.synchronize()
    return sum(each.count for each in found)


def replayed(program: Program, variant: Variant, runs: int, *, own: bool) -> tuple[int, bytes]:
    """Return how many replays of a graph were wrong, and what its counters hold behind them.

    own: the program captures itself, else PyTorch does. Inputs change in place between replays.
    """
    import torch

    every = [variant.inputs(seed, exact=True) for seed in range(3)]
    wanted = [variant.results(given) for given in every]
    held = [x.clone() for x in every[0]]
    called(program, held)
    found, left = Differences(), b""
    torch.cuda.synchronize()
    if own:
        graph: Any = program.graph(*held)
        out = tupled(graph())
        replay = graph
    else:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = called(program, held)
        replay = graph.replay
    for run in range(runs):
        for mine, other in zip(held, every[run % 3], strict=True):
            mine.copy_(other)
        poison(out)
        replay()
        found.exactly(out, wanted[run % 3])
    if own:
        left = counters(graph._record.arena)
    return found.count, left
