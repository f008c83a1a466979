"""Calls of many steps among ranks: captured once, updated and launched by the C launch helper."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from called import GpuArray
from fake_gpus import FakeGpus
from nightly import mostly_nightly
from test_barriers import gathering
from test_call_helper import Quick, compiled, helped, library  # noqa: F401
from test_call_helper_ranks import (
    PROGRAMS,
    REDUCE,
    RankFailure,
    Reduced,
    arrays,
    module,  # noqa: F401
    reduced,  # noqa: F401
    taken,
)
from test_gpu_ranks import MESH, RANKS, RIGHT, B, H, gathered, ring
from test_gpu_transports import in_threads

from fusec import FusecError
from fusec.call import captured, fast, helper
from fusec.call.captured import CapturedCall, Nodes, capture, wants_capture
from fusec.call.memory import Arena
from fusec.call.record import Record
from fusec.call.steps import LaunchStep
from fusec.hostir.program import HostProgram
from fusec.run.distributed.exchange import Member
from fusec.run.distributed.links import Links
from fusec.run.execute import Executable
from fusec.run.operations import CopyMemory
from fusec.run.transports.choice import GpuTransport

KERNEL_NODE, COPY_NODE, REPLAY = 15, 16, 17
SIZE = B * H * 4


def recorded(device: Any, program: HostProgram, links: Links) -> Record:
    """Return the record of a call among ranks."""
    member = Member(MESH, links.rank, GpuTransport(links, device))
    return Record(Executable(device, program, {}, member), {}, Arena(device, device.stream))


def replayed(program: HostProgram, seed: int, calls: int = 4) -> list[list[np.ndarray]]:
    """Return what each rank has after calls, of which the first and the last are issued by steps
    and the others by a graph of them.
    """
    gpus = FakeGpus(RANKS, Random(seed))

    def work(links: Links) -> list[np.ndarray]:
        device: Any = gpus.devices[links.rank]
        record = recorded(device, program, links)
        x, z = device.allocate(SIZE, "x"), device.allocate(SIZE * RANKS, "z")
        made, found = None, list[np.ndarray]()
        for call in range(calls):
            device.upload(x, np.full((B, H), links.rank + 1 + call, np.float32))
            if 0 < call < calls - 1:
                made = made or capture(record)
                device.call("cuGraphLaunch", made.graph, device.stream)
            else:
                record.issue([x, z], {})
            links.until(device.is_done, "the end of a call")
            found.append(device.download(z, SIZE * RANKS).view(np.float32).reshape(-1, H))
        links.gather(None, "all have done")
        return found

    return in_threads(RANKS, work)


CAPTURED = {
    "ring": ring(1), "ring on two streams": ring(2), "gathered": gathered(),
    "read": gathering(RANKS, "mesh"),
}  # fmt: skip


@pytest.mark.parametrize("name", CAPTURED)
def test_a_graph_of_a_calls_steps_does_what_they_do(name: str) -> None:
    for seed in range(2):
        for found in replayed(CAPTURED[name], seed):
            for call, z in enumerate(found):
                np.testing.assert_array_equal(z, RIGHT + call)


def test_the_stand_in_finds_steps_outside_of_the_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the caller's own stream, which nothing captures."""
    monkeypatch.setattr(captured, "_on_stream", lambda step, own, stream: step)
    with pytest.raises((AssertionError, KeyError)):
        replayed(ring(2), 0)


def updates(record: Record, nodes: Nodes, addresses: list[int], changed: set[int]) -> Iterator[Any]:
    """Yield the expected updates of nodes whose arguments have changed, in order of steps."""
    assert nodes.nodes is not None
    for number, step in enumerate(record.steps):
        node = nodes.nodes.get(number)
        if isinstance(step, LaunchStep) and step.slots & changed:
            yield KERNEL_NODE, node
        if isinstance(step, CopyMemory) and {step.target.slot, step.source.slot} & changed:
            ends = step.target.address(addresses), step.source.address(addresses)
            yield COPY_NODE, node, *ends, step.size


def compare_updates(name: str, made_helper: tuple[Any, Any]) -> None:
    """Assert that the driver gets updates of changed nodes and one launch, and nothing else."""
    made, driver = made_helper
    program, _ = PROGRAMS[name]
    gpus, kind = FakeGpus(RANKS), Quick()

    def work(links: Links) -> Any:
        device: Any = gpus.devices[links.rank]
        device.context = 1
        record = recorded(device, program, links)
        record.issue([device.allocate(SIZE, "x"), device.allocate(SIZE * RANKS, "z")], {})
        graph = capture(record)
        links.until(device.is_done, "the end")
        links.gather(None, "all have done")
        return record, graph

    record, graph = in_threads(RANKS, work)[0]
    kind.current = record.arena.stream
    x = GpuArray(np.zeros((B, H), np.float32))
    named = SimpleNamespace(value=SimpleNamespace(name="x", is_scalar=False), default=None)
    given: Any = SimpleNamespace(
        fusion=SimpleNamespace(given=[named]), views={"x": kind.view(x)}, numbers={}, device=0,
        written=(), kind=kind,
    )  # fmt: skip
    call = fast._in_c(made, record, given, kind, graph.nodes, graph)
    taken(driver)
    before: list[int] = [0] * record.slots
    kept = []
    for number, array in enumerate([x, x, GpuArray(np.zeros((B, H), np.float32))]):
        z = call(array)
        kept.append(z)  # so that the next result lies elsewhere
        ends = [array.array.ctypes.data, z.array.ctypes.data]
        addresses = [*ends, *record.addresses[2:]]
        changed = {k for k in range(record.slots) if addresses[k] != before[k]}
        wanted = [*updates(record, graph.nodes, addresses, changed)]
        assert wanted
        assert changed == ({1} if number == 1 else changed)
        assert taken(driver) == [*wanted, (REPLAY, graph.nodes.handle, kind.current)]
        before = addresses
    assert call() is NotImplemented  # it has arguments, unlike a replay
    kind.current += 1
    assert call(x) is NotImplemented  # another stream is no part of its order
    assert taken(driver) == []


