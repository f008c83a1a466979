"""Where the memory of host programs lies: nothing lies on what is still in use."""

from __future__ import annotations

from dataclasses import replace

import pytest
from draws import drawn
from hypothesis import given
from least_packing import least_packing
from stream_programs import (
    SIZES,
    UNIT,
    buffer,
    every_late,
    program_of,
    programs,
    results,
    with_memory,
)

from fusec.diagnostics import InternalError
from fusec.hostir.instructions import (
    Allocate,
    Collective,
    Free,
    Instruction,
    Post,
    Receive,
    Send,
    SetStream,
    Synchronize,
    Wait,
)
from fusec.hostir.placement import blocks_of, placement
from fusec.hostir.program import HostProgram
from fusec.ir.dim import dim


def kept(program: HostProgram) -> list[str]:
    return [b.name for b in program.buffers if b.role in ("input", "output")]


@drawn(25)
@given(programs())
def test_results_are_those_with_memory_for_each(program: HostProgram) -> None:
    assert results(program) == results(program, shared=False)


@drawn(20)
@given(programs())
def test_peaks_are_within_a_tenth_of_the_optimum(program: HostProgram) -> None:
    found = placement(program, SIZES, kept(program))
    _, blocks = blocks_of(program, SIZES, kept(program))
    least = least_packing([b.size for b in blocks], [b.overlapping for b in blocks], found.size)
    assert least is not None
    assert found.least <= least <= found.size <= 1.1 * least


def chain() -> HostProgram:
    posts = [Post("s0", ("x",), ("a",)), Post("s1", ("a",), ("b",)), Post("s2", ("b",), ("c",))]
    posts.append(Post("s3", ("c",), ("y",)))
    sizes = {"x": 1, "a": 2, "b": 1, "c": 2, "y": 1}
    return with_memory(posts, sizes, ["x"], ["y"])


def test_memory_is_used_again() -> None:
    program = chain()
    found = placement(program, SIZES, kept(program))
    assert found.offsets["a"] == found.offsets["c"]
    assert found.size == found.least == 3 * 256


def test_memory_on_what_is_in_use_changes_results(monkeypatch: pytest.MonkeyPatch) -> None:
    program = chain()
    expected = results(program)
    wrong = replace(placement(program, SIZES), offsets=dict.fromkeys("abc", 0))
    monkeypatch.setattr("stream_programs.placement", lambda *_, **__: wrong)
    # Every segment reads before it writes: on itself a chain may lie, but not beside others.
    assert results(program) == expected
    overlapping = with_memory(
        [Post("s0", ("x",), ("a",)), Post("s1", ("x",), ("b",)), Post("s2", ("a", "b"), ("y",))],
        {"x": 1, "a": 1, "b": 1, "y": 1},
        ["x"],
        ["y"],
    )
    assert results(overlapping) != results(overlapping, shared=False)


def two_streams(*between: Instruction) -> HostProgram:
    """Return a on stream 1, then b on stream 0, after what is between."""
    return program_of(
        [
            buffer("x", "input", (UNIT,)),
            *(buffer(n, "temporary", (UNIT,)) for n in "ab"),
            *(buffer(n, "output", (UNIT,)) for n in "yz"),
        ],
        [
            Allocate("y"),
            Allocate("z"),
            SetStream(dim(1)),
            Allocate("a"),
            Post("s0", ("x",), ("a",)),
            Post("s1", ("a",), ("y",)),
            Free("a"),
            SetStream(dim(0)),
            *between,
            Allocate("b"),
            Post("s2", ("x",), ("b",)),
            Post("s3", ("b",), ("z",)),
            Free("b"),
        ],
    )


def test_what_another_stream_may_use_is_not_used_again() -> None:
    apart = two_streams()
    assert placement(apart, SIZES, kept(apart)).size == 2 * 256
    joined = two_streams(Synchronize(dim(1)))
    assert placement(joined, SIZES, kept(joined)).size == 256
    for program in (apart, joined):
        assert all(found == results(program, shared=False) for found in every_late(program))


def test_memory_shared_by_streams_that_nothing_orders_changes_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = two_streams()
    wrong = replace(placement(program, SIZES), offsets={"a": 0, "b": 0})
    monkeypatch.setattr("stream_programs.placement", lambda *_, **__: wrong)
    assert any(found != results(program, shared=False) for found in every_late(program))


def exchange(*begun: Instruction, waits: bool = True) -> HostProgram:
    names = {"x": "input", "a": "temporary", "g": "temporary", "b": "temporary", "y": "output"}
    middle = [Wait("g")] if waits else []
    return program_of(
        [buffer(n, role, (UNIT,)) for n, role in names.items()],
        [
            Allocate("y"), Allocate("a"), Post("s0", ("x",), ("a",)),
            Allocate("g"), *begun, Allocate("b"), Post("s1", ("x",), ("b",)), *middle,
            Post("s2", ("b", "g"), ("y",)), Free("a"), Free("b"), Free("g"),
        ],
        check=waits,
    )  # fmt: skip


@pytest.mark.parametrize(
    "begun",
    [
        (Collective("all_gather", "g", "a", "tp", 2),),
        (Send("a", "tp", dim(1)), Receive("g", "tp", dim(1))),
    ],
    ids=["collective", "sends"],
)
def test_what_an_exchange_reads_is_in_use_until_it_is_waited_for(
    begun: tuple[Instruction, ...],
) -> None:
    program = exchange(*begun)
    early = [i for i in program.instructions if i != Free("a")]
    early.insert(len(early) - 5, Free("a"))  # before it is over, which changes nothing
    for each in (program, replace(program, instructions=tuple(early))):
        found = placement(each, SIZES, kept(each))
        assert len({found.offsets[n] for n in "abg"}) == 3
    # Without the exchange, b lies where a was.
    alone = exchange(waits=False)
    assert placement(alone, SIZES, kept(alone)).size == 2 * 256


def test_an_exchange_that_nothing_waits_for_is_never_over() -> None:
    program = exchange(Collective("all_gather", "g", "a", "tp", 2), waits=False)
    assert placement(program, SIZES, kept(program)).size == 3 * 256


def test_memory_given_twice_at_once_is_a_bug() -> None:
    program = program_of(
        [buffer("x", "input", (UNIT,)), buffer("a", "temporary", (UNIT,))],
        [
            Allocate("a"), Post("s0", ("x",), ("a",)), Free("a"), SetStream(dim(1)),
            Allocate("a"), Post("s0", ("x",), ("a",)), Free("a"),
        ],
    )  # fmt: skip
    with pytest.raises(InternalError, match="`a` is allocated again while it is in use"):
        placement(program, SIZES)
