"""Loops over streams and exchanges in host programs: how they are built, changed and run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import pytest
from draws import drawn
from host_json import from_json, to_json
from hypothesis import given
from hypothesis import strategies as st
from local_fusions import Local, M, N, launched, plans_of, program_of, segmented
from program_races import races
from streamed_programs import Threads, by_ranks

from fusec.codegen.source import KernelSource
from fusec.diagnostics import FusecError, InternalError, Unsupported
from fusec.hostir.expand import expand
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    For,
    Instruction,
    Post,
    Receive,
    Send,
    SetStream,
    Synchronize,
    Wait,
)
from fusec.hostir.lower import lower
from fusec.hostir.passes import PIPELINE
from fusec.hostir.program import HostProgram, check_program
from fusec.hostir.steps import steps_of
from fusec.hostir.unroll import unroll
from fusec.ir.dim import Dim, dim
from fusec.ir.graph import Fusion, Output, Value
from fusec.ir.sharding import Mesh
from fusec.ops.communication import (
    ALL_GATHER,
    ALL_REDUCE,
    RANK_SLICE,
    RECEIVE_SLICE,
    SEND_SLICE,
    STREAM_SLICE,
    STREAM_STACK,
)
from fusec.run.distributed.exchange import Member
from fusec.run.interpret import interpret

ALL = tuple(p.name for p in PIPELINE)
LATER = [name for name in ALL if name in ("slice_buffers", "sink_joins", "sink_waits")]
SIZES = {"N": 3, "M": 5}
OVER_ROWS = {"dim": 0, "parts": 4}
WIDE = 4 * M  # slices of so many columns begin where vectors may
PLACED = {**SIZES, "tp.place": 1}


Change = Callable[[Instruction], Instruction | None]


def merged() -> Fusion:
    """Two operations on slices: one loop."""
    b = Local("merged", **SIZES)
    x = b.part("x_slice", STREAM_SLICE, b.input("x", 4 * N, WIDE), **OVER_ROWS)
    return b.finish(b.part("z", STREAM_STACK, b.op("b", "neg", b.op("a", "exp", x)), **OVER_ROWS))


def apart() -> Fusion:
    """An operation on the whole between two on slices: two loops."""
    b = Local("apart", **SIZES)
    x = b.part("x_slice", STREAM_SLICE, b.input("x", 4 * N, M), **OVER_ROWS)
    whole = b.part("a_full", STREAM_STACK, b.op("a", "exp", x), **OVER_ROWS)
    y = b.part("y_slice", STREAM_SLICE, b.op("y", "neg", whole), **OVER_ROWS)
    return b.finish(b.part("z", STREAM_STACK, b.op("c", "abs", y), **OVER_ROWS))


def gathered() -> Fusion:
    """A ring all-gather with a product in its loop, then one in a single exchange."""
    b = Local("gathered", **SIZES)
    x, w = b.input("x", N, WIDE), b.input("w", N, WIDE)
    y = b.op("y", "mul", b.part("r", RECEIVE_SLICE, x, axis="tp", ranks=4), w)
    o = b.op("o", "exp", b.part("z", STREAM_STACK, y, **OVER_ROWS))
    g = b.part("g", ALL_GATHER, o, axis="tp", ranks=4)
    return b.finish(b.op("h", "exp", w), g)


def scattered() -> Fusion:
    """Partial products, sent away as they are made, and added up."""
    b = Local("scattered", **SIZES)
    x = b.part("x_slice", STREAM_SLICE, b.input("x", 4 * N, M), **OVER_ROWS)
    s = b.part("s", SEND_SLICE, b.op("p", "exp", x), axis="tp", ranks=4)
    return b.finish(b.op("y", "neg", s))


DIVIDED = [merged, apart, gathered, scattered]


def loops(program: HostProgram) -> list[For]:
    """Return the loops over streams."""
    return [i for i in program.instructions if isinstance(i, For) and i.streams]


def test_segments_of_slices_are_one_loop() -> None:
    """As the seed's second example: both run in one loop, whose results lie in the output."""
    assert program_of(merged(), without=ALL, streams=2).text() == (
        "host program merged:\n"
        "  input x: f32[N * 4, M * 4]\n"
        "  output z: f32[N * 4, M * 4]\n"
        "  temporary x_slice: f32[N, M * 4]\n"
        "  temporary a: f32[N, M * 4]\n"
        "  temporary a.slices: f32[4, N, M * 4]\n"
        "  temporary b: f32[N, M * 4]\n"
        "  0: allocate z\n"
        "  1: allocate a.slices\n"
        "  2: for loop0.index from 0 to 4 on 2 streams:\n"
        "    0: get stream loop0.caller\n"
        "    1: set stream (loop0.index % 2) + 1\n"
        "    2: synchronize stream loop0.caller\n"
        "    3: alias x_slice = x at M * N * loop0.index * 4\n"
        "    4: alias a = a.slices at M * N * loop0.index * 4\n"
        "    5: post s1 (x_slice) -> a\n"
        "    6: alias b = z at M * N * loop0.index * 4\n"
        "    7: post s2 (a) -> b\n"
        "    8: set stream loop0.caller\n"
        "    9: synchronize stream (loop0.index % 2) + 1\n"
        "  3: free a.slices\n"
        "  return z\n"
    )


