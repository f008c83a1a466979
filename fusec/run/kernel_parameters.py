"""The parameters that a kernel's machine code takes, and whether a launch passes them.

The driver reads as many arguments as the code takes, of the sizes that it takes: a text that was
edited may take others than its launch passes, and it would read beyond them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from fusec.run.launch import TENSOR_MAP_BYTES
from fusec.schedule.plan import Argument, ScalarArgument, SizeArgument, TensorMapArgument

# Places in the header of an ELF file of 64 bits, and the form of its table of sections.
_SECTIONS_AT = 0x28
_SECTION_COUNTS_AT = 0x3A  # bytes of an entry, entries, the entry of the section names
_SECTION = struct.Struct("<IIQQQQIIQQ")

# Attributes of a kernel: a byte of form, a byte of kind, two bytes of value; in the form with a
# payload the value is the payload's size. `cuobjdump -elf` names them.
_WITH_PAYLOAD = 4
_PARAMETER = 0x17
_PARAMETER_FORM = struct.Struct(
    "<IHHI"
)  # index, ordinal, offset, flags with the size above 18 bits


def sizes_taken(cubin: bytes, kernel: str) -> tuple[int, ...] | None:
    """Return the bytes of each parameter of a kernel, in order; None where it is not told."""
    try:
        content = _section(cubin, f".nv.info.{kernel}")
        if content is None:
            return None
        found = (
            _PARAMETER_FORM.unpack(p) for kind, p in _attributes(content) if kind == _PARAMETER
        )
        return tuple(flags >> 18 for _, _, _, flags in sorted(found, key=lambda f: f[1]))
    except (struct.error, ValueError, IndexError):
        return None


def sizes_passed(arguments: Sequence[Argument]) -> tuple[int, ...]:
    """Return the bytes of each argument of a launch."""
    return tuple(_size(argument) for argument in arguments)


def _size(argument: Argument) -> int:
    if isinstance(argument, SizeArgument):
        return 8 if argument.wide else 4
    if isinstance(argument, ScalarArgument):
        return argument.dtype.size
    return TENSOR_MAP_BYTES if isinstance(argument, TensorMapArgument) else 8


def _section(image: bytes, name: str) -> bytes | None:
    """Return the bytes of a section of an ELF file."""
    (start,) = struct.unpack_from("<Q", image, _SECTIONS_AT)
    size, count, names = struct.unpack_from("<HHH", image, _SECTION_COUNTS_AT)
    headers = [_SECTION.unpack_from(image, start + k * size) for k in range(count)]
    wanted = name.encode() + b"\0"
    for header in headers:
        if image.startswith(wanted, headers[names][4] + header[0]):
            return image[header[4] : header[4] + header[5]]
    return None


def _attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place < len(content):
        form, kind, size = struct.unpack_from("<BBH", content, place)
        place += 4
        if form == _WITH_PAYLOAD:
            yield kind, content[place : place + size]
            place += size
