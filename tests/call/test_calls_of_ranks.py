"""Programs of divided fusions that are called: each rank passes its parts, and gets its parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import fake_barrier
import numpy as np
import pytest
import rank_processes
from called import CallDevice, GpuArray, framework, on_gpu
from fake_device import array_at
from fake_gpus import FakeGpu, FakeGpus
from paths import ROOT
from peer_links import quick_barriers  # noqa: F401
from test_barriers import gathering
from test_gpu_ranks import MESH, RANKS, RIGHT, B, H, gathered, ring
from test_gpu_transports import in_threads
from test_multidevice_names import run_ranks

import fusec
from benchmarks import programs_ranks as measured
from fusec import FusecError, api, driver
from fusec.call import placing
from fusec.call import program as calls
from fusec.call import record as records
from fusec.call.graph import Graph
from fusec.call.memory import Arena
from fusec.call.placing import shared_inputs
from fusec.call.program import Program
from fusec.call.record import Record
from fusec.call.steps import LaunchStep
from fusec.diagnostics import EnvironmentProblem
from fusec.driver import Compilation
from fusec.hostir.instructions import Share, writes
from fusec.hostir.program import HostProgram
from fusec.hostir.steps import steps_of
from fusec.ir.sharding import Mesh
from fusec.options import CompileOptions
from fusec.parse.reader import read_text
from fusec.run.device import Device
from fusec.run.distributed import process
from fusec.run.distributed.exchange import Member
from fusec.run.distributed.links import Links, RankFailure
from fusec.run.execute import Executable
from fusec.run.operations import CopyMemory, Place
from fusec.run.transports.choice import GpuTransport
from fusec.run.transports.host import HostTransport
from fusec.run.transports.protocol import Begin, DeviceMemory
from fusec.run.transports.streams import SideStream
from fusec.shard.partition import partitioned
from fusec.shard.place import local_part, whole_sizes

SUMS = """
fusion: sums
mesh: [2]
dims: {B: 8, H: 64}
inputs:
  x: {type: "f32[B, H]", shard: {0: mesh}}
  w: {type: "f32[H]", shard: {0: mesh}}
  p: {type: "f32[2, H]", shard: {0: mesh}}
  scale: f32 = 1.0
ops:
  - s = sum(p, dims=[0])
  - y = add(mul(x, w), mul(s, scale))
outputs:
  - y: {shard: {}}
  - s
"""
STREAMED = """
fusion: streamed
dims: {B: 4, H: 64}
inputs:
  x: {type: "f32[B, H]", stream: {0: 2}}
  w: f32[H]
ops:
  - y = mul(x, w)
