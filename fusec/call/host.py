"""Calls with arrays on the CPU: copied to the GPU and back, or evaluated where there is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fusec.call.arrays import View
from fusec.call.given import Given
from fusec.call.interfaces import DeviceArray, over_memory
from fusec.diagnostics import FusecError, note_once
from fusec.generator import default_generator
from fusec.ir.dim import Dim
from fusec.ir.effects import own_strides
from fusec.ir.graph import Fusion, Output, Value
from fusec.run.arrays import StridedArray, lay_out, span
from fusec.run.device import Device, device_available, open_device
from fusec.run.inputs import bind_sizes, generator_state
from fusec.run.process import own_gpu
from fusec.segment.views import Layout, view_of

if TYPE_CHECKING:
    from fusec.call.program import Evaluate, Program


def call_on_host(
    program: Program, given: Given, evaluate: Evaluate, out: Any, stream: Any
) -> list[Any]:
    """Return the outputs; what is written in place, and `out`, are written where they lie."""
    if stream is not None:
        raise FusecError(
            "`stream` is of a GPU, and the arguments are on the CPU",
            help="pass arrays on the GPU, or no stream",
        )
    given.check_writes()
    targets = dict(_targets(program, given, out))
    reason = device_available()
    if reason is None:
        note_once("arrays on the CPU are copied to the GPU, and results back")
        found = _on_copies(program, given)
    else:
        note_once(f"results come from the fp64 reference ({reason})")
        found = _evaluated(program, given, evaluate)
    return [
        _delivered(program, given, output, result, targets.get(output.value.name))
        for output, result in zip(program.fusion.outputs, found, strict=True)
    ]


def _targets(program: Program, given: Given, out: Any) -> Iterator[tuple[str, Any]]:
    """Yield the caller's array for each output with memory of its own; FusecError for misfits."""
    if out is None:
        return
    own = [o for o in program.fusion.effects.fresh if _layout(program.fusion, o.value) is None]
    arrays: list[Any] = [*out] if isinstance(out, (tuple, list)) else [out]
    if len(arrays) != len(own):
        names = ", ".join(o.value.name for o in own) or "none"
        raise FusecError(
            f"out: {len(arrays)} arrays are given, the outputs with memory of their own are {names}"
        )
    sizes = program.sizes_of(given)
    for output, array in zip(own, arrays, strict=True):
        value = output.value
        form = View(0, *_form(value.shape, own_strides(output), sizes), value.dtype, None)
        given.check_out(value.name, form, 1, array)
        yield value.name, array


def _layout(fusion: Fusion, value: Value) -> Layout | None:
    """Return a value as a view of an input that nothing overwrites; None for any other."""
    kept = (i.value for i in fusion.inputs if i.value.name not in fusion.effects.overwritten)
    return view_of(fusion, value, frozenset(kept))


def _form(
    shape: Iterable[Dim], strides: Iterable[Dim], sizes: Mapping[str, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    first, second = (tuple(e.evaluate(sizes) for e in dims) for dims in (shape, strides))
    return first, second


def _delivered(program: Program, given: Given, output: Output, result: Any, target: Any) -> Any:
    """Return a result in the array that it belongs into, or a new one of the caller's kind."""
    fusion, value, kind = program.fusion, output.value, given.kind
    if kind is None:
        return result
    sizes = program.sizes_of(given)
    into = fusion.effects.into.get(value)
    layout = _layout(fusion, value) if into is None else None
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


def _evaluated(program: Program, given: Given, evaluate: Evaluate) -> list[Any]:
    """Return the results of the reference, after the checks that a call on a GPU makes."""
    pair = default_generator.next_pair()
    fusion = program.fusion
    state = {i.value.name: generator_state(i, pair) for i in fusion.inputs if i.generator}
    arrays = {name: over_memory(given.views[name], array) for name, array in given.arrays.items()}
    inputs = {**arrays, **given.numbers, **state}
    results = evaluate(fusion, inputs, program.sizes_of(given))
    return [np.asarray(results[o.value.name]) for o in fusion.outputs]


def _on_copies(program: Program, given: Given) -> list[Any]:
    device = open_device(0 if program.fusion.mesh is None else own_gpu())
    with device.current():
        names = [i.value.name for i in program.fusion.given]
        copies = [
            _uploaded(device, given, name) if name in given.arrays else given.numbers[name]
            for name in names
        ]
        there = Given(program.fusion, copies)
        if not there.arrays:
            raise FusecError("a fusion without tensor inputs is not called", help="use `fusec run`")
        results: Sequence[Any] = program.launch(there)
        device.call("cuCtxSynchronize")
        return [_downloaded(device, r) for r in results]


def _uploaded(device: Device, given: Given, name: str) -> DeviceArray:
    declared = next(i for i in given.fusion.given if i.value.name == name)
    array = over_memory(given.views[name], given.arrays[name])
    sizes = bind_sizes(given.fusion, given.values())
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
