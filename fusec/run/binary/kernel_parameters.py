"""Parameters of a compiled kernel, checked against the arguments of its launch.

The driver reads as many argument bytes as the kernel's parameters have. An edited source may
declare other parameters than its launch passes, and the driver would read out of bounds.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress

from fusec.foreign import decoding
from fusec.run.binary.cubin import attributes
from fusec.run.binary.elf import Elf
from fusec.run.launch import TENSOR_MAP_BYTES
from fusec.schedule.plan import Argument, ScalarArgument, SizeArgument, TensorMapArgument

_PARAMETER = 0x17
_FORM = struct.Struct("<IHHI")
"""Format of a parameter: index, ordinal, offset, flags with the size from bit 18 on."""


def sizes_taken(cubin: bytes, kernel: str) -> tuple[int, ...] | None:
    """Return the bytes of each parameter of a kernel, in order; None where it is unknown."""
    section = f".nv.info.{kernel}"
    with suppress(ValueError), decoding(ValueError):
        elf = Elf(cubin)
        if section not in elf.by_name:
            return None
        found = (_FORM.unpack(p) for kind, p in attributes(elf, section) if kind == _PARAMETER)
        return tuple(flags >> 18 for _, _, _, flags in sorted(found, key=lambda f: f[1]))
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