def test_what_needs_the_whole_parts_loops() -> None:
    """As the seed's third example."""
    made = program_of(apart(), without=ALL)
    kinds = [i.segment if isinstance(i, Post) else type(i).__name__ for i in made.instructions]
    assert kinds == ["Allocate", "Allocate", "For", "Allocate", "s3", "Free", "For", "Free"]
    assert [len([i for i in loop.body if isinstance(i, Post)]) for loop in loops(made)] == [1, 1]


def test_loops_of_different_parts_are_apart() -> None:
    """And segments of one loop come together, whatever stands between them."""
    b = Local("mixed", **SIZES)
    x = b.input("x", 12 * N, M)
    sliced = [b.part(f"x{p}", STREAM_SLICE, x, dim=0, parts=p) for p in (4, 3)]
    first = [b.op(f"a{k}", "exp", v) for k, v in enumerate(sliced)]
    w = b.op("w", "neg", x)
    then = [b.op(f"b{k}", "neg", v) for k, v in enumerate(first)]
    ends = [
        b.part(f"z{k}", STREAM_STACK, v, dim=0, parts=p)
        for k, (v, p) in enumerate(zip(then, (4, 3), strict=True))
    ]
    made = program_of(b.finish(*ends, w), without=ALL)
    assert [loop.count for loop in loops(made)] == [4, 3]
    posts = [[i.segment for i in loop.body if isinstance(i, Post)] for loop in loops(made)]
    assert posts == [["s2", "s5"], ["s3", "s6"]]
    assert next(i.segment for i in made.instructions if isinstance(i, Post)) == "s4"
    assert not races(made, SIZES)


def test_a_ring_begins_with_its_own_slice() -> None:
    """In iteration 0 it reads that in place; others are taken by the place that they have."""
    made = unroll(program_of(gathered()), PLACED)
    exchanges = [i for i in made.instructions if isinstance(i, (Send, Receive))]
    assert [i.place for i in exchanges] == [0, 2, 3, 3, 2, 0]
    first, *others = [i for i in made.instructions if isinstance(i, Alias)]
    assert str(first) == "alias r.loop0.0 = x"
    offsets = [i.offset.evaluate(SIZES) for i in others]
    assert offsets == [60 * p for p in (1, 2, 2, 3, 3, 0, 0)]


def test_what_is_sent_is_what_comes_back() -> None:
    """Rank r sends the slice of place p to p, and keeps what came from q as block q.

    The last slice is its own, which is made where it stays.
    """
    everything = {
        place: [
            (i.place.value, type(i).__name__)
            for i in unroll(program_of(scattered()), {**SIZES, "tp.place": place}).instructions
            if isinstance(i, (Send, Receive))
        ]
        for place in range(4)
    }
    for place, exchanges in everything.items():
        assert len(exchanges) == 6
        for step in range(3):
            send, receive = exchanges[2 * step : 2 * step + 2]
            assert everything[send[0]][2 * step + 1] == (place, "Receive")
            assert receive[1] == "Receive"


