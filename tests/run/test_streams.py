"""Programs on several streams of a device that runs them in any order that events allow."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from draws import drawn
from fake_device import FakeDevice, argument, array_at
from hypothesis import given
from hypothesis import strategies as st
from stream_device import StreamDevice
from streamed_programs import INDEX, B, H, buffer
from test_run_execute import CUBINS, double, twice
from test_run_execute import buffer as flat

from fusec.call.memory import Arena
from fusec.call.record import Record
from fusec.call.steps import LaunchStep
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    Copy,
    For,
    Free,
    GetStream,
    Instruction,
    Launch,
    Memset,
    SetStream,
    Synchronize,
    Wait,
)
from fusec.hostir.program import Buffer, HostProgram
from fusec.ir.dim import dim, symbol
from fusec.ir.dtype import F32
from fusec.ir.sharding import Mesh
from fusec.run.arrays import StridedArray, lay_out, span
from fusec.run.device import Device
from fusec.run.distributed.exchange import Member
from fusec.run.execute import Executable, execute
from fusec.run.interpret import interpret
from fusec.run.rows import Rows, rows_of
from fusec.run.streams import Pool
from fusec.run.transports.protocol import Begin
from fusec.schedule.plan import ScalarArgument, SizeArgument, TensorArgument

SIZES = {"B": 8, "H": 4}
X = np.arange(32, dtype=np.float32).reshape(8, 4) + 1
SEEDS = range(12)


def doubled(x: str, y: str, rows: Any = B, *, overlapped: bool = False) -> Launch:
    """Return the launch of a kernel y = 2 x."""
    arguments = (
        TensorArgument(x, F32), TensorArgument(y, F32, True), ScalarArgument("scale", F32),
        SizeArgument("N", rows * H),
    )  # fmt: skip
    one = dim(1)
    return Launch("double", "s0", (one, one, one), (32, 1, 1), arguments, overlapped=overlapped)


def made(*instructions: Instruction, rows: Any = B, names: str = "ab") -> HostProgram:
    """Return a program from x to z."""
    from fusec.hostir.program import Scalar

    buffers = [
        buffer("x", "input", B, H), buffer("z", "output", B, H),
        *(buffer(n, "temporary", rows, H) for n in names),
    ]  # fmt: skip
    whole = HostProgram(
        "made", tuple(buffers), (Scalar("scale", F32, 2.0),),
        (Allocate("z"), *instructions), ("z",),
    )  # fmt: skip
    from fusec.hostir.program import check_program

    check_program(whole)
    return whole


def loop(streams: int = 2, parts: int = 4) -> HostProgram:
    """Return z = 4 x by a loop; what is between lies in memory of one iteration."""
    rows = B // parts
    at = INDEX * (rows * H)
    body = (
        SetStream(INDEX % streams + 1), Synchronize(symbol("outer")),
        Alias("p", "x", at), Alias("q", "z", at), Allocate("t"),
        doubled("p", "t", rows), doubled("t", "q", rows), Free("t"),
        SetStream(symbol("outer")),
    )  # fmt: skip
    joins = For("k", dim(streams), (Synchronize(symbol("k") + 1),))
    start = GetStream("outer")
    return made(start, For("i", dim(parts), body), joins, rows=rows, names="pqt")


def ran(host: HostProgram, device: Any, times: int = 1) -> np.ndarray:
    """Return z."""
    with Executable(device, host, CUBINS).bind({"x": X}, SIZES) as bound:
        for _ in range(times):
            bound.reset()
            bound.run()
        return bound.outputs()["z"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_loop_on_streams_is_right_in_any_order(seed: int) -> None:
    """Again and again, in the memory that the program has bound."""
    device = StreamDevice({"double": double}, seed)
    np.testing.assert_array_equal(ran(loop(), device, 3), 4 * X)
    assert not device.blocks
    streams = {int(config.hStream) for _, config in device.launched}
    assert streams == {1, 2}


def test_the_calls_of_a_loop() -> None:
    """One record of where the caller is; of each stream a wait, and a record that is waited for."""
    device = StreamDevice({"double": double})
    with Executable(device, loop(), CUBINS).bind({"x": X}, SIZES) as bound:
        bound.reset()
        device.asked.clear()
        bound.run()
        found = [name.removeprefix("cu") for name, _ in device.asked]
        bound.outputs()
    wait, launch, record = "StreamWaitEvent", "LaunchKernelEx", "EventRecord"
    assert found == [
        record, wait, launch, launch, wait, launch, launch,
        launch, launch, record, launch, launch, record, wait, wait,
    ]  # fmt: skip


def test_one_event_too_few_is_found_out() -> None:
    """Without the waits some order gives something else: the device does mix."""
    device_of = [StreamDevice({"double": double}, seed) for seed in SEEDS]
    for device in device_of:
        call = device.call

        def deaf(function: str, *given: Any, what: str = "", call: Any = call) -> Any:
            return None if function == "cuStreamWaitEvent" else call(function, *given, what=what)

        device.call = deaf
    found = [ran(loop(), device) for device in device_of]
    assert any(not np.array_equal(z, 4 * X) for z in found)


def test_streams_and_events_are_used_again() -> None:
    """They go back to the device with the program, which destroys them in the end."""
    device = StreamDevice({"double": double})
    ran(loop(), device)
    ran(loop(), device)
    assert device.count("cuStreamCreate") == 2
    assert device.count("cuEventCreate") == 3
    device.pool.close()
    assert len(device.destroyed) == 5


def test_a_stream_that_is_captured_is_left_alone() -> None:
    """Somebody else's capture has it; what is free is taken."""

    class Capturing(StreamDevice):
        def call(self, function: str, *arguments: Any, what: str = "") -> Any:
            if function == "cuStreamIsCapturing":
                return int(arguments[0] == 1)
            return super().call(function, *arguments, what=what)

    pool = Pool(Capturing({}))
    first = pool.streams(2)
    pool.give(first, [])
    assert pool.streams(2) == [2, 3]
    assert pool.streams(1) == [4]


