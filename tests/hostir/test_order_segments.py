"""The order of segments: the least memory in use at once, and the same results."""

from __future__ import annotations

from itertools import permutations

import pytest
from draws import drawn
from hypothesis import given
from stream_programs import SIZES, buffer, program_of, programs, results, with_memory

from fusec.hostir.instructions import Alias, Allocate, Collective, Copy, Free, Post, SetStream, Wait
from fusec.hostir.passes.known import Known
from fusec.hostir.passes.order_segments import order_segments, sequencer_of
from fusec.hostir.placement import placement
from fusec.hostir.program import HostProgram, check_program
from fusec.hostir.sequence import Sequencer, Task
from fusec.hostir.tasks import WorkGraph, reordered
from fusec.ir.dim import dim

KNOWN = Known(SIZES)


def kept(program: HostProgram) -> list[str]:
    return [b.name for b in program.buffers if b.role in ("input", "output")]


def peak(program: HostProgram) -> int:
    return placement(program, SIZES, kept(program)).least


def posts(program: HostProgram) -> list[str]:
    return [i.segment for i in program.instructions if isinstance(i, Post)]


def fan(count: int = 4) -> HostProgram:
    """Return large values made first, each of which only leaves a small one."""
    made = [Post(f"a{k}", ("x",), (f"a{k}",)) for k in range(count)]
    used = [Post(f"b{k}", (f"a{k}",), (f"b{k}",)) for k in range(count)]
    last = Post("end", tuple(f"b{k}" for k in range(count)), ("y",))
    sizes = {"x": 1, "y": 1} | {f"a{k}": 8 for k in range(count)}
    return with_memory(
        [*made, *used, last], sizes | {f"b{k}": 1 for k in range(count)}, ["x"], ["y"]
    )


def test_large_values_are_used_before_others_are_made() -> None:
    program = fan()
    found = order_segments(program, KNOWN)
    assert posts(found) == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3", "end"]
    assert (peak(program), peak(found)) == ((4 * 8 + 1) * 256, (8 + 4) * 256)
    assert placement(found, SIZES, kept(found)).size == peak(found)
    assert order_segments(found, KNOWN) is found


def test_a_program_stays_where_nothing_is_gained() -> None:
    program = fan(1)
    assert order_segments(program, KNOWN) is program


def test_little_is_not_worth_another_order() -> None:
    sizes = {"x": 1, "a": 40, "b": 2, "c": 1, "y": 1}
    order = [Post("s0", ("x",), ("b",)), Post("s1", ("x",), ("a",)), Post("s2", ("b",), ("c",))]
    program = with_memory([*order, Post("s3", ("a", "c"), ("y",))], sizes, ["x"], ["y"])
    assert sequencer_of(WorkGraph(program), KNOWN).best().peak < peak(program)
    assert order_segments(program, KNOWN) is program


@drawn(20)
@given(programs())
def test_results_and_peaks(program: HostProgram) -> None:
    found = order_segments(program, KNOWN)
    check_program(found)
    assert results(found) == results(program)
    assert peak(found) <= peak(program)
    assert (found is program) == (posts(found) == posts(program))


@drawn(20)
@given(programs())
def test_any_allowed_order_has_the_same_results(program: HostProgram) -> None:
    graph = WorkGraph(program)
    late: list[int] = []
    while len(late) < len(graph.work):  # the last first, wherever that is allowed
        able = (k for k in range(len(graph.work)) if k not in late and graph.after[k] <= {*late})
        late.append(max(able))
    assert results(reordered_by(program, late)) == results(program)


def reordered_by(program: HostProgram, order: list[int]) -> HostProgram:
    from dataclasses import replace

    found = replace(program, instructions=reordered(WorkGraph(program), order))
    check_program(found)
    return found


def test_an_order_that_nothing_allows_changes_results() -> None:
    program = with_memory(
        [Post("s0", ("x",), ("a",)), Post("s1", ("a",), ("y",))], {"x": 1, "a": 1, "y": 1},
        ["x"], ["y"],
    )  # fmt: skip
    assert results(reordered_by(program, [1, 0])) != results(program)


@drawn(20)
@given(programs(most=5))
def test_the_search_finds_the_least_of_all_orders(program: HostProgram) -> None:
    graph = WorkGraph(program)
    sequencer = sequencer_of(graph, KNOWN)
    orders = (
        order
        for order in permutations(range(len(graph.work)))
        if all(graph.after[k] <= set(order[:n]) for n, k in enumerate(order))
    )
    found = sequencer.best()
    assert found.least == found.peak
    assert found.peak == min(map(sequencer.peak, orders)) == sequencer.peak(found.tasks)