def test_kernels_of_a_loop_that_sends_keep_their_order() -> None:
    """On one stream, the rank's own last; each exchange begins behind its kernel, on another."""
    steps = steps_of(program_of(scattered()), PLACED).steps
    loop = [s for s in steps if isinstance(s.instruction, (Post, Send))][:7]
    kinds = [type(s.instruction).__name__ for s in loop]
    assert kinds == ["Post", "Send", "Post", "Send", "Post", "Send", "Post"]
    assert len({s.stream for s in loop[::2]}) == 1
    assert len({s.stream for s in loop}) == 4
    numbers = {id(s): k for k, s in enumerate(steps)}
    for kernel, send in zip(loop[:-1:2], loop[1::2], strict=True):
        assert send.over[kernel.stream] == numbers[id(kernel)]


def test_a_rank_takes_its_own_part() -> None:
    """Without a loop: a view of memory, which stays as long as that is read."""
    b = Local("own", **SIZES)
    whole = b.op("a", "exp", b.input("x", 4 * N, M))
    own = b.part("own", RANK_SLICE, whole, dim=1, parts=M, axis="tp")
    made = program_of(b.finish(b.op("y", "neg", own)))
    assert [str(i) for i in made.instructions] == [
        "allocate y",
        "allocate a",
        "post s0 (x) -> a",
        "alias own = a at tp.place",
        "post s2 (own) -> y",
        "free a",
        "free own",
    ]
    assert made.buffer["own"].strides == (M, 1)


def test_slices_are_kept_for_later_loops() -> None:
    """A loop around another axis reads what an earlier one has made, all slices of it."""
    b = Local("two", **SIZES)
    x, w = b.input("x", N, M), b.input("w", N, M)
    first = b.op("a", "exp", b.part("r", RECEIVE_SLICE, x, axis="tp", ranks=4))
    other = b.op("c", "mul", first, b.part("q", RECEIVE_SLICE, w, axis="dp", ranks=4))
    made = program_of(b.finish(b.part("z", STREAM_STACK, other, **OVER_ROWS)), streams=2)
    assert len(loops(made)) == 2
    assert made.buffer["a.slices"].shape[0] == 4
    assert not races(made, {**PLACED, "dp.place": 2})


def test_slices_of_what_is_there_are_taken_again() -> None:
    """By a later loop that reads them beside what follows from the first one."""
    b = Local("again", **SIZES)
    x = b.part("x_slice", STREAM_SLICE, b.input("x", 4 * N, WIDE), **OVER_ROWS)
    whole = b.part("a_full", STREAM_STACK, b.op("a", "exp", x), **OVER_ROWS)
    y = b.op("y", "mul", b.part("y_slice", STREAM_SLICE, whole, **OVER_ROWS), x)
    made = program_of(b.finish(b.part("z", STREAM_STACK, y, **OVER_ROWS)))
    aliases = [[i.buffer for i in loop.body if isinstance(i, Alias)] for loop in loops(made)]
    assert aliases == [["x_slice", "a"], ["x_slice", "y_slice", "y"]]
    assert not races(made, SIZES)


# --- passes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("streams", "kept"), [(1, 1), (2, 2), (3, 3), (8, 4)])
def test_buffers_have_as_many_slices_as_streams(streams: int, kept: int) -> None:
    """But no more than there are iterations."""
    without = [name for name in ALL if name != "slice_buffers"]
    made = program_of(merged(), without=without, streams=streams)
    assert made.buffer["a.slices"].shape == (dim(kept), N, WIDE)
    assert not races(made, SIZES)
    names = [i.buffer for i in made.instructions if isinstance(i, Allocate)]
    assert names == ["z", "a.slices"]


def test_fewer_slices_than_streams_would_be_a_race() -> None:
    """The checker sees two iterations in one slice."""
    made = program_of(merged(), streams=3)
    (loop,) = loops(made)
    body = tuple(
        replace(i, offset=dim(0)) if isinstance(i, Alias) and i.of == "a.slices" else i
        for i in loop.body
    )
    wrong = tuple(replace(i, body=body) if i is loop else i for i in made.instructions)
    assert any(r.buffer == "a.slices" for r in races(replace(made, instructions=wrong), SIZES))


