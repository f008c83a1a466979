"""Initial regions of the search: of one iteration space, and reductions of one signature."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fusec.ir.dim import product
from fusec.ir.graph import Fusion, Node
from fusec.ir.roles import Combine
from fusec.segment.cheap import is_injective
from fusec.segment.graph import Graph, Group
from fusec.segment.groups import Groups
from fusec.segment.piece import Chosen, Piece
from fusec.segment.views import may_be_view

Signature = tuple[str, ...]
FEW = 512
"""Number of groups up to which all reductions of one signature are one region."""
MAX_AROUND = 256
"""Maximum number of injective groups that a region takes in."""


def singles(graph: Graph, fixed: Iterable[Group]) -> tuple[Group, ...]:
    """Return one group per node, and the fixed groups."""
    held = tuple(fixed)
    taken = frozenset[Node]().union(*held)
    return (*held, *(frozenset({n}) for n in graph.owned if n not in taken))


def injective_regions(groups: Groups) -> list[Chosen]:
    """Return connected sets of injective nodes that no other node separates.

    Nodes of equal depth, counted in nodes of other families, cannot have such a node on a path
    between them: their connected parts are convex, and form a DAG with everything else.
    """
    return _connected(groups, {p for p in groups if not _is_injective(p)})


def islands(groups: Groups) -> list[Chosen]:
    """Return connected sets of nodes that kernels may compute, not separated by anything fixed."""
    return _connected(groups, {p for p in groups if p.fixed})


def _connected(groups: Groups, breaks: set[Piece]) -> list[Chosen]:
    """Return connected sets of pieces with equally many breaks on a path before them."""
    pieces, depth = list(groups), groups.depths(breaks)
    parent = {p: p for p in pieces if p not in breaks}

    def root(piece: Piece) -> Piece:
        while parent[piece] is not piece:
            parent[piece] = parent[parent[piece]]
            piece = parent[piece]
        return piece

    for piece in pieces:
        if piece not in parent:
            continue
        for source in groups.sources(piece):
            near = source.host == piece.host and depth.get(source) == depth[piece]
            if source in parent and near:
                parent[root(piece)] = root(source)
    regions: dict[Piece, list[Piece]] = {}
    for piece in pieces:
        if piece in parent:
            regions.setdefault(root(piece), []).append(piece)
    return [frozenset(members) for members in regions.values() if len(members) > 1]


def _is_injective(piece: Piece) -> bool:
    return not piece.fixed and all(is_injective(n) for n in piece.nodes)


def _is_view(piece: Piece) -> bool:
    """Return whether a group consists of views and casts of operands of GEMMs."""
    return not piece.fixed and all(may_be_view(n) or n.op.converts for n in piece.nodes)


def signatures(node: Node) -> tuple[Signature, Signature]:
    """Return the signatures of reductions that can share a kernel: elements kept and reduced.

    Then the same with the dims: in a square tensor, rows and columns have the same size.
    """
    shape, dims = node.inputs[0].shape, node.attributes["dims"]
    kept = product(e for k, e in enumerate(shape) if k not in dims)
    reduced = product(e for k, e in enumerate(shape) if k in dims)
    sizes = str(kept), str(reduced)
    return sizes, (*sizes, str(len(shape)), str(dims))


def reduction_regions(groups: Groups) -> list[Chosen]:
    """Return regions around reductions: all of one signature, then each alone.

    In a large graph, all with only injective nodes and reductions between them. Each comes with its
    surroundings first; a search takes the first that a scheduler accepts.
    """
    position, pieces = groups.graph.position, list(groups)
    found: list[tuple[Piece, Node]] = []
    for piece in pieces:
        if not piece.fixed:
            reductions = (n for n in piece.nodes if n.op.family == "reduction")
            found += [(piece, n) for n in sorted(reductions, key=position.__getitem__)]
    if not found:
        return []
    holders = {p for p, _ in found}
    depth = groups.depths({p for p in pieces if p not in holders and not _is_injective(p)})
    everywhere = len(pieces) <= FEW
    together: dict[tuple[Signature, int, int], list[Piece]] = {}
    for piece, node in found:
        for kind in signatures(node):
            together.setdefault((kind, piece.host, depth[piece]), []).append(piece)
            if everywhere:
                together.setdefault((kind, piece.host, -1), []).append(piece)
    regions: dict[Chosen, None] = {}
    for members in together.values():
        core = groups.closure(members)
        if core is not None:
            _add(regions, _surrounded(groups, core))
            _add(regions, core)
    for piece, _ in found:
        _add(regions, _surrounded(groups, frozenset({piece})))
    return list(regions)


def softmax_regions(groups: Groups) -> list[Chosen]:
    """Return regions from contractions through a maximum of their results to other contractions.

    No pair of their groups needs to be accepted alone. Each region comes with its surroundings,
    with only the views among them (keys computed by a norm are transposed after it), and alone.
    """
    regions: dict[Chosen, None] = {}
    for piece in groups:
        tops = (n for n in piece.nodes if n.op.family == "reduction")
        if piece.fixed or not any(n.op.combine is Combine.MAXIMUM for n in tops):
            continue
        for first in _contractions(piece, forward=False):
            for last in _contractions(piece, forward=True):
                core = groups.closure([first, last])
                if core is not None and piece in core:
                    _add_around(regions, groups, core)
    return list(regions)


def backward_regions(groups: Groups) -> list[Chosen]:
    """Return regions of two contractions and the three whose left operands are computed from them.

    No pair of them needs to be accepted alone. Each comes with its surroundings, as for softmax.
    """
    fusion = groups.graph.fusion
    products = [n for n in fusion.nodes if n.op.family == "contraction"]
    made = {n: _made_of(fusion, n) for n in products}
    regions: dict[Chosen, None] = {}
    for pair in dict.fromkeys(m for m in made.values() if len(m) == 2):
        later = [n for n in products if made[n] and made[n] <= pair]
        pieces = list(dict.fromkeys(groups.owner(n) for n in products if n in pair or n in later))
        if len(later) != 3 or any(p.fixed for p in pieces) or len({p.host for p in pieces}) > 1:
            continue
        core = groups.closure(pieces)
        if core is not None:
            _add_around(regions, groups, core)
    return list(regions)


def _made_of(fusion: Fusion, product: Node) -> frozenset[Node]:
    """Return the contractions from which a contraction's left operand is computed elementwise."""
    found, seen, front = set[Node](), {product}, [fusion.producer.get(product.inputs[0])]
    while front and len(seen) < MAX_AROUND:
        node = front.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.op.family == "contraction":
            found.add(node)
        elif is_injective(node):
            front.extend(fusion.producer.get(v) for v in node.inputs)
    return frozenset(found)


