"""The statements on what a thread holds of a product: on scores, and on sums of values."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.codegen.ctext import Text, storage_type
from fusec.codegen.emit import Emitter
from fusec.index.instances import Instance, instances_under
from fusec.schedule.attention_problem import Part


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
    """Emit what makes scores, in place, of the results of a product."""
    give_sums(emitter, part, [scores])
    place = _place(emitter)
    for instance in instances_under([scores]):
        converts = instance.kind == "op" and instance.node is not None and instance.node.op.converts
        if converts and instance.dtype.is_half and instance.operands[0] in emitter.cached:
            kind = storage_type(instance.dtype)
            emitter.given[instance] = Text(f"fusec::rounded_sum<{kind}>({place})")
    emitter.add(0, "lane", f"{place} = {emitter.ref(scores, 0)};", last=True)


def _place(emitter: Emitter) -> str:
    return "acc[i]" if emitter.width > 1 else "acc[0]"
