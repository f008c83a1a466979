"""What a cubin says of its kernels: registers, spills, stack, shared memory.

The compiler's log says the same, but NVRTC leaves it empty for what it finds in a cache of its own.
The attributes are those that `cuobjdump -elf` names; over a thousand kernels for sm_80 to sm_120,
built by NVRTC 12.8 to 13.4, they agree with the log.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from fusec.foreign import decoding
from fusec.run.elf import STRINGS, Elf

_FUNCTION = 2
_ENTRY = 0x10  # in a symbol's `other`: a kernel, not a function that one calls

# Attributes: a byte of form, a byte of kind, two bytes of value; by their form the value is the
# size of a payload that follows.
_WITH_PAYLOAD = 4
_STACK = 0x12
_REGISTERS = 0x2F
_ANNOTATIONS = 0x55
_SPILL = 1  # an annotation: at this offset of the code a register is spilled or filled again

_ANNOTATION = struct.Struct("<II")
_INSTRUCTION = struct.Struct("<QQ")
_WIDTHS = (1, 1, 2, 2, 4, 8, 16)
"""Bytes that a load or store moves, by bits 73 to 75 of the instruction."""

_RESERVED = ".nv.shared.reserved.0"
_RESERVED_BYTES = 1024
"""Shared memory that the system takes of each block where a cubin has that section."""


@dataclass(frozen=True)
class KernelStats:
    """What a cubin says of one kernel; bytes a thread, shared memory a block.

    spill_bytes: of all spill stores and loads in the code, each counted once, also in functions
    that were not inlined.
    """

    name: str
    registers: int = 0
    stack_bytes: int = 0
    spill_bytes: int = 0
    shared_bytes: int = 0


def kernel_stats(cubin: bytes) -> tuple[KernelStats, ...]:
    """Return the statistics of each kernel, sorted by name; ValueError where it is no cubin."""
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
    """Return the numbers that the file's attributes give, by attribute and symbol."""
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
    """Return the bytes that the spilling instructions of a kernel move.

    Arrays that a thread keeps on its stack are moved by the same instructions, not annotated.
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
    """Return the bytes that the load or store at an offset of the code moves."""
    high: int = _INSTRUCTION.unpack_from(code, offset)[1]
    return _WIDTHS[high >> 9 & 7]


def _shared_bytes(elf: Elf, kernel: str) -> int:
    """Return the static shared memory that the kernel itself asks for."""
    section = elf.by_name.get(f".nv.shared.{kernel}")
    if section is None:
        return 0
    return section.size - (_RESERVED_BYTES if _RESERVED in elf.by_name else 0)


def renamed(cubin: bytes, old: str, new: str) -> bytes:
    """Return a cubin whose kernel `old` is called `new`, of at most as many bytes.

    It is as if built under that name, but for what is left of a longer one: nothing in the file
    moves. ValueError where it has no such kernel.
    """
    was, now = old.encode(), new.encode()
    if len(now) > len(was):
        raise ValueError(f"`{new}` is longer than `{old}`")
    image = bytearray(cubin)
    for section in Elf(cubin).sections:
        content = bytes(image[section.offset : section.offset + section.size])
        if section.kind == STRINGS or section.name.endswith(".debug_str"):
            content = _rename_words(content, was, now, ends=b"\0")
        elif section.name.endswith(".nv_debug_ptx_txt"):
            content = _rename_words(content, was, now, ends=b" ")
        elif section.name.endswith(".debug_line"):
            content = _rename_file(content, was + b".cu", now + b".cu")
        else:
            continue
        image[section.offset : section.offset + section.size] = content
    if new not in {kernel.name for kernel in kernel_stats(bytes(image))}:
        raise ValueError(f"no kernel `{old}`")
    return bytes(image)


def _rename_words(text: bytes, old: bytes, new: bytes, ends: bytes) -> bytes:
    """Rename `old`, `.text.old`, `$old$helper`, `old_param_0`, `old.cu` and mangled names.

    What a word gets shorter is filled with `ends`.
    """
    own = re.compile(rb"(?:^|(?<=[.$]))%s(?=$|\$|\.cu$|_param_\d+$)" % re.escape(old))
    mangled, now = b"%d%sE" % (len(old), old), b"%d%sE" % (len(new), new)

    def rename(match: re.Match[bytes]) -> bytes:
        word = own.sub(new, match[0]).replace(mangled, now)
        return word.ljust(len(match[0]), ends)

    word = re.compile(rb"[\w.$]*%s[\w.$]*" % re.escape(old))
    lines = (word.sub(rename, line) if old in line else line for line in text.split(b"\0"))
    return b"\0".join(lines)


_LONGEST_NUMBER = 9
"""Bytes by which a number in LEB128 may be longer than needed: it has 10 at most."""


def _rename_file(lines: bytes, old: bytes, new: bytes) -> bytes:
    """Rename a file in a line table of DWARF 2.

    What the name gets shorter goes into the size of the file, an unknown one (0) in LEB128, which
    may be written with more bytes than it needs; what is too much for that, before the name.
    """
    spare = len(old) - len(new)
    steps = 0 if spare <= _LONGEST_NUMBER else spare // 2
    rest = b"\x80" * (spare - 2 * steps) + b"\0"
    entry = re.compile(rb"(?<=\0)%s\0(.\0)\0" % re.escape(old), re.DOTALL)
    return entry.sub(lambda m: b"./" * steps + new + b"\0" + m[1] + rest, lines)
