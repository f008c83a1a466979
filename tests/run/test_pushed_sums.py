"""Sums of few bytes over ranks: the kernel on the CPU, and its launches in any order of streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import fake_push
import numpy as np
import pytest
from cuda_on_cpu import FIRST, Order, build, launch
from fake_gpus import FakeGpus
from guards import Guarded
from streamed_programs import buffer
from test_gpu_ranks import MESH, RANKS, H
from test_gpu_transports import Make, in_threads, nccl  # noqa: F401

from fusec.call.memory import Arena
from fusec.call.record import Record
from fusec.commands.running.judge_ranks import added_by_nccl
from fusec.diagnostics import EnvironmentProblem
from fusec.hostir.instructions import Allocate, Collective, Wait
from fusec.hostir.program import HostProgram
from fusec.ir.dim import dim
from fusec.ir.dtype import BF16, DTYPES, F32, F64, DType
from fusec.run.distributed.exchange import Member
from fusec.run.distributed.links import Links, RankFailure
from fusec.run.execute import Executable
from fusec.run.transports import pushes as transport
from fusec.run.transports.carriers import NCCL, PUSHES
from fusec.run.transports.choice import GpuTransport
from fusec.run.transports.protocol import Begin, DeviceMemory
from fusec.run.transports.pushes import pushes
from fusec.schedule.host import pushed_sums
from fusec.schedule.host.pushed_sums import PUSHED_BYTES
from fusec.schedule.plan import Kernel, TensorArgument

# The kernel. All ranks are blocks of one launch, which the emulator mixes.

PLACES, BLOCKS, THREADS, CAPACITY = 3, 2, 32, 4096
FLAGS, PITCH = 256, 64
LINES = FLAGS + 2 * PLACES * PITCH
DATA = LINES + 2 * (PLACES - 1) * 2 * CAPACITY
BOX = DATA + 2 * (PLACES - 1) * CAPACITY
ORDERS = [Order(seed, backwards=bool(seed % 2)) for seed in range(4)]


def text(kind: str, dtype: DType, count: int, shift: int) -> str:
    """Return a kernel whose ranks add `count` elements, that begin `shift` behind a vector.

    kind: `few`, or `sum` and `slices` with a flag behind each vector of a thread.
    """
    element = {"f32": "float", "bf16": "fusec::bf16", "f16": "fusec::f16"}[dtype.name]
    return f"""#include "push_slices.cuh"
