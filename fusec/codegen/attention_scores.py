"""The statements on what a thread holds of a product: on scores, and on sums of values."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.codegen.ctext import Text, storage_type
from fusec.codegen.emit import Emitter
from fusec.index.instances import Instance, instances_under
from fusec.ir.dtype import F32
from fusec.ir.expression import Index, index
from fusec.schedule.attention_masks import affine, size_of
from fusec.schedule.attention_problem import Part

_INT, _SMALL = 1 << 31, 1 << 22
"""What is less in size fits `int`, and fusec::small_to_float."""


def taken(emitter: Emitter, *scopes: str) -> tuple[str, ...]:
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
            emitter.given[instance] = Text(f"fusec::rounded_sum<{kind}>({place})")
    _give_places(emitter, scores)
    value = str(emitter.ref(scores, 0))
    if value != place:
        emitter.add(0, "lane", f"{place} = {value};", last=True)


def _give_places(emitter: Emitter, scores: Instance) -> None:
    """Let integers that follow from a score's place alone be computed as `int`, where they fit."""
    for instance in instances_under([scores]):
        place = affine(instance) if instance.dtype.is_integer else None
        most = None if place is None else size_of(place)
        if place is None or most is None or most >= _INT or instance.kind in ("constant", "dim"):
            continue
        emitter.given[instance] = _difference(emitter, place)
        small = [i for i in instances_under([scores]) if instance in i.operands and i.dtype == F32]
        for cast in small if most < _SMALL else []:
            if cast.node is not None and cast.node.op.converts:
                text = f"fusec::small_to_float({emitter.given[instance]})"
                emitter.given[cast] = Text(text)


def _difference(emitter: Emitter, place: Index) -> Text:
    """Return an integer as what is added less what is taken off."""
    added = Index(tuple(t for t in place.terms if t[1].value > 0), place.constant)
    less = added - place
    if less == index(0):
        return emitter.index(added, 0)
    return Text(f"{emitter.index(added, 0)} - {emitter.index(less, 0).at_least(13)}", 12)


def _place(emitter: Emitter) -> str:
    return "acc[i]" if emitter.width > 1 else "acc[0]"
