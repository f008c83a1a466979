"""What a kernel asks of the addresses that it is given, read off its text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fusec.kernel.ctext import identifier
from fusec.schedule.plan import Kernel, TensorArgument, TensorMapArgument

WIDEST = 16
"""Bytes of the widest access; also what bulk copies ask."""
_COMMENT = re.compile(r"//[^\n]*")
_WIDTH = re.compile(r"\bconstexpr int (k\w*(?:Vec|Width)) = (\d+);")
_LOOKED_AT = re.compile(
    r"\brun = $|fusec::(?:is_inside|load_across)<[^<>]*>\(\s*$"
    r"|fusec::copy_(?:vector|elements)<\w+>\([^,;]*,\s*$"
)
"""What takes a pointer to elements anywhere: it is looked at where they begin."""


def alignments(kernel: Kernel, text: str) -> dict[str, int]:
    """Return by buffer, in bytes, of what each address that a kernel takes must be a multiple.

    An element by itself asks for its own size, a vector for that of one access. Of whatever else is
    done with a pointer the most is assumed.
    """
    body = _COMMENT.sub("", text)
    body = body[body.find(f" {kernel.name}(") :].partition("{")[2]
    widths = {name: int(width) for name, width in _WIDTH.findall(text)}
    found: dict[str, int] = {}
    for argument in kernel.arguments:
        if isinstance(argument, TensorMapArgument):
            found[argument.buffer] = WIDEST
        elif isinstance(argument, TensorArgument):
            size = argument.dtype.size
            asked = _asked(identifier(argument.name), size, body, widths)
            found[argument.name] = max(found.get(argument.name, size), *asked, size)
    return found


def _asked(name: str, size: int, body: str, widths: dict[str, int]) -> Iterator[int]:
    """Yield what each place asks where a pointer to elements of `size` bytes is read."""
    load = r"fusec::(?:load|load_readonly|load_streaming)<(\w+)>\($"
    for place in re.finditer(rf"(?<![\w.]){name}\b(?!\[)", body):
        before = body[max(0, place.start() - 80) : place.start()]
        loaded = re.search(load, before)
        if loaded is not None:
            width = loaded[1]
            known = int(width) if width.isdigit() else widths.get(width)
            yield WIDEST if known is None else access_bytes(known * size)
        elif re.search(r"fusec::store(?:_streaming)?\($", before):
            # The type of what is stored has the width: one of the kernel's own, or a pair.
            yield max(access_bytes(width * size) for width in (2, *widths.values()))
        elif _LOOKED_AT.search(before):
            yield size
        elif re.search(r"fusec::(?:bring_rows|leave_rows|shift_of)<[^>]*>\((?:\w+, )?$", before):
            # The same; what is taken out of the tile then are vectors.
            yield access_bytes(widths.get("kVec", 1) * size)
        elif turned := re.search(r"fusec::bring_turned<[^>]*, (\d+)>\(\w+, $", before):
            yield access_bytes(int(turned[1]) * size)
        else:
            yield WIDEST


def access_bytes(size: int) -> int:
    """Return the bytes of one access to a run of `size` bytes (vector.cuh)."""
    return min(size & -size, WIDEST)
