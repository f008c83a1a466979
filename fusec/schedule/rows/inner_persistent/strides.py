"""How the elements of rows are laid out in memory if they are not contiguous."""

from __future__ import annotations

from fusec.index.instances import Instance
from fusec.schedule.rows.domain import lowered
from fusec.schedule.rows.problem import RowsProblem
from fusec.segment.traffic import SECTOR


def is_strided(problem: RowsProblem) -> bool:
    """Return whether neighbours of the largest load in the loop are in different sectors."""
    fusion, domain, rows = problem.fusion, problem.domain, problem.rows
    _, chunk, _ = rows.variables(1)
    loads = {i for p in lowered(fusion, domain, rows, 1)[1].loads for i in p}
    strides: list[tuple[int, bool]] = []
    for load in loads:
        assert load.address is not None
        assert load.value is not None
        step = load.address.coefficient(chunk)
        mixed = step is None and any(
            c == 1
            for a, c in load.address.terms
            if chunk in getattr(a, "inner", load.address).variables
        )
        far = step is None or not 0 < abs(step.evaluate(fusion.hints)) * load.dtype.size < SECTOR
        strides.append((load.value.rank, not mixed and far))
    return max(strides, default=(0, False))[1]


def bytes_across(problem: RowsProblem) -> int | None:
    """Return the bytes of an element if all loads are contiguous along columns, else None.

    Loads that depend on columns alone, or on rows alone, do not count.
    """
    row, chunk, _ = problem.rows.variables(1)
    _, phases = lowered(problem.fusion, problem.domain, problem.rows, 1)
    sizes: list[int] = []
    for load in frozenset[Instance]().union(*phases.loads):
        assert load.address is not None
        if {row, chunk} <= load.address.variables:
            if load.address.coefficient(row) != 1:
                return None
            sizes.append(load.dtype.size)
    return min(sizes, default=None)