extern "C" __global__ void kernel({element}* x, {element}* y, int* boxes) {{
  const int rank = blockIdx.x / {BLOCKS};
  fusec::PushSum how{{}};
  for (int each = 0; each < {PLACES}; ++each)
    how.boxes[each] = reinterpret_cast<fusec::u64>(boxes) + each * {BOX};
  how.capacity = {CAPACITY}, how.count = {count}, how.rank = rank, how.ranks = {PLACES};
  how.flags = {FLAGS}, how.flag_pitch = {PITCH}, how.lines = {LINES}, how.data = {DATA};
  how.line_pitch = {2 * CAPACITY}, how.chunk_steps = 1;
  const int own = rank * {count + shift} + {shift};
  fusec::push_{kind}(x + own, y + own, how, blockIdx.x % {BLOCKS}, {BLOCKS});
}}
"""


def summed(
    kind: str, dtype: DType, count: int, folder: Path, order: Order = FIRST, shift: int = 0,
    edit: Callable[[str], str] = str, turns: int = 3, turn: int = 0,
) -> None:  # fmt: skip
    """Assert that all ranks have the sum of what they have now, turn after turn."""
    memory, draw = Guarded(), np.random.default_rng(0)
    whole = (PLACES, count + shift)
    memory.add("x", np.zeros(whole, dtype.numpy))
    memory.add("y", np.zeros(whole, dtype.numpy))
    boxes = np.zeros((PLACES, BOX // 8), np.int64)
    boxes[:, 0] = turn
    memory.add("boxes", boxes.reshape(-1).view(np.int32))
    arguments = (
        TensorArgument("x", dtype, written=True, restrict=False),
        TensorArgument("y", dtype, written=True, restrict=False),
        TensorArgument("boxes", DTYPES["i32"], written=True, restrict=False),
    )
    grid = dim(PLACES * BLOCKS), dim(1), dim(1)
    # Blocks of a cluster run together, as do those of ranks.
    kernel = Kernel("kernel", "", grid, (THREADS, 1, 1), arguments, cluster=(PLACES * BLOCKS, 1, 1))
    function = build(kernel, text(kind, dtype, count, shift), folder, edit)
    for _ in range(turns):
        x = draw.standard_normal(whole).astype(dtype.numpy)
        memory["x"][...] = x.reshape(-1)
        launch(function, memory, {}, {}, order)
        total = np.zeros(whole[1], np.float32)
        for part in x.astype(np.float32):
            total += part
        for rank in range(PLACES):
            found = memory["y"].reshape(whole)[rank, shift:]
            np.testing.assert_array_equal(found, total.astype(dtype.numpy)[shift:])


@pytest.mark.parametrize("kind", ["sum", "few", "slices"])
@pytest.mark.parametrize(
    ("dtype", "count", "shift"),
    [(F32, 1000, 0), (BF16, 1001, 0), (BF16, 64, 3), (DTYPES["f16"], 7, 0), (F32, 513, 1)],
)
def test_all_ranks_have_the_sum_in_order_of_place(
    kind: str, dtype: DType, count: int, shift: int, tmp_path: Path
) -> None:
    """To the bit, in f32 and rounded once; of any number of elements, wherever they lie."""
    for order in ORDERS:
        summed(kind, dtype, count, tmp_path, order, shift)


@pytest.mark.parametrize("kind", ["sum", "slices", "few"])
@pytest.mark.parametrize("turn", [1 << 25, (1 << 26) - 1, (1 << 32) - 1])
def test_old_flags_are_old_after_many_turns_without(kind: str, turn: int, tmp_path: Path) -> None:
    """After so many sums of few bytes that 32 bits do not count the turns, or chunks of them."""
    for order in ORDERS:
        summed(kind, BF16, 1000, tmp_path, order, turn=turn)


LEFT_OUT = {
    "nobody waits": ("sum", "while (load_acquire", "while (false && load_acquire"),
    "a chunk is waited for too early": ("sum", "flags.wait(base + c)", "flags.wait(base + c - 1)"),
    "one thread alone has waited": (
        "sum", "guard.wait();\n    }\n    __syncthreads();", "guard.wait();\n    }",
    ),
    "flags are written too early": (
        "sum", "__syncthreads();\n    if (signals) store", "if (signals) store",
    ),
    "the turn stays": ("sum", "== blocks - 1) turns[0] = turn + 1;", "== blocks - 1) {}"),
    "few are not waited for": ("few", "if (numbers[0] == number && numbers[1] == number) return;",
                               "return;"),
    "parts are waited for too early": (
        "slices", "parts.wait(base + c)", "parts.wait(base + c - 1)",
    ),
    "results are waited for too early": (
        "slices", "results.wait(base + c - 1)", "results.wait(base + c - 2)",
    ),
    "results have the flags of parts": (
        "slices", "results(how, block, 1)", "results(how, block, 0)",
    ),
    "results lie among the parts": (
        "slices", "sizeof(PushedWords) / 2;", "sizeof(PushedWords) * 0;",
    ),
    "the turn of slices stays": (
        "slices", "== blocks - 1) turns[0] = turn + 1;", "== blocks - 1) {}",
    ),
    "the turn of few stays": ("few", "== blocks - 1) turns[0] = turn + 1;", "== blocks - 1) {}"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_OUT)
def test_the_emulator_finds_sums_that_do_not_wait(name: str, tmp_path: Path) -> None:
    kind, before, after = LEFT_OUT[name]
    edited: list[str] = []

    def edit(text: str) -> str:
        edited.extend([text] if before in text else [])
        return text.replace(before, after)

    def in_all_orders() -> None:
        for order in ORDERS:
            summed(kind, BF16, 1000, tmp_path, order, edit=edit)

    with pytest.raises(AssertionError):
        in_all_orders()
    assert edited, "nothing was edited"


# Launches, on GPUs whose streams run in any order that they allow.


MANY = 300
"""Rows of more bytes than are few in these tests."""


@pytest.fixture(autouse=True)
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let less be few, since all memory of tests is."""
    monkeypatch.setattr(transport, "FEW_BYTES", 4096)


