"""The fast path of a call whose arguments match the last ones: compare, allocate, launch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fusec.call.captured import CapturedCall, Nodes, capture, wants_capture
from fusec.call.frameworks import Torch
from fusec.call.helper import helper
from fusec.call.record import Record, refused
from fusec.call.steps import LaunchStep, MapStep, MemsetStep
from fusec.diagnostics import FusecError, InternalError
from fusec.generator import DRAWS_PER_CALL
from fusec.ir.index_errors import INDEX_ERRORS
from fusec.run.launch import map_codes, tensor_map_operands
from fusec.run.operations import (
    FIXED,
    CopyMemory,
    FlagOperations,
    NcclCall,
    Place,
    RecordEvent,
    WaitEvent,
)

if TYPE_CHECKING:
    from fusec.call.arrays import View
    from fusec.call.given import Given
    from fusec.ir.dtype import DType

Fast = Callable[..., Any]
"""Accepts a call's arguments; returns its results, or NotImplemented if they do not match."""

MOST_ARGUMENTS, MOST_FRESH, MOST_RANK = 64, 16, 16
"""Limits of the C launch helper."""
_CODES = {"int": 0, "uint": 1, "float": 2, "complex": 5, "bool": 6}
_OTHER_CODES = {"bf16": 4, "f8e4m3": 10, "f8e5m2": 12, "f8e8m0": 14}
_FORMATS = {"f64": "d", "f32": "f", "i64": "q", "i32": "i", "bool": "?"}


def fast_call(record: Record, given: Given, into: Sequence[Any] = ()) -> Fast | None:
    """Return the fast path for calls like this one; None where there is none.

    into: the caller's arrays for the outputs, which the fast path then takes after the arguments.
    """
    memory = record.memory
    if not isinstance(given.kind, Torch) or INDEX_ERRORS in memory.places:
        return None
    if not all(r.whole for r in memory.results):
        return None
    states = [i.value.name for i in given.fusion.inputs if i.generator]
    if [b.name for b in memory.inputs] != [*given.views, *states]:
        return None
    helped = helped_call(record, given, into=into)
    if helped is None:
        return None if into or states else _InPython(record, given, given.kind)
    return _captured_call(record, given, into) or helped


def _captured_call(record: Record, given: Given, into: Sequence[Any]) -> Fast | None:
    """Return the fast path that launches a graph, None where there is none."""
    if not wants_capture(record):
        return None
    try:
        return helped_call(record, given, capture(record), into)
    except FusecError:
        return None  # the driver cannot capture or copy it: the helper issues the steps


def helped_call(
    record: Record,
    given: Given,
    graph: Nodes | CapturedCall | None = None,
    into: Sequence[Any] = (),
) -> Fast | None:
    """Return the fast path through the helper, or None where there is none.

    graph: is updated and launched instead of the steps; it owns the results, unless it is that of a
    call. into: as in `fast_call`.
    """
    known, kind = helper(), given.kind
    if known is None or not isinstance(kind, Torch) or kind.exchange is None:
        return None
    if not record.is_helped or not _fits(record, given, into):
        return None
    if any(type(array) not in kind.types for array in into):
        return None
    nodes = graph.nodes if isinstance(graph, CapturedCall) else graph
    return _in_c(known, record, given, kind, nodes, graph, into)


def _fits(record: Record, given: Given, into: Sequence[Any]) -> bool:
    scalars = (n.dtype.name in _FORMATS for n in record.numbers)
    return (
        len(given.fusion.given) + len(into) <= MOST_ARGUMENTS
        and len(record.memory.fresh) <= MOST_FRESH
        and all(len(v.shape) <= MOST_RANK for v in given.views.values())
        and all(len(f.shape) <= MOST_RANK for f in record.memory.fresh)
        and all(scalars)
        and not any(s.of for s in record.program.scalars)
    )


