"""A callable compiled fusion: accepts arrays of any framework, returns outputs of the same."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from threading import RLock
from typing import TYPE_CHECKING, Any

from fusec import executor
from fusec.call.arrays import Kind, View, handle_of
from fusec.call.fast import Fast, fast_call
from fusec.call.frameworks import Torch
from fusec.call.given import Given, ordered, type_text
from fusec.call.graph import Graph
from fusec.call.memory import Arena, hold, may_be_emptied, retried
from fusec.call.record import Record
from fusec.call.variants import Variant
from fusec.dataclasses import dataclass, field
from fusec.diagnostics import FusecError, OutOfMemory, Unsupported
from fusec.generator import PARTS, default_generator, next_torch_pair
from fusec.hostir.arena import ALIGNMENT
from fusec.ir.dim import shape_text
from fusec.ir.graph import Fusion
from fusec.ir.signature import RecordedFusion
from fusec.run.binding import generator_state, read_sizes
from fusec.run.device import Device, open_device

if TYPE_CHECKING:
    from fusec.ir.signature import Signature
    from fusec.run.execute import Executable

MOST_SIGNATURES = 256
"""Maximum number of launch records (shapes, strides and sizes) per stream."""
MOST_STREAMS = 16
MOST_VARIANTS = 64
"""Maximum number of builds of a program; the oldest are evicted first."""
NEW_STRIDES = "new strides"
"""Shown in messages instead of sizes, for a program without dims."""

Make = Callable[[Mapping[str, int], "Device | None"], Variant]
"""Builds for sizes, and for a device where no target was chosen."""
Evaluate = Callable[[Fusion, Mapping[str, Any], Mapping[str, int]], Mapping[str, Any]]
"""The reference, where there is no GPU."""


@dataclass(frozen=True)
class Planned:
    """The build that supports a call's signature, and the size of every symbol."""

    variant: Variant
    sizes: Mapping[str, int]


@dataclass
class Lane:
    """The state for one stream of a device: the arena of its calls, and their launch records."""

    device: Device
    arena: Arena
    records: OrderedDict[Hashable, Record] = field(default_factory=OrderedDict[Hashable, Record])