def summing(rows: int) -> HostProgram:
    """Return z = x of all ranks, added."""
    buffers = (buffer("x", "input", rows, H), buffer("z", "output", rows, H))
    body = (Allocate("z"), Collective("all_reduce", "z", "x", "mesh", RANKS, "sum"), Wait("z"))
    return HostProgram("summing", buffers, (), body, ("z",))


def issued(seed: int, calls: int = 6) -> None:
    """Assert what calls of two programs return, issued one behind the other, of one stream."""
    gpus = FakeGpus(RANKS, Random(seed))

    def work(links: Links) -> int:
        device: Any = gpus.devices[links.rank]
        first = GpuTransport(links, device)
        made = list[tuple[int, Record]]()
        arena = Arena(device, device.stream)
        for rows in (2, 5, MANY):
            member = Member(MESH, links.rank, first.another(f"{rows}"))
            executable = Executable(device, summing(rows), {}).among(member)
            made.append((rows, Record(executable, {}, arena)))
        found = list[tuple[int, int]]()
        for call in range(calls):
            rows, record = made[call % 3]
            size = rows * H * 4
            x, z = device.allocate(size, "x"), device.allocate(size, "z")
            device.upload(x, np.full((rows, H), links.rank + 10 * call, np.float32))
            record.issue([x, z], {})
            found.append((z, size))
        links.until(device.is_done, "the end of the calls")
        links.gather(None, "all have done")
        for call, (z, size) in enumerate(found):
            values = device.download(z, size).view(np.float32)
            np.testing.assert_array_equal(values, sum(r + 10 * call for r in range(RANKS)))
        return len(first._shared.pushes._boxes)  # type: ignore[union-attr]

    assert in_threads(RANKS, work) == [1] * RANKS


@pytest.mark.parametrize("sent_at_once", [2 << 20, 0], ids=["at once", "in slices"])
@pytest.mark.parametrize("seed", range(6))
def test_programs_of_a_stream_share_a_mailbox(
    seed: int, sent_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushed_sums, "MOST_SENT_TO_ALL", sent_at_once)
    issued(seed)