outputs: [y]
"""


# Exchanges by copy engines, in any order that streams allow.


def issued(program: HostProgram, seed: int, calls: int = 3) -> list[list[np.ndarray]]:
    """Return what each rank has in z after calls one behind the other, each of other arrays."""
    gpus = FakeGpus(RANKS, Random(seed))

    def work(links: Links) -> list[np.ndarray]:
        device: Any = gpus.devices[links.rank]
        first = GpuTransport(links, device)
        made = list[Record]()
        for name in ("one", "other"):
            member = Member(MESH, links.rank, first.another(name))
            executable = Executable(device, program, {}).among(member)
            made.append(Record(executable, {}, Arena(device, device.stream)))
        found = list[int]()
        for call in range(calls):
            x, z = device.allocate(B * H * 4, "x"), device.allocate(B * H * 4 * RANKS, "z")
            device.upload(x, np.full((B, H), links.rank + 1 + call, np.float32))
            made[call % 2].issue([x, z], {})
            found.append(z)
        first._links.until(device.is_done, "the end of the calls")
        links.gather(None, "all have done")
        size = B * H * 4 * RANKS
        return [device.download(z, size).view(np.float32).reshape(-1, H) for z in found]

    return in_threads(RANKS, work)


def check(program: HostProgram, seeds: int) -> None:
    for seed in range(seeds):
        for found in issued(program, seed):
            for call, z in enumerate(found):
                np.testing.assert_array_equal(z, RIGHT + call)


@pytest.mark.parametrize("streams", [0, 1, 2])
def test_calls_follow_each_other_with_other_arrays(streams: int) -> None:
    """Two programs of a stream receive in the same memory; sources lie elsewhere each time."""
    check(ring(streams) if streams else gathered(), 3)


def test_calls_read_what_others_have_where_it_lies() -> None:
    """In memory that stays where it is, whatever the callers pass."""
    check(gathering(RANKS, "mesh"), 4)


def replayed(
    program: HostProgram, seed: int, replays: int = 3, mapping: Sequence[int] = ()
) -> list[list[np.ndarray]]:
    """Return what each rank has in z after each replay of one graph, with other values in x.

    mapping: the ranks that let others read x where it lies, if the program shares a copy of it.
    """
    gpus = FakeGpus(RANKS, Random(seed))

    def work(links: Links) -> list[np.ndarray]:
        device: Any = gpus.devices[links.rank]
        transport = GpuTransport(links, device)
        executable = Executable(device, program, {})
        executable = executable.among(Member(MESH, links.rank, transport))
        x, z = device.allocate(B * H * 4, "x"), device.allocate(B * H * 4 * RANKS, "z")
        mapped = {"x": x} if links.rank in mapping else {}
        arena = Arena(device, device.stream)
        record = Record(executable, {}, arena, captured=True, mapped=mapped)
        copied = [s for s in record.steps if isinstance(s, CopyMemory) and s.source == Place(0)]
        assert len(copied) == (not mapped) or not shared_copies(program)
        device.call("cuStreamBeginCapture", device.stream, 2)
        record.issue([x, z], {})
        graph = device.call("cuStreamEndCapture", device.stream)
        found = list[np.ndarray]()
        for replay in range(replays):
            device.upload(x, np.full((B, H), links.rank + 1 + replay, np.float32))
            device.call("cuGraphLaunch", graph, device.stream)
            links.until(device.is_done, "the end of a replay")
            found.append(device.download(z, B * H * 4 * RANKS).view(np.float32).reshape(-1, H))
        links.gather(None, "all have done")
        return found

    return in_threads(RANKS, work)


@pytest.mark.parametrize(
    "program", [ring(1), ring(2), gathered(), gathering(RANKS, "mesh")],
    ids=["ring", "ring on two streams", "gathered", "read"],
)  # fmt: skip
def test_a_graph_of_exchanges_is_replayed(program: HostProgram) -> None:
    for seed in range(3):
        for found in replayed(program, seed):
            for replay, z in enumerate(found):
                np.testing.assert_array_equal(z, RIGHT + replay)


def shared_copies(program: HostProgram) -> list[Share]:
    """Return what is shared as a copy of an input."""
    return [i for i in program.instructions if isinstance(i, Share) and i.copy_of]


def of_copies() -> HostProgram:
    """Return z = x of all ranks, which says that what they share is a copy of x."""
    program = gathering(RANKS, "mesh")
    body = (replace(i, copy_of="x") if isinstance(i, Share) else i for i in program.instructions)
    return replace(program, instructions=tuple(body))


@pytest.mark.parametrize("mapping", [range(RANKS), [0]], ids=["all ranks", "one rank"])
def test_static_inputs_are_read_where_they_lie(mapping: Sequence[int]) -> None:
    """Without a copy, by ranks that share their own so or not; others' values come later."""
    for seed in range(3):
        for found in replayed(of_copies(), seed, mapping=mapping):
            for replay, z in enumerate(found):
                np.testing.assert_array_equal(z, RIGHT + replay)


