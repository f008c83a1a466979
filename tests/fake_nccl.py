"""NCCL for GPUs of tests: an exchange is done when the streams of all its ranks have come to it."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np
from fake_gpus import FakeGpus

TYPES = {
    "INT8": np.int8, "UINT8": np.uint8, "INT32": np.int32, "UINT32": np.uint32,
    "INT64": np.int64, "UINT64": np.uint64, "FLOAT16": np.float16, "FLOAT32": np.float32,
    "FLOAT64": np.float64, "BFLOAT16": "bfloat16", "FLOAT8E4M3": "float8_e4m3fn",
    "FLOAT8E5M2": "float8_e5m2",
}  # fmt: skip
NcclDataType = IntEnum("NcclDataType", list(TYPES), start=0)
NcclRedOp = IntEnum("NcclRedOp", ["SUM", "PROD", "MAX", "MIN"], start=0)
FUNCTIONS: tuple[Any, ...] = (np.add, np.multiply, np.maximum, np.minimum)


class NCCLError(Exception):
    """What the library reports."""


class UniqueId:
    def __bytes__(self) -> bytes:
        return b"\7" * 128

    @staticmethod
    def from_bytes(data: bytes) -> UniqueId:
        assert data == b"\7" * 128
        return UniqueId()


class FakeNccl:
    """Both modules of nccl4py that transports use, for the ranks of `gpus`."""

    def __init__(self, gpus: FakeGpus) -> None:
        self.gpus = gpus
        self.condition = threading.Condition()
        self.splits: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
        self.communicators: list[tuple[tuple[int, ...], int]] = []
        self.met: dict[tuple[Any, ...], dict[int, Any]] = defaultdict(dict)
        self.boxes: dict[tuple[Any, ...], deque[Any]] = defaultdict(deque)
        self.counts: dict[tuple[Any, ...], int] = defaultdict(int)
        self.local = threading.local()
        self.ended: list[str] = []
        nccl = self

        class Communicator:
            def __init__(self, group: tuple[int, ...], rank: int) -> None:
                self.group, self.rank, self.splits = group, rank, 0
                with nccl.condition:
                    nccl.communicators.append((group, rank))
                    self.ptr = len(nccl.communicators)

            @classmethod
            def init(cls, size: int, rank: int, unique: UniqueId) -> Communicator:
                return cls(tuple(range(size)), rank)

            def split(self, color: int, key: int) -> Communicator:
                self.splits += 1
                with nccl.condition:
                    entries = nccl.splits[self.splits]
                    entries[self.rank] = color, key
                    nccl.condition.notify_all()
                    full = len(self.group)
                    assert nccl.condition.wait_for(lambda: len(entries) == full, 5)
                own = [(k, r) for r, (c, k) in entries.items() if c == color]
                return Communicator(tuple(r for _, r in sorted(own)), self.rank)

            def destroy(self) -> None:
                nccl.ended.append("destroyed")

            def abort(self) -> None:
                nccl.ended.append("aborted")

        self.core = SimpleNamespace(
            Communicator=Communicator, UniqueId=UniqueId, get_unique_id=UniqueId,
            NcclDataType=NcclDataType, NcclRedOp=NcclRedOp,
            get_version=lambda: SimpleNamespace(libnccl="2.30"),
        )  # fmt: skip
        self.raw = SimpleNamespace(
            NCCLError=NCCLError, Comm=lambda ptr: ptr, all_gather=self.all_gather,
            all_reduce=self.all_reduce, reduce_scatter=self.reduce_scatter,
            broadcast=self.broadcast, send=self.send, recv=self.recv,
            group_start=self.group_start, group_end=self.group_end,
        )  # fmt: skip

    def module(self, name: str) -> Any:
        """Stand in for importlib.import_module."""
        return {"nccl.core": self.core, "nccl.bindings.nccl": self.raw}[name]

    def _view(self, rank: int, address: int, count: int, kind: int) -> np.ndarray:
        dtype = np.dtype(TYPES[NcclDataType(kind).name])
        return self.gpus.at(rank, address, count * dtype.itemsize).view(dtype)

    def _together(self, name: str, comm: int, stream: int, give: Any, take: Any) -> None:
        """Issue what waits for all ranks: `give` is called when a stream comes to it."""
        group, rank = self.communicators[comm - 1]
        number = self.counts[group, rank] = self.counts[group, rank] + 1
        given = self.met[group, number]

        def operation() -> bool:
            if rank not in given:
                given[rank] = name, give()
            if len(given) < len(group):
                return False
            assert len({what for what, _ in given.values()}) == 1, given
            take([given[r][1] for r in group], group.index(rank))
            return True

        self.gpus.devices[rank].issue(stream, name, operation)

    def all_gather(self, src: int, dst: int, count: int, kind: int, comm: int, stream: int) -> None:
        rank = self.communicators[comm - 1][1]

        def take(blocks: list[Any], _: int) -> None:
            self._view(rank, dst, count * len(blocks), kind)[...] = np.concatenate(blocks)

        self._together(
            "all_gather", comm, stream, lambda: self._view(rank, src, count, kind).copy(), take
        )

    def all_reduce(
        self, src: int, dst: int, count: int, kind: int, op: int, comm: int, stream: int
    ) -> None:
        rank = self.communicators[comm - 1][1]

        def take(blocks: list[Any], _: int) -> None:
            self._view(rank, dst, count, kind)[...] = _reduced(blocks, op)

        self._together(
            "all_reduce", comm, stream, lambda: self._view(rank, src, count, kind).copy(), take
        )

    def reduce_scatter(
        self, src: int, dst: int, count: int, kind: int, op: int, comm: int, stream: int
    ) -> None:
        group, rank = self.communicators[comm - 1]

        def give() -> Any:
            return self._view(rank, src, count * len(group), kind).copy()

        def take(blocks: list[Any], place: int) -> None:
            own = _reduced(blocks, op)[place * count : (place + 1) * count]
            self._view(rank, dst, count, kind)[...] = own

        self._together("reduce_scatter", comm, stream, give, take)

    def broadcast(
        self, src: int, dst: int, count: int, kind: int, root: int, comm: int, stream: int
    ) -> None:
        rank = self.communicators[comm - 1][1]

        def take(blocks: list[Any], _: int) -> None:
            self._view(rank, dst, count, kind)[...] = blocks[root]

        self._together(
            "broadcast", comm, stream, lambda: self._view(rank, src, count, kind).copy(), take
        )

    def group_start(self) -> None:
        self.local.group = []

    def send(self, src: int, count: int, kind: int, peer: int, comm: int, stream: int) -> None:
        self.local.group.append(("send", src, count, kind, peer, comm, stream))

    def recv(self, dst: int, count: int, kind: int, peer: int, comm: int, stream: int) -> None:
        self.local.group.append(("recv", dst, count, kind, peer, comm, stream))

    def group_end(self) -> None:
        """Issue one operation, which is done when each part has met its other end."""
        parts, self.local.group = self.local.group, []
        rank = self.communicators[parts[0][5] - 1][1]
        left: list[Any] = []
        posted: list[bool] = []

        def operation() -> bool:
            if not posted:
                posted.append(True)
                for what, address, count, kind, peer, comm, _ in parts:
                    group = self.communicators[comm - 1][0]
                    key = (
                        (group, rank, group[peer]) if what == "send" else (group, group[peer], rank)
                    )
                    entry = SimpleNamespace(done=False, view=self._view(rank, address, count, kind))
                    self.boxes[(what, *key)].append(entry)
                    left.append((entry, key))
            for _, key in left:
                sends, receives = self.boxes["send", *key], self.boxes["recv", *key]
                while sends and receives:
                    a, b = sends.popleft(), receives.popleft()
                    b.view[...] = a.view
                    a.done = b.done = True
            return all(entry.done for entry, _ in left)

        self.gpus.devices[rank].issue(parts[0][6], "send and receive", operation)


def _reduced(blocks: list[Any], op: int) -> Any:
    total = blocks[0]
    for block in blocks[1:]:
        total = FUNCTIONS[op](total, block)
    return total
