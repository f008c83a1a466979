"""Exchanges between GPUs, on a stand-in that runs streams in any order that they allow."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest
from fake_gpus import Deadlock, FakeGpu, FakeGpus
from fake_nccl import FakeNccl
from rank_processes import TOKEN, launched

from fusec.diagnostics import EnvironmentProblem, InternalError, Unsupported
from fusec.hostir.instructions import Collective, Receive, Send
from fusec.ir.dim import dim
from fusec.ir.dtype import DTYPES, I32
from fusec.ir.sharding import Mesh
from fusec.run.distributed.links import Links, RankFailure
from fusec.run.distributed.monitor import Monitor
from fusec.run.distributed.rendezvous import meet
from fusec.run.distributed.watchdog_order import Ends
from fusec.run.transports.carriers import NCCL, PEERS, READS, carrier_of
from fusec.run.transports.choice import GpuTransport
from fusec.run.transports.nccl import NcclTransport, reduction_of
from fusec.run.transports.peers import PeerTransport
from fusec.run.transports.protocol import Begin, DeviceMemory, Exchange, Transport

RANKS = 3
BLOCK = 4
"""Elements of i32 that a rank's block has."""
RUNS = 3
SEEDS = range(12)
Make = Callable[[Links, Any], Transport]


def in_threads(ranks: int, work: Callable[[Links], Any]) -> list[Any]:
    """Return what each rank, a thread, returns; the error that others follow from is raised."""
    found: list[Any] = [None] * ranks

    with Monitor.on_this_host(ranks, TOKEN, 5.0, 5.0) as meeting:

        def body(rank: int) -> None:
            try:
                with meet(launched(rank, ranks, meeting.port), 5.0, ends=Ends.NO_RANK) as links:
                    found[rank] = work(links)
                    links.gather(None, "end of the test")
            except BaseException as error:
                found[rank] = error

        threads = [threading.Thread(target=body, args=(rank,)) for rank in range(ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    errors = [result for result in found if isinstance(result, BaseException)]
    # The other ranks only saw that one had ended.
    for error in sorted(errors, key=lambda error: isinstance(error, RankFailure)):
        raise error
    return found


@dataclass
class Program:
    """What one rank does in each run: exchanges of buffers, and what is to be seen of them.

    sizes: elements of buffers; exchanges: begun one after the other, then waited for; targets: what
    is read after the waits.
    """

    sizes: dict[str, int]
    exchanges: list[tuple[Exchange, str | None, str | None, tuple[int, ...], int]]
    targets: tuple[str, ...]


def content(name: str, rank: int, run: int, size: int) -> np.ndarray:
    """Return what a source holds in a run."""
    return np.arange(size, dtype=np.int32) + 1000 * rank + 100000 * (run + 1) + 7 * len(name)


def simulate(ranks: int, make: Make, program: Callable[[int], Program], draw: Random) -> Any:
    """Return [rank][run][target] after all runs were issued and then run in a drawn order."""
    gpus = FakeGpus(ranks)
    issued, done = threading.Barrier(ranks + 1), threading.Barrier(ranks + 1)
    seen: list[list[dict[str, np.ndarray]]] = [[] for _ in range(ranks)]

    def work(links: Links) -> None:
        device = gpus.devices[links.rank]
        try:
            transport = make(links, device)
            _issue(links.rank, device, transport, program(links.rank), seen[links.rank])
        except BaseException:
            issued.abort()
            done.abort()
            raise
        issued.wait(20)
        done.wait(20)
        transport.close()

    problems: list[BaseException] = []

    def body() -> None:
        try:
            in_threads(ranks, work)
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    try:
        issued.wait(20)
        gpus.run(draw)
        done.wait(20)
    except threading.BrokenBarrierError:
        pass
    except BaseException:
        done.abort()
        thread.join()
        raise
    thread.join()
    if problems:
        raise problems[0]
    assert not any(device.mapped for device in gpus.devices), "memory stays mapped"
    return seen


def _issue(
    rank: int, device: FakeGpu, transport: Transport, program: Program, seen: list[Any]
) -> None:
    """Give the streams of one GPU all runs of a program."""
    at = {name: device.allocate(4 * size, name) for name, size in program.sizes.items()}

    def memory(name: str | None) -> DeviceMemory | None:
        size = 0 if name is None else program.sizes[name]
        return None if name is None else DeviceMemory(at[name], size, I32, device.stream)

    begins = [Begin(e, memory(t), memory(s), g, p) for e, t, s, g, p in program.exchanges]
    transport.prepare(begins)
    sources = {s for _, t, s, _, _ in program.exchanges if s is not None and s != t}
    for run in range(RUNS):
        seen.append({})
        for name in sorted(set(program.sizes)):
            size = program.sizes[name]
            own = content(name, rank, run, size) if name in sources else np.full(size, -1, np.int32)
            device.issue(device.stream, "kernel", _writes(device, at[name], own))
        for b in begins:
            transport.begin(b.exchange, b.target, b.source, b.group, b.place)
        for b in begins:
            own = b.exchange
            name = own.target if isinstance(own, Collective | Receive) else own.source
            transport.wait(name, device.stream)
        for name in program.targets:
            reads = _reads(device, at[name], program.sizes[name], seen[run], name)
            device.issue(device.stream, "kernel", reads)


def _writes(device: FakeGpu, address: int, values: np.ndarray) -> Callable[[], bool]:
    def operation() -> bool:
        device.gpus.at(device.rank, address, values.nbytes).view(np.int32)[...] = values
        return True

    return operation


def _reads(
    device: FakeGpu, address: int, size: int, seen: dict[str, np.ndarray], name: str
) -> Callable[[], bool]:
    def operation() -> bool:
        seen[name] = device.gpus.at(device.rank, address, 4 * size).view(np.int32).copy()
        return True

    return operation


GROUP = tuple(range(RANKS))


def of_kind(kind: str) -> Callable[[int], Program]:
    """Return the program of one exchange among all ranks."""

    def program(rank: int) -> Program:
        if kind == "send":
            ring = [
                (Send("x", "m", dim((rank + 1) % RANKS)), None, "x", GROUP, rank),
                (Receive("y", "m", dim((rank - 1) % RANKS)), "y", None, GROUP, rank),
                (Send("u", "m", dim(rank)), None, "u", GROUP, rank),
                (Receive("v", "m", dim(rank)), "v", None, GROUP, rank),
            ]
            return Program(dict.fromkeys("xyuv", BLOCK), ring, ("y", "v"))
        name, *to = kind.split(" to ")
        root = dim(1) if name == "broadcast" else None
        reduction = "sum" if kind in ("all_reduce", "reduce_scatter") else ""
        receivers = tuple(int(place) for each in to for place in each.split())
        exchange = Collective(name, "y", "x", "m", RANKS, reduction, root, receivers)
        own = {"all_to_all": RANKS, "reduce_scatter": RANKS}.get(kind, 1)
        got = {"all_gather": RANKS, "all_to_all": RANKS}.get(kind, 1)
        sizes = {"x": BLOCK * own, "y": BLOCK * got}
        return Program(sizes, [(exchange, "y", "x", GROUP, rank)], ("y",))

    return program


def right(kind: str, rank: int, run: int) -> dict[str, np.ndarray]:
    """Return what a rank is to see after an exchange."""
    size = BLOCK * (RANKS if kind in ("all_to_all", "reduce_scatter") else 1)
    sources = [content("x", r, run, size) for r in GROUP]
    match kind:
        case "send":
            own = content("u", rank, run, BLOCK)
            return {"y": content("x", (rank - 1) % RANKS, run, BLOCK), "v": own}
        case "all_gather":
            return {"y": np.concatenate(sources)}
        case "all_to_all":
            return {"y": np.concatenate([np.split(s, RANKS)[rank] for s in sources])}
        case "broadcast":
            return {"y": sources[1]}
        case "broadcast to 0" | "broadcast to 1 2":
            return {"y": sources[1]} if str(rank) in kind else {}
        case "all_reduce":
            return {"y": np.sum(sources, axis=0)}
    return {"y": np.split(np.sum(sources, axis=0), RANKS)[rank]}


@pytest.fixture
def nccl(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return what makes NCCL's transport on the stand-in of NCCL, one for each set of GPUs."""
    made: list[FakeNccl] = []
    lock = threading.Lock()
    local = threading.local()
    monkeypatch.setattr("fusec.run.transports.nccl._module", lambda name: local.nccl.module(name))

    def make(links: Links, device: Any) -> Transport:
        with lock:
            if not made or made[-1].gpus is not device.gpus:
                made.append(FakeNccl(device.gpus))
            local.nccl = made[-1]
        return NcclTransport(links, device)

    make.made = made  # pyright: ignore[reportFunctionMemberAccess]
    return make


def check_all(kind: str, make: Make) -> None:
    """Run an exchange in many orders."""
    for seed in SEEDS:
        seen = simulate(RANKS, make, of_kind(kind), Random(seed))
        for rank in GROUP:
            for run in range(RUNS):
                for name, values in right(kind, rank, run).items():
                    np.testing.assert_array_equal(seen[rank][run][name], values)


SENT = ["broadcast to 0", "broadcast to 1 2"]
"""Kinds that only some ranks receive; of the first one others have nothing to do."""


@pytest.mark.parametrize("kind", ["all_gather", "all_to_all", "broadcast", "send", *SENT])
def test_peer_copies_are_right_in_every_order_of_streams(kind: str) -> None:
    check_all(kind, PeerTransport)


@pytest.mark.parametrize(
    "kind",
    ["all_gather", "all_to_all", "broadcast", "send", "all_reduce", "reduce_scatter", *SENT],
)
def test_nccl_is_right_in_every_order_of_streams(kind: str, nccl: Make) -> None:
    check_all(kind, nccl)


BREAKS = {
    "copies do not wait until targets are free": ("await_flag", lambda *given: ()),
    "nobody says that a target is free": ("write_flag", lambda *given: ()),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_the_stand_in_finds_peer_copies_without_flags(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    name, method = BREAKS[broken]
    monkeypatch.setattr(f"fusec.run.transports.peers.{name}", method)
    with pytest.raises((AssertionError, Deadlock)):
        check_all("all_gather", PeerTransport)


def test_the_stand_in_finds_memory_that_is_freed_while_others_map_it() -> None:
    """Other memory of the same GPU may be freed meanwhile."""
    own, other = FakeGpus(2).devices
    shared, private = own.allocate(4, "shared"), own.allocate(4, "private")
    mapped = other.call("cuIpcOpenMemHandle", own.call("cuIpcGetMemHandle", shared), 1)
    own.free(private)
    with pytest.raises(AssertionError, match="others map"):
        own.free(shared)
    other.driver.cuIpcCloseMemHandle(mapped)
    own.free(shared)


@pytest.mark.parametrize("method", ["follow", "release"])
def test_the_stand_in_finds_streams_without_events(
    monkeypatch: pytest.MonkeyPatch, method: str, nccl: Make
) -> None:
    path = f"fusec.run.transports.streams.SideStream.{method}"
    monkeypatch.setattr(path, lambda self, stream, key: [])
    with pytest.raises(AssertionError):
        check_all("all_gather", nccl)


MESH = Mesh((("dp", 2), ("tp", 2)), (0, 1, 2, 3))


def over_both_axes(rank: int) -> Program:
    """Return a program that adds along one axis, moves along both, and has both open at once."""
    place, groups = MESH.place(rank), {axis: MESH.group(rank, axis) for axis in ("dp", "tp")}

    def at(axis: str) -> tuple[tuple[int, ...], int]:
        return groups[axis], place[axis]

    return Program(
        {"x": BLOCK, "y": 2 * BLOCK, "z": 2 * BLOCK, "s": BLOCK, "a": BLOCK, "b": BLOCK},
        [
            (Collective("all_gather", "y", "x", "tp", 2), "y", "x", *at("tp")),
            (Collective("all_reduce", "s", "x", "dp", 2, "sum"), "s", "x", *at("dp")),
            (Collective("all_gather", "z", "x", "dp", 2), "z", "x", *at("dp")),
            (Send("x", "tp", dim(1 - place["tp"])), None, "x", *at("tp")),
            (Send("x", "dp", dim(1 - place["dp"])), None, "x", *at("dp")),
            (Receive("a", "tp", dim(1 - place["tp"])), "a", None, *at("tp")),
            (Receive("b", "dp", dim(1 - place["dp"])), "b", None, *at("dp")),
        ],
        ("y", "z", "s", "a", "b"),
    )


@pytest.mark.parametrize("transport", ["chosen", "NCCL alone"])
def test_groups_along_two_axes(transport: str, nccl: Make) -> None:
    def chosen(links: Links, device: Any) -> Transport:
        nccl(links, device)  # has the stand-in of NCCL found
        made = GpuTransport(links, device)
        if transport == "chosen":
            begin = Begin(over_both_axes(links.rank).exchanges[0][0], None, None, (0, 1), 0)
            assert made.carrier(begin).name == PEERS
        return made

    for seed in SEEDS:
        seen = simulate(4, chosen if transport == "chosen" else nccl, over_both_axes, Random(seed))
        for rank in range(4):
            dp, tp = (MESH.group(rank, axis) for axis in ("dp", "tp"))
            for run in range(RUNS):
                x = [content("x", r, run, BLOCK) for r in range(4)]
                found = seen[rank][run]
                np.testing.assert_array_equal(found["y"], np.concatenate([x[r] for r in tp]))
                np.testing.assert_array_equal(found["z"], np.concatenate([x[r] for r in dp]))
                np.testing.assert_array_equal(found["s"], x[dp[0]] + x[dp[1]])
                np.testing.assert_array_equal(found["a"], x[next(r for r in tp if r != rank)])
                np.testing.assert_array_equal(found["b"], x[next(r for r in dp if r != rank)])


def test_exchanges_in_another_order_than_prepared_are_a_bug() -> None:
    def work(links: Links) -> str:
        device = gpus.devices[links.rank]
        transport, group = PeerTransport(links, device), (0, 1)
        x = DeviceMemory(device.allocate(16, "x"), 4, I32, device.stream)
        y = DeviceMemory(device.allocate(32, "y"), 8, I32, device.stream)
        exchange = Collective("all_gather", "y", "x", "m", 2)
        with pytest.raises(InternalError, match="was not prepared"):
            transport.begin(exchange, y, x, group, links.rank)
        transport.prepare([Begin(exchange, y, x, group, links.rank)])
        other = Collective("all_to_all", "y", "y", "m", 2)
        with pytest.raises(InternalError) as caught:
            transport.begin(other, y, y, group, links.rank)
        transport.close()
        return caught.value.diagnostic.message

    gpus = FakeGpus(2)
    found = in_threads(2, work)
    assert found[0] == (
        "`all_to_all y <- y over m: 2` is started where `all_gather y <- x over m: 2` was prepared"
    )


def test_two_ranks_on_one_gpu_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeGpu, "_cuDeviceGet", lambda self, number: 0)
    gpus = FakeGpus(2)
    with pytest.raises(EnvironmentProblem, match="ranks 0 and 1 use the same GPU"):
        in_threads(2, lambda links: GpuTransport(links, gpus.devices[links.rank]))


def test_nccl_that_is_not_there_is_named() -> None:
    pytest.importorskip("cuda.bindings")
    gpus = FakeGpus(2)
    with pytest.raises(EnvironmentProblem, match=r"pip install 'fusec\[nccl\]'"):
        in_threads(2, lambda links: NcclTransport(links, gpus.devices[links.rank]))


def test_choices_have_reasons() -> None:
    assert carrier_of("all_gather").name == PEERS
    assert carrier_of("send").name == PEERS
    assert carrier_of("share").name == READS
    for kind, given in (
        ("all_reduce", {}), ("reduce_scatter", {}), ("all_gather", {"one_host": False}),
        ("broadcast", {"access": False}), ("share", {"barriers": False}),
    ):  # fmt: skip
        assert carrier_of(kind, **given).name == NCCL
        assert carrier_of(kind, **given).because


@pytest.mark.parametrize(
    ("reduction", "dtype", "found"),
    [
        ("sum", "bf16", ("BFLOAT16", "SUM", 6)), ("max", "i64", ("INT64", "MAX", 6)),
        ("sum", "bool", ("UINT8", "MAX", 6)), ("prod", "bool", ("UINT8", "MIN", 6)),
        ("sum", "c64", ("FLOAT32", "SUM", 12)), ("min", "f8e5m2", ("FLOAT8E5M2", "MIN", 6)),
    ],
)  # fmt: skip
def test_types_and_reductions_of_nccl(
    reduction: str, dtype: str, found: tuple[str, str, int]
) -> None:
    assert reduction_of(reduction, DTYPES[dtype], 6) == found


@pytest.mark.parametrize(
    ("reduction", "dtype"), [("sum", "i16"), ("prod", "c64"), ("max", "c128"), ("sum", "f8e8m0")]
)
def test_what_nccl_cannot_add_is_refused(reduction: str, dtype: str) -> None:
    with pytest.raises(Unsupported, match=f"NCCL has no {reduction} for {dtype}"):
        reduction_of(reduction, DTYPES[dtype], 6)


@pytest.mark.parametrize("fails", [False, True])
def test_communicators_are_aborted_where_a_rank_has_failed(nccl: Make, *, fails: bool) -> None:
    gpus, stand_in = FakeGpus(2), list[FakeNccl]()
    both = threading.Barrier(2, timeout=5.0)

    def work(links: Links) -> None:
        transport = nccl(links, gpus.devices[links.rank])
        stand_in.append(nccl.made[-1])  # pyright: ignore
        both.wait()  # whoever saw the other fail before would have no communicator
        if fails:
            links.fail("error: of the test")
        transport.close()

    if fails:
        with pytest.raises(RankFailure):
            in_threads(2, work)
    else:
        in_threads(2, work)
    assert stand_in[0].ended == ["aborted" if fails else "destroyed"] * 2