def test_the_stand_in_finds_static_inputs_that_others_still_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only after the barrier that follows the last read may a caller write new values."""
    monkeypatch.setattr(fake_barrier, "WAITS", False)

    def in_all_orders() -> None:
        for seed in range(6):
            for found in replayed(of_copies(), seed, mapping=range(RANKS)):
                for replay, z in enumerate(found):
                    np.testing.assert_array_equal(z, RIGHT + replay)

    with pytest.raises(AssertionError):
        in_all_orders()


@pytest.mark.usefixtures("quick_barriers")
def test_a_norm_of_static_inputs_has_no_kernel_for_its_copy() -> None:
    """One kernel between two barriers, that reads the argument of each rank."""
    compilation = Compilation(read_text(measured.norm(RANKS, 8)), CompileOptions())
    program, sizes = compilation.host, compilation.segmented.fusion.hints
    gpus = FakeGpus(RANKS)

    def work(links: Links) -> list[list[str]]:
        device: Any = gpus.devices[links.rank]
        first, found = GpuTransport(links, device), list[list[str]]()
        x = device.allocate(8 * measured.HIDDEN * 2, "x")
        for name, mapped in (("copies", {}), ("static", {"x": x})):
            member = Member(MESH, links.rank, first.another(name))
            cubins = {launch.kernel: b"" for launch in program.launches}
            executable = Executable(device, program, cubins, member)
            arena = Arena(device, device.stream)
            record = Record(executable, sizes, arena, captured=True, mapped=mapped)
            found.append([s.name for s in record.steps if isinstance(s, LaunchStep)])
        assert record._viewed[links.rank] == x
        links.gather(None, "all have done")
        return found

    for copies, static in in_threads(RANKS, work):
        assert copies == ["norm_s0_pointwise", *static]
        assert static == ["barrier", "norm_s2_inner_persistent", "barrier"]


def test_a_copy_that_makes_more_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is no copy of an argument that may be mapped."""
    steps = steps_of(of_copies(), {}).steps
    assert shared_inputs(steps, {"x"}) == {"s": "x"}
    assert shared_inputs(steps, {"y"}) == {}
    assert shared_inputs(steps_of(gathering(RANKS, "mesh"), {}).steps, {"x"}) == {}
    monkeypatch.setattr(placing, "writes", lambda i: writes(i) | {"other"})
    assert shared_inputs(steps, {"x"}) == {}


def test_the_stand_in_finds_a_stream_that_a_capture_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SideStream, "release", lambda self, stream, key: [])
    with pytest.raises(AssertionError, match="a stream that is not joined"):
        replayed(ring(1), 0, 1)


# Captures of a framework: they begin before anything of the program is prepared.


def captured(device: Any, program: HostProgram, member: Member, x: int, z: int) -> Any:
    """Return a graph of a call, captured as PyTorch does, on one stream each time."""
    stream = 1 + device.stream
    device.call("cuStreamBeginCapture", stream, 0)
    arena = Arena(device, stream, capture=device.capture_number(stream))
    with device.relaxed_capture():
        executable = Executable(device, program, {}).among(member)
        record = Record(executable, {}, arena, captured=True)
    record.issue([x, z], {})
    return device.call("cuStreamEndCapture", stream)


def replayed_together(program: HostProgram, seed: int, replays: int = 2) -> list[Any]:
    """Return what each rank has in z of two graphs whose replays run on streams of their own."""
    gpus = FakeGpus(RANKS, Random(seed))
    for device in gpus.devices:
        device.stream = device.new_stream()
        device.new_stream()

    def work(links: Links) -> list[np.ndarray]:
        device: Any = gpus.devices[links.rank]
        first, size = GpuTransport(links, device), B * H * 4
        graphs = list[tuple[Any, int, int, int]]()
        for name in ("one", "other"):
            x, z = device.allocate(size, "x"), device.allocate(size * RANKS, "z")
            member = Member(MESH, links.rank, first.another(name))
            graphs.append((captured(device, program, member, x, z), x, z, device.new_stream()))
        found = list[np.ndarray]()
        for replay in range(replays):
            for number, (_, x, _, _) in enumerate(graphs):
                value = links.rank + 1 + replay + 100 * number
                device.upload(x, np.full((B, H), value, np.float32))
            links.until(device.is_done, "what is sent")
            for graph, _, _, stream in graphs:
                device.call("cuGraphLaunch", graph, stream)
            streams = [stream for *_, stream in graphs]

            def done(streams: list[int] = streams) -> bool:
                gpus.step()
                return not any(gpus.streams[s].queue for s in streams)

            links.until(done, "the end of the replays")
            links.gather(None, "all have done")
            found += [
                gpus.at(links.rank, z, size * RANKS).copy().view(np.float32).reshape(-1, H)
                for _, _, z, _ in graphs
            ]
        return found

    return in_threads(RANKS, work)


