"""Instruction counts of a rendered kernel at given sizes."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.codegen.source import KernelSource
from fusec.kernel.counting.counts import count
from fusec.kernel.counting.level_counts import KernelCounts
from fusec.schedule.plan import SizeArgument, TensorArgument, WorkspaceArgument


def counts_of(source: KernelSource, sizes: Mapping[str, int]) -> KernelCounts | None:
    """Return the instructions of a thread of a kernel; None for a source that is not rendered."""
    if source.body is None:
        return None
    passed = source.body.view.parameters
    pointers = {
        p.name: p.type for p in passed if isinstance(p.argument, TensorArgument | WorkspaceArgument)
    }
    grid = zip("xyz", source.kernel.grid, strict=True)
    numbers = {f"gridDim.{axis}": extent.evaluate(sizes) for axis, extent in grid}
    for each in passed:
        if isinstance(each.argument, SizeArgument):
            numbers[each.name] = each.argument.value.evaluate(sizes)
    return count(source.body.nodes, numbers, pointers)
