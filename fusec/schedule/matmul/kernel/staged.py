"""Staged tensors of a GEMM's epilogue: their addresses, and their pairs in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from fusec.index.instances import Instance, instances_under
from fusec.ir.expression import index
from fusec.ir.graph import Output
from fusec.kernel.ctext import storage_type
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import StoreKind
from fusec.kernel.lowering.stores import StorePlan
from fusec.kernel.nodes import (
    AUTO,
    Assign,
    Declare,
    Evaluate,
    Expression,
    Let,
    Name,
    Operand,
    Pointer,
    call,
    item,
    operand,
    vector_of,
)
from fusec.schedule.matmul.kernel.records import StagedNodes
from fusec.schedule.matmul.staged import StagedTensor

PLACE = Name("place")
"""The offset of a pair in the rows of a warp."""


def stage(
    tensors: Iterable[StagedTensor],
    emitter: Emitter,
    roots: Iterable[Instance],
    fresh: Callable[[], Emitter],
) -> tuple[tuple[StagedNodes, ...], Mapping[Output, StagedNodes]]:
    """Return the views of staged tensors, and each output that is staged.

    Staged inputs are read from shared memory from here on. fresh: makes an emitter for the body of
    a separate function; roots: the values that are stored or reduced.
    """
    views: list[StagedNodes] = []
    stored: dict[Output, StagedNodes] = {}
    below = list(instances_under(roots))
    for tensor in tensors:
        base = tensor.buffer if tensor.output is None else tensor.output.value.name
        rows, at, here = (
            emitter.names.fresh(f"{base}_{word}", "staged") for word in ("rows", "at", "here")
        )
        inner = fresh()
        lane = {} if emitter.lane is None else {emitter.lane: index(0)}
        first = tensor.address.substitute(lane)
        pointer = inner.pointer(tensor.buffer, first, 0)
        lines = [line for s in inner.scopes for line in inner.take(0, s.name)]
        kind = storage_type(tensor.value.dtype)
        slot = f"kStaged{tensor.slot}"
        fetched = tensor.load is not None
        view = StagedNodes(
            rows, kind, slot, at, here, tuple(lines), pointer, fetched, tensor.shifted
        )
        views.append(view)
        if tensor.output is not None:
            stored[tensor.output] = view
            continue
        for instance in below:
            if instance.kind != "load" or instance.name != tensor.buffer:
                continue
            if instance.address == tensor.address and not instance.conditions:
                name = emitter.names.fresh(f"{tensor.buffer}_vec", "vec")
                held = call("fusec::load", Pointer(Name(rows), PLACE), about=["kWidth"])
                emitter.add(0, "vector", Let(AUTO, name, held))
                emitter.cached[instance] = item(name, emitter.element_of_vector)
    return tuple(views), stored


def emit_staged(
    emitter: Emitter, plan: StorePlan, view: StagedNodes, row: Iterable[Operand]
) -> None:
    """Emit the store of a pair or an element into a warp's rows in shared memory.

    row: the position of the row's first element, as arguments of the epilogue.
    """
    assert plan.kind is StoreKind.STAGED, f"`{plan.output.value.name}` is not planned as staged"
    value = emitter.to_storage(plan.instance, plan.output.value.dtype, 0)
    place: Expression = PLACE
    if view.shifted:
        elements = operand(16) / call("sizeof", view.type)
        place += call("fusec::shift_of", call(view.at, *row), about=[elements])
    name = emitter.names.fresh(f"{plan.output.value.name}_vec", "vec")
    emitter.add(0, "vector", Declare(vector_of(view.type, "kWidth"), name))
    emitter.add(0, "lane", Assign(item(name, emitter.element_of_vector), value))
    pointer = Pointer(Name(view.rows), place)
    emitter.add(0, "after", Evaluate(call("fusec::store", pointer, name)))
