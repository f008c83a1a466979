"""Calls with arrays of NumPy: copied to the GPU and back, or evaluated where there is none."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fusec.call.given import Given
from fusec.call.interfaces import DeviceArray
from fusec.diagnostics import FusecError
from fusec.generator import default_generator
from fusec.run.arrays import StridedArray, lay_out, span
from fusec.run.device import Device, device_available, open_device
from fusec.run.inputs import bind_sizes, generator_state
from fusec.run.process import own_gpu

if TYPE_CHECKING:
    from fusec.call.program import Evaluate, Program


def call_on_host(program: Program, given: Given, evaluate: Evaluate) -> list[Any]:
    """Return the outputs; what is written in place is written into the caller's arrays."""
    reason = device_available()
    if reason is None:
        _note("arrays of NumPy are copied to the GPU, and results back")
        found = _on_copies(program, given)
    else:
        _note(f"results come from the fp64 reference ({reason})")
        pair = default_generator.next_pair()
        fusion = program.fusion
        state = {i.value.name: generator_state(i, pair) for i in fusion.inputs if i.generator}
        inputs = {**given.arrays, **given.numbers, **state}
        results = evaluate(fusion, inputs, bind_sizes(fusion, inputs))
        found = [np.asarray(results[o.value.name]) for o in fusion.outputs]
    for number, output in enumerate(program.fusion.outputs):
        target = program.fusion.effects.into.get(output.value)
        if target is not None:
            array = given.arrays[target.value.name]
            np.copyto(array, found[number])
            found[number] = array
    return found


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
        results = program.launch(there)
        device.call("cuCtxSynchronize")
        return [_downloaded(device, r) for r in results]


def _uploaded(device: Device, given: Given, name: str) -> DeviceArray:
    declared = next(i for i in given.fusion.given if i.value.name == name)
    array = np.asarray(given.arrays[name])
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


@cache
def _note(text: str) -> None:
    print(f"fusec: {text}", file=sys.stderr)
