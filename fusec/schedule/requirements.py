"""What a segment must have for each scheduler to analyse it; no scheduler is imported here.

Each function returns why a scheduler does not support a segment, as far as its operations show, or
None. The registry imports the scheduler after that; its `problem` begins with the same check.
"""

from __future__ import annotations

from fusec.index.domain import Refusal
from fusec.ir.graph import Fusion, Node
from fusec.schedule.attention.sums import as_products
from fusec.schedule.common import MEMORY_BOUND, foreign_nodes, is_empty, unsupported_nodes
from fusec.schedule.rows.column_axes import column_axes
from fusec.segment.cheap import FLAT
from fusec.segment.limits import MOST_ARMS

IN_GEMM = ("contraction", "pointwise", "movement", "factory", "scalar")
"""Families of operations in a GEMM with prologue and epilogue."""
FORWARD_GEMMS, BACKWARD_GEMMS = 2, 5
"""GEMMs of attention, and of its gradients."""


def nothing(segment: Fusion) -> Refusal | None:
    """Return None: the scheduler analyses any segment."""
    del segment
    return None


def one_gemm(segment: Fusion) -> Refusal | None:
    """Return why a segment has no GEMM, or None."""
    if _nodes(segment, "contraction"):
        return None
    refusal = unsupported_nodes(segment, IN_GEMM)
    return refusal or Refusal("contraction", "the scheduler needs one GEMM, found 0")


def two_gemms(segment: Fusion) -> Refusal | None:
    """Return why a segment lacks the GEMMs of attention, or None."""
    return _gemms(segment, FORWARD_GEMMS, "two")


def two_gemms_or_sums(segment: Fusion) -> Refusal | None:
    """Return why a segment lacks the GEMMs of attention, or sums that are GEMMs, or None."""
    return _gemms(as_products(segment), FORWARD_GEMMS, "two")


def five_gemms(segment: Fusion) -> Refusal | None:
    """Return why a segment lacks the GEMMs of the gradients of attention, or None."""
    return _gemms(segment, BACKWARD_GEMMS, "five")


def flat(segment: Fusion) -> Refusal | None:
    """Return why a segment is not elementwise, or None."""
    return unsupported_nodes(segment, FLAT)


def wide_concatenation(segment: Fusion) -> Refusal | None:
    """Return why no output concatenates more tensors than one kernel takes, or None."""
    refusal = foreign_nodes(segment, FLAT)
    if refusal is not None:
        return refusal
    if len(segment.outputs) != 1:
        return Refusal("concat", f"expected one output, found {len(segment.outputs)}")
    value = segment.outputs[0].value
    node = segment.producer.get(value)
    access = None if node is None else node.op.access
    if node is None or access is None or access.concat_dim is None:
        return Refusal("concat", f"`{value.name}` is not a concatenation")
    if len(node.operands) <= MOST_ARMS:
        because = f"one kernel can take all {len(node.operands)} tensors: the limit is {MOST_ARMS}"
        return Refusal("concat", because)
    return None


def memory_bound(segment: Fusion) -> Refusal | None:
    """Return why a segment does not run on one iteration domain, or None."""
    return unsupported_nodes(segment, MEMORY_BOUND)


def one_scan(segment: Fusion) -> Refusal | None:
    """Return why a segment does not have one scan, or None."""
    refusal, scans = unsupported_nodes(segment, FLAT | {"scan"}), _nodes(segment, "scan")
    if refusal is None and len(scans) != 1:
        return Refusal("scans", f"expected one scan, found {len(scans)}")
    return refusal


def one_sort(segment: Fusion) -> Refusal | None:
    """Return why a segment does not have one sort or top-k, or None."""
    refusal = unsupported_nodes(segment, FLAT | {"sort", "reduction"})
    sorts = _nodes(segment, "sort")
    if refusal is None and len(sorts) != 1:
        return Refusal("operations", f"expected one sort or top-k, found {len(sorts)}")
    return refusal


def any_scatter(segment: Fusion) -> Refusal | None:
    """Return why a segment has no scatter, or None."""
    refusal = unsupported_nodes(segment, FLAT | {"scatter"})
    if refusal is None and not _nodes(segment, "scatter"):
        return Refusal("scatters", "expected one scatter, found 0")
    return refusal


def columns_of_rows(segment: Fusion) -> Refusal | None:
    """Return why a segment does not reduce over rows, or None."""
    found = memory_bound(segment)
    if found is None and is_empty(segment):
        return Refusal("empty", "a tensor has no elements")
    axes = found or column_axes(segment)
    return axes if isinstance(axes, Refusal) else None


def _gemms(segment: Fusion, wanted: int, word: str) -> Refusal | None:
    count = len(_nodes(segment, "contraction"))
    if count != wanted:
        return Refusal("contraction", f"the pattern needs {word} GEMMs, found {count}")
    return None


def _nodes(segment: Fusion, family: str) -> list[Node]:
    return [n for n in segment.nodes if n.op.family == family]