class Logged(FakeDevice):
    """Notes every call, with the number of bytes or the stream."""

    def __init__(self) -> None:
        """Start without calls."""
        super().__init__({"double": double})
        self.log: list[tuple[Any, ...]] = []

    def allocate(self, size: int, what: str) -> int:
        """Note."""
        self.log.append(("allocate", size))
        return super().allocate(size, what)

    def fill(self, *given: Any) -> None:
        """Note."""
        self.log.append(("fill", *given[1:]))
        super().fill(*given)

    def copy(self, *given: Any) -> None:
        """Note."""
        self.log.append(("copy", *given[2:]))
        super().copy(*given)

    def synchronise(self, what: str = "") -> None:
        """Note."""
        self.log.append(("synchronise",))

    def call(self, function: str, *arguments: Any, what: str = "") -> Any:
        """Note."""
        self.log.append((function, arguments[0].hStream))
        return super().call(function, *arguments, what=what)


def test_one_stream_asks_for_what_it_asked_for_before() -> None:
    """The calls as they were noted before programs had streams: no events, no streams."""
    first = twice()
    instructions = (
        *first.instructions[:3], Memset("y"), *first.instructions[3:],
        Copy("y", "y"), Alias("v", "y", dim(0)), Copy("y", "v"),
    )  # fmt: skip
    host = replace(
        first, instructions=instructions, buffers=(*first.buffers, flat("v", "temporary"))
    )
    device = Logged()
    execute(device, host, CUBINS, {"x": np.ones(5, np.float32)}, {"N": 5})
    arena, output = ([("allocate", n), ("fill", 165, n)] for n in (1024 + 512, 1024 + 20))
    launch = ("cuLaunchKernelEx", 0)
    assert device.log == [
        ("allocate", 20), *arena, *output, ("fill", 255, 20), ("fill", 255, 512),
        ("synchronise",),
        launch, ("fill", 0, 20), launch, launch, ("copy", 20), ("copy", 20), ("synchronise",),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_memory_is_used_again_by_streams_that_have_waited(seed: int) -> None:
    """Another stream that has not gets memory of its own."""
    on = (Synchronize(dim(0)), Allocate("b"), doubled("x", "b"), doubled("b", "z"))
    used = (Allocate("a"), doubled("x", "a"), Free("a"))
    waits = made(*used, SetStream(dim(1)), *on)
    apart = made(SetStream(dim(1)), *on[:1], SetStream(dim(0)), *used, SetStream(dim(1)), *on[1:])
    for host, shared in ((waits, 256), (apart, 512)):
        device = StreamDevice({"double": double}, seed)
        with Executable(device, host, CUBINS).bind({"x": X}, SIZES) as bound:
            assert 1024 + shared in device.sizes.values()
            bound.reset()
            bound.run()
            np.testing.assert_array_equal(bound.outputs()["z"], 4 * X)


def test_a_kernel_that_waits_for_a_stream_overlaps_with_nothing() -> None:
    """Its stream's last kernel is not all that it needs; others overlap as the plan says."""
    host = made(
        Allocate("a"), doubled("x", "a", overlapped=True), SetStream(dim(1)), Synchronize(dim(0)),
        doubled("a", "z", overlapped=True),
    )  # fmt: skip
    device = StreamDevice({"double": double})
    np.testing.assert_array_equal(ran(host, device), 4 * X)
    assert [getattr(config, "numAttrs", 0) for _, config in device.launched] == [1, 0]


class Copied:
    """The kernel y = scale * x, which has its arguments from when it is launched, as a GPU has."""

    def copied(self, pointers: int) -> Any:
        """Return what runs it."""
        kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_float, ctypes.c_int)
        x, y, scale, count = (argument(pointers, k, kind) for k, kind in enumerate(kinds))

        def run() -> None:
            array_at(y, count, np.float32)[:] = array_at(x, count, np.float32) * scale

        return run


