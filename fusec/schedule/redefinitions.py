"""Alternative definitions of a segment's computation, which a scheduler may offer.

Each is a rule for named nodes of a fusion, so that it can be applied to the whole fusion;
segmenting again decides whether it stays (Fuser#1243 proposes such a pass).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from fusec.ir.dim import Dim, dim, product
from fusec.ir.dtype import F32
from fusec.ir.graph import Fusion, Node, Operand, Value
from fusec.ir.roles import Combine
from fusec.ops.communication import ALL_REDUCE, PEER_VIEWS
from fusec.options import ONLINE, PEER_READS, TWO_PASS
from fusec.passes.rewrite import Rewriter, Rule
from fusec.schedule.rows.online import pairs_of
from fusec.schedule.rows.two_pass import two_pass_rule, variances
from fusec.segment.loops import loops
from fusec.segment.protocol import Redefinition

MOST_ADDED = 4
"""Most elements of a sum that are added one by one."""
MOST_SPLITS = 16
LEAST_DEPTH = 512
"""Least elements of K in a partition of a split-K GEMM."""


def _is_plain(node: Node) -> bool:
    """Return whether a node is a GEMM, but not a grouped one."""
    return node.op.product is not None and node.op.lookup is None


def splits_of_depth(
    node: Node, tiles: int, sms: int, sizes: Mapping[str, int], may_pay: Callable[[int], bool]
) -> tuple[Redefinition, ...]:
    """Return the redefinitions that split K of a GEMM of `tiles` tiles, as a batch of partitions.

    The partial sums are stored, and added where the result is read: their sum may be fused with its
    users. may_pay: whether a number of partitions is worth segmenting again.
    """
    first = node.operands[0]
    if not _is_plain(node) or not isinstance(first, Value):
        return ()
    if len(node.operands) > 2 or [o.rank for o in node.inputs] != [2, 2]:
        return ()
    if not node.output.dtype.is_half or any(o.dtype != node.output.dtype for o in node.inputs):
        return ()
    depth, found = first.shape[-1], list[Redefinition]()
    long = depth.evaluate(sizes)
    for parts in (2, 4, 8, MOST_SPLITS):
        # Other sizes are planned again: the kernels are compiled for this depth.
        if long % (8 * parts) or long < parts * LEAST_DEPTH:
            continue
        part = depth.divide(parts) or depth // parts
        if tiles * parts > 8 * sms:
            break
        if not may_pay(parts):
            continue
        found.append(
            Redefinition(
                f"split_k_{parts}",
                node.output.name,
                f"{tiles} tiles leave {sms} SMs idle; {parts} parts of K become separate GEMMs",
                _split_rule(node.output.name, parts, part),
            )
        )
    return tuple(found)


def _split_rule(name: str, parts: int, part: Dim) -> Rule:
    def rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
        if node.output.name != name or not _is_plain(node) or node.op.product is None:
            return None
        a, b = node.operands
        assert isinstance(a, Value)
        assert isinstance(b, Value)
        columns = b.shape[0] if node.op.product.transposed else b.shape[1]
        split_a = _reshape(work, node, a, (a.shape[0], dim(parts), part))
        split_a = work.add(node, "permute", [split_a], {"dims": (1, 0, 2)})
        if node.op.product.transposed:
            split_b = _reshape(work, node, b, (columns, dim(parts), part))
            split_b = work.add(node, "permute", [split_b], {"dims": (1, 2, 0)})
        else:
            split_b = _reshape(work, node, b, (dim(parts), part, columns))
        wide = [work.add(node, "cast", [x], {"dtype": F32}) for x in (split_a, split_b)]
        product = work.add(node, "matmul", wide)
        stored = work.add(node, "segment_set", [product])
        whole = (dim(parts), a.shape[0], columns)
        split = (_at(work, node, stored, (0,), (k,), whole) for k in range(parts))
        total = _added(work, node, split)
        return work.become(node, "cast", [total], {"dtype": node.output.dtype})

    return rule


def _at(
    work: Rewriter,
    node: Node,
    value: Value,
    dims: tuple[int, ...],
    place: tuple[int, ...],
    shape: tuple[Dim, ...],
) -> Value:
    """Return a value at a position along some dims, which are removed."""
    at = dict(zip(dims, place, strict=True))
    ways = {
        "start_indices": tuple(dim(at.get(d, 0)) for d in range(value.rank)),
        "end_indices": tuple(dim(at[d] + 1) if d in at else shape[d] for d in range(value.rank)),
        "strides": (1,) * value.rank,
    }
    one = work.add(node, "slice", [value], ways)
    return work.add(node, "squeeze", [one], {"dims": dims})


def _added(work: Rewriter, node: Node, parts: Iterable[Value]) -> Value:
    """Return the sum of values, added sequentially."""
    return functools.reduce(lambda total, part: work.add(node, "add", [total, part]), parts)


def _reshape(work: Rewriter, node: Node, value: Value, shape: tuple[Dim, ...]) -> Value:
    return work.add(node, "reshape", [value], {"new_shape": shape})


def _is_slice(node: Node) -> bool:
    return node.op.name == "slice"


def slice_before_product(fusion: Fusion, node: Node) -> tuple[Redefinition, ...]:
    """Return the redefinition that computes only the part of a GEMM that its one reader slices."""
    users = fusion.users.get(node.output, ())
    if node.op.name != "matmul" or len(users) != 1 or not _is_slice(users[0]):
        return ()
    if any(o.value is node.output for o in fusion.outputs):
        return ()
    if [o.rank for o in node.inputs] != [node.output.rank] * 2:
        return ()
    because = f"only a slice of `{node.output.name}` is read"
    rule = _slice_rule(users[0].output.name, node.output.name)
    return (Redefinition("slice_first", node.output.name, because, rule),)


def _slice_rule(name: str, product: str) -> Rule:
    def rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
        if node.output.name != name or not _is_slice(node):
            return None
        source = work.source(node.operands[0], "matmul")
        if source is None or source.output.name != product:
            return None
        starts, ends, steps = (
            node.attributes[k] for k in ("start_indices", "end_indices", "strides")
        )
        sides: list[Value] = []
        for side, operand in enumerate(source.inputs):
            rank = operand.rank
            kept = rank - 1 if side == 0 else rank - 2  # K
            start, end, step = list(starts), list(ends), list(steps)
            start[kept], end[kept], step[kept] = dim(0), operand.shape[kept], 1
            for axis in range(rank - 2):
                if operand.shape[axis] == 1:  # broadcast along the batch
                    start[axis], end[axis], step[axis] = dim(0), dim(1), 1
            whole = zip(start, end, step, operand.shape, strict=True)
            if all(s == 0 and e == x and by == 1 for s, e, by, x in whole):
                sides.append(operand)
                continue
            sides.append(
                work.add(
                    node,
                    "slice",
                    [operand],
                    {
                        "start_indices": tuple(start),
                        "end_indices": tuple(end),
                        "strides": tuple(step),
                    },
                )
            )
        return work.become(node, "matmul", sides)

    return rule


def sums_of_few(segment: Fusion) -> tuple[Redefinition, ...]:
    """Return the redefinitions that add the few elements of a sum one by one, elementwise.

    Then any kernel that moves tensors can compute it, for example one that transposes its input.
    """
    found: list[Redefinition] = []
    for node in segment.nodes:
        if node.op.family != "reduction" or node.op.combine is not Combine.SUM:
            continue
        source = node.inputs[0]
        few = product(source.shape[d] for d in tuple[int, ...](node.attributes["dims"]))
        if not few.is_const or not 1 < few.value <= MOST_ADDED:
            continue
        exact = source.dtype == node.output.dtype and not source.dtype.is_half
        if exact and node.attributes.get("dtype") is None:
            name, because = (
                node.output.name,
                f"a sum of {few} elements becomes {few.value - 1} additions",
            )
            found.append(Redefinition("additions", name, because, _additions_rule(name)))
    return tuple(found)


def _additions_rule(name: str) -> Rule:
    def rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
        if node.output.name != name or node.op.combine is not Combine.SUM:
            return None
        source, dims = node.inputs[0], tuple[int, ...](node.attributes["dims"])
        shape = source.shape
        places = itertools.product(*(range(shape[d].value) for d in dims))
        parts = [_at(work, node, source, dims, place, shape) for place in places]
        return work.become(node, "add", [_added(work, node, parts[:-1]), parts[-1]])

    return rule


MOST_PEERS = 16
"""Most ranks whose memory one kernel reads: each needs an argument."""


def reads_of_peers(node: Node, fusion: Fusion) -> tuple[Redefinition, ...]:
    """Return the redefinition that sums the parts of all-reduces in the kernels that read the sums.

    Each rank reads the others' parts from peer memory and adds them in the order of rank indices,
    in f32 if they are 16-bit floats, so all ranks get the same bits. In a loop over slices,
    collectives have time to overlap. The first of several similar ones stands for all, so repeated
    layers are decided once.
    """
    looped = loops(fusion)
    alike = [n for n in fusion.nodes if n not in looped and _read_alike(n, node, fusion)]
    if not alike or alike[0] is not node:
        return ()
    names = frozenset(n.output.name for n in alike)
    because = (
        f"kernels read the parts of {node.attributes['ranks']} ranks from peer memory, between "
    )
    because += "two barriers" + (
        f"; the same for {len(names)} similar sums" if len(names) > 1 else ""
    )
    return (Redefinition(PEER_READS, node.output.name, because, _peers_rule(names)),)


def _read_alike(node: Node, other: Node, fusion: Fusion) -> bool:
    """Return whether a node is a similar sum over ranks that can be read from peers."""
    if node.op is not ALL_REDUCE:
        return False
    value, given = node.output, node.attributes
    output = fusion.output_of.get(value)
    return (
        given["reduction"] == "sum"
        and value.dtype.is_float
        and given["ranks"] <= MOST_PEERS
        and (output is None or output.strides is None)
        and (value.type, given) == (other.output.type, other.attributes)
    )


def _peers_rule(names: Collection[str]) -> Rule:
    def rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
        if node.output.name not in names or node.op is not ALL_REDUCE:
            return None
        dtype, at = node.output.dtype, {k: node.attributes[k] for k in ("axis", "ranks")}
        parts = work.add_all(node, PEER_VIEWS, node.operands, at)
        if dtype.compute != dtype:
            wide = {"dtype": dtype.compute}
            parts = tuple(work.add(node, "cast", [part], wide) for part in parts)
        if dtype.compute == dtype:
            return work.become(node, "add", [_added(work, node, parts[:-1]), parts[-1]])
        total = _added(work, node, parts)
        return work.become(node, "cast", [total], {"dtype": dtype})

    return rule


def variances_in_two_passes(segment: Fusion) -> tuple[Redefinition, ...]:
    """Return the variances that the segment's kernel sums as squared distances from the mean.

    The kernel's plan does so (`two_pass`): the data are on chip, so a second pass costs no traffic,
    while a Welford update costs a division per element.
    """
    because = "two-pass variance: the rows stay on chip for a second pass"
    return tuple(
        Redefinition(TWO_PASS, n.output.name, because, original="Welford's algorithm")
        for n in variances(segment)
    )


def variances_read_twice(segment: Fusion) -> tuple[Redefinition, ...]:
    """Return the redefinition to two-pass variances, where Welford's algorithm reads data once.

    Another kernel has to keep the rows on chip, or to read them twice.
    """
    because = "two-pass variance: fewer instructions an element than Welford's algorithm"
    return tuple(
        Redefinition(TWO_PASS, n.output.name, because, two_pass_rule(n.output.name))
        for n in variances(segment)
        if product(n.inputs[0].shape[d] for d in tuple[int, ...](n.attributes["dims"])).is_const
    )


def exponentials_online(segment: Fusion) -> tuple[Redefinition, ...]:
    """Return the sums of exponentials that the segment's kernel computes along with their maximum.

    The kernel's plan does so (`online`) if that saves a pass over the rows.
    """
    return tuple(
        Redefinition(
            ONLINE,
            total.output.name,
            f"in one pass with the maximum `{top.output.name}`",
            original="two passes",
        )
        for top, total in pairs_of(segment).items()
    )
