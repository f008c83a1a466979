"""Keep in-place outputs from overwriting what is still to be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from fusec.ir.graph import Fusion, Node, Output, Value
from fusec.ops.find import find_op
from fusec.passes.rewrite import NO_ATTRIBUTES, edit_pins, fresh_name

Axes = tuple["int | None", ...]
"""For each dim of a value, the dim of the input that it runs along."""


def protect_inputs(fusion: Fusion) -> Fusion:
    """Compute an aliased output apart where need be, and copy it behind a kernel boundary.

    It is needed where an element of the input is read for another element than the one that
    overwrites it, or by an operation that comes after the write.
    """
    before = dict[Node, list[Node]]()
    for output in fusion.outputs:
        if output.alias is None or _is_copied(fusion, output.value):
            continue
        target = fusion.find(output.alias)
        assert target is not None
        writer = fusion.producer[output.value]
        readers = [n for n in fusion.users.get(target, ()) if n is not writer]
        late = _reaches(fusion, before, writer, readers)
        if late or not reads_in_place(fusion, target, output.value):
            return protect_inputs(copied_last(fusion, output, boundary=True)[0])
        before.setdefault(writer, []).extend(readers)
    return fusion


def _is_copied(fusion: Fusion, value: Value) -> bool:
    """Return whether the value is a copy behind a boundary that nothing reads."""
    node = fusion.producer[value]
    if not node.op.copies or node.op.ends_segment or value in fusion.users:
        return False
    origin = fusion.producer.get(node.inputs[0])
    return origin is not None and origin.op.ends_segment


def _reaches(
    fusion: Fusion, before: Mapping[Node, Iterable[Node]], start: Node, goals: Iterable[Node]
) -> bool:
    """Return whether a goal comes after `start`, by data or by the order of reads and writes."""
    after: dict[Node, list[Node]] = {}
    for writer, readers in before.items():
        for reader in readers:
            after.setdefault(reader, []).append(writer)
    wanted, seen, stack = set(goals), {start}, [start]
    while stack and wanted:
        node = stack.pop()
        users = [u for v in node.outputs for u in fusion.users.get(v, ())]
        for follower in (*users, *after.get(node, ())):
            if follower in wanted:
                return True
            if follower not in seen:
                seen.add(follower)
                stack.append(follower)
    return False


def reads_in_place(fusion: Fusion, target: Value, written: Value) -> bool:
    """Return whether every value computed from the input lies along the input's own dims."""
    identity: Axes = tuple(range(target.rank))
    axes: dict[Value, Axes] = {target: identity}
    for node in fusion.nodes:
        if node.op.family == "scalar" or not any(v in axes for v in node.inputs):
            continue
        results = _carried(node, axes)
        if results is None or _is_stretched(node.output, results, target):
            return False
        axes.update(dict.fromkeys(node.outputs, results))
    return _agree(axes.get(written, identity), identity)


def _agree(left: Axes, right: Axes) -> bool:
    return len(left) == len(right) and all(
        a is None or b is None or a == b for a, b in zip(left, right, strict=True)
    )


def _carried(node: Node, axes: Mapping[Value, Axes]) -> Axes | None:
    """Return the dims of the input that a node's results lie along; None if that is not simple."""
    if node.op.family == "pointwise":
        merged: Axes = (None,) * node.output.rank
        for value in node.inputs:
            own = axes.get(value)
            if own is None or value.is_scalar:
                continue
            if not _agree(merged, own):
                return None
            merged = tuple(b if a is None else a for a, b in zip(merged, own, strict=True))
        return merged
    own = axes.get(node.inputs[0])
    if own is None:
        return None
    if node.op.family == "reduction":
        return tuple(a for k, a in enumerate(own) if k not in node.attributes["dims"])
    access = node.op.access
    if access is None or access.along is None or access.window is not None:
        return None
    along = access.along(node)
    kept = [place for place in along if place is not None]
    if kept != sorted(kept):
        return None
    return tuple(None if place is None else own[place] for place in along)


def _is_stretched(value: Value, axes: Axes, target: Value) -> bool:
    """Return whether elements of the input, not sums of them, are repeated along another dim."""
    present = {a for a in axes if a is not None}
    whole = all(k in present or target.shape[k] == 1 for k in range(target.rank))
    repeated = any(
        extent != 1 and (a is None or target.shape[a] == 1)
        for extent, a in zip(value.shape, axes, strict=True)
    )
    wide = [a for extent, a in zip(value.shape, axes, strict=True) if a is not None and extent != 1]
    # An outer product of the input with itself runs along one of its dims twice.
    return whole and (repeated or len(set(wide)) < len(wide))


def copied_last(fusion: Fusion, output: Output, *, boundary: bool) -> tuple[Fusion, Value]:
    """Return the fusion with an output computed as another value, and copied last; and that value.

    boundary: whether a kernel boundary comes before: two copies, so that wherever it falls, the
    last one runs in a later kernel.
    """
    old, span = output.value, fusion.producer[output.value].span
    taken = {v.name for v in fusion.values} | {d.name for d in fusion.dims}
    temporary = Value(fresh_name(taken, f"{old.name}_new"), old.type)
    written = Value(old.name, old.type)
    nodes: list[Node] = []
    for node in fusion.nodes:
        if old in node.inputs or old in node.outputs:
            operands = tuple(temporary if o is old else o for o in node.operands)
            results = tuple(temporary if v is old else v for v in node.outputs)
            node = replace(node, operands=operands, outputs=results)
        nodes.append(node)
    source = temporary
    if boundary:
        source = Value(fresh_name(taken, f"{old.name}_kept"), old.type)
        nodes.append(Node(find_op("segment_set"), (temporary,), NO_ATTRIBUTES, (source,), span))
    nodes.append(Node(find_op("set"), (source,), NO_ATTRIBUTES, (written,), span))
    outputs = tuple(replace(o, value=written) if o is output else o for o in fusion.outputs)
    pin = next((p.name for p in fusion.pins if old.name in p.values), None)
    pins = fusion.pins if pin is None else edit_pins(fusion.pins, [old.name], {temporary.name: pin})
    return replace(fusion, nodes=tuple(nodes), outputs=outputs, pins=pins), temporary