def _in_c(
    known: Any,
    record: Record,
    given: Given,
    kind: Torch,
    graph: Nodes | None,
    kept: Any,
    into: Sequence[Any] = (),
) -> Fast:
    memory, arena, transport = record.memory, record.arena, record.transport
    takes, calls = graph is None or graph.nodes is not None, graph is None or graph.is_call
    names = [i.value.name for i in given.fusion.given]
    arguments = tuple(_argument(record, given, n) for n in names)
    buffers = {r.slot: r.name for r in memory.results}
    arguments += tuple(
        _output(kind.view(array), record.program.buffer[buffers[fresh.slot]].alignment)
        for fresh, array in zip(memory.fresh, into, strict=bool(into))
    )
    tensors = [n for n in names if n in given.views]
    states = len(memory.inputs) - len(tensors)
    draws = calls and states > 0

    def place(slot: int) -> int:
        """Return the index of the argument that is a result, or -1 and down for a fresh tensor."""
        if slot < len(tensors):
            return names.index(tensors[slot])
        number = slot - len(memory.inputs)
        return len(names) + number if into else -1 - number

    return known.Call(
        # Not the record, which owns the result of this: the helper's objects are not
        # garbage-collected.
        owner=(record.steps, record.patches, record.numbers, arena, transport, kept),
        failed=partial(refused, arena.device, record.steps),
        types=kind.types,
        exchange=kind.exchange,
        context=arena.device.context,
        stream=arena.stream,
        device=given.device,
        any_stream=not calls,
        checks_capture=calls and (draws or _checks_capture(record)),
        failure=transport.failure_address if transport else 0,
        generation=ctypes.addressof(arena.generation),
        busy=ctypes.addressof(arena.busy),
        arguments=arguments if takes else (),
        numbers=tuple(
            (ctypes.addressof(n.value), _FORMATS[n.dtype.name], names.index(n.name), n.step)
            for n in record.numbers
            if takes
        ),
        patches=tuple((s, ctypes.addressof(v), offset) for s, v, offset in record.patches),
        steps=helper_steps(record, graph) if takes else (),
        fresh=tuple(_allocation(record, kind, given)) if calls and not into else (),
        results=tuple(place(r.slot) for r in memory.results) if calls else (),
        addresses=tuple(record.addresses),
        graph=graph.handle if graph else 0,
        generator=kind.generator(arena.device.index) if draws else None,
        draws=DRAWS_PER_CALL,
        pair=arena.pair.address,
        inputs=len(tensors),
        states=states,
    )


def _checks_capture(record: Record) -> bool:
    """Return whether a call under capture needs memory of its own."""
    memory = record.memory
    return bool(memory.scratch or memory.counters or record.transport)


def _argument(record: Record, given: Given, name: str) -> tuple[Any, ...]:
    """Return what is checked about an argument."""
    declared = next(i for i in given.fusion.given if i.value.name == name)
    if declared.value.is_scalar:
        sized = given.numbers[name] if declared.value.dim is not None else None
        return True, 0, 0, (), (), 0, 1, False, False, sized, declared.default
    view, alignment = given.views[name], record.program.buffer[name].alignment
    return (
        False, _code(view.dtype), view.dtype.bits, view.shape, view.strides, view.bytes, alignment,
        name in given.written, _may_be_lazy(view), None, None,
    )  # fmt: skip


def _output(view: View, alignment: int) -> tuple[Any, ...]:
    """Return what is checked about an array for an output; it may not alias another one."""
    form = view.shape, view.strides, view.bytes
    lazy = _may_be_lazy(view)
    return False, _code(view.dtype), view.dtype.bits, *form, alignment, True, lazy, None, None


def _may_be_lazy(view: View) -> bool:
    """Return whether PyTorch may have set such a tensor's lazy conjugate or negative bit.

    It does so on complex tensors, and on views of imaginary parts, which have a stride of 2.
    """
    steps = (s for e, s in zip(view.shape, view.strides, strict=True) if e > 1)
    return view.dtype.is_complex or (view.dtype.is_float and all(s % 2 == 0 for s in steps))


def _code(dtype: DType) -> int:
    """Return DLPack's code of a type."""
    return _OTHER_CODES.get(dtype.name, _CODES[dtype.kind])


def _allocation(record: Record, kind: Torch, given: Given) -> Sequence[tuple[Any, ...]]:
    device = given.device
    assert device is not None
    return [kind.allocation(f.shape, f.strides, f.dtype, device) for f in record.memory.fresh]


def helper_steps(record: Record, graph: Nodes | None = None) -> tuple[tuple[Any, ...], ...]:
    """Return a record's steps in the format of the helper."""
    return tuple(_step(record, number, graph) for number in range(len(record.steps)))


