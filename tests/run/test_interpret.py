"""Host programs run in NumPy: what they compute, and that what they do wrong shows."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamed_programs import B, H, Threads, buffer, by_ranks, program, ring, segment, streamed

from fusec.diagnostics import FusecError, InternalError
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    Copy,
    For,
    Free,
    Instruction,
    Launch,
    Memset,
    Post,
    SetStream,
    Synchronize,
    Wait,
)
from fusec.hostir.placement import Placement
from fusec.hostir.program import HostProgram
from fusec.hostir.steps import START, steps_of
from fusec.ir.dim import dim
from fusec.ir.sharding import Mesh
from fusec.run import interpret as module
from fusec.run.distributed.exchange import Member
from fusec.run.interpret import interpret

SIZES = {"B": 8, "H": 4}
X = np.arange(32, dtype=np.float32).reshape(8, 4) + 1
ORDERS = [None, *range(12)]
ONE = (dim(1), dim(1), dim(1))
DOUBLE = {"s0": segment("mul(a, 2.0)", "B, H", "a", out="b")}


def chain(*instructions: Instruction, wrong: bool = False) -> HostProgram:
    """Return a program from x to z over some temporaries."""
    names = [buffer(n, "temporary", B, H) for n in "ab"]
    ends = [buffer("x", "input", B, H), buffer("z", "output", B, H)]
    return program([*ends, *names], [Allocate("z"), *instructions], ["z"], wrong=wrong)


def post(source: str, target: str) -> Post:
    """Double a buffer."""
    return Post("s0", (source,), (target,))


def stream(number: int) -> SetStream:
    """Go on another stream."""
    return SetStream(dim(number))


def after(number: int) -> Synchronize:
    """Wait for another stream."""
    return Synchronize(dim(number))


def found(made: HostProgram, seed: int | None = None) -> np.ndarray:
    """Return z."""
    draw = None if seed is None else Random(seed)
    return interpret(made, DOUBLE, {"x": X}, SIZES, draw=draw)["z"]


@pytest.mark.parametrize("draw", ORDERS)
def test_a_loop_over_streams_gives_what_one_pass_gives(draw: int | None) -> None:
    """In every order that its streams allow."""
    made, segments = streamed()
    order = None if draw is None else Random(draw)
    z = interpret(made, segments, {"x": X}, SIZES, draw=order)["z"]
    np.testing.assert_array_equal(z, 3 * X)


def test_the_steps_of_a_loop() -> None:
    """Each stream waits once for the caller's, which waits at the end for the last of each."""
    steps = steps_of(streamed()[0], SIZES)
    posts = {k: s for k, s in enumerate(steps.steps) if isinstance(s.instruction, Post)}
    assert [(s.stream, s.after) for s in posts.values()] == [
        (1, (START,)), (1, ()), (2, (START,)), (2, ()), (1, ()), (1, ()), (2, ()), (2, ()),
    ]  # fmt: skip
    assert [p.instruction.inputs[0] for p in posts.values()][::2] == [
        f"x_part.i.{k}" for k in range(4)
    ]
    numbers = [*posts]
    assert steps.last == (numbers[5], numbers[7])
    assert steps.awaited == (START, *steps.last)
    assert steps.streams == 3


def test_a_stream_that_waits_for_nothing_waits_for_the_caller() -> None:
    """And what nobody waits for ends before the caller's stream goes on."""
    made = chain(stream(3), post("x", "z"))
    steps = steps_of(made, SIZES)
    assert steps.steps[1].after == (START,)
    assert steps.last == (1,)
    assert steps_of(chain(post("x", "z")), SIZES).awaited == ()


def test_waiting_is_handed_on() -> None:
    """Who waits for a stream waits for what that waits for, but for nothing twice."""
    made = chain(
        Allocate("a"), Allocate("b"),
        stream(1), after(0), post("x", "a"),
        stream(2), after(1), stream(3), after(2), post("a", "b"),
        stream(0), after(1), after(3), post("b", "z"),
    )  # fmt: skip
    steps = [s for s in steps_of(made, SIZES).steps if isinstance(s.instruction, Post)]
    assert [(s.stream, s.after) for s in steps] == [(1, (START,)), (3, (3,)), (0, (4,))]
    for draw in ORDERS:
        np.testing.assert_array_equal(found(made, draw), 8 * X)


RACE = (
    Allocate("a"), stream(1), after(0), post("x", "a"),
    stream(0), post("a", "z"),
)  # fmt: skip


