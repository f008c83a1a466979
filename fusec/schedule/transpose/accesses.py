"""The accesses of both sides of a transpose kernel: the widest ones, and matching loads."""

from __future__ import annotations

from fusec.index.access import Facts, access_class
from fusec.schedule.registers import most_elements
from fusec.schedule.transpose.loads import matched, read_lowering, tiled_loads, write_lowering
from fusec.schedule.transpose.problem import Crossing


def widest_accesses(crossing: Crossing, facts: Facts) -> tuple[int, int]:
    """Return the widest accesses of the transposed loads and of the stores."""
    fusion = crossing.fusion
    sizes = [i.value.dtype.size for i in fusion.inputs if i.value.shape]
    sizes += [o.value.dtype.size for o in fusion.outputs]
    most = min(16 // min(sizes), most_elements(fusion))
    widths = [w for w in (16, 8, 4, 2) if w <= most]
    read = next((w for w in widths if _reads(crossing, w, facts) and matches(crossing, w, 1)), 1)
    writes = (w for w in widths if _writes(crossing, w, facts) and matches(crossing, read, w))
    return read, next(writes, 1)


def matches(crossing: Crossing, read: int, write: int) -> bool:
    """Return whether both sides of a kernel have the same loads, at the given access widths."""
    sides = read_lowering(crossing, read), write_lowering(crossing, write)
    for lowering, _ in sides:
        for output in crossing.fusion.outputs:
            lowering.at_home(output.value)
    return matched(crossing, *sides) is not None


def _reads(crossing: Crossing, width: int, facts: Facts) -> bool:
    lowering, (column, chunk, lane) = read_lowering(crossing, width)
    if not facts.multiple(crossing.line.extent, width):
        return False
    for output in crossing.fusion.outputs:
        lowering.at_home(output.value)
    loads = tiled_loads(lowering, {chunk: width, lane: 1}, column)
    return bool(loads) and all(
        access_class(i.address, (), lane, width, facts) == "vector" for i in loads if i.address
    )


def _writes(crossing: Crossing, width: int, facts: Facts) -> bool:
    lowering, (_, _, lane) = write_lowering(crossing, width)
    if not facts.multiple(crossing.column.extent, width):
        return False
    for output in crossing.fusion.outputs:
        conditions = lowering.stored_where(output.value)
        address = lowering.address(output.value, crossing.fusion.effects.strides(output.value))
        if access_class(address, conditions, lane, width, facts) != "vector":
            return False
    return True
