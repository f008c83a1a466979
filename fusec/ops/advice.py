"""What would mend operands that do not broadcast."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from fusec.ir.dim import Shape, dim
from fusec.ir.graph import Value
from fusec.ir.op import OpDef
from fusec.ops.shapes import Unequal

_MOST_TURNED = 4
"""Dims up to which orders of dims are tried."""


@dataclass(frozen=True)
class Dropped:
    """The dims that an operation has reduced and not kept, in a tensor of some rank."""

    op: str
    dims: tuple[int, ...]
    rank: int

    def kept(self, shape: Shape) -> Shape:
        """Return the shape of the result if the dims had been kept."""
        left = iter(shape)
        return tuple(dim(1) if axis in self.dims else next(left) for axis in range(self.rank))


def dropped_by(op: str, dims: Sequence[int] | int | None, rank: int) -> Dropped:
    """Return what a reduction over `dims`, of all without, leaves out."""
    listed = [dims] if isinstance(dims, int) else range(rank) if dims is None else dims
    every = [axis % rank for axis in listed] if rank else []
    return Dropped(op, tuple(sorted(every)), rank)


def dropped_of(
    op: OpDef,
    operands: Sequence[Any],
    attributes: Mapping[str, Any],
    results: Iterable[Value],
) -> Iterator[tuple[Value, Dropped]]:
    """Yield the results of a call that reduces dims and does not keep them, with these dims."""
    first = operands[0] if operands else None
    reduces = any(p.name == "keepdim" for p in op.params) and not attributes.get("keepdim")
    if reduces and isinstance(first, Value) and first.type.shape is not None:
        for value in results:
            yield value, dropped_by(op.name, attributes.get("dims"), len(first.type.shape))


def advised(error: Unequal, values: Sequence[Value], dropped: Mapping[str, Dropped]) -> Unequal:
    """Return an error of operands that do not broadcast, with what would mend them if known."""
    help, old = advice(values, dropped), error.diagnostic
    return Unequal(old.message, notes=old.notes, help=help, code=error.code) if help else error


def advice(values: Sequence[Value], dropped: Mapping[str, Dropped]) -> str | None:
    """Return what would mend operands that do not broadcast; None where nothing is known.

    dropped: by a value's name, the reduction that it is of.
    """
    for value in values:
        others = [o.type.shape for o in values if o is not value]
        if value.type.shape is None or any(shape is None for shape in others):
            continue
        shapes = [shape for shape in others if shape is not None]
        known = dropped.get(value.name)
        if known is not None and len(known.dims) == known.rank - len(value.type.shape):
            kept = known.kept(value.type.shape)
            if all(_broadcast(kept, shape) for shape in shapes):
                which = ", ".join(map(str, known.dims))
                many = "s" * (len(known.dims) > 1)
                kept_by = f"`{known.op}(..., keepdim=True)` keeps dim{many} {which}"
                return f"{kept_by}, so that `{value.name}` broadcasts"
    for value in reversed(values):
        for other in values:
            order = _order(value.type.shape, other.type.shape)
            if order is not None:
                return f"`permute({value.name}, {list(order)})` has the shape of `{other.name}`"
    return None


def _broadcast(left: Shape, right: Shape) -> bool:
    pairs = zip(reversed(left), reversed(right), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def _order(shape: Shape | None, wanted: Shape | None) -> tuple[int, ...] | None:
    """Return the order of dims that makes a shape another one; None where none does."""
    if shape is None or wanted is None or len(shape) != len(wanted) or shape == wanted:
        return None
    if not 1 < len(shape) <= _MOST_TURNED:
        return None
    orders = permutations(range(len(shape)))
    return next((o for o in orders if tuple(shape[k] for k in o) == tuple(wanted)), None)