@pytest.mark.parametrize("seed", SEEDS)
def test_calls_of_a_loop(seed: int) -> None:
    """Calls share memory, streams and events, and come one after the other; each is right."""
    device: Any = StreamDevice({"double": Copied()}, seed)
    executable = Executable(device, loop(), CUBINS)
    arena = Arena(device, 0)
    first, other = (Record(executable, {"B": b, "H": 4}, arena) for b in (8, 16))
    results: list[tuple[np.ndarray, np.ndarray]] = []
    for number, record in enumerate((first, other, first, first)):
        count = 32 if record is first else 64
        x = np.arange(count, dtype=np.float32) + number
        addresses = [device.allocate(4 * count, "x"), device.allocate(4 * count, "z")]
        array_at(addresses[0], count, np.float32)[:] = x
        record.issue(addresses, {"scale": 2.0})
        results.append((x, array_at(addresses[1], count, np.float32)))
    assert any(device.queues.values())
    device.synchronise()
    for x, z in results:
        np.testing.assert_array_equal(z, 4 * x)
    assert device.count("cuStreamCreate") == 2
    assert device.count("cuEventCreate") == 3
    assert not first.is_chain
    assert first.is_helped
    streams = arena.shared_streams.streams(2)
    arena.close()
    assert device.pool.streams(2) == streams


def test_calls_of_one_stream_ask_for_launches_alone() -> None:
    """Nothing of streams and events, whose programs they do not have."""
    device: Any = StreamDevice({"double": Copied()})
    host = made(Allocate("a"), doubled("x", "a", overlapped=True), doubled("a", "z"))
    arena = Arena(device, 0)
    record = Record(Executable(device, host, CUBINS), SIZES, arena)
    device.asked.clear()
    record.issue([device.allocate(128, "x"), device.allocate(128, "z")], {})
    assert [name for name, _ in device.asked] == ["cuLaunchKernelEx"] * 2
    assert record.is_chain
    assert record.is_helped
    assert [type(s) for s in record.steps] == [LaunchStep] * 2


def test_calls_hand_exchanges_addresses_and_streams() -> None:
    """Those of the call; a rank's place stands in offsets."""
    own = symbol("tp.place", extent=False)
    host = made(
        Allocate("a"), SetStream(dim(1)), Synchronize(dim(0)), Alias("b", "a", own * (B * H)),
        Collective("all_reduce", "b", "x", "tp", 2, "sum"), SetStream(dim(0)), Wait("b"),
        doubled("b", "z"), rows=B,
    )  # fmt: skip
    host = replace(host, buffers=tuple(
        replace(b, shape=(B * 2, H)) if b.name == "a" else b for b in host.buffers
    ))  # fmt: skip
    carrier = Carrier()
    member = Member(Mesh((("tp", 2),), (0, 1)), 1, carrier)
    device: Any = StreamDevice({"double": Copied()})
    arena = Arena(device, 0)
    record = Record(Executable(device, host, CUBINS, member), SIZES, arena)
    assert not record.is_chain
    x, z = device.allocate(128, "x"), device.allocate(128, "z")
    record.issue([x, z], {})
    (prepared, _), (_, begun), waited = carrier.asked
    assert prepared == "prepare"
    assert begun.source.address == x
    assert begun.target.address == arena.scratch.address + 128
    assert (begun.target.stream, begun.target.elements) == (1, 32)
    assert waited == ("wait", "b", 0)


@dataclass
class Noted:
    """An operation that notes itself, with the addresses of the call."""

    asked: list[Any]
    what: Any

    def issue(self, device: Any, addresses: Any) -> None:
        """Note."""
        kind, given, *rest = self.what
        if kind == "begin":
            target, source = (
                m and replace(m, address=m.place.address(addresses), moves_with=None)
                for m in (given.target, given.source)
            )
            given = replace(given, target=target, source=source)
        self.asked.append((kind, given, *rest))


