"""Contiguous chunks of rows: how many columns one bulk copy can load."""

from __future__ import annotations

from fusec.index.access import Facts
from fusec.index.instances import Instance
from fusec.ir.dim import dim
from fusec.ir.expression import Var, index, of_var, variables_of
from fusec.schedule.rows.problem import RowsProblem

ALIGNED = 16
"""Alignment in bytes of the addresses and sizes of bulk copies."""


def piece_of(problem: RowsProblem, load: Instance, width: int) -> int:
    """Return the columns per contiguous chunk of a row, or 0.

    Each chunk is aligned to ALIGNED bytes, consists of whole vectors, and has as many columns as
    the others: all columns, or those of the innermost of the reduced axes.
    """
    if (
        load.address is None
        or load.conditions
        or load.gathered
        or width * load.dtype.size % ALIGNED
    ):
        return 0
    sizes = [1]
    for axis in reversed(problem.rows.reduced):
        sizes.append(sizes[-1] * axis.extent.value)
    return next((n for n in reversed(sizes[1:]) if _is_piece(problem, load, width, n)), 0)


def _is_piece(problem: RowsProblem, load: Instance, width: int, columns: int) -> bool:
    """Return whether aligned groups of `columns` columns are contiguous."""
    if columns % width or columns // width < 2 or load.address is None:
        return False
    _, chunk, lane = problem.rows.variables(width)
    piece = Var("piece", dim(problem.rows.columns.value // columns))
    inside = Var("inside", dim(columns // width))
    vector = of_var(piece) * (columns // width) + of_var(inside)
    address, along = load.address.substitute({chunk: vector}), {inside, lane}
    if not along <= address.variables:
        return False
    for atom, coefficient in address.terms:
        if not variables_of(atom) & along:
            continue
        if not isinstance(atom, Var) or coefficient != (width if atom == inside else 1):
            return False
    start = address.substitute({inside: index(0), lane: index(0)})
    return Facts(problem.hints).index_multiple(start, ALIGNED // load.dtype.size)
