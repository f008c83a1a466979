"""Writes the fusion file of a model, with modules and source lines as comments."""

from __future__ import annotations

from collections.abc import Iterator

from fusec.diagnostics import FusecError, InternalError
from fusec.escape import visible
from fusec.ir.graph import Fusion
from fusec.models.convert import Converted
from fusec.models.folder import FUSION
from fusec.models.graph import ModelNode, node_error
from fusec.parse import read_text


def fusion_text(model: Converted, file: str = FUSION) -> tuple[str, Fusion]:
    """Return the text of a model's fusion file, and the fusion it defines.

    FusecError names the node whose line is wrong, or whose type differs from the graph's.
    """
    lines, nodes = list[str](), dict[int, ModelNode]()
    for text, node in _lines(model):
        lines.append(text)
        if node is not None:
            nodes[len(lines)] = node
    text = "\n".join(lines) + "\n"
    try:
        fusion = read_text(text, file)
    except InternalError:
        raise
    except FusecError as error:
        raise _of_node(model, error, nodes) from None
    _check_types(model, fusion)
    return text, fusion


def _lines(model: Converted) -> Iterator[tuple[str, ModelNode | None]]:
    graph = model.graph
    yield f"fusion: {graph.name}", None
    if graph.symbols:
        yield "dims:", None
    for name, size in graph.symbols.items():
        low, high = graph.ranges.get(name, (None, None))
        limits = f"  # {low or 0} to {'any size' if high is None else high}"
        yield f"  {name}: {size}{limits if name in graph.ranges else ''}", None
    if model.inputs:
        yield "inputs:", None
    for name, entry in model.inputs:
        note = "" if entry.kind == "input" else f"  # {visible(entry.key)}"
        yield f"  {name}: {entry.type}{note}", None
    yield "ops:", None
    module = ""
    for line in model.lines:
        node = line.node
        if node.module != module:
            yield f"  # {visible(node.module or 'the model')}", None
        module = node.module
        source = f"  # {visible(node.source)}" if node.source else ""
        yield f"  - {', '.join(line.names)} = {line.expression}{source}", node
    if not model.outputs:
        raise FusecError(f"`{graph.file}` has no outputs that are computed")
    yield "outputs:", None
    for name in model.outputs:
        alias = model.aliases.get(name)
        yield f"  - {name}" if alias is None else f"  - {name}: {{alias: {alias}}}", None


def _of_node(model: Converted, error: FusecError, nodes: dict[int, ModelNode]) -> FusecError:
    """Return the error of a line as that of its node."""
    told = error.diagnostic
    node = nodes.get(told.span.line) if told.span is not None else None
    if node is None:
        return error
    line = told.span.text.strip() if told.span is not None else ""
    reason = f"{told.message} in `{line.removeprefix('- ').partition('  #')[0]}`"
    return node_error(model.graph.file, node, reason, told.help, kind=type(error), notes=told.notes)


def _check_types(model: Converted, fusion: Fusion) -> None:
    """Raise FusecError for the first value whose type differs from the graph's."""
    nodes = {name: line.node for line in model.lines for name in line.names}
    for value in fusion.values:
        known = model.types.get(value.name)
        expected = str(value.type) if known is None else str(known)
        node = nodes.get(value.name)
        if node is not None and str(value.type) != expected:
            raise node_error(
                model.graph.file, node, f"its result is {value.type}, and {expected} in the graph"
            )