def test_iterations_wait_for_one_another_unless_joins_are_late() -> None:
    """Which a pass makes them: then the caller's stream waits once for each stream."""
    early = unroll(program_of(merged(), without=ALL), SIZES)
    late = unroll(program_of(merged()), SIZES)
    assert _after_last_post(early) == [str(i) for i in early.instructions[-3:]]
    assert _after_last_post(late) == [
        "set stream 0",
        *(f"synchronize stream {k}" for k in (1, 2, 3, 4)),
        "free a.slices",
    ]
    before = [str(i) for i in late.instructions[: _last_post(late)]]
    assert "synchronize stream 1" not in before


def _last_post(program: HostProgram) -> int:
    return max(k for k, i in enumerate(program.instructions) if isinstance(i, Post))


def _after_last_post(program: HostProgram) -> list[str]:
    return [str(i) for i in program.instructions[_last_post(program) + 1 :]]


def test_waits_come_before_the_first_use() -> None:
    """Of what an exchange brings, and before what was sent is overwritten; that is freed then."""
    b = Local("late", **SIZES)
    x = b.input("x", N, M)
    a = b.op("a", "exp", x)
    r = b.part("r", ALL_REDUCE, a, axis="tp", ranks=4)
    other = b.op("c", "neg", x)
    alone = [name for name in ALL if name != "sink_waits"]
    made = program_of(b.finish(b.op("y", "mul", r, other)), without=alone)
    told = [str(i).partition(" over")[0] for i in made.instructions]
    at = told.index("all_reduce sum r <- a")
    assert told[at + 1 :] == [
        "allocate c",
        "post s2 (x) -> c",
        "wait r",
        "free a",
        "post s3 (r, c) -> y",
        "free r",
        "free c",
    ]
    b.nodes[-1:] = []
    y = b.op("y", "mul", b.op("d", "add", other, a), r)
    told = [str(i) for i in program_of(b.finish(y), without=alone).instructions]
    at = told.index("post s3 (c, a) -> d")
    assert told[at + 1 : at + 4] == ["free c", "wait r", "free a"]


# --- what is wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize("without", [(), ALL])
def test_every_wait_is_needed(without: Sequence[str]) -> None:
    """Without any one of them the program is refused, and a race."""
    made = unroll(program_of(gathered(), without=without, streams=2), PLACED)
    assert not races(made, PLACED)
    waits = [i for i in made.instructions if isinstance(i, Wait)]
    assert len(waits) == 4
    for wait in waits:
        left = _dropped(made, wait)
        assert races(left, PLACED)
        with pytest.raises(FusecError, match="wait"):
            check_program(left)


def test_what_is_sent_together_is_waited_for_on_one_stream() -> None:
    """A slice that another stream's wait ended is overwritten too early by its own stream."""
    made = unroll(program_of(scattered(), streams=2), PLACED)
    assert not races(made, PLACED)
    first = next(i for i in made.instructions if isinstance(i, Wait))
    left = _dropped(made, first)
    check_program(left)
    assert {r.buffer for r in races(left, PLACED)} == {"p.slices"}


def test_every_join_and_first_synchronise_is_needed() -> None:
    """Later ones on the same stream wait for nothing new."""
    made = unroll(program_of(merged(), streams=2), PLACED)
    found = [i for i in made.instructions if isinstance(i, Synchronize)]
    needed = [str(i) for i in found if races(_dropped(made, i), SIZES)]
    assert needed == [f"synchronize stream {k}" for k in (0, 0, 1, 2)]


def _dropped(program: HostProgram, instruction: Instruction) -> HostProgram:
    left = tuple(i for i in program.instructions if i is not instruction)
    return replace(program, instructions=left)


