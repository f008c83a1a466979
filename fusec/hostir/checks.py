"""The index checks that a host program does, or whose results it reads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath

from fusec.escape import visible
from fusec.hostir.program import IndexCheck
from fusec.ir.graph import Fusion, Node, Operand, Value
from fusec.ops import TABLE
from fusec.ops.checks import CHECK_INDEX
from fusec.passes.check_indices import indexed


def index_checks(fusion: Fusion) -> Iterable[IndexCheck]:
    """Return the checks in kernels, and those of indices known from sizes that may be invalid."""
    seen = set[Node]()
    for node in fusion.nodes:
        found = indexed(node)
        if found is None:
            continue
        at, extent = found
        index = node.operands[at]
        known = index.type.dim
        if known is not None and not (known.at_least(0) and (extent - 1).at_least(known)):
            yield IndexCheck(0, _called(node), _name(index), extent, _place(node), known, node.span)
        check = fusion.producer.get(index) if isinstance(index, Value) else None
        if check is not None and check.op is CHECK_INDEX and check not in seen:
            seen.add(check)
            number: int = check.attributes["number"]
            name = _origin(fusion, check.operands[0])
            yield IndexCheck(number, _called(node), name, extent, _place(node), None, node.span)


def _origin(fusion: Fusion, index: Operand) -> str:
    """Return the name of the value that an index is a moved, selected or converted copy of."""
    name = _name(index)
    while isinstance(index, Value) and (node := fusion.producer.get(index)) is not None:
        if not (node.op.family == "movement" or node.op.converts or node.op.chooses):
            break
        index = next((v for v in node.inputs if v.dtype.is_integer), None) or node.operands[-1]
        name = _name(index)
    return name


def _called(node: Node) -> str:
    """Return the operation called in the file: a composite, or the node's own."""
    span = node.span
    word = None if span is None else re.match(r"\w+", span.text[span.column - 1 :])
    op = None if word is None else TABLE.get(word[0])
    return node.op.name if op is None else op.name


def _name(index: Operand) -> str:
    return index.name if isinstance(index, Value) else "the literal"


def _place(node: Node) -> str:
    """Return the source location of a node without its folder, which depends on the machine."""
    if node.span is None:
        return ""
    return f"{visible(PurePath(node.span.file).name)}:{node.span.line}:{node.span.column}"