@drawn(20)
@given(programs())
def test_without_a_search_the_order_is_a_simple_one(program: HostProgram) -> None:
    graph = WorkGraph(program)
    sequencer = sequencer_of(graph, KNOWN)
    found = sequencer.best(most=0)
    assert found.least == 0
    assert sorted(found.tasks) == list(range(len(graph.work)))
    assert found.peak >= sequencer.best().peak


def test_scratch_memory_counts() -> None:
    tasks = [Task(frozenset(), frozenset({0}), 5), Task(frozenset(), frozenset({1}))]
    sequencer = Sequencer([*tasks, Task(frozenset({0, 1}), frozenset({0, 1}))], [1, 2])
    assert (sequencer.peak((0, 1, 2)), sequencer.peak((1, 0, 2))) == (6, 8)
    assert sequencer.best().tasks == (0, 1, 2)


def test_many_segments_take_no_time() -> None:
    program = fan(60)
    found = order_segments(program, KNOWN)
    assert peak(found) == (8 + 60) * 256


def written_into(*order: int) -> list[str]:
    """Return the order of segments around a write into an input, and whether all reads precede."""
    buffers = [buffer(n, "temporary", (units * 64,)) for n, units in (("a", 9), ("b", 9), ("c", 1))]
    program = program_of(
        [buffer("x", "input", (64,)), *buffers, buffer("y", "output", (64,)),
         buffer("new", "output", (64,))],
        [
            Allocate("y"), Alias("new", "x", dim(0)),
            Allocate("a"), Post("a", ("x",), ("a",)),
            Allocate("b"), Post("b", ("x",), ("b",)),
            Post("into", ("a",), ("new",)), Free("a"),
            Allocate("c"), Post("c", ("b",), ("c",)), Free("b"),
            Post("end", ("c",), ("y",)), Free("c"),
        ],
        [("new", "x")],
    )  # fmt: skip
    found = order_segments(program, KNOWN)
    assert results(found) == results(program)
    return posts(found)


def test_what_reads_an_input_comes_before_what_overwrites_it() -> None:
    # b read, c made, then a: without the write into x, a would be used up first.
    assert written_into().index("b") < written_into().index("into")
    assert written_into().index("a") < written_into().index("into")


def test_exchanges_keep_their_order() -> None:
    names = {"x": "input", "y": "output"} | dict.fromkeys("abcd", "temporary")
    buffers = [buffer(n, role, (64 * (8 if n in "ac" else 1),)) for n, role in names.items()]
    program = program_of(
        buffers,
        [
            Allocate("y"),
            Allocate("a"), Allocate("c"), Post("a", ("x",), ("a",)), Post("c", ("x",), ("c",)),
            Allocate("d"), Collective("all_reduce", "d", "c", "tp", 2, "sum"), Wait("d"), Free("c"),
            Allocate("b"), Collective("all_reduce", "b", "a", "tp", 2, "sum"), Wait("b"), Free("a"),
            Post("end", ("b", "d"), ("y",)), Free("b"), Free("d"),
        ],
    )  # fmt: skip
    found = order_segments(program, KNOWN)
    begun = [i.target for i in found.instructions if isinstance(i, Collective)]
    assert begun == ["d", "b"]
    assert posts(found) == ["c", "a", "end"]
    waits = [str(i) for i in found.instructions if isinstance(i, (Collective, Wait, Free))]
    assert waits.index("wait d") < waits.index("free c")


def test_copies_and_streams() -> None:
    program = fan()
    streams = program_of(program.buffers, [*program.instructions, SetStream(dim(0))])
    assert order_segments(streams, KNOWN) is streams
    end = [*program.instructions, Copy("x", "y")]
    assert order_segments(program_of(program.buffers, end), KNOWN).instructions[-1] == end[-1]


@pytest.mark.parametrize("count", [2, 5])
def test_views_come_with_what_they_are_views_of(count: int) -> None:
    program = fan(count)
    instructions = []
    for instruction in program.instructions:
        if isinstance(instruction, Post) and instruction.segment.startswith("b"):
            number = instruction.segment[1:]
            instructions.append(Alias(f"v{number}", f"a{number}", dim(64)))
            instruction = Post(instruction.segment, (f"v{number}",), instruction.outputs)
        instructions.append(instruction)
    views = [buffer(f"v{k}", "temporary", (64,)) for k in range(count)]
    viewed = program_of([*program.buffers, *views], instructions)
    found = order_segments(viewed, KNOWN)
    check_program(found)
    assert posts(found)[:4] == ["a0", "b0", "a1", "b1"]
    assert results(found) == results(viewed)
