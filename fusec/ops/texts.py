"""Text of operations in nvFuser's dumps if it is more than a name and operands."""

from __future__ import annotations

from collections.abc import Callable

from fusec.ir.graph import Node
from fusec.ir.roles import Line, Text


def function(name: str) -> Text:
    """Return the text of a function whose name gets an `f` if the result is in f32."""
    return Text(function=name + "{single}")


def expression(body: str) -> Text:
    """Return the text of an expression that starts the line after its results."""
    return Text(layout="{out}\n   = " + body + "\n")


def scan(operation: str) -> Text:
    """Return the text of a scan."""
    kind = f" dim={{dim}},\n op_type={operation},\n init={{init}}"
    return Text(layout="{out}\n = scan({0},\n" + kind + ")\n")


def _set(line: Line) -> str:
    return f"{line.result}\n   = Set( {line.operands[0]}, cache_op=Streaming )\n"


def _expand(line: Line) -> str:
    extents = f", {line.sizes(line.node.output.shape)}" if line.style != "head" else ""
    return f"{line.result} = expand( {line.operands[0]}{extents} )\n"


def _broadcast_to_places(line: Line) -> str:
    places: tuple[int, ...] = line.node.attributes["broadcast_dims"]
    flags = line.flags([k not in places for k in range(line.node.output.rank)])
    return f"{line.result}\n   = broadcast( {line.operands[0]}{flags} )\n"


def _steps_in_dim(node: Node) -> tuple[Callable[[Line], str], ...]:
    """Return nvFuser's equivalent of a broadcast_in_dim: a broadcast, an expand, or both."""
    source, target = node.operands[0].shape, node.output.shape
    places: tuple[int, ...] = node.attributes["broadcast_dims"]
    inserts = len(places) < len(target)
    kept = dict(zip(places, source, strict=True))
    expands = any(kept.get(k, 1) != e for k, e in enumerate(target))
    return ((_broadcast_to_places,) * inserts + (_expand,) * expands) or (_set,)


def _broadcast(line: Line) -> str:
    flags = line.flags(line.node.attributes["is_broadcast_dim"])
    return f"{line.result}\n   = broadcast( {line.operands[0]}{flags} )\n"


def _squeeze(line: Line) -> str:
    rank = len(line.node.operands[0].shape)
    flags = line.flags([k in line.node.attributes["dims"] for k in range(rank)])
    return f"{line.result}\n   = squeeze( {line.operands[0]}{flags} )\n"


def _reshape(line: Line) -> str:
    return (
        f"{line.result} = {'reshape' if line.style == 'head' else 'view'}( {line.operands[0]} )\n"
    )


def _slice(line: Line) -> str:
    attributes = line.node.attributes
    bounds = (attributes[k] for k in ("start_indices", "end_indices", "strides"))
    ranges = " ".join(map(line.sizes, zip(*bounds, strict=True)))
    return f"{line.result}\n   = slice( {line.operands[0]}, {{ {ranges} }} )\n"


def _pad(line: Line) -> str:
    widths = line.sizes(line.node.attributes["pad_widths"])
    return f"{line.result}\n   = pad( {line.operands[0]}, {widths} )\n"


def _cat(line: Line) -> str:
    tensors = ", ".join(line.operands)
    return f"{line.result}\n   = cat( {tensors}, {line.node.attributes['dim']} )\n"


def _update_slice(line: Line) -> str:
    starts = line.sizes(line.node.attributes["start_indices"])
    return f"{line.result}\n   = update_slice( {', '.join(line.operands)}, {starts} )\n"


def _full(line: Line) -> str:
    return f"{line.result}\n   = full({line.sizes(line.node.output.shape)}, {line.operands[0]})\n"


def _iota(line: Line) -> str:
    dtype = line.node.output.dtype.printed
    parts = [line.size(line.node.attributes["length"]), *line.operands, dtype]
    return f"{line.result}\n   = iota({', '.join(parts)});\n"


def _product(line: Line) -> str:
    name = line.node.op.name
    gap = ",\n" + " " * (len(name) + 6)
    return f"{line.result}\n   = {name}({gap.join(line.operands)})\n"


def random_text(function: str) -> Text:
    """Return the text of random numbers."""

    def layout(line: Line) -> str:
        shape, dtype = line.sizes(line.node.output.shape), line.node.output.dtype.printed
        parts = [shape, *line.operands[:2], dtype, *line.operands[2:]]
        return f"{line.result}\n   = {function}({', '.join(parts)});\n"

    return Text(layout=layout)


SET = Text(layout=_set)
PERMUTE = expression("Set.Permute( {0}, cache_op=Streaming )")
SEGMENT_SET = expression("SegmenterSet( {0} )")
BROADCAST = Text(layout=_broadcast)
BROADCAST_IN_DIM = Text(steps=_steps_in_dim)
EXPAND = Text(layout=_expand)
SQUEEZE = Text(layout=_squeeze)
RESHAPE = Text(layout=_reshape)
SLICE = Text(layout=_slice)
PAD = Text(layout=_pad)
CAT = Text(layout=_cat)
UPDATE_SLICE = Text(layout=_update_slice)
FULL = Text(layout=_full)
IOTA = Text(layout=_iota)
PRODUCT = Text(layout=_product)
INDEX_SELECT = expression("indexSelect( {0}, dim = {dim}, {1} )")
SELECT = expression("select( {0}, axis = {dim}, index = {1} )")
GATHER = expression("torchGather( {0}, dim = {dim}, {1} )")
TAKE_ALONG_AXIS = expression("takeAlongAxis( {0}, {1}, dim = {dim} )")
SCATTER = expression("scatter(in = {0}, dim = {dim}, src = {2}, idx = {1} )")
SCATTER_ADD = expression("scatter(in = {0}, dim = {dim}, src = {2}, idx = {1}, accumulate = add )")
ARGSORT = Text(
    layout="{out} = argsort( {0}, dim = {dim}, descending = {descending}, stable = {stable} )\n"
)
TOPK = Text(
    layout="{out} = topk( {0}, {k}, dim = {dim}, largest = {largest}, sorted = {sorted} )\n"
)
