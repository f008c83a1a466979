"""Vectors at unaligned addresses, read with the two aligned vectors that contain them."""

from __future__ import annotations

from fusec.index.access import span_of
from fusec.index.instances import Instance
from fusec.ir.expression import index
from fusec.ir.graph import Fusion
from fusec.kernel.ctext import dim_text, identifier, index_type
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.nodes import Assign, Call, Cast, Expression, Name, Statement, call

LOAD_ACROSS = "fusec::load_across"

Place = tuple[Expression, Expression, Expression]
"""A tensor, the position of a vector in it, and its end, in elements."""


def place_of(emitter: Emitter, fusion: Fusion, load: Instance, phase: int) -> Place:
    """Return the position of a vector; the end of a tensor includes gaps between its elements."""
    assert load.address is not None
    assert load.value is not None
    zero = {} if emitter.lane is None else {emitter.lane: index(0)}
    with emitter.indexed_by(load.gathered):
        place = emitter.index(load.address.substitute(zero), phase)
    size = span_of(fusion, load.value)
    reach = dim_text(size, wide=emitter.wide)
    if emitter.wide or not size.is_const:
        reach = Cast(index_type(wide=emitter.wide), reach)
    return Name(identifier(load.name)), place, reach


def load_across(place: Place, width: str = "kVec", *, streams: bool = False) -> Call:
    """Return the vector at a place; in kernels with `kPart` it may lie outside its tensor."""
    policy = ["fusec::kStreaming"] if streams else []
    return call(LOAD_ACROSS, *place, about=[width, "kPart", *policy])


def ask_inside(place: Place, width: str = "kVec") -> Statement:
    """Return the test whether the aligned vectors around a vector are in its tensor, too."""
    return Assign(Name("inside"), call("fusec::is_inside", *place, about=[width]), "&=")


RIGHT = Name("columns") - "column"
"""Distance from a vector's first element to the end of its row."""