def check_replays(program: HostProgram, seeds: int) -> None:
    for seed in range(seeds):
        for found in replayed_together(program, seed):
            for number, z in enumerate(found):
                np.testing.assert_array_equal(z, RIGHT + number // 2 + 100 * (number % 2))


@pytest.mark.parametrize(
    "program", [ring(1), ring(2), gathered(), gathering(RANKS, "mesh")],
    ids=["ring", "ring on two streams", "gathered", "read"],
)  # fmt: skip
def test_captures_of_a_framework_are_replayed_at_the_same_time(program: HostProgram) -> None:
    """With new values, each in memory of its own."""
    check_replays(program, 3)


def test_the_stand_in_finds_captures_that_share_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arena, "order", property(lambda self: self.stream))
    with pytest.raises(AssertionError):
        check_replays(gathering(RANKS, "mesh"), 6)


def test_the_stand_in_finds_what_ends_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is allocated while a framework's stream is captured."""
    monkeypatch.setattr(FakeGpu, "_cuThreadExchangeStreamCaptureMode", lambda self, mode: 0)
    with pytest.raises(AssertionError, match="an allocation while a stream is captured"):
        replayed_together(gathered(), 0, 1)


class Replayed(Graph):
    """A graph that was captured elsewhere: nothing is its own."""

    def __init__(self, record: Any, given: Any) -> None:
        self._record, self._given, self._fast = record, given, None

    def __del__(self) -> None: ...


def test_a_replay_names_a_rank_that_has_died() -> None:
    def check() -> None:
        raise RankFailure("rank 1 died")

    transport = SimpleNamespace(check=check)
    executable = SimpleNamespace(device=None, member=Member(MESH, 0, transport))  # type: ignore[arg-type]
    graph = Replayed(SimpleNamespace(executable=executable), SimpleNamespace(kind=object()))
    with pytest.raises(RankFailure, match="rank 1 died"):
        graph()


def test_a_graph_of_static_inputs_takes_no_others() -> None:
    def given(address: int, scale: float = 1.0) -> Any:
        views = {"x": SimpleNamespace(address=address)}
        return SimpleNamespace(views=views, numbers={"scale": scale}, signature=(), device=0)

    graph: Any = Replayed(SimpleNamespace(), given(256))
    graph._static, graph._program = True, SimpleNamespace(name="norm")
    graph._take(given(256))
    with pytest.raises(FusecError, match="the graph of `norm` has static inputs, and `x` is a"):
        graph._take(given(512))
    with pytest.raises(FusecError, match="and `scale` is a different"):
        graph._take(given(256, 2.0))


@pytest.mark.parametrize(
    ("address", "range_status", "handle_status", "named"),
    [(1024, 0, 0, True), (1040, 0, 0, False), (1024, 1, 0, False), (1024, 0, 1, False)],
    ids=["mapped", "not aligned", "no allocation", "not exported"],
)
def test_arguments_are_mapped_where_the_driver_can(
    address: int, range_status: int, handle_status: int, named: bool
) -> None:
    driver = SimpleNamespace(
        cuMemGetAddressRange=lambda at: (range_status, 1024, 4096),
        cuIpcGetMemHandle=lambda base: (handle_status, b""),
    )
    device: Any = SimpleNamespace(driver=driver)
    device.can_share = partial(Device.can_share, device)
    given: Any = SimpleNamespace(views={"x": SimpleNamespace(address=address)})
    assert calls.shareable(device, given) == ({"x": address} if named else {})


