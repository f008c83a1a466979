"""Staged tensors of a product's epilogue: their views, and their pairs in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from fusec.codegen.matmul_view import StagedView
from fusec.codegen.views import StorePlan
from fusec.index.instances import Instance, instances_under
from fusec.ir.expression import index
from fusec.ir.graph import Output
from fusec.kernel.ctext import storage_type
from fusec.kernel.emit import Emitter
from fusec.kernel.nest import StoreKind
from fusec.schedule.matmul_staged import StagedTensor


def stage(
    tensors: Iterable[StagedTensor],
    emitter: Emitter,
    roots: Iterable[Instance],
    fresh: Callable[[], Emitter],
) -> tuple[tuple[StagedView, ...], Mapping[Output, StagedView]]:
    """Return the views of staged tensors, and of each output that is staged.

    Those that are read are so in shared memory from here on. fresh: makes an emitter for the body
    of a function of its own; roots: what is stored or reduced.
    """
    views: list[StagedView] = []
    stored: dict[Output, StagedView] = {}
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
        view = StagedView(
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
                line = f"const auto {name} = fusec::load<kWidth>({rows} + place);"
                emitter.add(0, "vector", line)
                emitter.cached[instance] = f"{name}[{_lane(emitter)}]"
    return tuple(views), stored


def _lane(emitter: Emitter) -> str:
    return "0" if emitter.lane is None else emitter.lane.name


def emit_staged(emitter: Emitter, plan: StorePlan, view: StagedView, row: str) -> None:
    """Emit the store of a pair, or of an element, into a warp's rows in shared memory.

    row: the position of the row's first element, as arguments of the epilogue.
    """
    assert plan.kind is StoreKind.STAGED, f"`{plan.output.value.name}` is not planned as staged"
    value = emitter.to_storage(plan.instance, plan.output.value.dtype, 0)
    kind = storage_type(plan.output.value.dtype)
    place = f"{view.rows} + place"
    if view.shifted:
        place += f" + fusec::shift_of<16 / sizeof({kind})>({view.at}({row}))"
    name = emitter.names.fresh(f"{plan.output.value.name}_vec", "vec")
    emitter.add(0, "vector", f"fusec::Vec<{kind}, kWidth> {name};")
    emitter.add(0, "lane", f"{name}[{_lane(emitter)}] = {value};")
    emitter.add(0, "after", f"fusec::store({place}, {name});")
