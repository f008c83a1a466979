"""Operations between ranks and in loops over streams, which partitioned fusions consist of.

No file names them: `fusec.shard` inserts them into the fusion that one rank runs. Collectives
transfer blocks of dim 0, as in NCCL; adjacent movement operations make other dims the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fusec.diagnostics import FusecError, InternalError, Span
from fusec.ir.dim import Call, Dim, ceildiv, dim, floordiv
from fusec.ir.dtype import DType
from fusec.ir.graph import Fusion, Node, Operand, Type, Value
from fusec.ir.op import OpDef, Param
from fusec.ops.builder.arguments import attributes_of
from fusec.ops.dtypes import dtype_of

FAMILY = "communication"
"""Family of the operations in which a rank waits for others."""
PLACEMENT = "placement"
"""Family of operations that state the position of a tensor in a larger one; they move nothing."""
REDUCTIONS = ("sum", "prod", "max", "min")

Operands = Sequence[Operand]
Attributes = Mapping[str, Any]
Shape = tuple[Dim, ...]


def _alone(*_: Any, **__: Any) -> Any:
    raise InternalError("a single rank cannot evaluate an operation between ranks")


def _compute(operands: Operands, _: DType) -> tuple[DType, ...]:
    return tuple(dtype_of(o) for o in operands)


def _op(
    name: str,
    family: str,
    doc: str,
    shape: Callable[[Shape, Attributes], Shape],
    *params: Param,
    lies: str = "",
    per_rank: bool = False,
) -> OpDef:
    def infer(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
        made = Type(dtype_of(operands[0]), shape(operands[0].shape, attributes))
        return (made,) * (attributes["ranks"] if per_rank else 1)

    operand = Param("arg", "operand")
    return OpDef(name, family, (operand, *params), _alone, infer, _compute, doc=doc, lies=lies)


def _same(shape: Shape, _: Attributes) -> Shape:
    return shape


def _gathered(shape: Shape, attributes: Attributes) -> Shape:
    return (shape[0] * dim(attributes["ranks"]), *shape[1:])


def _divided(shape: Shape, at: int, parts: Dim) -> Shape:
    """Return the shape with one part of a dim; a symbolic extent is declared a multiple."""
    own = shape[at].divide(parts)
    if own is None and shape[at].is_const:
        raise FusecError(f"an extent of {shape[at]} is not divisible into {parts} equal parts")
    part = floordiv(shape[at], parts) if own is None else own
    return (*shape[:at], part, *shape[at + 1 :])


def joined(part: Dim, parts: Dim) -> Dim:
    """Return the extent that `_divided` divides into `part`."""
    for atom in part.atoms():
        if isinstance(atom, Call) and floordiv(atom.left, atom.right) == part:
            times = parts.divide(atom.right)
            if times is not None:
                return atom.left * times
    return part * parts


def _piece(shape: Shape, attributes: Attributes) -> Shape:
    return _divided(shape, 0, dim(attributes["pieces"]))


def _sent(shape: Shape, attributes: Attributes) -> Shape:
    whole = joined(shape[0], dim(attributes["pieces"]))
    return (whole * dim(attributes["ranks"]), *shape[1:])


def _scattered(shape: Shape, attributes: Attributes) -> Shape:
    return _divided(shape, 0, dim(attributes["ranks"]))


def _sliced(shape: Shape, attributes: Attributes) -> Shape:
    return _divided(shape, attributes["dim"], attributes["parts"])


def _sliced_by_stream(shape: Shape, attributes: Attributes) -> Shape:
    at: int = attributes["dim"]
    if not attributes["uneven"]:
        return _sliced(shape, attributes)
    return (*shape[:at], ceildiv(shape[at], attributes["parts"]), *shape[at + 1 :])


def _stacked(shape: Shape, attributes: Attributes) -> Shape:
    at: int = attributes["dim"]
    parts: Dim = attributes["parts"]
    of: tuple[Dim, ...] | None = attributes["of"]
    whole = of[0] if of else joined(shape[at], parts)
    return (*shape[:at], whole, *shape[at + 1 :])


_AXIS, _RANKS = Param("axis", "str"), Param("ranks", "int")
_REDUCTION = Param("reduction", "str", "sum")
_DIM, _PARTS = Param("dim", "axis"), Param("parts", "size")
_PIECES = Param("pieces", "int", 1)
_UNEVEN = Param("uneven", "bool", None)
"""Whether slices are of ceildiv(extent, parts) elements, and the last overlaps the one before."""
_INNER, _TIMES = Param("inner", "size", None), Param("times", "size", None)
"""For a loop over several dims: iterations with the same slice of a dim, and total iterations."""
_ALIGNED = Param("aligned", "bool", None)
"""Whether kernels that read or write the part require tensors aligned to 16 bytes."""
_OF = Param("of", "shape", None)
"""For a stack of such slices: the extent of the whole; None if the slices divide it evenly."""

ALL_GATHER = _op(
    "all_gather", FAMILY, "Return the blocks of all ranks along `axis`, one after the other.",
    _gathered, _AXIS, _RANKS,
)  # fmt: skip
ALL_REDUCE = _op(
    "all_reduce", FAMILY, "Reduce over the ranks along `axis`, with the result on all.",
    _same, _AXIS, _RANKS, _REDUCTION,
)  # fmt: skip
REDUCE_SCATTER = _op(
    "reduce_scatter", FAMILY, "Reduce over the ranks along `axis`; each rank gets its block.",
    _scattered, _AXIS, _RANKS, _REDUCTION,
)  # fmt: skip
BROADCAST = _op(
    "broadcast_rank", FAMILY,
    "Broadcast the tensor of rank index `root` along `axis`; the ranks in `to` use it.",
    _same, _AXIS, _RANKS, Param("root", "int"), Param("to", "ints"),
)  # fmt: skip
ALL_TO_ALL = _op(
    "all_to_all", FAMILY, "Send block j to rank index j along `axis`, and receive one of each.",
    _same, _AXIS, _RANKS,
)  # fmt: skip
PEER_VIEWS = _op(
    "peer_views", FAMILY,
    "Return the tensor of each rank along `axis`, by rank index, as peer memory.",
    _same, _AXIS, _RANKS, per_rank=True,
)  # fmt: skip
RECEIVE_SLICE = _op(
    "receive_slice", FAMILY,
    "In a loop of `pieces` iterations for each rank along `axis`: return the piece of dim 0 of that"
    " rank's tensor whose number the loop's slice has.",
    _piece, _AXIS, _RANKS, _PIECES,
)  # fmt: skip
SEND_SLICE = _op(
    "send_slice", FAMILY,
    "In such a loop: give the rank that the slice belongs to what was computed for it. Return, "
    "after the loop, the blocks that came from all ranks along `axis`, by their rank index.",
    _sent, _AXIS, _RANKS, _PIECES,
)  # fmt: skip
RANK_SLICE = _op(
    "rank_slice", PLACEMENT, "Return the rank's shard of a dim with `parts` equal shards.",
    _sliced, _DIM, _PARTS, _AXIS, _ALIGNED, lies="inside",
)  # fmt: skip
STREAM_SLICE = _op(
    "stream_slice", PLACEMENT, "Return the slice of a dim for an iteration of a loop.",
    _sliced_by_stream, _DIM, _PARTS, _UNEVEN, _INNER, _TIMES, _ALIGNED, lies="inside",
)  # fmt: skip
STREAM_STACK = _op(
    "stream_stack", PLACEMENT, "Return, after a loop, the slices of all iterations concatenated.",
    _stacked, _DIM, _PARTS, _OF, _ALIGNED, lies="around",
)  # fmt: skip

OPERATIONS = (
    ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST, PEER_VIEWS, RECEIVE_SLICE,
    SEND_SLICE, RANK_SLICE, STREAM_SLICE, STREAM_STACK,
)  # fmt: skip


LEAVE = (STREAM_STACK, SEND_SLICE)
"""Operations that collect results of a loop's iterations, available after the loop."""


