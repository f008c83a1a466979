"""The statements on what a thread holds of a product: on scores, and on sums of values."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.index.instances import Instance, instances_under
from fusec.ir.dtype import F32, I32
from fusec.ir.expression import Index, index
from fusec.kernel.ctext import storage_type
from fusec.kernel.emit import Emitter
from fusec.kernel.nodes import Expression, Raw, Statement
from fusec.ops.acts import Act
from fusec.schedule.attention_masks import affine, does, size_of
from fusec.schedule.attention_part import Part

_INT, _SMALL = 1 << 31, 1 << 22
"""What is less in size fits `int`, and fusec::small_to_float."""
_COMPARISONS = (Act.LESS, Act.AT_MOST, Act.GREATER, Act.AT_LEAST, Act.EQUAL)


def taken(emitter: Emitter, *scopes: str) -> tuple[Statement, ...]:
    """Return the lines of some scopes."""
    return tuple(line for scope in scopes for line in emitter.take(0, scope))


def give_sums(emitter: Emitter, part: Part, roots: Sequence[Instance]) -> None:
    """Let the results of a product be what a thread has of them."""
    for instance in instances_under(roots):
        if instance.kind == "load" and instance.name == part.epilogue.sums.name:
            emitter.cached[instance] = _place(emitter)
    emitter.count(roots)


def emit_scores(emitter: Emitter, part: Part, scores: Instance) -> None:
    """Emit what makes scores, in place, of the results of a product; nothing where they are it."""
    give_sums(emitter, part, [scores])
    place = _place(emitter)
    for instance in instances_under([scores]):
        converts = instance.kind == "op" and instance.node is not None and instance.node.op.converts
        if converts and instance.dtype.is_half and instance.operands[0] in emitter.cached:
            kind = storage_type(instance.dtype)
            emitter.given[instance] = Raw(f"fusec::rounded_sum<{kind}>({place})")
    _give_places(emitter, scores)
    value = str(emitter.ref(scores, 0))
    if value != place:
        emitter.add(0, "lane", f"{place} = {value};", last=True)


def _give_places(emitter: Emitter, scores: Instance) -> None:
    """Let integers that follow from a score's place alone be computed as `int`, where they fit.

    They keep their type where anything but a comparison or a cast to f32 uses them.
    """
    below = instances_under([scores])
    places = {i: place for i in below if (place := _int_place(i)) is not None}
    users: dict[Instance, list[Instance]] = {instance: [] for instance in places}
    for user in below:
        for operand in () if user in places else user.operands:
            if operand in places:
                users[operand].append(user)
    for instance, place in places.items():
        text = _difference(emitter, place)
        most = size_of(place)
        assert most is not None
        for cast in users[instance] if most < _SMALL else []:
            if _is_float_of(cast):
                emitter.given[cast] = Raw(f"fusec::small_to_float({text})")
        is_int = instance.dtype == I32 and not emitter.wide
        if not is_int and not all(map(_takes_int, users[instance])):
            text = Raw(f"static_cast<{storage_type(instance.dtype)}>({text})")
        emitter.given[instance] = text


def _int_place(instance: Instance) -> Index | None:
    if not instance.dtype.is_integer or instance.kind in ("constant", "dim"):
        return None
    place = affine(instance)
    most = None if place is None else size_of(place)
    return None if most is None or most >= _INT else place


def _takes_int(user: Instance) -> bool:
    """Return whether an operation gives the same for an `int` as for its operand's own type."""
    return _is_float_of(user) or any(does(user, act) for act in _COMPARISONS)


def _is_float_of(user: Instance) -> bool:
    return user.node is not None and user.node.op.converts and user.dtype == F32


def _difference(emitter: Emitter, place: Index) -> Expression:
    """Return an integer as what is added less what is taken off."""
    added = Index(tuple(t for t in place.terms if t[1].value > 0), place.constant)
    less = added - place
    if less == index(0):
        return emitter.index(added, 0)
    return Raw(f"{emitter.index(added, 0)} - {emitter.index(less, 0).at_least(13)}", 12)


def _place(emitter: Emitter) -> str:
    return "acc[i]" if emitter.width > 1 else "acc[0]"
