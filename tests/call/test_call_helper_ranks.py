"""Calls among ranks by the C launch helper: it issues what Python issues, in the same order."""

from __future__ import annotations

import ctypes
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from called import GpuArray, on_gpu
from fake_gpus import FakeGpus
from fake_nccl import FakeNccl
from streamed_programs import buffer
from test_barriers import gathering
from test_call_helper import Quick, compiled, helped, library  # noqa: F401
from test_gpu_ranks import MESH, RANKS, B, H, gathered, ring
from test_gpu_transports import in_threads

from fusec import FusecError
from fusec.call import fast, helper
from fusec.call.fast import helper_steps
from fusec.call.memory import Arena
from fusec.call.record import Record
from fusec.hostir.instructions import Allocate, Collective, SetStream, Synchronize, Wait
from fusec.hostir.program import HostProgram
from fusec.ir.dim import dim
from fusec.ir.sharding import Mesh
from fusec.run.distributed.exchange import Member
from fusec.run.distributed.links import Links, RankFailure
from fusec.run.execute import Executable
from fusec.run.operations import NcclCall
from fusec.run.transports import peers
from fusec.run.transports.choice import GpuTransport
from fusec.run.transports.protocol import Begin

RECORD, WAIT, BATCH, FLAG, REDUCE, GATHER, SEND, START, COPY = range(1, 10)
SCATTER, RECV, BROADCAST, END, LAUNCH = range(10, 15)
NCCL = {
    "all_reduce": REDUCE, "all_gather": GATHER, "send": SEND, "recv": RECV,
    "reduce_scatter": SCATTER, "broadcast": BROADCAST, "group_start": START, "group_end": END,
}  # fmt: skip


class Note(ctypes.Structure):
    """What the stand-in for the driver was asked for."""

    _fields_ = (("kind", ctypes.c_int), ("count", ctypes.c_int), ("given", ctypes.c_uint64 * 16))


def taken(driver: Any) -> list[tuple[int, ...]]:
    """Return what was asked for since the last time, each with its kind first."""
    notes = (Note * 256)()
    count = driver.take_notes(notes)
    return [(n.kind, *n.given[: n.count]) for n in notes[:count]]


LARGEST = """
fusion: largest
mesh: [2]
dims: {B: 4, H: 64}
inputs:
  x: f32[B, H]
  p: {type: "f32[2, H]", shard: {0: mesh}}
  scale: f32 = 1.0
ops:
  - m = max(p, dims=[0])
  - y = add(mul(x, m), scale)
outputs: [y, m]
"""


