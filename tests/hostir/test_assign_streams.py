"""Independent segments on several streams: the same results in any order that events allow."""

from __future__ import annotations

from dataclasses import replace

import pytest
from draws import drawn
from hypothesis import given
from hypothesis import strategies as st
from stream_programs import SIZES, every_late, programs, results, with_memory

from fusec.hostir.instructions import For, Post, SetStream, Synchronize
from fusec.hostir.passes.assign_streams import assign_streams
from fusec.hostir.passes.known import Known
from fusec.hostir.program import HostProgram, check_program
from fusec.hostir.streams import Job, predicted, shared_out, with_streams
from fusec.hostir.tasks import WorkGraph
from fusec.ir.dim import dim


def known(program: HostProgram, filled: float = 0.2, seconds: float = 10.0, **more) -> Known:
    names = [i.segment for i in program.instructions if isinstance(i, Post)]
    both = {"seconds": dict.fromkeys(names, seconds), "filled": dict.fromkeys(names, filled)}
    return Known(SIZES, **both, **{"event": 1.0, **more})


def events(program: HostProgram) -> list[int]:
    return [k for k, i in enumerate(program.instructions) if isinstance(i, Synchronize)]


def without(program: HostProgram, place: int) -> HostProgram:
    kept = (i for k, i in enumerate(program.instructions) if k != place)
    return replace(program, instructions=tuple(kept))


def chains(count: int = 2, length: int = 2) -> HostProgram:
    """Return chains from one input, and a segment that reads the ends of all."""
    posts: list[Post] = []
    for c in range(count):
        read = "x"
        for k in range(length):
            posts.append(Post(f"s{c}{k}", (read,), (f"t{c}{k}",)))
            read = f"t{c}{k}"
    ends = tuple(f"t{c}{length - 1}" for c in range(count))
    posts.append(Post("end", ends, ("y",)))
    sizes = {"x": 1, "y": 1} | {n: 1 for p in posts[:-1] for n in p.outputs}
    return with_memory(posts, sizes, ["x"], ["y"])


def test_chains_stay_on_their_streams() -> None:
    program = chains()
    found = assign_streams(program, known(program))
    check_program(found)
    kinds = SetStream, Synchronize, Post
    lines = [str(i).partition(" (")[0] for i in found.instructions if isinstance(i, kinds)]
    assert lines == [
        "post s00", "post s01", "set stream 1", "post s10", "post s11",
        "set stream 0", "synchronize stream 1", "post end",
    ]  # fmt: skip


def test_a_chain_stays_as_it_is() -> None:
    program = chains(1, 4)
    assert assign_streams(program, known(program)) is program


def test_segments_that_fill_the_gpu_stay_where_they_are() -> None:
    program = chains()
    assert assign_streams(program, known(program, filled=1.0)) is program


def test_events_that_take_longer_than_they_save_are_not_worth_it() -> None:
    program = chains()
    assert assign_streams(program, known(program, event=11.0)) is program
    assert assign_streams(program, known(program, event=9.0)) is not program


def test_streams_are_limited() -> None:
    program = chains(6, 1)
    found = assign_streams(program, known(program, filled=0.1, streams=2))
    used = {i.stream.value for i in found.instructions if isinstance(i, SetStream)}
    assert used == {0, 1, 2}


def test_loops_have_streams_of_their_own() -> None:
    program = chains()
    looped = replace(program, instructions=(*program.instructions, For("i", dim(2), ())))
    assert assign_streams(looped, known(program)) is looped


def test_it_is_done_once() -> None:
    program = chains()
    found = assign_streams(program, known(program))
    assert assign_streams(found, known(program)) is found


@st.composite
def assigned(draw: st.DrawFn) -> tuple[HostProgram, HostProgram]:
    """Return a program and the same on drawn streams."""
    program = draw(programs(most=6))
    graph = WorkGraph(program)
    streams = [draw(st.integers(0, 2)) for _ in graph.work]
    return program, with_streams(graph, streams)


@drawn(20)
@given(assigned())
def test_results_in_every_order(pair: tuple[HostProgram, HostProgram]) -> None:
    program, found = pair
    check_program(found)
    expected = results(program, shared=False)
    assert all(each == expected for each in every_late(found))


@drawn(15)
@given(assigned())
def test_every_event_is_needed(pair: tuple[HostProgram, HostProgram]) -> None:
    program, found = pair
    expected = results(program, shared=False)
    for place in events(found):
        assert any(each != expected for each in every_late(without(found, place))), place


@drawn(15)
@given(programs(most=5), st.floats(0.05, 1.0))
def test_results_of_what_the_pass_chooses(program: HostProgram, filled: float) -> None:
    found = assign_streams(program, known(program, filled=filled))
    assert all(each == results(program) for each in every_late(found))


NONE = frozenset[int]()


@pytest.mark.parametrize(
    ("filled", "streams", "seconds"),
    [
        (0.5, [0, 0], 20.0),
        (0.5, [0, 1], 12.0),  # begun one event later, and waited for
        (1.0, [0, 1], 21.0),  # the second shares what it has from the first second on
    ],
)
def test_the_predicted_time(filled: float, streams: list[int], seconds: float) -> None:
    jobs = [Job(10.0, filled, NONE)] * 2
    assert predicted(jobs, streams, event=1.0) == pytest.approx(seconds)


def test_a_wait_takes_an_event() -> None:
    jobs = [Job(10.0, 0.1, NONE), Job(10.0, 0.1, frozenset({0}))]
    assert predicted(jobs, [0, 0], event=1.0) == 20.0
    assert predicted(jobs, [0, 1], event=1.0) == 22.0
    assert shared_out(jobs, 4, event=1.0) == [0, 0]