def slices_begun(node: Node) -> Dim | None:
    """Return the number of slices of the loop that a node begins, None if it begins none."""
    if node.op is STREAM_SLICE:
        times: Dim | None = node.attributes.get("times")
        return node.attributes["parts"] if times is None else times
    if node.op is RECEIVE_SLICE:
        return dim(node.attributes["ranks"] * node.attributes["pieces"])
    return None


Ranks = frozenset[int]


def held_by(op: OpDef, attributes: Attributes, operands: Iterable[Ranks | None]) -> Ranks | None:
    """Return the ranks that hold the results of an operation, given those that hold its operands.

    None: all. It runs on the ranks that hold all of its operands.
    """
    if op is BROADCAST:
        return frozenset(attributes["to"])
    held = [ranks for ranks in operands if ranks is not None]
    return held[0].intersection(*held[1:]) if held else None


def holders(fusion: Fusion) -> dict[Value, Ranks]:
    """Return the values of a rank's fusion that only some ranks hold, with these ranks."""
    found = {i.value: frozenset(i.ranks) for i in fusion.inputs if i.ranks is not None}
    for node in fusion.nodes if found or any(n.op is BROADCAST for n in fusion.nodes) else ():
        ranks = held_by(node.op, node.attributes, (found.get(v) for v in node.inputs))
        if ranks is not None:  # scalars are sizes, which all ranks know
            found.update((v, ranks) for v in node.outputs if not v.is_scalar)
    return found


def communicates(node: Node) -> bool:
    """Return whether a node makes its rank wait for others."""
    return node.op.family == FAMILY


def places(node: Node) -> bool:
    """Return whether a node's result is part of its operand's memory, or vice versa."""
    return node.op.family == PLACEMENT


def stands_alone(node: Node) -> bool:
    """Return whether a node runs outside kernels: the host issues a collective or a placement."""
    return communicates(node) or places(node)


def make_node(
    op: OpDef, operand: Value, name: str, span: Span | None = None, **attributes: Any
) -> Node:
    """Return an application of one of these operations, its results called `name`, ..."""
    complete = attributes_of(op, (operand,), attributes)
    first, *others = op.infer((operand,), complete)
    more = (Value(f"{name}_{k}", each) for k, each in enumerate(others, 2))
    return Node(op, (operand,), complete, (Value(name, first), *more), span)
