"""Measured memory roofline: kernels that only copy, with a workload's bytes and read/write mix."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from importlib import resources
from itertools import product
from typing import Any

from fusec.bench.fill import repeat, repeatable
from fusec.bench.timer import Contender, Timer, launch
from fusec.codegen.render import environment
from fusec.dataclasses import dataclass
from fusec.run.build import Source
from fusec.run.device import Device
from fusec.run.launch import PackedArguments
from fusec.target import Target

WORD = 16
"""Bytes per load or store instruction of a thread."""
COARSE = 5
"""Runs of each variant; the fastest few are then timed like the workload."""
FINALISTS = 4
NEVER = 0x9E3779B9


@dataclass(frozen=True)
class Variant:
    """A streaming kernel: threads per block, words in flight per thread, and the cache hint."""

    threads: int
    unroll: int
    streaming: bool

    @property
    def name(self) -> str:
        """Return a name for reports: `256x4` or `256x4 streaming`."""
        return f"{self.threads}x{self.unroll}" + (" streaming" if self.streaming else "")

    @property
    def load(self) -> str:
        """Return the device function that reads a word."""
        return "load_streaming" if self.streaming else "load_readonly"

    @property
    def store(self) -> str:
        """Return the device function that writes a word."""
        return "store_streaming" if self.streaming else "store"

    @property
    def tile(self) -> int:
        """Return the words that a block copies at a time."""
        return self.threads * self.unroll


VARIANTS = tuple(Variant(*each) for each in product((128, 256, 512), (1, 2, 4, 8), (False, True)))


def text_of(variant: Variant) -> str:
    """Return the CUDA source of a kernel, whose entry is `stream`."""
    return environment().get_template("bench/streaming.cu.j2").render(k=variant)


def hold_text() -> str:
    """Return the CUDA source of the waiting kernel, whose entry is `hold`."""
    return (resources.files("fusec") / "templates" / "bench" / "hold.cu").read_text("utf-8")


def sources() -> list[Source]:
    """Return the sources to build for a benchmark in addition to the workload's own kernels."""
    streams = [Source(f"stream_{w.name.replace(' ', '_')}", text_of(w)) for w in VARIANTS]
    return [Source("hold", hold_text()), *streams]


@dataclass(frozen=True)
class Parts:
    """The arguments of a launch: words read and written, and tiles."""

    reads: int
    writes: int
    tiles: int
    read_share: int
    write_share: int


def parts_of(variant: Variant, read_bytes: int, written_bytes: int) -> Parts:
    """Return the arguments of a launch of a variant, in whole words.

    A share is tiles of a stream per 2^32 tiles of the longer one, rounded up: with fewer than 2^32
    tiles `tile * share >> 32` counts exactly the stream's own tiles, from none to all of them.
    """
    reads, writes = -(-read_bytes // WORD), -(-written_bytes // WORD)
    own = [-(-words // variant.tile) for words in (reads, writes)]
    tiles = max(*own, 1)
    read_share, write_share = (-(-(each << 32) // tiles) for each in own)
    return Parts(reads, writes, tiles, read_share, write_share)


@dataclass(frozen=True)
class Limit:
    """The minimum time of the kernels for some bytes; variant: the fastest one."""

    seconds: float
    variant: str


class Streams:
    """The kernels on a device, and the memory that they copy.

    limit: the best time at given bytes read and written, each measured once.
    """

    def __init__(self, device: Device, functions: Sequence[Any], target: Target) -> None:
        """Take the functions of VARIANTS, in their order."""
        self.device, self.target = device, target
        self._functions = dict(zip(VARIANTS, functions, strict=True))
        self._memory: dict[str, tuple[int, int]] = {}
        self._known: dict[tuple[int, int], Limit] = {}

    def close(self) -> None:
        """Free the memory."""
        for address, _ in self._memory.values():
            self.device.free(address)
        self._memory = {}

    def limit(self, timer: Timer, read_bytes: int, written_bytes: int) -> Limit:
        """Return the limit at these bytes, measured now unless it is cached."""
        key = read_bytes, written_bytes
        if key not in self._known:
            self._known[key] = self._measured(timer, *key)
        return self._known[key]

    def _measured(self, timer: Timer, read_bytes: int, written_bytes: int) -> Limit:
        every = list(self._contenders(read_bytes, written_bytes))
        coarse = timer.race(every, COARSE, warm_up=0.0)
        order = sorted(range(len(every)), key=lambda k: coarse[k].seconds)
        final = timer.race([every[k] for k in order[:FINALISTS]])
        best = min(final, key=lambda t: t.seconds)
        return Limit(best.seconds, best.name)

    def _contenders(self, read_bytes: int, written_bytes: int) -> list[Contender]:
        source = self._place("read", read_bytes)
        target = self._place("written", written_bytes)
        found: list[Contender] = []
        for variant in VARIANTS:
            parts = parts_of(variant, read_bytes, written_bytes)
            resident = self.target.sms * self.target.threads // variant.threads
            for blocks in {parts.tiles: "", min(parts.tiles, resident): " resident"}.items():
                issue = partial(self.move, variant, blocks[0], source, target, parts)
                found.append(Contender(variant.name + blocks[1], issue))
        return found

    def move(self, variant: Variant, blocks: int, source: int, target: int, parts: Parts) -> None:
        """Launch one of the kernels."""
        packed = PackedArguments(
            [
                *(ctypes.c_uint64(a) for a in (source, target)),
                *(ctypes.c_int64(n) for n in (parts.reads, parts.writes, parts.tiles)),
                *(ctypes.c_uint64(s) for s in (parts.read_share, parts.write_share)),
                ctypes.c_uint32(NEVER),
            ]
        )
        launch(self.device, self._functions[variant], blocks, variant.threads, packed)

    def _place(self, name: str, size: int) -> int:
        """Return the address of at least `size` bytes, and at least of a word."""
        wanted = max(-(-size // WORD), 1) * WORD
        address, have = self._memory.get(name, (0, 0))
        if have < wanted:
            if have:
                self.device.free(address)
            address = self.device.allocate(wanted, f"bytes that are {name}")
            repeat(self.device, address, repeatable(), wanted)
            self._memory[name] = address, wanted
        return address
