"""Functions that the reader of bounds does not follow: what they access, and what they return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fences.syntax import Node

from .linear import PERHAPS, Sum, Unknown, at_least_zero
from .values import Choice, Pointer, Thing


def first(pointer: Any) -> Any:
    """Return the pointer, or the first of several."""
    while isinstance(pointer, Choice):
        pointer = pointer.yes
    return pointer


def vector_load(reader: Any, node: Node, values: list[Any]) -> Any:
    """Read N elements."""
    pointer = first(values[0])
    count = reader.argument(node.arguments[0]) if node.arguments else 1
    if not isinstance(pointer, Pointer):
        reader.access("read", pointer, None, node)
        return Thing()
    each = reader.size_of(pointer.type)
    size = each * count if each and isinstance(count, int) else None
    reader.access("read", values[0], size, node)
    return Thing(f"Vec<{pointer.type},{count}>", f"data of `{pointer.root}`")


def load_words(reader: Any, node: Node, values: list[Any]) -> Any:
    """Read words once, four where their number is not given."""
    count = reader.argument(node.arguments[0]) if node.arguments else 4
    reader.access("read", values[0], 4 * count if isinstance(count, int) else None, node)
    return Thing(f"Vec<u32,{count}>")


def vector_store(reader: Any, node: Node, values: list[Any]) -> Any:
    """Write a vector."""
    kind = values[1].type if isinstance(values[1], Thing) else ""
    reader.access("written", values[0], reader.size_of(kind) if kind else None, node)
    return Thing()


def element(kind: str) -> Callable[[Any, Node, list[Any]], Any]:
    """Return a function of one element."""

    def accessed(reader: Any, node: Node, values: list[Any]) -> Any:
        pointer = first(values[0])
        if isinstance(pointer, Pointer):
            reader.access(kind, values[0], reader.size_of(pointer.type), node)
            return Thing(pointer.type, f"data of `{pointer.root}`")
        reader.access(kind, pointer, None, node)
        return Thing()

    return accessed


def copy_16(reader: Any, node: Node, values: list[Any]) -> Any:
    """Begin to read 16 bytes, where a test holds if one is given."""
    return copied(reader, node, values, 16)


def copy_some(reader: Any, node: Node, values: list[Any]) -> Any:
    """Begin to read as many bytes as the template's argument says."""
    size = reader.argument(node.arguments[0]) if node.arguments else None
    return copied(reader, node, values, size if isinstance(size, int) else None)


def copied(reader: Any, node: Node, values: list[Any], size: int | None) -> Any:
    """Begin to read some bytes, where a test holds if one is given."""
    if len(values) > 2:
        reader.path.append(reader.truth(values[2]))
    reader.access("read", values[1], size, node)
    if len(values) > 2:
        reader.path.pop()
    return Thing()


def copy_bytes(reader: Any, node: Node, values: list[Any]) -> Any:
    """Begin to read as many bytes as are given, if any."""
    size = reader.number(values[2])
    reader.path.append(at_least_zero(size - 1))
    reader.access("read", values[1], size, node)
    reader.path.pop()
    return Thing()


def bulk(kind: str, place: int) -> Callable[[Any, Node, list[Any]], Any]:
    """Return a copy of as many bytes as the third argument says."""

    def accessed(reader: Any, node: Node, values: list[Any]) -> Any:
        size = values[2].value if isinstance(values[2], Sum) else None
        reader.access(kind, values[place], size, node)
        return Thing()

    return accessed


def checked(reader: Any, node: Node, values: list[Any]) -> Any:
    """Return an index within its extent."""
    extent = values[1].value if isinstance(values[1], Sum) else None
    found = Unknown("index", 0, None if extent is None else max(extent - 1, 0))
    return Sum(0, {found: 1})


def shift(reader: Any, node: Node, values: list[Any]) -> Any:
    """Return how many elements behind a vector's place a run begins."""
    pointer = first(values[0])
    count = reader.argument(node.arguments[0]) if node.arguments else None
    size = reader.size_of(pointer.type) if isinstance(pointer, Pointer) else None
    if not isinstance(pointer, Pointer) or not isinstance(count, int) or size is None:
        return reader.unknown("shift", "where a vector begins", 0)
    key = (pointer.root, pointer.offset, count * size)
    if key not in reader.shifts:
        base = (pointer.root, Sum(-1), count * size)
        if base not in reader.shifts:
            aligned = reader.alignments.get(pointer.root, 0) % (count * size) == 0
            known = pointer.root in reader.alignments and aligned
            start = Unknown(f"start of {pointer.root}", 0, count - 1)
            reader.shifts[base] = Sum(0) if known else Sum(0, {start: 1})
        elements = reader.divide(pointer.offset, Sum(size)) + reader.shifts[base]
        reader.shifts[key] = reader.rest(elements + count * 2, Sum(count))
    return reader.shifts[key]