def test_a_race_is_told_by_its_instructions() -> None:
    """And by the memory."""
    made = unroll(program_of(gathered()), PLACED)
    wait = next(i for i in made.instructions if isinstance(i, Wait))
    (race,) = races(_dropped(made, wait), PLACED)
    use = "`post s1 (w, r.loop0.1) -> y.loop0.1`"
    assert str(race) == f"`receive r.loop0.1 from tp: 2` and {use} use `r.slices` in no order"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i: None if isinstance(i, Wait) else i, "does not wait for `receive r from tp"),
        (lambda i: None if isinstance(i, (Send, Receive)) else i, "`wait r` waits for nothing"),
        (lambda i: None if type(i).__name__ == "GetStream" else i, "uses `loop0.caller`"),
        (lambda i: replace(i, index="i") if isinstance(i, For) else i, "uses `loop0.index`"),
        (lambda i: None if isinstance(i, Post) else i, "returns `h`, which nothing writes"),
    ],
)
def test_damaged_loops_are_refused(change: Change, message: str) -> None:
    """By what is wrong with them."""
    made = program_of(gathered())
    with pytest.raises(FusecError, match=message):
        check_program(replace(made, instructions=tuple(_changed(made.instructions, change))))


def _changed(instructions: Sequence[Instruction], change: Change) -> list[Instruction]:
    found: list[Instruction] = []
    for instruction in instructions:
        new = change(instruction)
        if isinstance(new, For):
            new = replace(new, body=tuple(_changed(new.body, change)))
        if new is not None:
            found.append(new)
    return found


def test_exchanges_must_be_waited_for() -> None:
    """Within the loop in which they were begun, or before the end."""
    made = program_of(gathered())
    last = next(i for i in reversed(made.instructions) if isinstance(i, Wait))
    with pytest.raises(FusecError, match="`free o` does not wait for `all_gather g <- o"):
        check_program(_dropped(made, last))
    left = tuple(i for i in made.instructions if i is not last and str(i) != "free o")
    with pytest.raises(FusecError, match="nothing waits for `all_gather g <- o over tp: 4`"):
        check_program(replace(made, instructions=left))
    made = program_of(scattered())
    left = _changed(made.instructions, lambda i: None if isinstance(i, Wait) else i)
    with pytest.raises(FusecError, match=r"nothing in `for loop0.* waits for `send p to tp"):
        check_program(replace(made, instructions=tuple(left)))


def test_slices_and_the_whole_cannot_be_one_kernel() -> None:
    """It would compute the whole in each iteration."""
    fusion = merged()
    cut = segmented(fusion)
    both = replace(cut.segments[1].fusion, outputs=(*cut.segments[1].fusion.outputs,))
    whole = Value("w", fusion.inputs[0].value.type)
    node = replace(cut.segments[1].nodes[0], operands=(fusion.inputs[0].value,), outputs=(whole,))
    both = replace(both, nodes=(*both.nodes, node), outputs=(*both.outputs, Output(whole)))
    segments = (cut.segments[0], replace(cut.segments[1], fusion=both), *cut.segments[2:])
    cut = replace(cut, segments=segments)
    with pytest.raises(InternalError, match="s1 is of several loops"):
        lower(cut, plans_of(cut))


def test_an_input_that_the_loop_reads_is_not_overwritten_by_it() -> None:
    """Its slices might be read after another iteration has written them; others may be."""
    b = Local("in_place", **SIZES)
    _, w = b.input("x", 4 * N, M), b.input("w", 4 * N, M)
    part = b.op("a", "exp", b.part("w_slice", STREAM_SLICE, w, **OVER_ROWS))
    z = b.part("z", STREAM_STACK, part, **OVER_ROWS)
    made = program_of(b.finish(Output(z, alias="x")))
    assert Alias("z", "x", dim(0)) in made.instructions
    assert made.aliases == (("z", "x"),)
    with pytest.raises(Unsupported, match="`z` is written to `w` slice by slice, in a loop"):
        program_of(b.finish(Output(z, alias="w")))


# --- launches ----------------------------------------------------------------------------------


@pytest.mark.parametrize("init", ["none", "zeroed once", "zeroed per launch"])
@pytest.mark.parametrize("make", DIVIDED)
def test_streams_share_no_workspace(make: Callable[[], Fusion], init: str) -> None:
    """Each has one of its own, and tensor maps are encoded for each slice."""
    made = launched(make(), workspace=init, maps=True)
    assert not races(made, PLACED)
    flat = unroll(made, PLACED)
    check_program(flat)
    assert not races(flat, PLACED)
    (loop, *_) = loops(made)
    whole = {i.of for i in loop.body if isinstance(i, Alias)}
    assert any(name.endswith(".turns.streams") for name in whole)
    assert from_json(json.loads(json.dumps(to_json(made)))) == made


