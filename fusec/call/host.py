"""Calls with arrays on the CPU: copied to the GPU and back, or evaluated without a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fusec.call.arrays import View
from fusec.call.given import Given
from fusec.call.interfaces import DeviceArray, over_memory
from fusec.diagnostics import FusecError, note_once
from fusec.generator import default_generator
from fusec.ir.effects import own_strides
from fusec.run.arrays import StridedArray, lay_out, span
from fusec.run.binding import generator_state
from fusec.run.device import Device, device_available, open_device
from fusec.run.distributed.process import own_gpu
from fusec.segment.views import Layout, view_nodes, view_of

if TYPE_CHECKING:
    from fusec.call.program import Evaluate, Program
    from fusec.ir.dim import Dim
    from fusec.ir.evaluate import Sizes
    from fusec.ir.graph import Fusion, Output, Value


def call_on_host(
    program: Program, given: Given, evaluate: Evaluate, out: Any, stream: Any
) -> list[Any]:
    """Return the outputs; inputs written in place, and `out`, are updated for the caller."""
    if stream is not None:
        raise FusecError(
            "`stream` is a GPU stream, and the arguments are on the CPU",
            help="pass arrays on the GPU, or no stream",
        )
    given.check_writes()
    sizes = program.sizes_of(given)
    views = _views(program.fusion)
    targets = {} if out is None else dict(_targets(program.fusion, given, views, sizes, out))
    reason = device_available()
    if reason is None:
        note_once("arrays on the CPU are copied to the GPU, and results back")
        found = _on_copies(program, given, sizes)
    else:
        note_once(f"results come from the fp64 reference ({reason})")
        found = _evaluated(program.fusion, given, sizes, evaluate)
    return [
        _delivered(
            program.fusion, given, sizes, o, result, views.get(o.value), targets.get(o.value.name)
        )
        for o, result in zip(program.fusion.outputs, found, strict=True)
    ]


def _targets(
    fusion: Fusion, given: Given, views: Mapping[Value, Layout], sizes: Sizes, out: Any
) -> Iterator[tuple[str, Any]]:
    """Yield the caller's array for each output with memory of its own; FusecError for misfits."""
    own = [o for o in fusion.effects.fresh if o.value not in views]
    arrays: list[Any] = [*out] if isinstance(out, (tuple, list)) else [out]
    if len(arrays) != len(own):
        names = ", ".join(o.value.name for o in own) or "none"
        raise FusecError(
            f"out: got {len(arrays)} arrays, expected one for each output with its own memory: "
            f"{names}"
        )
    for output, array in zip(own, arrays, strict=True):
        value = output.value
        form = View(0, *_form(value.shape, own_strides(output), sizes), value.dtype, None)
        given.check_out(value.name, form, 1, array)
        yield value.name, array


def _views(fusion: Fusion) -> dict[Value, Layout]:
    """Return the outputs that are views of inputs, as calls on a GPU return them."""
    inputs = frozenset(i.value for i in fusion.given)
    nodes = view_nodes(fusion, frozenset()).last
    fresh = [o.value for o in fusion.effects.fresh if fusion.producer.get(o.value) in nodes]
    layouts = ((value, view_of(fusion, value, inputs)) for value in fresh)
    return {value: layout for value, layout in layouts if layout is not None}


def _form(
    shape: Iterable[Dim], strides: Iterable[Dim], sizes: Sizes
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    first, second = (tuple(e.evaluate(sizes) for e in dims) for dims in (shape, strides))
    return first, second


def _delivered(
    fusion: Fusion, given: Given, sizes: Sizes, output: Output, result: Any,
    layout: Layout | None, target: Any,
) -> Any:  # fmt: skip
    """Return a result in its destination array, or in a new one of the caller's framework."""
    value, kind = output.value, given.kind
    if kind is None:
        return result
    into = fusion.effects.into.get(value)
    if layout is not None:
        form = _form(value.shape, layout.strides, sizes)
        base, offset = given.arrays[layout.base.name], layout.offset.evaluate(sizes)
        return kind.give(kind.part(base, *form, offset), base)
    if into is not None:
        target = given.arrays[into.value.name]
    if target is None:
        form = _form(value.shape, own_strides(output), sizes)
        target = kind.empty(*form, value.dtype, None, 0)
    if result.size:
        np.copyto(over_memory(kind.view(target), target), result)
    return target if into is not None else kind.give(target, next(iter(given.arrays.values())))


def _evaluated(fusion: Fusion, given: Given, sizes: Sizes, evaluate: Evaluate) -> list[Any]:
    """Return the results of the reference, after the same checks as for a call on a GPU."""
    pair = default_generator.next_pair()
    state = {i.value.name: generator_state(i, pair) for i in fusion.inputs if i.generator}
    arrays = {name: over_memory(given.views[name], array) for name, array in given.arrays.items()}
    inputs = {**arrays, **given.numbers, **state}
    results = evaluate(fusion, inputs, sizes)
    return [np.asarray(results[o.value.name]) for o in fusion.outputs]


def _on_copies(program: Program, given: Given, sizes: Sizes) -> list[Any]:
    device = open_device(0 if program.fusion.mesh is None else own_gpu())
    with device.current():
        names = [i.value.name for i in program.fusion.given]
        copies = [
            _uploaded(device, given, sizes, name) if name in given.arrays else given.numbers[name]
            for name in names
        ]
        there = Given(program.fusion, copies)
        if not there.arrays:
            raise FusecError(
                "a fusion without tensor inputs cannot be called", help="use `fusec run`"
            )
        results: Sequence[Any] = program.launch(there)
        device.call("cuCtxSynchronize")
        return [_downloaded(device, r) for r in results]


def _uploaded(device: Device, given: Given, sizes: Sizes, name: str) -> DeviceArray:
    declared = next(i for i in given.fusion.given if i.value.name == name)
    array = over_memory(given.views[name], given.arrays[name])
    laid = lay_out(array, [s.evaluate(sizes) for s in declared.strides])
    made = DeviceArray(laid.shape, laid.strides, declared.value.dtype, device.index)
    if laid.storage.nbytes:
        device.call("cuMemcpyHtoD", made.address, laid.storage.ctypes.data, laid.storage.nbytes)
    return made


def _downloaded(device: Device, array: DeviceArray) -> Any:
    flat = np.empty(span(array.shape, array.strides), array.dtype.numpy)
    if flat.nbytes:
        device.call("cuMemcpyDtoH", flat.ctypes.data, array.address, flat.nbytes)
    return StridedArray(flat, array.shape, array.strides).array