def test_what_waits_for_nothing_is_found_out() -> None:
    """A reader on another stream that does not wait reads poison in some order."""
    results = [found(chain(*RACE), draw) for draw in ORDERS]
    assert any(np.isnan(z).any() for z in results)
    np.testing.assert_array_equal(results[0], 4 * X)
    mended = chain(*RACE[:-1], after(1), RACE[-1])
    for draw in ORDERS:
        np.testing.assert_array_equal(found(mended, draw), 4 * X)


def test_memory_that_is_freed_early_is_kept_for_who_reads_it() -> None:
    """Stream 1 gives back what stream 2 still reads: what it takes then lies elsewhere."""
    made = chain(
        Allocate("a"), stream(1), after(0), post("x", "a"), stream(2), after(1), post("a", "z"),
        stream(1), Free("a"), Allocate("b"), post("x", "b"), stream(0), after(1), after(2),
    )  # fmt: skip
    for draw in ORDERS:
        np.testing.assert_array_equal(found(made, draw), 4 * X)


def test_memory_at_a_wrong_place_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two buffers that are in use at once lie on one another: the placement is the program's."""
    made = chain(Allocate("a"), post("x", "a"), Allocate("b"), post("a", "b"), post("a", "z"))
    np.testing.assert_array_equal(found(made), 4 * X)
    monkeypatch.setattr(module, "placement", lambda *_: Placement({"a": 0, "b": 0}, 256, 256))
    assert not np.array_equal(found(made), 4 * X)


def test_freed_memory_goes_to_a_stream_that_has_waited() -> None:
    """One that has not gets other memory: nothing that is right breaks."""
    given = (Allocate("a"), post("x", "a"), Free("a"), stream(1), Allocate("b"), post("x", "b"))
    for waits in ((), (after(0),)):
        made = chain(*given[:4], *waits, *given[4:], post("b", "z"), stream(0), after(1))
        for draw in ORDERS:
            np.testing.assert_array_equal(found(made, draw), 4 * X)


def test_what_is_read_before_it_is_written_is_poison() -> None:
    """Also where other values have lain before."""
    made = chain(Allocate("a"), post("x", "a"), Free("a"), Allocate("b"), post("b", "z"))
    assert np.isnan(found(made)).all()
    assert np.isnan(found(chain(Allocate("a"), wrong=True))).all()


def test_zeros_and_copies() -> None:
    """A memset fills with zeros, a copy takes the bytes."""
    made = chain(Allocate("a"), Memset("a"), Copy("z", "a"))
    np.testing.assert_array_equal(found(made), 0 * X)
    np.testing.assert_array_equal(found(chain(Copy("z", "x"))), X)


def test_an_input_may_be_written_only_where_the_program_says() -> None:
    """A view of an input that a segment fills is an error, unless an output is written there."""
    made = chain(Alias("a", "x", dim(0)), post("x", "a"), Copy("z", "x"))
    with pytest.raises(InternalError, match="has written into input `x`"):
        found(made)
    into = replace(made, aliases=(("z", "x"),))
    np.testing.assert_array_equal(found(into), 2 * X)
    np.testing.assert_array_equal(X[0], [1, 2, 3, 4])  # the caller's array stays


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (Alias("a", "x", dim(1)), "reaches over bytes 4 to 132 of 128"),
        (Alias("a", "x", dim(-1)), "reaches over bytes -4"),
        (Launch("k", "s0", ONE, (1, 1, 1), ()), "launches a segment"),
        (Wait("x"), "waits for a communication that was not started"),
        (SetStream(dim(-1)), "has the number -1"),
        (Collective("all_gather", "z", "x", "mesh", 2), "needs several ranks"),
    ],
)
def test_programs_that_cannot_be_run(instruction: Instruction, message: str) -> None:
    """They are bugs of what made them, or of other ranks; told by the instruction."""
    with pytest.raises(FusecError, match=message):
        found(chain(instruction, wrong=True))


def test_inputs_must_fit() -> None:
    """As on a GPU."""
    made = chain(post("x", "z"))
    with pytest.raises(FusecError, match="input `x` is missing"):
        interpret(made, DOUBLE, {}, SIZES)
    with pytest.raises(FusecError, match=r"has shape \[4, 4\], expected \[8, 4\]"):
        interpret(made, DOUBLE, {"x": X[:4]}, SIZES)