def nothing(reader: Any, node: Node, values: list[Any]) -> Any:
    """Access nothing."""
    return Thing(reason=f"`{node.text}()`")


def least_of(reader: Any, node: Node, values: list[Any]) -> Any:
    """Return the smaller number."""
    if not all(isinstance(v, Sum) for v in values):
        values = [reader.number(v) for v in values]
    return reader.select(at_least_zero(values[1] - values[0]), *values)


def largest_of(reader: Any, node: Node, values: list[Any]) -> Any:
    """Return the larger number."""
    if not all(isinstance(v, Sum) for v in values):
        values = [reader.number(v) for v in values]
    return reader.select(at_least_zero(values[0] - values[1]), *values)


def rank(reader: Any, node: Node, values: list[Any]) -> Any:
    """Return the number of a block in its cluster."""
    blocks = reader.shapes.get("cluster", 1)
    return reader.rest(reader.places["blockIdx.x"], Sum(blocks)) if blocks > 1 else Sum(0)


def lane(reader: Any, node: Node, values: list[Any]) -> Any:
    """Return the number of a thread in its warp."""
    return reader.rest(reader.places["threadIdx.x"], Sum(32))


def warpgroup(reader: Any, node: Node, values: list[Any]) -> Any:
    """Return the number of a thread's warpgroup."""
    return reader.divide(reader.places["threadIdx.x"], Sum(128))


def ticket(reader: Any, node: Node, values: list[Any]) -> Any:
    """Take a number below a count, where one is given."""
    element("written")(reader, node, values)
    count = values[1].value if len(values) > 1 and isinstance(values[1], Sum) else None
    found = Unknown("ticket", 0, None if count is None else count - 1)
    found.reason = "" if count is not None else "a ticket"
    found.is_exact = count is not None
    return Sum(0, {found: 1})


def last(reader: Any, node: Node, values: list[Any]) -> Any:
    """Count the blocks that have arrived."""
    element("written")(reader, node, values)
    return PERHAPS


TABLE: dict[str, Callable[[Any, Node, list[Any]], Any]] = {
    "min": least_of,
    "max": largest_of,
    # vector.cuh
    **dict.fromkeys(("load", "load_readonly", "load_streaming"), vector_load),
    **dict.fromkeys(("store", "store_streaming"), vector_store),
    # matmul_gemv.cuh
    **dict.fromkeys(("load_once", "load_words_once"), load_words),
    # The language's own.
    **dict.fromkeys(("__ldg", "__ldcg", "__ldcs"), element("read")),
    **dict.fromkeys(
        ("__stcs", "atomicAdd", "atomicMax", "atomicCAS", "atomicOr", "atomicMin"),
        element("written"),
    ),
    # scatter.cuh, grid.cuh and system.cuh
    **dict.fromkeys(("store_relaxed", "store_release", "add_release"), element("written")),
    **dict.fromkeys(("load_acquire", "wait_turn", "spin_until"), element("read")),
    **dict.fromkeys(("count_and_wrap", "take_ticket", "take_block_ticket"), ticket),
    "release_turn": element("written"),
    "last_block": last,
    # async_copy.cuh, tma.cuh and bulk_reduce.cuh
    **dict.fromkeys(("copy_async_16", "copy_async_16_of_line"), copy_16),
    "copy_async": copy_some,
    "copy_async_16_bytes": copy_bytes,
    "bulk_load": bulk("read", 1),
    "bulk_store": bulk("written", 0),
    **dict.fromkeys(("bulk_reduce_add", "bulk_reduce_max", "bulk_reduce_min"), bulk("written", 0)),
    # The hardware keeps copies by tensor maps inside of them; what is only fetched may be anywhere.
    **dict.fromkeys(("prefetch_tensormap", "prefetch_l2", "load_operand"), nothing),
    "own_lane": lane,
    "warpgroup_number": warpgroup,
    "check_index": checked,
    "shift_of": shift,
    "cluster_rank": rank,
}
