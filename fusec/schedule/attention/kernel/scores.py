"""The statements on a thread's part of a GEMM: on scores, and on accumulators of values."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.index.instances import Instance, Lowering, instances_under
from fusec.ir.dtype import F32, I32
from fusec.ir.expression import Index, index
from fusec.ir.graph import Value
from fusec.kernel.ctext import storage_type
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.stores import emit_store, plan_stores
from fusec.kernel.nodes import (
    Assign,
    Cast,
    Expression,
    Real,
    Statement,
    call,
    item,
    operand,
)
from fusec.ops.acts import Act
from fusec.schedule.attention.kernel.records import GraphNodes
from fusec.schedule.attention.masks import affine, does, size_of
from fusec.schedule.attention.part import Part

_INT, _SMALL = 1 << 31, 1 << 22
"""Smaller magnitudes fit `int`, and fusec::small_to_float."""
_COMPARISONS = (Act.LESS, Act.AT_MOST, Act.GREATER, Act.AT_LEAST, Act.EQUAL)


def taken(emitter: Emitter, *scopes: str) -> tuple[Statement, ...]:
    """Return the lines of some scopes."""
    return tuple(line for scope in scopes for line in emitter.take(0, scope))


def give_sums(emitter: Emitter, sums: Value, roots: Sequence[Instance], place: Expression) -> None:
    """Bind the results of a GEMM to the accumulators of a thread."""
    for instance in instances_under(roots):
        if instance.kind == "load" and instance.name == sums.name:
            emitter.cached[instance] = place


def give_rounded(emitter: Emitter, roots: Sequence[Instance]) -> None:
    """Round the results of a GEMM with a separate function."""
    for instance in instances_under(roots):
        if _converts(instance) and instance.dtype.is_half:
            place = emitter.cached.get(instance.operands[0])
            if place is not None:
                kind = storage_type(instance.dtype)
                emitter.given[instance] = call("fusec::rounded_sum", place, about=[kind])


def emit_scores(emitter: Emitter, part: Part, scores: Instance) -> None:
    """Emit the computation of scores, in place, from a GEMM's results, unless they are equal."""
    place = _place(emitter)
    give_sums(emitter, part.epilogue.sums, [scores], place)
    emitter.count([scores])
    give_rounded(emitter, [scores])
    _give_places(emitter, scores)
    value = emitter.ref(scores, 0)
    if value != place:
        emitter.add(0, "lane", Assign(place, value), last=True)


def scale_of(emitter: Emitter, factor: Instance | None) -> Expression:
    """Return the factor of all scores."""
    return Real("1.0", "f") if factor is None else emitter.convert(factor, F32, 0)


def emit_outputs(emitter: Emitter, part: Part, lowering: Lowering) -> GraphNodes:
    """Emit the stores of values computed from the results of a GEMM."""
    plans = plan_stores(lowering, part.epilogue.fusion.outputs, emitter.store_kind)
    roots = [p.instance for p in plans]
    give_sums(emitter, part.epilogue.sums, roots, _place(emitter))
    emitter.count(roots)
    for plan in plans:
        emit_store(emitter, plan, 0)
    return graph_of(emitter, "kernel", "batch", "row", "vector")


def graph_of(emitter: Emitter, *scopes: str) -> GraphNodes:
    """Return the view of the emitted statements; scopes: those around the loop over neighbours."""
    return GraphNodes(
        emitter.width,
        taken(emitter, *scopes),
        emitter.take(0, "lane"),
        emitter.take(0, "after"),
        operand(emitter.stored_under) if emitter.stored_under else None,
    )


def _give_places(emitter: Emitter, scores: Instance) -> None:
    """Compute integers that depend only on a score's position as `int`, if they fit.

    They keep their type if anything but a comparison or a cast to f32 uses them.
    """
    below = instances_under([scores])
    places = {i: place for i in below if (place := _int_place(i)) is not None}
    users: dict[Instance, list[Instance]] = {instance: [] for instance in places}
    for user in below:
        for source in () if user in places else user.operands:
            if source in places:
                users[source].append(user)
    for instance, place in places.items():
        text = _difference(emitter, place)
        most = size_of(place)
        assert most is not None
        for cast in users[instance] if most < _SMALL else []:
            if _is_float_of(cast):
                emitter.given[cast] = call("fusec::small_to_float", text)
        is_int = instance.dtype == I32 and not emitter.wide
        if not is_int and not all(map(_takes_int, users[instance])):
            text = Cast(storage_type(instance.dtype), text)
        emitter.given[instance] = text


def _int_place(instance: Instance) -> Index | None:
    if not instance.dtype.is_integer or instance.kind in ("constant", "dim"):
        return None
    place = affine(instance)
    most = None if place is None else size_of(place)
    return None if most is None or most >= _INT else place


def _takes_int(user: Instance) -> bool:
    """Return whether an operation gives the same result for an `int` as for its operand's type."""
    return _is_float_of(user) or any(does(user, act) for act in _COMPARISONS)


def _is_float_of(user: Instance) -> bool:
    return _converts(user) and user.dtype == F32


def _converts(instance: Instance) -> bool:
    return instance.kind == "op" and instance.node is not None and instance.node.op.converts


def _difference(emitter: Emitter, place: Index) -> Expression:
    """Return an integer as the sum of its positive terms minus that of its negative ones."""
    added = Index(tuple(t for t in place.terms if t[1].value > 0), place.constant)
    less = added - place
    if less == index(0):
        return emitter.index(added, 0)
    return emitter.index(added, 0) - emitter.index(less, 0)


def _place(emitter: Emitter) -> Expression:
    return item("acc", "i" if emitter.width > 1 else 0)