@pytest.mark.parametrize(
    ("columns", "parts", "guard"),
    [(M, 3, "M * 4 % 16 == 0"), (dim(8), 2, None), (dim(6), 2, Unsupported)],
)
def test_each_slice_begins_where_kernels_can_read_it(
    columns: Dim, parts: int, guard: object
) -> None:
    """As a guard where sizes decide it; what never fits is refused."""
    b = Local("aligned", **SIZES)
    x = b.input("x", N, columns * parts)
    part = b.part("x_slice", STREAM_SLICE, x, dim=1, parts=parts)
    fusion = b.finish(b.part("z", STREAM_STACK, b.op("a", "exp", part), dim=1, parts=parts))
    cut = segmented(fusion)
    plans, program = plans_of(cut), lower(cut, plans_of(cut))
    asked = {"x_slice": 16}
    sources = [[KernelSource(kernel, "", asked) for kernel in plan.kernels] for plan in plans]
    if guard is Unsupported:
        with pytest.raises(Unsupported, match="`x_slice` is a part of `x` aligned to"):
            expand(program, cut, plans, sources)
        return
    guards = expand(program, cut, plans, sources).guards
    assert [str(g) for g in guards] == ([] if guard is None else [guard])


def test_a_program_without_loops_is_its_own() -> None:
    """Unrolling changes nothing there."""
    b = Local("plain", **SIZES)
    made = program_of(b.finish(b.op("y", "exp", b.input("x", N, M))))
    assert unroll(made, SIZES) is made


# --- drawn programs ----------------------------------------------------------------------------


EXTENTS = (6, 8)
"""Of the drawn tensors: neither 4 nor 3 slices divide each."""


@dataclass
class Drawn:
    """A fusion on its way, with each value's elements: of slices those of the whole."""

    builder: Local
    whole: list[Value]
    slices: dict[tuple[int, int], list[Value]] = field(
        default_factory=dict[tuple[int, int], list[Value]]
    )
    known: dict[Value, np.ndarray] = field(default_factory=dict[Value, np.ndarray])
    computed: set[Value] = field(default_factory=set[Value])
    number: int = 0

    def name(self) -> str:
        """Return a fresh name."""
        self.number += 1
        return f"v{self.number}"

    def keep(self, value: Value, array: np.ndarray, parts: tuple[int, int] | None) -> None:
        """Note a value, of slices or of the whole."""
        self.known[value] = array
        (self.whole if parts is None else self.slices.setdefault(parts, [])).append(value)

    def compute(self, draw: st.DrawFn, parts: tuple[int, int] | None) -> None:
        """Compute something from what there is, of slices or of the whole."""
        values = self.whole if parts is None else self.slices[parts]
        left, right = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        if draw(st.booleans()):
            value = self.builder.op(self.name(), "sub", left, right)
            self.keep(value, self.known[left] - self.known[right], parts)
        else:
            value = self.builder.op(self.name(), "neg", left)
            self.keep(value, -self.known[left], parts)
        self.computed.add(value)

    def cut(self, draw: st.DrawFn) -> None:
        """Take slices of something."""
        parts = draw(st.sampled_from([(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)]))
        value = draw(st.sampled_from(self.whole))
        given = {"dim": parts[0], "parts": parts[1], "uneven": EXTENTS[parts[0]] % parts[1] != 0}
        part = self.builder.part(self.name(), STREAM_SLICE, value, **given)
        self.keep(part, self.known[value], parts)

    def stack(self, value: Value, parts: tuple[int, int]) -> None:
        """Put slices together."""
        last = self.builder.op(self.name(), "neg", value)
        extent = EXTENTS[parts[0]]
        of = (dim(extent),) if extent % parts[1] else ()
        given = {"dim": parts[0], "parts": parts[1], "of": of}
        self.keep(
            self.builder.part(self.name(), STREAM_STACK, last, **given), -self.known[value], None
        )