@pytest.mark.parametrize("ranks", range(2, 9))
def test_each_place_has_room_for_what_is_pushed(ranks: int) -> None:
    """Of all sums that are pushed: all elements of a rank, or a part and a result of a slice."""
    group, kinds = tuple(range(ranks)), set[str]()
    for size in (*(2**k + d for k in range(18, 25) for d in (-2, 2)), 12582912, 5592406):
        memory = DeviceMemory(0, size // 2, BF16, 0)
        exchange = Collective("all_reduce", "z", "x", "mesh", ranks, "sum")
        begin = Begin(exchange, memory, memory, group, 0, waits_immediately=True)
        if not pushes(begin):
            continue
        kind, threads = transport._kind(begin)
        vectors = -(-size // transport.VECTOR)
        kinds.add(kind)
        if kind == "slices":
            assert 2 * -(-vectors // ranks) * transport.VECTOR <= transport._capacity(begin)
        elif kind == "sum":
            assert vectors * transport.VECTOR <= transport._capacity(begin)
        assert threads >= ranks
    assert kinds == ({"sum"} if ranks == 2 else {"sum", "slices"})


@pytest.mark.nightly
def test_the_stand_in_finds_mailboxes_with_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank writes the next elements before another has added the last ones."""
    monkeypatch.setattr(fake_push, "TURNS", 1)

    def in_many_orders() -> None:
        for seed in range(30):
            issued(seed)

    with pytest.raises((AssertionError, RankFailure)):  # whoever is first to see it
        in_many_orders()


def test_few_bytes_are_pushed_where_gpus_reach_one_another() -> None:
    """Others are NCCL's: more bytes, other types and reductions, or not waited for at once."""

    def begin(size: int = 4096, dtype: DType = F32, reduction: str = "sum", **given: Any) -> Begin:
        memory = DeviceMemory(0, size // dtype.size, dtype, 0)
        exchange = Collective("all_reduce", "z", "x", "mesh", 2, reduction)
        return Begin(exchange, memory, memory, (0, 1), 0, **{"waits_immediately": True, **given})

    assert pushes(begin())
    assert pushes(begin(PUSHED_BYTES, BF16))
    for other in (
        begin(PUSHED_BYTES + 4), begin(dtype=F64), begin(reduction="max"), begin(0),
        begin(waits_immediately=False),
    ):  # fmt: skip
        assert not pushes(other)

    # To several ranks less is sent: four add 8 MiB, of which each sends three quarters twice.
    for size, is_pushed in ((8 << 20, True), ((8 << 20) + 4, False)):
        assert pushes(replace(begin(size), group=(0, 1, 2, 3))) == is_pushed

    def work(links: Links) -> tuple[str, str]:
        transport = GpuTransport(links, gpus.devices[links.rank])
        near = transport.carrier(begin()).name
        transport._shared.access = [{0}, {1}]
        return near, transport.carrier(begin()).name

    gpus: Any = FakeGpus(2)
    assert in_threads(2, work) == [(PUSHES, NCCL)] * 2


@pytest.mark.parametrize(
    ("dtype", "reduction", "by_nccl"),
    [(F32, "sum", set()), (F32, "max", {"y", "z"}), (F64, "sum", {"y", "z"})],
)
@pytest.mark.parametrize("waits", [True, False])
def test_a_run_reports_which_sums_nccl_adds(
    dtype: DType,
    reduction: str,
    by_nccl: set[str],
    *,
    waits: bool,
    nccl: Make,  # noqa: F811
) -> None:
    """Those that its transport gives to NCCL: `y` is not pushed where its stream does not wait."""
    buffers = [buffer("x", "input", 2, H, dtype=dtype)]
    buffers += [buffer(name, "output", 2, H, dtype=dtype) for name in "yz"]
    y, z = (Collective("all_reduce", name, "x", "mesh", RANKS, reduction) for name in "yz")
    sums = (y, Wait("y"), z) if waits else (y, z, Wait("y"))
    body = (Allocate("y"), Allocate("z"), *sums, Wait("z"))
    program, gpus = HostProgram("summing", tuple(buffers), (), body, ("y", "z")), FakeGpus(RANKS)

    def work(links: Links) -> frozenset[str]:
        device: Any = gpus.devices[links.rank]
        nccl(links, device)  # what stands in for the library on this thread
        transport = GpuTransport(links, device)
        executable = Executable(device, program, {}, Member(MESH, links.rank, transport))
        with executable.bind({"x": np.zeros((2, H), dtype.numpy)}, {}) as bound:
            carried = [(e, transport.carrier(begin).name) for e, begin in bound.exchanges]
            transport.close()
        return added_by_nccl(carried)

    wanted = by_nccl if waits else by_nccl | {"y", "z"}
    assert in_threads(RANKS, work) == [wanted] * RANKS


def test_without_a_compiler_on_every_rank_nccl_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = EnvironmentProblem("NVRTC is not there")
    asked: list[int] = []

    def architectures() -> tuple[int, ...]:
        asked.append(1)
        if len(asked) == 1:
            raise missing
        return (90,)

    monkeypatch.setattr("fusec.run.transports.kernels.supported_architectures", architectures)
    gpus: Any = FakeGpus(2)

    def work(links: Links) -> bool:
        return GpuTransport(links, gpus.devices[links.rank])._shared.pushes is None

    assert in_threads(2, work) == [True] * 2