class Carrier:
    """A transport that notes what it is given."""

    def __init__(self) -> None:
        """Start empty."""
        self.asked: list[Any] = []

    def prepare(self, exchanges: Any) -> None:
        """Note."""
        self.asked.append(("prepare", list(exchanges)))

    failure_address = 0

    def begin(self, *given: Any) -> None:
        """Leave it to operations."""
        raise NotImplementedError

    wait = view = begin

    def begin_operations(self, begin: Begin) -> list[Any]:
        """Return what notes the addresses when it is issued."""
        return [Noted(self.asked, ("begin", begin))]

    def wait_operations(self, buffer: str, stream: int) -> list[Any]:
        """Return what notes the wait when it is issued."""
        return [Noted(self.asked, ("wait", buffer, stream))]

    def check(self) -> None:
        """Do nothing."""

    def until(self, done: Any, doing: str) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def test_exchanges_are_given_addresses_and_streams() -> None:
    """Each as it was prepared; a second wait in a loop has a name of its own."""
    body = (Collective("all_reduce", "z", "x", "tp", 2, "sum"), SetStream(dim(1)), Wait("z"))
    host = made(For("i", dim(2), (*body, SetStream(dim(0)))))
    carrier = Carrier()
    member = Member(Mesh((("dp", 2), ("tp", 2)), (4, 5, 6, 7)), 7, carrier)
    device = StreamDevice({})
    with Executable(device, host, {}, member).bind({"x": X}, SIZES) as bound:
        bound.run()
        x, z = bound.address["x"], bound.address["z"]
    (_, prepared), *asked = carrier.asked
    assert [a[1] for a in asked if a[0] == "begin"] == prepared
    assert [a for a in asked if a[0] == "wait"] == [("wait", "z", 1), ("wait", "z#1", 1)]
    first = prepared[0]
    assert (first.group, first.place, first.exchange.target) == ((6, 7), 1, "z")
    assert (first.target.address, first.source.address) == (z, x)
    assert (first.target.elements, first.target.dtype, first.target.stream) == (32, F32, 0)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=4), st.data())
@drawn(30)
def test_copies_between_layouts(dims: list[tuple[int, int]], data: st.DataObject) -> None:
    """Any two layouts of a shape, each with gaps of its own; in the interpreter and on a device."""
    shape = tuple(extent for extent, _ in dims)

    def laid(name: str, role: str) -> Buffer:
        order = data.draw(st.permutations(range(len(shape))))
        steps, step = [0] * len(shape), 1
        for axis in order:
            steps[axis] = step
            step *= shape[axis] + data.draw(st.integers(0, 2))
        return Buffer(name, role, F32, tuple(map(dim, shape)), tuple(map(dim, steps)))

    host = HostProgram("copy", (laid("x", "input"), laid("z", "output")), (),
                       (Allocate("z"), Copy("z", "x")), ("z",))  # fmt: skip
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(interpret(host, {}, {"x": x}, {})["z"], x)
    z = execute(StreamDevice({}), host, {}, {"x": x}, {})["z"]
    np.testing.assert_array_equal(z, x)
    device: Any = StreamDevice({})
    record = Record(Executable(device, host, {}), {}, Arena(device, 0))
    held = lay_out(x, [d.value for d in host.buffers[0].strides]).storage
    reach = span(shape, [d.value for d in host.buffers[1].strides])
    places = [device.allocate(4 * max(held.size, reach), n) for n in "xz"]
    array_at(places[0], held.size, np.float32)[:] = held
    record.issue(places, {})
    device.synchronise()
    flat = array_at(places[1], reach, np.float32)
    found = StridedArray(flat, shape, tuple(d.value for d in host.buffers[1].strides)).array
    np.testing.assert_array_equal(found, x)


def test_rows_are_copied_as_the_driver_takes_them() -> None:
    """A part of a dim is one copy of rows; what is dense is one of bytes."""
    dense = Buffer("a", "input", F32, (dim(6), dim(2)), (dim(2), dim(1)))
    part = replace(dense, strides=(dim(8), dim(1)))
    assert rows_of(dense, dense, {}) == (Rows(0, 0, 48),)
    assert rows_of(dense, part, {}) == (Rows(0, 0, 8, 6, 8, 32),)
    repeated = replace(dense, strides=(dim(0), dim(1)))
    assert rows_of(dense, repeated, {}) == tuple(Rows(8 * k, 0, 8) for k in range(6))
    assert rows_of(*(replace(dense, shape=(dim(0), dim(2))),) * 2, {}) == ()
    driver = pytest.importorskip("cuda.bindings.driver")
    asked: list[Any] = []
    device: Any = SimpleNamespace(driver=driver, stream=5, call=lambda *a: asked.append(a))
    Device.copy_rows(device, 4096, 8192, Rows(16, 32, 8, 6, 8, 32))
    ((name, given, stream),) = asked
    assert (name, stream) == ("cuMemcpy2DAsync", 5)
    assert (int(given.dstDevice), int(given.srcDevice)) == (4112, 8224)
    assert (given.dstPitch, given.srcPitch, given.WidthInBytes, given.Height) == (8, 32, 8, 6)
    assert given.dstMemoryType == given.srcMemoryType == driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
