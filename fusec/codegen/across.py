"""Vectors that begin anywhere, read by the two vectors that lie around them."""

from __future__ import annotations

from fusec.index.instances import Instance
from fusec.ir.expression import index
from fusec.ir.graph import Fusion
from fusec.kernel.ctext import dim_text, identifier
from fusec.kernel.emit import Emitter
from fusec.schedule.common import span_of


def place_of(emitter: Emitter, fusion: Fusion, load: Instance, phase: int) -> str:
    """Return what `load_across` takes: a tensor, where a vector of it begins, how far it reaches.

    The latter in elements, what lies between those of the tensor counted.
    """
    assert load.address is not None
    assert load.value is not None
    zero = {} if emitter.lane is None else {emitter.lane: index(0)}
    with emitter.indexed_by(load.gathered):
        place = emitter.index(load.address.substitute(zero), phase)
    size = span_of(fusion, load.value)
    text = dim_text(size, wide=emitter.wide).text
    if emitter.wide or not size.is_const:
        text = f"static_cast<{'fusec::i64' if emitter.wide else 'int'}>({text})"
    return f"{identifier(load.name)}, {place}, {text}"
