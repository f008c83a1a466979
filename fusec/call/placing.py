"""Where the buffers of a program lie in a call: slots, of which calls know the addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fusec.call.memory import Place
from fusec.hostir.instructions import Alias, Allocate, Memset
from fusec.hostir.placement import aligned, placement
from fusec.hostir.program import Buffer, HostProgram
from fusec.ir.evaluate import Sizes
from fusec.run.arrays import layout_of


@dataclass(frozen=True)
class Result:
    """An output: a tensor of its own, or a view of an input or of another tensor.

    slot: of the tensor. whole: it is that tensor, as it is. offset: in elements.
    """

    name: str
    slot: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    whole: bool
    offset: int = 0


@dataclass(frozen=True)
class Fresh:
    """A tensor that each call allocates: an output, or memory that outputs are views of."""

    slot: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any


@dataclass(frozen=True)
class Memory:
    """Where the buffers of a program lie at given sizes.

    Slots count the tensor inputs, then fresh tensors, then scratch and counters. scratch, counters:
    bytes of these. places, by buffer.
    """

    inputs: tuple[Buffer, ...]
    fresh: tuple[Fresh, ...]
    results: tuple[Result, ...]
    places: Mapping[str, Place]
    scratch: int
    counters: int

    @property
    def scratch_slot(self) -> int:
        """Return the slot of the arena's scratch memory; its counters have the next."""
        return len(self.inputs) + len(self.fresh)


class _Placing:
    """Memory under construction."""

    def __init__(self, program: HostProgram, sizes: Sizes) -> None:
        self.program, self.sizes = program, sizes
        self.inputs = program.inputs
        self.roots = {b.name: b.name for b in self.inputs}
        self.offsets = dict.fromkeys(self.roots, 0)
        memsets = (i for i in program.instructions if isinstance(i, Memset))
        self.once = frozenset(i.buffer for i in memsets if i.once)
        for each in program.instructions:
            if isinstance(each, Allocate):
                self.roots[each.buffer], self.offsets[each.buffer] = each.buffer, 0
            elif isinstance(each, Alias):
                step = each.offset.evaluate(sizes) * program.buffer[each.buffer].dtype.size
                self.roots[each.buffer] = self.roots[each.of]
                self.offsets[each.buffer] = self.offsets[each.of] + step

    def memory(self) -> Memory:
        """Return where everything lies."""
        into = dict(self.program.aliases)
        given = {b.name: k for k, b in enumerate(self.inputs)}
        own = dict.fromkeys(self.roots[o] for o in self.program.outputs if o not in into)
        owners = [n for n in own if n not in given]
        fresh = tuple(Fresh(k, *self._form(name)) for k, name in enumerate(owners, len(given)))
        slots = {**given, **{n: k for k, n in enumerate(owners, len(given))}}
        scratch = placement(self.program, self.sizes, own=slots.keys() | self.once)
        counters, total = self._counters()
        base = len(given) + len(fresh)
        starts = {name: Place(base, offset) for name, offset in scratch.offsets.items()}
        starts |= {name: Place(base + 1, offset) for name, offset in counters.items()}
        starts |= {name: Place(slot) for name, slot in slots.items()}
        places = {
            name: starts.get(root, Place(base)).at(self.offsets[name])
            for name, root in self.roots.items()
        }
        results = tuple(self._result(name, into, slots) for name in self.program.outputs)
        return Memory(self.inputs, fresh, results, places, scratch.size, total)

    def _counters(self) -> tuple[dict[str, int], int]:
        """Return where what is zeroed once lies, one after the other, and the bytes of it all."""
        offsets, total = dict[str, int](), 0
        for name in self.roots:
            if name in self.once:
                offsets[name] = total
                total += aligned(max(self.program.buffer[name].bytes(self.sizes), 1))
        return offsets, total

    def _form(self, name: str) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
        buffer = self.program.buffer[name]
        return *layout_of(buffer, self.sizes), buffer.dtype

    def _result(self, name: str, into: Mapping[str, str], slots: Mapping[str, int]) -> Result:
        root = into.get(name) or self.roots[name]
        shape, strides, dtype = self._form(name)
        whole = root in (name, into.get(name))
        return Result(
            name, slots[root], shape, strides, dtype, whole, self.offsets[name] // dtype.size
        )


def memory_of(program: HostProgram, sizes: Sizes) -> Memory:
    """Return where a program's buffers lie at `sizes`."""
    return _Placing(program, sizes).memory()