def _contractions(piece: Piece, *, forward: bool) -> list[Piece]:
    """Return the contractions that a group reaches through groups of other families."""
    found, seen, front = list[Piece](), {piece}, [piece]
    while front and len(seen) < MAX_AROUND:
        current = front.pop()
        for other in sorted(current.after if forward else current.before):
            if other in seen or other.host != piece.host:
                continue
            seen.add(other)
            is_end = any(n.op.family == "contraction" for n in other.nodes)
            (found if is_end else front).append(other)
    return found


def _add(regions: dict[Chosen, None], region: Chosen | None) -> None:
    if region is not None and len(region) > 1:
        regions[region] = None


def _add_around(regions: dict[Chosen, None], groups: Groups, core: Chosen) -> None:
    """Add a core with its surroundings, with the views among them, and alone.

    Views that are outputs (a training step keeps the queries) may stay outside: they are stored
    anyway, and a kernel may be unable to store them.
    """
    final = groups.graph.final

    def is_kept(piece: Piece) -> bool:
        return any(v in final for n in piece.nodes for v in n.outputs)

    _add(regions, _surrounded(groups, core))
    _add(regions, _surrounded(groups, core, _is_view))
    if any(is_kept(p) for p in groups):
        _add(regions, _surrounded(groups, core, lambda p: _is_view(p) and not is_kept(p)))
    _add(regions, core)


def _surrounded(
    groups: Groups, core: Chosen, is_near: Callable[[Piece], bool] = _is_injective
) -> Chosen | None:
    """Return the core with the groups of a kind that only feed it or that only it feeds."""
    near = set(core)
    for forward in (False, True):
        front = sorted(core)
        while front and len(near) - len(core) < MAX_AROUND:
            piece = front.pop()
            for other in sorted(piece.after if forward else piece.before):
                back = other.before if forward else other.after
                here = other.host == piece.host and other not in near
                if here and is_near(other) and all(p in near for p in back):
                    near.add(other)
                    front.append(other)
    return groups.closure(near)