class Watched:
    """A GPU of tests that notes what Python issues as the stand-in for the driver notes it."""

    def __init__(self, device: Any) -> None:
        self._device, self.notes = device, list[tuple[int, ...]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def call(self, function: str, *given: Any, what: str = "") -> Any:
        match function:
            case "cuEventRecord":
                self.notes.append((RECORD, *map(int, given)))
            case "cuStreamWaitEvent":
                self.notes.append((WAIT, *map(int, given)))
            case "cuLaunchKernelEx":
                config, number, packed, _ = given
                ends = ctypes.cast(packed, ctypes.POINTER(ctypes.POINTER(ctypes.c_uint64)))
                shape = config.gridDimX, config.blockDimX, config.hStream
                self.notes.append((LAUNCH, number, *shape, ends[0][0], ends[1][0]))
            case "cuMemcpyDtoDAsync":
                self.notes.append((COPY, *given))
            case "cuStreamBatchMemOp":
                stream, count, operations, flags = given
                self.notes.append((BATCH, stream, count, flags))
                own = [o.waitValue for o in operations]
                self.notes += [(FLAG, o.operation, o.address, o.value, o.flags) for o in own]
            case _:
                pass
        return self._device.call(function, *given, what=what)


def collective(
    kind: str, reduction: str = "", *, beside: bool = False, to: tuple[int, ...] = ()
) -> HostProgram:
    """Return z = an exchange of x; beside: on a stream of its own, which is joined."""
    rows = {"all_gather": B * RANKS, "reduce_scatter": B // RANKS}.get(kind, B)
    buffers = (buffer("x", "input", B, H), buffer("z", "output", rows, H))
    root = dim(1) if kind == "broadcast" else None
    begun = Collective(kind, "z", "x", "mesh", RANKS, reduction, root, to)
    first = [SetStream(dim(1)), Synchronize(dim(0))] if beside else []
    last = [SetStream(dim(0)), Synchronize(dim(1))] if beside else []
    body = (Allocate("z"), *first, begun, *last, Wait("z"))
    return HostProgram("program", buffers, (), body, ("z",))


PROGRAMS: dict[str, tuple[HostProgram, bool]] = {
    "ring": (ring(2), True), "gathered": (gathered(), True),
    "read where it lies": (gathering(RANKS, "mesh"), True),
    "all_reduce": (collective("all_reduce", "min"), True),
    "pushed sum": (collective("all_reduce", "sum"), True),
    "sum by NCCL": (collective("all_reduce", "sum"), False),
    "all_reduce beside": (collective("all_reduce", "max", beside=True), True),
    "gathered by NCCL": (gathered(), False), "ring by NCCL": (ring(1), False),
    "broadcast by NCCL": (collective("broadcast"), False),
    "sent by NCCL": (collective("broadcast", to=(0,)), False),
    "sent": (collective("broadcast", to=(0,)), True),
    "all_to_all by NCCL": (collective("all_to_all"), False),
}  # fmt: skip


@pytest.fixture
def module(tmp_path: Path, library: Path, compiled: Path) -> tuple[Any, Any]:  # noqa: F811
    """Return the helper and the stand-in for the driver, as a library of this test's own."""
    own = Path(shutil.copy(library, tmp_path))
    made = helper.load(Path(shutil.copy(compiled, tmp_path)))
    made.open_driver(str(own))
    driver = ctypes.CDLL(str(own))
    driver.set_notes_copies(1)
    return made, driver


@pytest.fixture
def nccl(monkeypatch: pytest.MonkeyPatch, module: tuple[Any, Any]) -> Callable[[Any, Any], None]:
    """Return what gives a rank the stand-in for NCCL, whose calls it notes."""
    local, lock, made = threading.local(), threading.Lock(), dict[Any, FakeNccl]()
    _, driver = module

    def pointer(name: str) -> int:
        return ctypes.cast(getattr(driver, name.lstrip("_")), ctypes.c_void_p).value or 0

    def find(name: str) -> Any:
        if name == "nccl.bindings._internal.nccl":
            return SimpleNamespace(_inspect_function_pointer=pointer)
        return local.module(name)

    def start(gpus: FakeGpus, watched: Watched) -> None:
        with lock:
            own = made.setdefault(gpus, FakeNccl(gpus))

        def noted(name: str) -> Any:
            function = getattr(own.raw, name)

            def call(*given: Any) -> None:
                watched.notes.append((NCCL[name], *map(int, given)))
                function(*given)

            return call

        raw = SimpleNamespace(**{**vars(own.raw), **{name: noted(name) for name in NCCL}})
        local.module = {"nccl.core": own.core, "nccl.bindings.nccl": raw}.get

    monkeypatch.setattr("fusec.run.transports.nccl._module", find)
    return start


def compare(name: str, module: tuple[Any, Any], nccl: Callable[[Any, Any], None]) -> None:
    """Assert that both executors issue the same for each rank's record and the same addresses."""
    program, reaches = PROGRAMS[name]
    made, driver = module
    gpus, lock = FakeGpus(RANKS), threading.Lock()
    quick = Quick()

    def work(links: Links) -> list[list[tuple[int, ...]]]:
        device: Any = Watched(gpus.devices[links.rank])
        nccl(gpus, device)
        transport = GpuTransport(links, device)
        if not reaches:
            transport._shared.access = [{rank} for rank in range(RANKS)]
        executable = Executable(device, program, {}, Member(MESH, links.rank, transport))
        record = Record(executable, {}, Arena(device, device.stream))
        own = [device.allocate(B * H * 4 * RANKS, b.name) for b in record.memory.inputs]
        fresh = [device.allocate(B * H * 4 * RANKS, "z") for _ in record.memory.fresh]
        device.notes.clear()
        record.issue([*own, *fresh], {})
        by_python = list(device.notes)
        assert record.is_helped
        zero = ctypes.c_uint64(0)
        call = made.Call(
            owner=record.steps, failed=None, types=(), exchange=quick.exchange, context=1, stream=7,
            device=0, any_stream=False, checks_capture=False, failure=0,
            generation=ctypes.addressof(zero), busy=ctypes.addressof(zero), arguments=(),
            numbers=(),
            patches=tuple((s, ctypes.addressof(v), offset) for s, v, offset in record.patches),
            steps=helper_steps(record), fresh=(), results=(), addresses=tuple(record.addresses),
            graph=0,
        )  # fmt: skip
        with lock:  # ranks are threads, of which one at a time is noted
            taken(driver)
            assert call() == ()
            by_helper = taken(driver)
        links.until(device.is_done, "the end")
        links.gather(None, "all have done")
        return [by_python, by_helper]

    for by_python, by_helper in in_threads(RANKS, work):
        assert by_helper == by_python
        assert len(by_python) > 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_helper_issues_what_python_issues(
    name: str, module: tuple[Any, Any], nccl: Callable[[Any, Any], None]
) -> None:
    compare(name, module, nccl)


EDITS = {
    "waits that write": ("ring", "waits ? WAIT_VALUE_32 : WRITE_VALUE_32", "WRITE_VALUE_32"),
    "events that are not recorded": (
        "ring", "return driver.record(step->event, step->stream)", "return 0",
    ),
    "copies on the caller's stream": (
        "ring", "driver.copy(first, second, step->size, step->stream)",
        "driver.copy(first, second, step->size, self->stream)",
    ),
    "places without their offset": (
        "gathered", "+ (uint64_t)step->offsets[which]", "+ 0 * (uint64_t)which",
    ),
    "a sum of another kind": (
        "all_reduce beside", "(first, second, count, type, last, communicator, stream)",
        "(first, second, count, type, last + 1, communicator, stream)",
    ),
    "a group that does not end": (
        "ring by NCCL", "if (step->buffers == 0)\n        return ((NcclGroup)step->function)();",
        "if (step->buffers == 0)\n        return 0;",
    ),
    "arguments of the last call": (
        "pushed sum", "*self->patch[k].word = self->address[self->patch[k].slot]",
        "*self->patch[k].word = 1 + self->address[self->patch[k].slot]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_the_comparison_finds_a_helper_that_does_something_else(
    edit: str,
    library: Path,  # noqa: F811
    nccl: Callable[[Any, Any], None],
    module: tuple[Any, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, before, after = EDITS[edit]
    text, source = helper.SOURCE.read_text(encoding="utf-8"), tmp_path / "helper.c"
    assert text.count(before) == 1
    source.write_text(text.replace(before, after), encoding="utf-8")
    monkeypatch.setattr(helper, "SOURCE", source)
    _, driver = module
    edited = helper.load(helper.built(tmp_path / "edited"))
    edited.open_driver(driver._name)
    with pytest.raises(AssertionError):
        compare(name, (edited, driver), nccl)


def test_one_that_waits_at_once_needs_no_stream_beside_its_own(
    monkeypatch: pytest.MonkeyPatch, nccl: Callable[[Any, Any], None]
) -> None:
    """No event is recorded; a gather of more bytes has streams for each rank."""
    seen: dict[str, list[int]] = {}
    for name, most in (("few", 1 << 20), ("many", 0)):
        monkeypatch.setattr(peers, "INLINE_BYTES", most)
        for kind in ("all_reduce", "all_gather"):
            gpus = FakeGpus(RANKS)

            def work(links: Links, gpus: FakeGpus = gpus, kind: str = kind) -> list[int]:
                device: Any = Watched(gpus.devices[links.rank])
                nccl(gpus, device)
                member = Member(MESH, links.rank, GpuTransport(links, device))
                reduction = "max" if kind == "all_reduce" else ""
                executable = Executable(device, collective(kind, reduction), {}, member)
                record = Record(executable, {}, Arena(device, device.stream))
                x, z = (device.allocate(B * H * 4 * RANKS, n) for n in "xz")
                record.issue([x, z], {})
                links.until(device.is_done, "the end")
                links.gather(None, "all have done")
                return [kind for kind, *_ in device.notes]

            seen[f"{name} {kind}"] = in_threads(RANKS, work)[0]
    assert seen["few all_reduce"] == seen["many all_reduce"] == [REDUCE]
    assert RECORD not in seen["few all_gather"]
    assert RECORD in seen["many all_gather"]


class Library:
    """NCCL for operations: noted, by Python or by the stand-in for the driver."""

    def __init__(self, driver: Any) -> None:
        self.driver, self.notes = driver, list[tuple[int, ...]]()

    def call(self, function: str, arguments: Any, doing: str) -> None:
        """Note a call from Python."""
        self.notes.append((NCCL[function], *map(int, arguments)))

    def fail(self, status: int, doing: str) -> None:
        """Name a status."""
        raise FusecError(f"NCCL: {status} in {doing}")

    def pointer(self, function: str) -> int:
        """Return a function of the stand-in."""
        assert function == "all_reduce"
        return ctypes.cast(self.driver.ncclAllReduce, ctypes.c_void_p).value or 0


class Reduces:
    """A transport of one process, whose sums over ranks are noted."""

    def __init__(self, driver: Any) -> None:
        self.library, self.failure = Library(driver), ctypes.c_int(0)
        self.failure_address = ctypes.addressof(self.failure)
        self.prepared = 0

    def prepare(self, exchanges: Any) -> None:
        """Count."""
        self.prepared += 1

    def begin_operations(self, begin: Begin) -> list[Any]:
        """Return one call, on the exchange's own stream."""
        assert begin.waits_immediately
        ends = begin.source.place, begin.target.place
        numbers = begin.target.elements, 7, 0
        stream = begin.target.stream
        return [NcclCall(self.library, "all_reduce", ends, numbers, 5, 5, stream, "a sum")]

    def wait_operations(self, buffer: str, stream: int) -> list[Any]:
        """Return nothing."""
        return []

    def check(self) -> None:
        """Raise what a rank's end raises."""
        if self.failure.value:
            raise RankFailure("rank 1 died")

    def begin(self, *given: Any) -> Any:
        """Be no transport of the host."""
        raise NotImplementedError

    wait = view = until = close = begin


def arrays() -> list[Any]:
    """Return what a rank passes."""
    draw = np.random.default_rng(0)
    return [on_gpu(draw.standard_normal(shape, np.float32)) for shape in ((4, 64), (1, 64))]


Reduced = tuple[Any, Any, Reduces, Any]


@pytest.fixture
def reduced(helped: Any, monkeypatch: pytest.MonkeyPatch) -> Reduced:  # noqa: F811
    """Return a program of two ranks, the device, the transport and the driver."""
    compile, device, _, driver = helped
    driver.set_notes_copies(0)
    transport = Reduces(driver)
    mesh = Mesh((("mesh", 2),), (0, 1))
    member = Member(mesh, 0, transport)
    monkeypatch.setattr("fusec.run.distributed.process.member_of", lambda *_: member)
    return compile(LARGEST), device, transport, driver


def test_a_call_among_ranks_is_the_helpers(reduced: Reduced) -> None:
    """From the second on: kernels and NCCL's maximum, with the addresses of that call."""
    program, device, transport, driver = reduced
    for number in range(3):
        x, p = arrays()
        _, m = program(x, p, 1.0)
        sent = (REDUCE, p.array.ctypes.data, m.array.ctypes.data, 64, 7, 0, 5, 7)
        by_python, by_helper = transport.library.notes, taken(driver)
        assert (by_helper if number else by_python) == [sent]
        assert len(by_python) == 1
    assert device.asked.count("helper") == 2 * device.asked.count("cuLaunchKernelEx") > 0
    assert transport.prepared == 1


def test_a_call_among_ranks_does_without_the_helper(
    reduced: Reduced, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Python, which has decided as much beforehand."""
    monkeypatch.setattr(fast, "helper", lambda: None)
    monkeypatch.setattr(fast, "_form", lambda tensor: (tensor.array.shape, tensor.array.dtype))
    monkeypatch.setattr(GpuArray, "data_ptr", lambda a: a.array.ctypes.data, raising=False)
    monkeypatch.setattr(Quick, "is_capturing", lambda self: False, raising=False)
    program, device, transport, driver = reduced
    for number in range(3):
        x, p = arrays()
        _, m = program(x, p, 1.0)
        sent = (REDUCE, p.array.ctypes.data, m.array.ctypes.data, 64, 7, 0, 5, 7)
        assert transport.library.notes[number:] == [sent]
    assert type(program._fast).__name__ == "_InPython"
    assert transport.prepared == 1
    assert (device.asked.count("helper"), taken(driver)) == (0, [])


def test_a_captured_call_among_ranks_has_a_record_of_its_own(reduced: Reduced) -> None:
    program, device, transport, driver = reduced
    own = arrays()
    for _ in range(2):
        program(*own, 1.0)
    taken(driver)
    before = device.asked.count("helper")
    driver.set_capturing(1)
    device.capturing = True
    program(*own, 1.0)
    assert (transport.prepared, device.asked.count("helper")) == (2, before)
    assert taken(driver) == []


def test_a_call_of_the_helper_notices_a_rank_that_has_failed(reduced: Reduced) -> None:
    program, device, transport, driver = reduced
    own = arrays()
    for _ in range(2):
        program(*own, 1.0)
    taken(driver)
    before = device.asked.count("helper")
    transport.failure.value = 1
    with pytest.raises(RankFailure, match="rank 1 died"):
        program(*own, 1.0)
    assert (taken(driver), device.asked.count("helper")) == ([], before)


def test_what_nccl_refuses_names_the_exchange(reduced: Reduced) -> None:
    program, _, _, driver = reduced
    own = arrays()
    program(*own, 1.0)
    driver.set_refused_calls(3)
    with pytest.raises(FusecError, match="NCCL: 3 in a sum"):
        program(*own, 1.0)