@st.composite
def divided(draw: st.DrawFn) -> tuple[Fusion, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return a fusion with loops over streams, its inputs, and what it computes."""
    x = np.arange(6 * 8, dtype=np.float32).reshape(EXTENTS)
    builder = Local("drawn")
    drawn = Drawn(builder, [])
    drawn.keep(builder.input("x", *EXTENTS), x, None)
    drawn.cut(draw)
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["cut", "compute", "compute", "whole", "stack"]))
        if kind == "cut":
            drawn.cut(draw)
        elif kind == "whole":
            drawn.compute(draw, None)
        else:
            parts = draw(st.sampled_from(sorted(drawn.slices)))
            if kind == "compute":
                drawn.compute(draw, parts)
            else:
                drawn.stack(draw(st.sampled_from(drawn.slices[parts])), parts)
    for parts, values in drawn.slices.items():
        for value in values:
            if not any(value in n.inputs for n in builder.nodes):
                drawn.stack(value, parts)
    used = {v for n in builder.nodes for v in n.inputs}
    ends = [v for v in drawn.whole if v not in used]
    return builder.finish(*ends), {"x": x}, {v.name: drawn.known[v] for v in ends}


@drawn(30)
@given(
    divided(),
    st.sets(st.sampled_from(LATER)),
    st.integers(1, 4),
    st.integers(0, 9),
)
def test_drawn_loops_give_what_the_whole_gives(
    drawn: tuple[Fusion, dict[str, np.ndarray], dict[str, np.ndarray]],
    without: set[str],
    streams: int,
    seed: int,
) -> None:
    """Whatever passes ran, in any order that the streams allow; and as JSON."""
    fusion, inputs, expected = drawn
    made = program_of(fusion, without=sorted(without), streams=streams)
    assert not races(made, {})
    assert from_json(json.loads(json.dumps(to_json(made)))) == made
    flat = unroll(made, {})
    check_program(flat)
    assert not any(isinstance(i, For) for i in flat.instructions)
    assert all(i.stream.is_const for i in flat.instructions if isinstance(i, SetStream))
    segments = {s.name: s.fusion for s in segmented(fusion).segments}
    found = interpret(made, segments, inputs, {}, draw=Random(seed))
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("without", [(), LATER])
@pytest.mark.parametrize("draw", [None, 0, 1])
def test_rings_give_what_the_whole_gives(without: Sequence[str], draw: int | None) -> None:
    """On four ranks, each of which runs its program in an order of its own."""
    rng, mesh = np.random.default_rng(0), Mesh((("tp", 4),), (0, 1, 2, 3))
    rows = rng.random((4, 3, 20), np.float32)
    ends = {"gathered": gathered(), "scattered": scattered()}
    programs = {name: program_of(f, without=without, streams=2) for name, f in ends.items()}

    def run(name: str, inputs: dict[str, np.ndarray], rank: int, threads: Threads) -> np.ndarray:
        fusion = ends[name]
        segments = {s.name: s.fusion for s in segmented(fusion).segments}
        member = Member(mesh, rank, threads)
        order = None if draw is None else Random(draw)
        found = interpret(programs[name], segments, inputs, SIZES, member, draw=order)
        return found[fusion.outputs[-1].value.name]

    def gather(rank: int, threads: Threads) -> np.ndarray:
        return run("gathered", {"x": rows[rank], "w": rows[-rank]}, rank, threads)

    whole = np.concatenate([np.exp(rows * rows[-rank]).reshape(12, 20) for rank in range(4)])
    for found in by_ranks(4, gather):
        np.testing.assert_allclose(found, whole, rtol=1e-6)

    parts = rng.random((4, 4, 3, 5), np.float32)

    def scatter(rank: int, threads: Threads) -> np.ndarray:
        return run("scattered", {"x": parts[rank].reshape(12, 5)}, rank, threads)

    for rank, found in enumerate(by_ranks(4, scatter)):
        np.testing.assert_allclose(found, -np.exp(parts[:, rank]).reshape(12, 5), rtol=1e-6)