def nodes_of(record: Record) -> Nodes:
    """Return what stands for the nodes of a record's graph."""
    return Nodes(77, {k: 100 + k for k in range(len(record.steps))}, is_call=True)


@pytest.mark.parametrize("name", ["ring", "gathered", "pushed sum"])
def test_a_graph_takes_the_arguments_of_each_call(name: str, module: tuple[Any, Any]) -> None:  # noqa: F811
    compare_updates(name, module)


EDITS = {
    "ring": ("step->kind == COPY ? update_copy(self, step)", "step->kind == COPY ? 0"),
    "gathered": ("source.address = address_of(self, step, 1)", "source.address += 0"),
    "pushed sum": ("!self->any_stream && stream", "self->any_stream && stream"),
}


@pytest.mark.parametrize("name", mostly_nightly(EDITS, 3))
def test_the_comparison_finds_graphs_that_keep_old_arguments(
    name: str,
    module: tuple[Any, Any],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (before, after), source = EDITS[name], tmp_path / "helper.c"
    text = helper.SOURCE.read_text(encoding="utf-8")
    assert text.count(before) == 1
    source.write_text(text.replace(before, after), encoding="utf-8")
    monkeypatch.setattr(helper, "SOURCE", source)
    edited = helper.load(helper.built(tmp_path / "edited"))
    edited.open_driver(module[1]._name)
    with pytest.raises(AssertionError):
        compare_updates(name, (edited, module[1]))


class Destroyed(CapturedCall):
    """A graph that notes its end."""

    count = 0

    def __del__(self) -> None:
        """Count."""
        Destroyed.count += 1


@pytest.mark.usefixtures("quick_collection")
def test_a_long_call_among_ranks_is_the_launch_of_a_graph(
    reduced: Reduced,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the second on, with results of its own; what the driver does not capture is issued."""
    program, device, transport, driver = reduced

    def refuse(record: Record) -> CapturedCall:
        raise FusecError("the GPU reports an error")

    monkeypatch.setattr(fast, "wants_capture", lambda record: True)
    monkeypatch.setattr(fast, "capture", refuse)
    x, p = arrays()
    for _ in range(2):
        program(x, p, 1.0)
    assert [note[0] for note in taken(driver)] == [REDUCE]  # by the helper, in the second

    def forget() -> None:
        program._fast = None
        for lane in program._lanes.values():
            lane.records.clear()
        gc.collect()

    forget()
    monkeypatch.setattr(fast, "capture", lambda r: Destroyed(device, 1, 2, nodes_of(r)))
    for number in range(3):
        y, m = program(x, p, 1.0)
        assert not np.shares_memory(y.array, m.array)
        notes = [note[0] for note in taken(driver)]
        assert notes.count(REPLAY) == (number > 0)
        assert notes.count(KERNEL_NODE) == notes.count(REPLAY) * len(device.kernels)
        assert REDUCE not in notes
    transport.failure.value = 1
    with pytest.raises(RankFailure):
        program(x, p, 1.0)
    forget()
    assert Destroyed.count == 1


def test_calls_of_few_steps_or_with_nccl_are_issued() -> None:
    """As are those whose copies have nothing to do, and those of one rank."""
    gpus = FakeGpus(RANKS)

    def work(links: Links) -> list[bool]:
        device: Any = gpus.devices[links.rank]
        record = recorded(device, ring(2), links)
        record.addresses[:2] = [device.allocate(SIZE, "x"), device.allocate(SIZE * RANKS, "z")]
        steps = list(record.steps)
        found = [wants_capture(record)]
        record.steps = steps[:5]
        found.append(wants_capture(record))
        copy = next(s for s in steps if isinstance(s, CopyMemory))
        record.steps = [*steps, replace(copy, source=copy.target)]
        found.append(wants_capture(record))
        record.steps, record.transport = steps, None
        found.append(wants_capture(record))
        links.gather(None, "all have done")
        return found

    assert in_threads(RANKS, work)[0] == [True, False, False, False]


def test_a_capture_that_fails_leaves_no_stream_captured() -> None:
    gpus = FakeGpus(RANKS)

    def work(links: Links) -> bool:
        device: Any = gpus.devices[links.rank]
        record = recorded(device, ring(1), links)
        call = device.call

        def refuse(function: str, *given: Any, what: str = "") -> Any:
            if function == "cuStreamBatchMemOp":
                raise FusecError("the GPU reports an error")
            return call(function, *given, what=what)

        record.addresses[:2] = [device.allocate(SIZE, "x"), device.allocate(SIZE * RANKS, "z")]
        device.call = refuse
        with pytest.raises(FusecError):
            capture(record)
        device.call = call
        links.gather(None, "all have done")
        return device.capture is None

    assert all(in_threads(RANKS, work))
