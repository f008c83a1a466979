"""Random numbers: adjacent elements of a vector share the words of one generator call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusec.index.instances import Instance
from fusec.ir.dtype import F32, F64, U64
from fusec.kernel.ctext import compute_type, storage_type, template_of
from fusec.kernel.formulas import fill
from fusec.kernel.nodes import AUTO, Call, Expression, Let, Name

if TYPE_CHECKING:
    from fusec.kernel.lowering.emit import Emitter


def random_value(
    emitter: Emitter, instance: Instance, arguments: dict[str, Expression], phase: int
) -> Expression:
    """Return a random number, in the result's type if that keeps it below its upper limit."""
    assert instance.node is not None
    number, bounded = _number(emitter, instance, arguments, phase), "bounded"
    if bounded not in instance.node.op.cuda or _is_below(instance):
        return number
    arguments |= {"number": number, "type": storage_type(instance.dtype)}
    return fill(instance.node.op.cuda[bounded], arguments)


def _is_below(instance: Instance) -> bool:
    """Return whether no number rounds to the upper limit: of a float or double from 0 on.

    Scaled by the largest fraction below 1, any limit decreases by half a unit in the last place.
    """
    low = instance.operands[0]
    return low.kind == "constant" and low.constant == 0 and not instance.dtype.is_half


def _number(
    emitter: Emitter, instance: Instance, arguments: dict[str, Expression], phase: int
) -> Expression:
    """Return a random number: from the words that the vector's elements share, or its own."""
    assert instance.node is not None
    cuda, position = instance.node.op.cuda, instance.operands[-1]
    double = any(d.compute == F64 for d in instance.node.compute_dtypes)
    base = None
    if position.address is not None and not position.gathered and not double:
        base = emitter.vector_base(position.address, ())
    if base is None or emitter.lane is None:
        arguments["index"] = emitter.convert(position, U64, phase)
        return fill(template_of(cuda, F64 if double else F32), arguments)
    key = (phase, position)
    if key not in emitter.vectors:
        number = len(emitter.scopes) - 2
        name = emitter.fresh(f"{instance.name}_words", "words", phase, number)
        first = Call("fusec::convert", (emitter.index(base, phase),), (compute_type(U64),))
        given = arguments["rng_seed"], arguments["rng_offset"], first
        words = Call("fusec::random_words", given, (Name(emitter.width_name),))
        emitter.add(phase, emitter.scopes[number].name, Let(AUTO, name, words))
        emitter.vectors[key] = name
    arguments |= {"words": Name(emitter.vectors[key]), "lane": Name(emitter.lane.name)}
    return fill(cuda["f32 words"], arguments)