class Program:
    """A compiled fusion, which is called with the inputs in the order of their declaration.

    Inputs are arrays of PyTorch, CuPy, JAX, Numba or NumPy and numbers, of the declared dtypes and
    shapes. Outputs have the framework of the first array, and are on its device, written on the
    current stream of that framework. A call for compiled sizes allocates only outputs; a call for
    other sizes compiles. Thread-safe.
    """

    def __init__(
        self, fusion: Fusion | RecordedFusion, variants: Sequence[Variant], make: Make | None,
        evaluate: Evaluate,
    ) -> None:  # fmt: skip
        """Start with existing builds; `make` compiles others, None: no others are compiled.

        fusion: what one rank runs; a recorded one is parsed only where its signature is not enough.
        """
        self._fusion, self.variants = fusion, list(variants)
        self._make, self._evaluate = make, evaluate
        self._planned: OrderedDict[Hashable, Planned] = OrderedDict()
        self._lanes: OrderedDict[tuple[int, int], Lane] = OrderedDict()
        self._lock = RLock()
        inputs = self.signature.inputs
        self._generator_parts = {i.value.name: i.generator for i in inputs if i.generator}
        self._fast: Fast | None = None
        self._fast_into: Fast | None = None
        self._out_of_memory: type[Exception] = OutOfMemory
        self._takes = len(self.signature.given)

    @property
    def signature(self) -> Signature:
        """Return the part of the fusion that calls need."""
        known = self._fusion
        return known.signature if isinstance(known, RecordedFusion) else known

    @property
    def fusion(self) -> Fusion:
        """Return the fusion that one rank runs, parsing it now if it was not."""
        with self._lock:
            known = self._fusion
            if isinstance(known, RecordedFusion):
                known = self._fusion = known.read()
            return known

    @property
    def name(self) -> str:
        """Return the fusion's name."""
        return self.signature.name

    @property
    def inputs(self) -> dict[str, str]:
        """Return the types of the arguments by name, in order, such as `bf16[B, H]`."""
        return {i.value.name: type_text(i) for i in self.signature.given}

    @property
    def outputs(self) -> dict[str, str]:
        """Return the types of the results by name, in order, such as `f32[B]`."""
        values = (o.value for o in self.signature.outputs)
        return {v.name: f"{v.dtype}{shape_text(v.shape)}" for v in values}

    def __repr__(self) -> str:
        """Return the signature and the compiled sizes."""
        given = ", ".join(f"{n}: {t}" for n, t in self.inputs.items())
        results = ", ".join(f"{n}: {t}" for n, t in self.outputs.items())
        built = "; ".join(v.covers for v in self.variants if v.covers)
        return f"<Program {self.name}({given}) -> {results}, {built or 'not compiled yet'}>"

    def _repr_html_(self) -> str:
        """Return the page of `fusec explain --html`, for notebooks; with default options."""
        return executor.describe(self.fusion, "page")

    def __call__(self, *arguments: Any, out: Any = None, stream: Any = None, **named: Any) -> Any:
        """Launch the kernels without waiting for them; return the output or a tuple of outputs.

        out: arrays for the outputs that are not written into inputs, of their dtypes and shapes.
        stream: a stream of a framework, or a CUstream handle as an integer. Raises FusecError,
        with the name of the argument, for a wrong dtype, shape or device, and for sizes that are
        not compiled if the program must not compile.
        """
        if stream is None and not named:
            results = self.again(*arguments) if out is None else self._again_into(arguments, out)
            if results is not NotImplemented:
                return results
        given = self.looked_at(arguments, named)
        if given.device is None:
            from fusec.call.host import call_on_host

            results = call_on_host(self, given, self._evaluate, out, stream)
        else:
            results = self.launch(given, out, stream)
        return results[0] if len(results) == 1 else tuple(results)

    def looked_at(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> Given:
        """Return the arguments of a call, inspected; FusecError for invalid ones."""
        if isinstance(self._fusion, RecordedFusion):
            with suppress(FusecError):  # it is raised again below, with its position in the source
                return Given(self.signature, ordered(self.signature, arguments, named))
        return Given(self.fusion, ordered(self.fusion, arguments, named))

    def again(self, *arguments: Any) -> Any:
        """Return the results of a call whose arguments match the last ones, else NotImplemented."""
        if self._fast is None:
            return NotImplemented
        try:
            return self._fast(*arguments)
        except self._out_of_memory:
            return NotImplemented  # `launch` frees memory before it allocates again

    def _again_into(self, arguments: Sequence[Any], out: Any) -> Any:
        # The helper takes the output arrays after all arguments.
        if self._fast_into is None or len(arguments) != self._takes:
            return NotImplemented
        arrays: list[Any] = [*out] if isinstance(out, (tuple, list)) else [out]
        return self._fast_into(*arguments, *arrays)

    def graph(
        self, *arguments: Any, out: Any = None, static_inputs: bool = False, **named: Any
    ) -> Graph:
        """Capture a call with these arguments as a CUDA graph, which can be replayed.

        Results are in `out`, or in memory of the graph. With several ranks, all ranks capture and
        replay together. static_inputs: replays use these arrays only, so that other ranks read
        them in place instead of copies; they are kept until the process ends. Errors as for a
        call.
        """
        given = self.looked_at(arguments, named)
        device, kind = self._on_gpu(given)
        given.check_writes()
        with device.current():
            arena = Arena(device, int(device.call("cuStreamCreate", 1)))
            planned = self._plan_for(given, device)
            given.check_alignments(planned.variant.host.buffer)
            planned.variant.captured = True
            executable = self._loaded(planned, device, "a graph of ")
            mapped = shareable(device, given) if static_inputs and self._has_others else {}
            record = Record(executable, planned.sizes, arena, captured=True, mapped=mapped)
            record.forbid_checks()
            for name in record.in_place.values():
                hold(given.arrays[name])
            fresh = self.fresh(record, given, out, kind.stream(device.index))
            return Graph(self, record, given, fresh, static_inputs=static_inputs)

    def plan(self, **sizes: int) -> str:
        """Return the launches of a call with these sizes as text, without compiling or running."""
        known = dict(self.signature.hints)
        for name, size in sizes.items():
            if name not in known:
                names = ", ".join(n for n in known if "." not in n)
                raise FusecError(f"`{self.name}` has no dim `{name}`", help=f"one of {names}")
            known[name] = size
        variant = self._covering(known)
        if variant is None:
            return "not compiled for these shapes" + (
                "; compiles on the first call\n" if self._make else "\n"
            )
        return f"{variant.covers or 'compiled for all shapes'}\n{variant.host.text()}"

    def _on_gpu(self, given: Given) -> tuple[Device, Kind]:
        """Return the device of a call's arrays, and their kind; FusecError where they have none."""
        index, kind = given.device, given.kind
        if index is None or kind is None:
            name = next(iter(given.arrays), "nothing")
            raise FusecError(
                f"argument `{name}` is on the CPU, expected an array on a GPU",
                help="calls copy arrays on the CPU to the GPU and back, graphs do not",
            )
        return open_device(index), kind

    def launch(self, given: Given, out: Any = None, stream: Any = None) -> list[Any]:
        """Launch the kernels for arrays on a GPU, and return the outputs in order."""
        device, kind = self._on_gpu(given)
        handle = kind.stream(device.index) if stream is None else handle_of(stream)
        given.check_writes()
        with device.current():
            planned = self._plan_for(given, device)
            given.check_alignments(planned.variant.host.buffer)
            if _capturing(device, handle):
                return self._capture(planned, given, out, device, handle)
            lane = self._lane(device, device.index, handle)
            with lane.arena.issuing():
                record = self._record(lane, given.signature, planned)
                fresh = self.fresh(record, given, out, record.arena.stream)
                results = self._issue(record, given, fresh)
                if stream is not None:  # others wait, for what they issue could be captured
                    return results
                if out is None:
                    self._out_of_memory = kind.out_of_memory
                    self._fast = record.fast = record.fast or fast_call(record, given)
                else:
                    into = record.fast_into or fast_call(record, given, fresh)
                    self._fast_into = record.fast_into = into
            return results

    def _plan_for(self, given: Given, device: Device) -> Planned:
        """Return the build for the arguments, compiled now where none supports them."""
        signature = given.signature
        with self._lock:
            known = self._planned.get(signature)
            if known is not None:
                self._planned.move_to_end(signature)
                return known
            sizes = self._bound(given)
            variant = self._covering(sizes) or self._build(sizes, device)
            variant.host.check_indices(sizes)
            planned = self._planned[signature] = Planned(variant, sizes)
            if len(self._planned) > MOST_SIGNATURES:
                self._planned.popitem(last=False)
            return planned

    def sizes_of(self, given: Given) -> Mapping[str, int]:
        """Return the sizes of a call without a GPU; FusecError where one would not run it."""
        sizes = self._bound(given)
        variant = self._covering(sizes)
        if variant is not None:
            variant.host.check_indices(sizes)
        elif self._make is None:
            raise self._uncovered(sizes)
        return sizes

    def _bound(self, given: Given) -> Mapping[str, int]:
        """Return the size of every symbol, bound by the arguments."""
        inputs = self.signature.inputs
        state = {i.value.name: generator_state(i, (0, 0)) for i in inputs if i.generator}
        arrays = {**given.values(), **state}
        if isinstance(self._fusion, RecordedFusion):
            with suppress(FusecError):
                sizes = read_sizes(self.signature, arrays)
                if sizes == self.signature.hints:  # these were checked when it was recorded
                    return sizes
        from fusec.run.inputs import bind_sizes

        return bind_sizes(self.fusion, arrays)

    def _covering(self, sizes: Mapping[str, int]) -> Variant | None:
        return next((v for v in self.variants if v.holds(sizes)), None)

    def _build(self, sizes: Mapping[str, int], device: Device) -> Variant:
        if self._make is None:
            raise self._uncovered(sizes)
        if self.variants:
            print(
                f"fusec: compiling `{self.name}` for {_shown(sizes) or NEW_STRIDES}",
                file=sys.stderr,
            )
        variant = self._make(sizes, device)
        self.variants.insert(0, variant)
        idle = [v for v in self.variants if not v.captured]
        if len(idle) > MOST_VARIANTS:
            self._forget(idle[-1])
        return variant

    def _uncovered(self, sizes: Mapping[str, int]) -> FusecError:
        covered = "; ".join(v.covers for v in self.variants) or "none"
        return FusecError(
            f"`{self.name}` is not compiled for {_shown(sizes) or NEW_STRIDES}",
            notes=[f"compiled: {covered}"],
            help="compile it for these sizes, or do not pass `build=False`",
        )

    def _forget(self, variant: Variant) -> None:
        """Unload a build; it is built again if a call needs it."""
        self.variants.remove(variant)
        stale = [s for s, planned in self._planned.items() if planned.variant is variant]
        for signature in stale:
            del self._planned[signature]
        for lane in self._lanes.values():
            with lane.arena.issuing():
                lane.arena.generation.value += 1  # cached records are looked up again
                for signature in stale:
                    lane.records.pop(signature, None)
        self._fast = self._fast_into = None
        variant.close()

    def _lane(self, device: Device, index: int, stream: int) -> Lane:
        with self._lock:
            lane = self._lanes.get((index, stream))
            if lane is None:
                lane = self._lanes[index, stream] = Lane(device, Arena(device, stream))
                may_be_emptied(lane.arena)
                if len(self._lanes) > MOST_STREAMS:
                    _, oldest = self._lanes.popitem(last=False)
                    oldest.arena.close()
            return lane

    @property
    def _has_others(self) -> bool:
        """Return whether other ranks run it, too."""
        mesh = self.signature.mesh
        return mesh is not None and mesh.size > 1

    def _loaded(self, planned: Planned, device: Device, what: str = "") -> Executable:
        """Return the kernels on a device; collective over all ranks, for the same sizes.

        what: describes the call in error messages.
        """
        executable = planned.variant.on(device)
        if not self._has_others:
            return executable
        from fusec.run.distributed.process import member_of

        called = f"{what}`{self.name}` of {_shown(planned.sizes)}"
        return executable.among(member_of(called, self.signature.mesh, device))

    def _record(self, lane: Lane, signature: Hashable, planned: Planned) -> Record:
        record = lane.records.get(signature)
        if record is None or record.program is not planned.variant.host:
            executable = self._loaded(planned, lane.device)
            record = lane.records[signature] = Record(executable, planned.sizes, lane.arena)
            if len(lane.records) > MOST_SIGNATURES:
                lane.records.popitem(last=False)
        lane.records.move_to_end(signature)
        return record

    def _capture(
        self, planned: Planned, given: Given, out: Any, device: Device, stream: int
    ) -> list[Any]:
        """Issue into a graph under capture, which allocates and frees the kernels' memory.

        With several ranks, all capture together; memory for communication is not freed.
        """
        if self._generator_parts:
            raise Unsupported(
                f"`{self.name}` generates random numbers, and a graph would replay the same ones",
                help="program.graph(...) generates new random numbers at each replay",
            )
        planned.variant.captured = True
        arena = Arena(device, stream, capture=device.capture_number(stream))
        try:
            with device.relaxed_capture():
                executable = self._loaded(planned, device, "a captured call of ")
                record = Record(executable, planned.sizes, arena, captured=True)
            return self._issue(record, given, self.fresh(record, given, out, arena.stream))
        finally:
            arena.close()

    def _issue(self, record: Record, given: Given, fresh: Sequence[Any]) -> list[Any]:
        record.issue(self.addresses(record, given, fresh), given.numbers)
        record.check_indices()
        return self.results(record, given, fresh)

    def addresses(self, record: Record, given: Given, fresh: Sequence[Any]) -> list[int]:
        """Return the addresses of a record's inputs and fresh tensors, by slot."""
        kind = given.kind
        assert kind is not None
        known = {n: v.address for n, v in given.views.items()}
        known |= self.generator_state(record.arena, given, record.arena.stream)
        slots = [known[b.name] for b in record.memory.inputs]
        return slots + [kind.view(array).address for array in fresh]

    def results(self, record: Record, given: Given, fresh: Sequence[Any]) -> list[Any]:
        """Return the outputs: fresh tensors, arguments that are written, and views of these."""
        memory, kind = record.memory, given.kind
        assert kind is not None
        slots = [*(given.arrays.get(b.name) for b in memory.inputs), *fresh]
        like = next(iter(given.arrays.values()))
        results: list[Any] = []
        for result in memory.results:
            array = slots[result.slot]
            if not result.whole:
                array = kind.part(array, result.shape, result.strides, result.offset)
            own = result.whole and result.slot < len(memory.inputs)
            results.append(array if own else kind.give(array, like))
        return results

    def generator_state(self, arena: Arena, given: Given, stream: int) -> dict[str, int]:
        """Return the address of the generator's seed and offset: a pair private to this call."""
        if not self._generator_parts:
            return {}
        kind, device = given.kind, given.device
        if isinstance(kind, Torch) and device is not None:
            pair = next_torch_pair(kind.generator(device))
        else:
            pair = default_generator.next_pair()
        state = arena.state(pair, stream)
        return {n: state + 8 * PARTS.index(part) for n, part in self._generator_parts.items()}

    def fresh(self, record: Record, given: Given, out: Any, stream: int) -> list[Any]:
        """Return the tensors that kernels fill: new ones for use on a stream, or the caller's."""
        device, memory, kind = given.device, record.memory, given.kind
        assert device is not None
        assert kind is not None
        if out is None:

            def allocate() -> list[Any]:
                forms = ((f.shape, f.strides, f.dtype) for f in memory.fresh)
                return [kind.empty(*form, device, stream) for form in forms]

            if record.arena.capture is not None:
                return allocate()
            return retried(allocate, kind.out_of_memory, record.arena.device)
        arrays: list[Any] = [*out] if isinstance(out, (tuple, list)) else [out]
        names = {r.slot: r.name for r in memory.results if r.whole}
        if len(arrays) != len(memory.fresh) or any(f.slot not in names for f in memory.fresh):
            raise FusecError(
                f"out: got {len(arrays)} arrays, expected one for each output with its own "
                "memory: "
                f"{', '.join(names[f.slot] for f in memory.fresh if f.slot in names) or 'none'}"
            )
        for array, wanted in zip(arrays, memory.fresh, strict=True):
            form = View(0, wanted.shape, wanted.strides, wanted.dtype, device)
            name = names[wanted.slot]
            given.check_out(name, form, record.program.buffer[name].alignment, array)
        return arrays


def _shown(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{n} = {s}" for n, s in sizes.items() if "." not in n)


def shareable(device: Device, given: Given) -> dict[str, int]:
    """Return the addresses of the arguments that other ranks can map and read, by name.

    They have the alignment of fusec's own memory, so kernels can read them alike.
    """
    return {
        name: view.address
        for name, view in given.views.items()
        if view.address and view.address % ALIGNMENT == 0 and device.can_share(view.address)
    }


def _capturing(device: Device, stream: int) -> bool:
    return bool(int(device.call("cuStreamIsCapturing", stream)))