def _step(record: Record, number: int, graph: Nodes | None) -> tuple[Any, ...]:
    """Return a step in the format of the helper; the first number is its kind."""
    step, streams = record.steps[number], record.streams.handles
    match step:
        case LaunchStep(_, function, shape, packed, slots, on, _):
            geometry = (*shape.grid, *shape.block, *shape.cluster, shape.shared_bytes)
            how = (int(streams[on]), *geometry, int(shape.overlapped))
            node = graph.nodes[number] if graph and graph.nodes else 0
            return 0, int(function), *how, packed.address, node, sum(1 << s for s in slots)
        case MemsetStep(place, size, on):
            return 1, *_place(place), size, int(streams[on])
        case CopyMemory(target, source, size, stream):
            node = graph.nodes.get(number, 0) if graph and graph.nodes else 0
            follows = sum({1 << p.slot for p in (target, source) if p.slot != FIXED})
            return 2, *_place(target), *_place(source), size, stream, node, follows if node else 0
        case MapStep(described, place, block, _):
            given = tensor_map_operands(described, 0, record.sizes)
            kind, *modes = map_codes(record.executable.device.driver, described)
            form = tuple(given["extents"]), tuple(given["strides"]), tuple(given["box"])
            return 3, ctypes.addressof(block), *_place(place), kind, *form, *modes
        case RecordEvent(event, stream):
            return 4, int(event), stream
        case WaitEvent(stream, event):
            return 5, int(event), stream
        case FlagOperations(stream, flags):
            return 6, stream, tuple((int(f.waits), f.address, f.value) for f in flags)
        case NcclCall():
            function, ends = step.library.pointer(step.function), map(_place, step.buffers)
            return 7, function, tuple(ends), step.numbers, step.pointer, step.stream
        case other:
            raise InternalError(f"the C launch helper has no {type(other).__name__}")


def _place(place: Place) -> tuple[int, int]:
    return place.slot, place.offset


class _InPython:
    """The same fast path without the helper."""

    def __init__(self, record: Record, given: Given, kind: Torch) -> None:
        self._record, self._arena, self._kind = record, record.arena, kind
        self._made_for = record.arena.generation.value
        self._checks_capture = _checks_capture(record)
        assert given.device is not None
        self._device = given.device
        self._names = [i.value.name for i in given.fusion.given]
        self._wanted = [
            None if n not in given.arrays else _form(given.arrays[n]) for n in self._names
        ]
        buffers = record.program.buffer
        self._alignments = [buffers[n].alignment if n in buffers else 1 for n in self._names]
        sized = (i.value for i in given.fusion.given if i.value.is_scalar)
        self._sizes = {v.name: given.numbers[v.name] for v in sized if v.dim is not None}
        self._checks_writes = bool(given.written)
        self._lazy = {n for n, v in given.views.items() if _may_be_lazy(v)}
        self._fresh = _allocation(record, kind, given)
        self._slots = [r.slot for r in record.memory.results]

    def __call__(self, *arguments: Any) -> Any:
        if len(arguments) != len(self._wanted) or self._checks_writes:
            return NotImplemented
        tensors: list[Any] = []
        addresses: list[int] = []
        numbers: dict[str, Any] = {}
        each = zip(self._names, self._wanted, self._alignments, arguments, strict=True)
        for name, wanted, alignment, given in each:
            if wanted is None:
                if type(given) not in (int, float, bool):
                    return NotImplemented
                numbers[name] = given
                continue
            if given.__class__ not in self._kind.types or _form(given) != wanted:
                return NotImplemented
            if name in self._lazy and (given.is_conj() or given.is_neg()):
                return NotImplemented
            address = given.data_ptr()
            if address % alignment or not address:
                return NotImplemented
            tensors.append(given)
            addresses.append(address)
        if any(numbers[n] != size for n, size in self._sizes.items()):
            return NotImplemented
        arena = self._arena
        if self._kind.stream(self._device) != arena.stream:
            return NotImplemented
        if self._checks_capture and self._kind.is_capturing():
            return NotImplemented
        for make, shape, options in self._fresh:
            tensors.append(make(*shape, **options))
            addresses.append(tensors[-1].data_ptr())
        with arena.issuing():
            if arena.generation.value != self._made_for:
                return NotImplemented
            self._record.issue(addresses, numbers)
        results = [tensors[slot] for slot in self._slots]
        return results[0] if len(results) == 1 else tuple(results)


def _form(tensor: Any) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device()
