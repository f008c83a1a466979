"""Runs chosen blocks of kernels on tensors of many gigabytes, of which little is really there.

An input repeats a short pattern through its whole extent, by mapping the same pages again and
again; an output is a file with holes, in which only what is written takes memory.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import cuda_on_cpu
import numpy as np

from fusec.codegen.dispatch import plan_sources
from fusec.schedule.plan import Kernel, KernelPlan, SizeArgument

PAGE = mmap.PAGESIZE
PERIOD = 257 * PAGE
"""Bytes of a pattern: no divisor of a power of two, so that an index that wraps reads elsewhere."""
_MAP_SHARED, _MAP_FIXED, _MAP_PRIVATE, _MAP_ANONYMOUS, _MAP_NORESERVE = 1, 16, 2, 32, 0x4000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def _map(address: int | None, size: int, flags: int, file: int) -> int:
    found = _libc.mmap(address, size, 3, flags, file, 0)
    assert found not in (None, ctypes.c_void_p(-1).value), os.strerror(ctypes.get_errno())
    return found


@dataclass
class Memory:
    """Buffers by name: their addresses, and the files behind those that are written."""

    address: dict[str, int] = field(default_factory=dict[str, int])
    _mapped: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    _files: dict[str, int] = field(default_factory=dict[str, int])

    def __enter__(self) -> Memory:
        """Return the memory."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give everything back."""
        for address, size in self._mapped:
            _libc.munmap(address, size)
        for file in self._files.values():
            os.close(file)

    def repeat(self, name: str, pattern: np.ndarray, size: int) -> None:
        """Add a buffer of `size` bytes that repeats a pattern of PERIOD bytes."""
        assert pattern.nbytes == PERIOD
        file = os.memfd_create(name)
        os.write(file, pattern.tobytes())
        whole = -(-size // PERIOD) * PERIOD
        base = _map(None, whole, _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE, -1)
        for start in range(0, whole, PERIOD):
            _map(base + start, PERIOD, _MAP_PRIVATE | _MAP_FIXED, file)
        os.close(file)
        self._mapped.append((base, whole))
        self.address[name] = base

    def holes(self, name: str, size: int) -> None:
        """Add a buffer of `size` zero bytes."""
        file = os.memfd_create(name)
        os.ftruncate(file, size)
        self.address[name] = _map(None, size, _MAP_SHARED, file)
        self._mapped.append((self.address[name], size))
        self._files[name] = file

    def written(self, name: str, dtype: Any) -> Iterable[tuple[int, np.ndarray]]:
        """Return the parts of a buffer that were touched, with the position of their start."""
        file, kind = self._files[name], np.dtype(dtype)
        end, at = os.fstat(file).st_size, 0
        while at < end:
            try:
                start = os.lseek(file, at, os.SEEK_DATA)
            except OSError:
                return
            at = os.lseek(file, start, os.SEEK_HOLE)
            raw = (ctypes.c_uint8 * (min(at, end) - start)).from_address(self.address[name] + start)
            yield start // kind.itemsize, np.frombuffer(raw, kind)


def run_blocks(
    plan: KernelPlan,
    memory: Memory,
    folder: Path,
    blocks: Mapping[int, Sequence[tuple[int, int, int]]],
) -> None:
    """Run the chosen blocks of each kernel of a plan, by the kernel's number."""
    for number, source in enumerate(plan_sources(plan)):
        _run(source.kernel, source.text, memory, dict(plan.fusion.hints), folder, blocks[number])


def _run(
    kernel: Kernel,
    text: str,
    memory: Memory,
    sizes: Mapping[str, int],
    folder: Path,
    blocks: Sequence[tuple[int, int, int]],
) -> None:
    function = cuda_on_cpu.build(kernel, text, folder)
    library = function.library
    flat = [n for block in blocks for n in block]
    library.choose_blocks((ctypes.c_uint * len(flat))(*flat), len(blocks))
    values: list[Any] = []
    for argument in kernel.arguments:
        if isinstance(argument, SizeArgument):
            kind = ctypes.c_longlong if argument.wide else ctypes.c_int
            values.append(kind(argument.value.evaluate(sizes)))
        else:
            values.append(ctypes.c_void_p(memory.address[argument.name]))
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
    function(
        pointers, (*(g.evaluate(sizes) for g in kernel.grid), *kernel.block), kernel.shared_bytes
    )