def test_the_stand_in_finds_reads_of_memory_that_may_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other ranks read lies in no program's own scratch memory."""
    record = records.Record._write_shared

    def moved(self: Record) -> None:
        self._viewed = [0 for _ in self._viewed]
        record(self)

    monkeypatch.setattr(records.Record, "_write_shared", moved)
    with pytest.raises(AssertionError):
        check(gathering(RANKS, "mesh"), 1)


def test_the_stand_in_finds_what_others_would_write_into_a_callers_array(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its place is not known when memory is mapped."""
    monkeypatch.setattr(records, "received", lambda steps: [])
    with pytest.raises((StopIteration, AssertionError, FusecError)):
        check(gathered(), 1)


def test_the_stand_in_finds_results_that_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """They lie where the next call receives."""
    copied = FakeGpu._cuMemcpyDtoDAsync

    def without(self: Any, to: int, origin: int, size: int, stream: int) -> None:
        if size < B * H * 4 * RANKS:
            copied(self, to, origin, size, stream)

    monkeypatch.setattr(FakeGpu, "_cuMemcpyDtoDAsync", without)
    with pytest.raises(AssertionError):
        check(gathered(), 1)


def test_ranks_that_call_different_programs_are_told_so() -> None:
    gpus = FakeGpus(2)

    def work(links: Links) -> str:
        device: Any = gpus.devices[links.rank]
        with pytest.raises(FusecError) as caught:
            GpuTransport(links, device).another(f"`p` of B = {links.rank + 4}")
        return caught.value.diagnostic.message

    assert in_threads(2, work) == [
        "rank 0 calls `p` of B = 4, rank 1 calls `p` of B = 5",
        "rank 1 calls `p` of B = 5, rank 0 calls `p` of B = 4",
    ]


# Whole programs, with kernels on the host's processor.


class Lanes(CallDevice):
    """Its streams do at once what they are given."""

    def call(self, function: str, *arguments: Any, what: str = "") -> Any:
        """Do what the driver does."""
        match function:
            case "cuStreamCreate" | "cuEventCreate":
                return len(self.asked)
            case "cuEventRecord" | "cuStreamWaitEvent":
                return None
            case _:
                return super().call(function, *arguments, what=what)


@dataclass
class Issued:
    """An operation of these tests."""

    does: Any

    def issue(self, device: Any, addresses: Any) -> None:
        """Do it."""
        self.does(addresses)


class OverSockets(HostTransport):
    """Carries what is said to lie on a GPU; what kernels read of others are copies."""

    def prepare(self, exchanges: Any) -> None:
        """Have memory for what others share."""
        super().prepare([replace(b, source=_array(b.source)) for b in exchanges])
        shares = [b for b in exchanges if isinstance(b.exchange, Share)]
        self.copies = {
            b.exchange.source: np.empty((len(b.group), b.source.elements), b.source.dtype.numpy)
            for b in shares
        }

    failure_address = 0

    def begin_operations(self, begin: Begin) -> list[Any]:
        """Return what begins with the arrays that lie there."""
        return [Issued(lambda addresses: self.begin_at(begin, addresses))]

    def wait_operations(self, buffer: str, stream: int) -> list[Any]:
        """Return what waits."""
        return [Issued(lambda addresses: self.wait(buffer, stream))]

    def begin_at(self, begin: Begin, addresses: Any) -> None:
        """Begin with what lies there in a call."""
        exchange, ends = begin.exchange, (begin.target, begin.source)
        given = [m and replace(m, address=m.place.address(addresses)) for m in ends]
        self.begin(exchange, *map(_array, given), begin.group, begin.place)
        if isinstance(exchange, Share):
            for there, copy in enumerate(self.copies[exchange.source]):
                copy[...] = super().view(exchange.source, there)

    def view(self, buffer: str, place: int) -> Any:
        """Return where a copy is."""
        return self.copies[buffer][place].ctypes.data


def _array(memory: DeviceMemory | None) -> Any:
    if memory is None:
        return None
    return array_at(memory.address, memory.elements, memory.dtype.numpy)


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lanes]:
    """Yield the device that calls find."""
    with pytest.MonkeyPatch.context() as patch:
        yield framework(patch, tmp_path_factory.mktemp("kernels"), Lanes())[0]  # type: ignore


@pytest.fixture(scope="module")
def program(device: Lanes) -> Program:
    """Return the sums over two ranks, built."""
    return fusec.compile(SUMS, target="sm_90a")


def sums(x: Any, w: Any, p: Any, scale: float) -> tuple[Any, Any]:
    """Return what the fusion is, in fp64."""
    s = p.astype(np.float64).sum(0)
    return x * w + s * scale, s


def whole(b: int, h: int, seed: int = 0) -> Any:
    """Return random inputs of all ranks together."""
    draw = np.random.default_rng(seed)
    return tuple(draw.standard_normal(shape, np.float32) for shape in ((b, h), h, (2, h)))


def parts() -> tuple[Any, ...]:
    """Return arrays as a rank of two has them."""
    x, w, p = whole(8, 64)
    return x[:4].copy(), w[:32].copy(), p[:1].copy()


CALLS = ((8, 1.0), (8, 0.5), (12, 2.0), (12, 3.0))
"""Rows and scales of calls; of those of 12 rows the stream is captured."""


def test_each_rank_passes_its_parts_and_gets_its_parts(
    program: Program, device: Lanes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They meet for the first call alone, and for each that is captured."""
    fusion = read_text(SUMS)
    assert program.inputs["x"] == "f32[B, H * 2]"
    assert program.inputs["w"] == "f32[H]"
    assert program.outputs == {"y": "f32[B * 2, H * 2]", "s": "f32[H * 2]"}
    assert "H = 32" in repr(program)
    placed, mesh = partitioned(fusion).placed, fusion.mesh
    assert mesh is not None

    def work(links: Links) -> list[dict[str, np.ndarray]]:
        met = list[str]()

        def member_of(called: str, of: Mesh, device: Any) -> Member:
            met.append(called)
            return Member(of, links.rank, OverSockets(links))

        monkeypatch.setattr("fusec.run.distributed.process.member_of", member_of)
        found = list[dict[str, np.ndarray]]()
        for k, (b, eps) in enumerate(CALLS):
            device.capturing = b > 8
            given = zip("xwp", whole(b, 64, k), strict=True)
            own = [local_part(a, placed[n], mesh, links.rank) for n, a in given]
            y, s = program(*map(on_gpu, own), eps)
            found.append({"y": np.array(y.array), "s": np.array(s.array)})
        called, *captured = met
        assert called == "`sums` of B = 4, H = 32"
        assert captured == ["a captured call of `sums` of B = 6, H = 32"] * 2
        return found

    ranks = rank_processes.run(2, work, tmp_path)
    for k, (b, eps) in enumerate(CALLS):
        x, w, p = whole(b, 64, k)
        for name, wanted in zip(("y", "s"), sums(x, w, p, eps), strict=True):
            for found in ranks:
                np.testing.assert_allclose(found[k][name], wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("device")
def test_a_fusion_over_streams_alone_is_called() -> None:
    program = fusec.compile(STREAMED, target="sm_90a")
    for b in (4, 6):
        x, w, _ = whole(b, 64)
        y = program(on_gpu(x), on_gpu(w))
        assert type(y) is GpuArray
        np.testing.assert_array_equal(y.array, x * w)
    with pytest.raises(FusecError, match=r"B.*multiple of 2"):
        program(*map(on_gpu, whole(5, 64)[:2]))


def test_a_fusion_over_streams_alone_is_called_without_a_gpu() -> None:
    x, w, _ = whole(4, 64)
    np.testing.assert_array_equal(fusec.compile(STREAMED)(x, w), x * w)


# What is measured where there are several GPUs.


@pytest.mark.parametrize("ranks", [2, 4])
def test_what_is_measured_exchanges_beside_products(ranks: int) -> None:
    """By blocks in a loop, or once before or behind."""

    def schedulers(text: str) -> list[str]:
        options = CompileOptions(without=("loops_by_cost", "peer_reads"))
        segments = Compilation(read_text(text), options).segmented.segments
        return [s.scheduler for s in segments]

    before, behind = (ranks, 64, 64, 32), (ranks, 64, 32, 64)
    loop = schedulers(measured.gather_matmul(*before, slices=ranks))
    assert loop == ["communication", "matmul", "placement"]
    loop = schedulers(measured.matmul_scatter(*behind, slices=ranks))
    assert loop == ["placement", "matmul", "communication", "reduction"]
    once = schedulers(measured.gather_matmul(*before))
    assert once == ["communication", "matmul"]
    assert schedulers(measured.matmul_scatter(*behind)) == once[::-1]
    assert schedulers(measured.norm(ranks, 8)) == ["no_op", "communication", "inner_persistent"]
    assert schedulers(measured.norm(0, 8)) == ["inner_persistent"]
    # Gate and up may be one kernel, as it is cheaper by the columns of a rank.
    *products, last = schedulers(measured.mlp(ranks))
    assert ({*products}, last) == ({*schedulers(measured.mlp(0))}, "communication")


# What is refused, and what is built.


def test_one_process_is_not_two_ranks(program: Program) -> None:
    for arrays in (parts(), [*map(on_gpu, parts())]):
        with pytest.raises(FusecError, match=r"`sums`.* has 2 ranks, but this run has 1"):
            program(*arrays)
    with pytest.raises(FusecError, match=r"a graph of `sums` .* has 2 ranks, but this run has 1"):
        program.graph(*map(on_gpu, parts()))


def test_sizes_of_a_rank_are_scaled_to_the_whole() -> None:
    """Both are divided here."""
    fusion = read_text(SUMS)
    local = partitioned(fusion).fusion
    assert whole_sizes(fusion, local, {"B": 3, "H": 5, "s": 7}) == {"B": 6, "H": 10, "s": 7}


def test_builds_are_planned_for_the_sizes_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    class Planned(Exception):
        """What is to be compiled."""

    def compile_fusion(fusion: Any, options: Any) -> Any:
        raise Planned(Compilation(fusion, options).local.hints)

    monkeypatch.setattr(driver, "compile_fusion", compile_fusion)
    with pytest.raises(Planned, match=r"'B': 4, 'H': 32"):
        fusec.compile(SUMS, target="sm_90a", sizes={"B": 8})
    make: Any = api.program_for(read_text(SUMS))._make
    with pytest.raises(Planned, match=r"'B': 6, 'H': 10"):
        make({"B": 6, "H": 10}, None)


def test_a_rank_uses_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class Driver:
        gpus = 4

        def cuInit(self, flags: int) -> None: ...
        def cuDeviceGetCount(self) -> tuple[int, int]:
            return 0, self.gpus

    driver = Driver()
    monkeypatch.setattr("fusec.run.device.load_driver", lambda: driver)
    for name, value in {"RANK": 6, "WORLD_SIZE": 8, "LOCAL_RANK": 2, "LOCAL_WORLD_SIZE": 4,
                        "MASTER_ADDR": "h", "MASTER_PORT": 1}.items():  # fmt: skip
        monkeypatch.setenv(name, str(value))
    assert process.own_gpu() == 2
    driver.gpus = 1
    assert process.own_gpu() == 0
    driver.gpus = 3
    with pytest.raises(EnvironmentProblem, match="4 ranks on a host with 3 GPUs"):
        process.own_gpu()


def snippet() -> str:
    """Return the script of docs/calls.md."""
    text = (ROOT / "docs" / "calls.md").read_text(encoding="utf-8")
    return text.split("```python\n", 1)[1].split("```", 1)[0]


@pytest.mark.nightly
def test_the_script_in_the_docs_runs() -> None:
    said = run_ranks(snippet())
    assert [line.split()[-2:] for line in said] == [["(4,", "32)"]] * 2, said
