"""Shared by the attention schedulers: recognition of segments, and checks of operands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from fusec.diagnostics import Unsupported
from fusec.index.access import Facts
from fusec.index.domain import Refusal
from fusec.ir.dim import Dim
from fusec.ir.graph import Fusion
from fusec.schedule.attention.maps import is_readable
from fusec.schedule.common import dynamic_symbols, specialise, unsupported_nodes
from fusec.schedule.matmul.choice import MOST_COORDINATE
from fusec.schedule.matmul.operands.operand import Operand
from fusec.schedule.plan import Guard

Found = TypeVar("Found")


def recognised(
    segment: Fusion,
    find: Callable[[Fusion], Found | Refusal],
    families: tuple[str, ...],
    readers: str,
) -> tuple[Fusion, Found] | Refusal:
    """Return a segment with specialized sizes and what it was recognized as, or why it was not.

    find: the recognizer; families: operations that the segment may have; readers: what else reads
    inputs while a kernel runs.
    """
    refusal = unsupported_nodes(segment, families)
    if refusal is not None:
        return refusal
    if segment.effects.overwritten:
        return Refusal("aliases", f"an input is written while other {readers} may still read it")
    fusion, _ = specialise(segment, dynamic_symbols(segment))
    try:
        found = find(fusion)
    except Unsupported as error:
        return Refusal("domain", str(error))
    return found if isinstance(found, Refusal) else (fusion, found)


def check_copies(
    fusion: Fusion,
    features: Iterable[Dim],
    known: Collection[int],
    operands: Iterable[tuple[Operand, bool]],
    extents: Iterable[Dim],
) -> Refusal | None:
    """Return why bulk copies cannot load operands with any parameters, or None.

    features: of a head; known: those that kernels support; operands: each with whether it must be
    K-major; extents: those that coordinates index.
    """
    for extent in features:
        if not extent.is_const or extent.value not in known:
            options = ", ".join(map(str, known))
            return Refusal("features", f"{extent} features per head; supported: {options}")
    facts = Facts(fusion.hints)
    for operand, along in operands:
        if operand.k_major is not along or not is_readable(operand, facts):
            name = operand.buffer.name
            return Refusal("operand", f"the rows of `{name}` are not aligned for bulk copies")
    sizes = [e.evaluate(fusion.hints) for e in extents]
    if min(sizes) == 0 or max(sizes) > MOST_COORDINATE:
        return Refusal("extents", "a tensor is empty, or too large for bulk copies")
    return None


def row_guards(facts: Facts) -> tuple[Guard, ...]:
    """Return the guards that keep rows aligned to 16-byte copies."""
    because = "rows begin at multiples of 16 bytes"
    return tuple(Guard(value, "%", by, because) for value, by in facts.assumed)
