"""Merge chains of broadcast, broadcast_in_dim, expand and squeeze."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusec.ir.graph import Fusion, Node, Operand
from fusec.passes.rewrite import Rewriter, rewrite

Rewritten = Sequence[Operand] | None


def merge_broadcasts(fusion: Fusion) -> Fusion:
    """Cancel inserted and removed dims of extent 1, and merge consecutive expansions."""
    return rewrite(fusion, _rule)


def _rule(node: Node, work: Rewriter) -> Rewritten:
    rules = _RULES.get(node.op.name, ())
    if rules and node.operands[0].type == node.output.type and _moves_nothing(node):
        return (node.operands[0],)
    for inner_op, rule in rules:
        inner = work.source(node.operands[0], inner_op)
        if inner is not None:
            results = rule(node, inner, work)
            if results is not None:
                return results
    return None


def _moves_nothing(node: Node) -> bool:
    """Return whether dims keep their positions: with equal types this is the identity."""
    places = node.attributes.get("broadcast_dims")
    return places is None or tuple(places) == tuple(range(node.output.rank))


def _expanded(squeeze: Node) -> bool:
    return bool(squeeze.attributes["squeeze_expanded"])


def _squeeze_of_squeeze(node: Node, inner: Node, work: Rewriter) -> Rewritten:
    (origin,) = inner.operands
    first: tuple[int, ...] = inner.attributes["dims"]
    kept = [axis for axis in range(len(origin.shape)) if axis not in first]
    second: tuple[int, ...] = node.attributes["dims"]
    dims = sorted([*first, *(kept[axis] for axis in second)])
    expanded = _expanded(node) or _expanded(inner)
    attributes = {"dims": dims, "squeeze_expanded": expanded}
    return work.become(node, "squeeze", [origin], attributes)


def _squeeze_of_broadcast(node: Node, inner: Node, work: Rewriter) -> Rewritten:
    (origin,) = inner.operands
    mask: tuple[bool, ...] = inner.attributes["is_broadcast_dim"]
    dims: tuple[int, ...] = node.attributes["dims"]
    own = [axis for axis, new in enumerate(mask) if not new]
    lost = [k for k, axis in enumerate(own) if axis in dims]
    left = tuple(new for axis, new in enumerate(mask) if axis not in dims)
    attributes = {"dims": lost, "squeeze_expanded": _expanded(node)}
    if not any(left):
        return work.become(node, "squeeze", [origin], attributes) if lost else (origin,)
    if lost:
        origin = work.add(node, "squeeze", [origin], attributes)
    return work.become(node, "broadcast", [origin], {"is_broadcast_dim": left})


def _squeeze_of_in_dim(node: Node, inner: Node, work: Rewriter) -> Rewritten:
    (origin,) = inner.operands
    places: tuple[int, ...] = inner.attributes["broadcast_dims"]
    dims: tuple[int, ...] = node.attributes["dims"]
    lost = [k for k, place in enumerate(places) if place in dims]
    if any(origin.shape[k] != 1 for k in lost):
        return None
    left = tuple(p - sum(axis < p for axis in dims) for p in places if p not in dims)
    shape = node.output.shape
    stays = left == tuple(range(len(shape)))
    rest = [extent for k, extent in enumerate(origin.shape) if k not in lost]
    if stays and tuple(rest) == shape:
        return work.become(node, "squeeze", [origin], {"dims": lost}) if lost else (origin,)
    if lost:
        origin = work.add(node, "squeeze", [origin], {"dims": lost})
    return work.become(node, "broadcast_in_dim", [origin], {"shape": shape, "broadcast_dims": left})


def _squeeze_of_expand(node: Node, inner: Node, work: Rewriter) -> Rewritten:
    (origin,) = inner.operands
    new = inner.output.rank - len(origin.shape)
    squeezed: tuple[int, ...] = node.attributes["dims"]
    dims = [axis - new for axis in squeezed if axis >= new]
    if any(origin.shape[axis] != 1 for axis in dims):
        return None
    rest = tuple(extent for axis, extent in enumerate(origin.shape) if axis not in dims)
    if rest == node.output.shape:
        return work.become(node, "squeeze", [origin], {"dims": dims}) if dims else (origin,)
    if dims:
        origin = work.add(node, "squeeze", [origin], {"dims": dims})
    return work.become(node, "expand", [origin], {"shape": node.output.shape})


def _expand_of_expand(node: Node, inner: Node, work: Rewriter) -> Rewritten:
    return work.become(node, "expand", inner.operands, {"shape": node.output.shape})


def _broadcast_of_broadcast(node: Node, inner: Node, work: Rewriter) -> Rewritten:
    mask: tuple[bool, ...] = node.attributes["is_broadcast_dim"]
    first = iter(inner.attributes["is_broadcast_dim"])
    merged = tuple(new or next(first) for new in mask)
    return work.become(node, "broadcast", inner.operands, {"is_broadcast_dim": merged})


def _broadcast_of_squeeze(node: Node, inner: Node, work: Rewriter) -> Rewritten:
    (origin,) = inner.operands
    mask: tuple[bool, ...] = node.attributes["is_broadcast_dim"]
    inserted = tuple(axis for axis, new in enumerate(mask) if new)
    same = inserted == tuple(inner.attributes["dims"]) and origin.type == node.output.type
    return (origin,) if same else None


def _in_dim_of_broadcast(node: Node, inner: Node, work: Rewriter) -> Rewritten:
    mask: tuple[bool, ...] = inner.attributes["is_broadcast_dim"]
    places: tuple[int, ...] = node.attributes["broadcast_dims"]
    kept = tuple(p for p, new in zip(places, mask, strict=True) if not new)
    return _in_dim(node, inner, kept, work)


def _in_dim_of_in_dim(node: Node, inner: Node, work: Rewriter) -> Rewritten:
    places: tuple[int, ...] = node.attributes["broadcast_dims"]
    first: tuple[int, ...] = inner.attributes["broadcast_dims"]
    kept = tuple(places[p] for p in first)
    return _in_dim(node, inner, kept, work)


def _in_dim_of_expand(node: Node, inner: Node, work: Rewriter) -> Rewritten:
    places: tuple[int, ...] = node.attributes["broadcast_dims"]
    return _in_dim(node, inner, places[len(places) - len(inner.operands[0].shape) :], work)


def _in_dim(node: Node, inner: Node, places: tuple[int, ...], work: Rewriter) -> Rewritten:
    attributes = {"shape": node.output.shape, "broadcast_dims": places}
    return work.become(node, "broadcast_in_dim", inner.operands, attributes)


_RULES: dict[str, tuple[tuple[str, Callable[[Node, Node, Rewriter], Rewritten]], ...]] = {
    "squeeze": (
        ("squeeze", _squeeze_of_squeeze),
        ("broadcast", _squeeze_of_broadcast),
        ("broadcast_in_dim", _squeeze_of_in_dim),
        ("expand", _squeeze_of_expand),
    ),
    "expand": (("expand", _expand_of_expand),),
    "broadcast": (
        ("broadcast", _broadcast_of_broadcast),
        ("squeeze", _broadcast_of_squeeze),
    ),
    "broadcast_in_dim": (
        ("broadcast", _in_dim_of_broadcast),
        ("broadcast_in_dim", _in_dim_of_in_dim),
        ("expand", _in_dim_of_expand),
    ),
}
"""By operation: the rule for an operand that is the result of another of them."""