@pytest.mark.parametrize("draw", [None, 0, 1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_ring_gives_every_rank_the_whole(ranks: int, draw: int | None) -> None:
    """Each iteration takes the rows of one rank, in an order of its own at each."""
    made, segments = ring(ranks)
    sizes, mesh = {"B": 2, "H": 3}, Mesh((("mesh", ranks),), tuple(range(ranks)))
    rows = np.random.default_rng(0).random((2 * ranks, 3), np.float32)
    w = np.ones((2 * ranks, 3), np.float32)

    def run(rank: int, transport: Threads) -> np.ndarray:
        member = Member(mesh, rank, transport)
        given = {"x": rows[2 * rank : 2 * rank + 2], "w": w}
        order = None if draw is None else Random(draw)
        z = interpret(made, segments, given, sizes, member, draw=order)["z"]
        assert transport.left == 0
        return z

    for z in by_ranks(ranks, run):
        np.testing.assert_array_equal(z, rows + 1)


KINDS = {
    "all_gather": (1, 2, lambda x: np.concatenate([x[0], x[1]])),
    "all_reduce": (1, 1, lambda x: x[0] + x[1]),
    "reduce_scatter": (2, 1, None),
}


@pytest.mark.parametrize("kind", KINDS)
def test_collectives(kind: str) -> None:
    """Begun on one stream and waited for on another, which goes on when it has come."""
    give, get, whole = KINDS[kind]
    buffers = [
        buffer("x", "input", B * give, H), buffer("g", "temporary", B * get, H),
        buffer("z", "output", B * get, H),
    ]  # fmt: skip
    done = (
        Allocate("z"), Allocate("g"), stream(1), after(0),
        Collective(kind, "g", "x", "tp", 2, "sum"), stream(2), Wait("g"),
        Post("s0", ("g",), ("z",)), stream(0), after(2),
    )  # fmt: skip
    made = program(buffers, done, ["z"])
    steps = steps_of(made, SIZES).steps
    assert [(s.stream, s.after) for s in steps[2:]] == [(1, (START,)), (2, (2,)), (2, ())]
    mesh = Mesh((("dp", 2), ("tp", 2)), (0, 1, 2, 3))
    x = np.random.default_rng(1).random((4, 8 * give, 4), np.float32)
    segments = {"s0": segment("mul(a, 2.0)", f"{get} * B, H", "a", out="b")}

    def run(rank: int, transport: Threads) -> np.ndarray:
        member = Member(mesh, rank, transport)
        return interpret(made, segments, {"x": x[rank]}, SIZES, member, draw=Random(5))["z"]

    for rank, z in enumerate(by_ranks(4, run)):
        pair = x[rank // 2 * 2 : rank // 2 * 2 + 2]
        wanted = np.split(pair[0] + pair[1], 2)[rank % 2] if whole is None else whole(pair)
        np.testing.assert_array_equal(z, 2 * wanted)


@st.composite
def drawn_programs(draw: st.DrawFn) -> list[tuple[str, str, int]]:
    """Return segments (from, to, stream) that make a graph."""
    names, made = ["x"], list[tuple[str, str, int]]()
    for number in range(draw(st.integers(1, 6))):
        source = draw(st.sampled_from(names))
        names.append(f"t{number}")
        made.append((source, names[-1], draw(st.integers(0, 3))))
    return made


@given(drawn_programs(), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_streams_that_wait_for_what_they_read_are_right(
    made: list[tuple[str, str, int]], seed: int
) -> None:
    """In any order; a program is any graph of segments, each on a stream of its own choice."""
    instructions, streams, power = list[Instruction](), {"x": 0}, {"x": 1.0}
    for source, target, number in made:
        instructions += [stream(number), after(streams[source]), Allocate(target)]
        instructions.append(post(source, target))
        streams[target], power[target] = number, 2 * power[source]
    last = made[-1][1]
    instructions += [stream(0), after(streams[last]), Copy("z", last)]
    names = [buffer(n, "temporary", B, H) for n in power if n != "x"]
    ends = [buffer("x", "input", B, H), buffer("z", "output", B, H)]
    whole = program([*ends, *names], [Allocate("z"), *instructions], ["z"])
    np.testing.assert_array_equal(found(whole, seed), power[last] * X)


def test_a_loop_in_a_loop() -> None:
    """Indices of both stand in offsets."""
    from fusec.ir.dim import symbol

    row, half = symbol("r") * H, symbol("h") * (H // 2)
    parts = [buffer(n, "temporary", 1, H // 2) for n in ("a", "b")]
    body = (Alias("a", "x", row + half), Alias("b", "z", row + half), post("a", "b"))
    loops = For("r", B, (For("h", dim(2), body),))
    ends = [buffer("x", "input", B, H), buffer("z", "output", B, H)]
    made = program([*ends, *parts], [Allocate("z"), loops], ["z"])
    segments = {"s0": segment("mul(a, 2.0)", "1, H // 2", "a", out="b")}
    np.testing.assert_array_equal(interpret(made, segments, {"x": X}, SIZES)["z"], 2 * X)
