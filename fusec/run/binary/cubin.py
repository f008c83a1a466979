"""Statistics of the kernels in a cubin: registers, spills, stack, shared memory.

The compiler's log has the same data, but NVRTC leaves it empty for kernels found in its own cache.
The attributes are those that `cuobjdump -elf` names; they agree with the log for over a thousand
kernels for sm_80 to sm_120, built by NVRTC 12.8 to 13.4.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from fusec.dataclasses import dataclass
from fusec.foreign import decoding
from fusec.run.binary.elf import Elf

_FUNCTION = 2
_ENTRY = 0x10  # in a symbol's `other`: a kernel, not a device function

# Attributes: a byte of form, a byte of kind, two bytes of value; depending on the form, the value
# is the size of a payload that follows.
_WITH_PAYLOAD = 4
_STACK = 0x12
_REGISTERS = 0x2F
_ANNOTATIONS = 0x55
_SPILL = 1  # an annotation: the instruction at this offset spills or reloads a register

_ANNOTATION = struct.Struct("<II")
_INSTRUCTION = struct.Struct("<QQ")
_WIDTHS = (1, 1, 2, 2, 4, 8, 16)
"""Bytes per load or store, by bits 73 to 75 of the instruction."""

_RESERVED = ".nv.shared.reserved.0"
_RESERVED_BYTES = 1024
"""Shared memory per block that the system reserves if a cubin has that section."""


@dataclass(frozen=True)
class KernelStats:
    """Statistics of one kernel; stack in bytes per thread, shared memory in bytes per block.

    spill_bytes: of all spill stores and loads in the code, each counted once, also in functions
    that were not inlined.
    """

    name: str
    registers: int = 0
    stack_bytes: int = 0
    spill_bytes: int = 0
    shared_bytes: int = 0


def kernel_stats(cubin: bytes) -> tuple[KernelStats, ...]:
    """Return the statistics of each kernel, sorted by name; ValueError for an invalid cubin."""
    with decoding(lambda reason: ValueError(f"a damaged cubin: {reason}")):
        elf = Elf(cubin)
        facts = _facts_by_symbol(elf)
        return tuple(
            KernelStats(
                symbol.name,
                registers=facts.get((_REGISTERS, symbol.number), 0),
                stack_bytes=facts.get((_STACK, symbol.number), 0),
                spill_bytes=_spill_bytes(elf, symbol.name),
                shared_bytes=_shared_bytes(elf, symbol.name),
            )
            for symbol in sorted(elf.symbols, key=lambda s: s.name)
            if symbol.kind == _FUNCTION and symbol.other & _ENTRY
        )


def _facts_by_symbol(elf: Elf) -> dict[tuple[int, int], int]:
    """Return the values of the attributes of a file, by attribute and symbol."""
    payloads = ((kind, payload) for kind, payload in attributes(elf, ".nv.info"))
    pairs = ((kind, struct.unpack("<II", p)) for kind, p in payloads if len(p) == 8)
    return {(kind, symbol): value for kind, (symbol, value) in pairs}


def attributes(elf: Elf, section: str) -> Iterator[tuple[int, bytes]]:
    """Yield kind and payload of the attributes of a section that have a payload."""
    found = elf.by_name.get(section)
    content = b"" if found is None else elf.content(found)
    place = 0
    while place < len(content):
        form, kind, size = struct.unpack_from("<BBH", content, place)
        place += 4
        if form == _WITH_PAYLOAD:
            yield kind, content[place : place + size]
            place += size


def _spill_bytes(elf: Elf, kernel: str) -> int:
    """Return the bytes that the spill instructions of a kernel load and store.

    Accesses to arrays in local memory use the same instructions, without annotation.
    """
    code = elf.content(elf.by_name[f".text.{kernel}"])
    total = 0
    for kind, payload in attributes(elf, f".nv.info.{kernel}"):
        if kind != _ANNOTATIONS:
            continue
        for what, offset in _ANNOTATION.iter_unpack(payload):
            if what == _SPILL:
                total += _width(code, offset)
    return total


def _width(code: bytes, offset: int) -> int:
    """Return the bytes of the load or store at an offset of the code."""
    high: int = _INSTRUCTION.unpack_from(code, offset)[1]
    return _WIDTHS[high >> 9 & 7]


def _shared_bytes(elf: Elf, kernel: str) -> int:
    """Return the static shared memory that the kernel itself declares."""
    section = elf.by_name.get(f".nv.shared.{kernel}")
    if section is None:
        return 0
    return section.size - (_RESERVED_BYTES if _RESERVED in elf.by_name else 0)
