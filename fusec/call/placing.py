"""Placement of a program's buffers in a call: slots, whose addresses each call sets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusec.dataclasses import dataclass
from fusec.diagnostics import Unsupported
from fusec.hostir.arena import aligned
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    Memset,
    Receive,
    Share,
    Unshare,
    writes,
)
from fusec.hostir.placement import placement
from fusec.run.arrays import layout_of
from fusec.run.operations import Place
from fusec.run.transports.carriers import MOVING, kind_of

if TYPE_CHECKING:
    from fusec.hostir.program import Buffer, HostProgram
    from fusec.hostir.steps import Step
    from fusec.ir.evaluate import Sizes

NO_VIEWS: Mapping[str, tuple[str, int]] = {}
NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True)
class Result:
    """An output: a tensor of its own, or a view of an input or of another tensor.

    slot: of the tensor. whole: whether it is that entire tensor. offset: in elements.
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
    """The placement of a program's buffers at given sizes.

    Slots count the tensor inputs, then fresh tensors, then scratch, counters, memory that other
    ranks write or read, and the views of peers' memory. scratch, counters, received: bytes of
    these. places, by buffer. copied: memory received for a fresh tensor, with its bytes. views: by
    slot, the shared buffer that is read and the index of its rank.
    """

    inputs: tuple[Buffer, ...]
    fresh: tuple[Fresh, ...]
    results: tuple[Result, ...]
    places: Mapping[str, Place]
    scratch: int
    counters: int
    received: int = 0
    copied: tuple[tuple[Place, Place, int], ...] = ()
    views: tuple[tuple[str, int], ...] = ()

    @property
    def scratch_slot(self) -> int:
        """Return the slot of the arena's scratch memory; counters and received memory follow."""
        return len(self.inputs) + len(self.fresh)

    @property
    def view_slot(self) -> int:
        """Return the first slot of views of peers' memory."""
        return self.scratch_slot + 2 + bool(self.received)


class _Allocator:
    """Builds a `Memory`."""

    def __init__(
        self,
        program: HostProgram,
        sizes: Sizes,
        received: Collection[str],
        views: Mapping[str, tuple[str, int]],
        in_place: Mapping[str, str],
    ) -> None:
        self.program, self.sizes, self.views = program, sizes, views
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
        self.in_place = in_place
        self.roots |= in_place
        kept = (name for name in received if name not in in_place)
        self.received = dict.fromkeys(self.roots[name] for name in kept)

    def memory(self) -> Memory:
        """Return the placement."""
        into = dict(self.program.aliases)
        given = {b.name: k for k, b in enumerate(self.inputs)}
        roots = dict.fromkeys(self.roots[o] for o in self.program.outputs if o not in into)
        owners = [n for n in roots if n not in given]
        fresh = tuple(Fresh(k, *self._form(name)) for k, name in enumerate(owners, len(given)))
        slots = {**given, **{n: k for k, n in enumerate(owners, len(given))}}
        own = slots.keys() | self.once | self.received.keys() | self.in_place.keys()
        scratch = placement(self.program, self.sizes, own=own)
        counters, total = self._packed([n for n in self.roots if n in self.once])
        received, reach = self._packed(self.received)
        base = len(given) + len(fresh)
        starts = {name: Place(base, offset) for name, offset in scratch.offsets.items()}
        starts |= {name: Place(base + 1, offset) for name, offset in counters.items()}
        starts |= {name: Place(slot) for name, slot in slots.items()}
        starts |= {name: Place(base + 2, offset) for name, offset in received.items()}
        for name in given:
            if name in received:
                raise Unsupported(f"other ranks write to the memory of argument `{name}`")
        copied = tuple(
            (Place(slots[name]), starts[name], self.program.buffer[name].bytes(self.sizes))
            for name in received if name in slots
        )  # fmt: skip
        places = {
            name: starts.get(root, Place(base)).at(self.offsets[name])
            for name, root in self.roots.items()
        }
        first = base + 2 + bool(reach)
        places |= {name: Place(slot) for slot, name in enumerate(self.views, first)}
        results = tuple(self._result(name, into, slots) for name in self.program.outputs)
        sizes = scratch.size, total, reach
        viewed = tuple(self.views.values())
        return Memory(self.inputs, fresh, results, places, *sizes, copied, viewed)

    def _packed(self, names: Iterable[str]) -> tuple[dict[str, int], int]:
        """Return offsets of buffers one after the other, and their total bytes."""
        offsets, total = dict[str, int](), 0
        for name in names:
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


def memory_of(
    program: HostProgram,
    sizes: Sizes,
    received: Collection[str] = (),
    views: Mapping[str, tuple[str, int]] = NO_VIEWS,
    in_place: Mapping[str, str] = NOTHING,
) -> Memory:
    """Return the placement of a program's buffers at `sizes`.

    received: those that other ranks write or read. views: the names of views of peers' memory, each
    with the shared buffer and the index of its rank. in_place: shared buffers that are inputs,
    instead of copies of them.
    """
    return _Allocator(program, sizes, received, views, in_place).memory()


def received(steps: Sequence[Step]) -> list[str]:
    """Return the names of the buffers that other ranks write by copy engines, or read."""
    exchanges = [s.instruction for s in steps]
    written = [
        e.target for e in exchanges
        if isinstance(e, (Collective, Receive)) and kind_of(e) in MOVING
    ]  # fmt: skip
    return [*written, *(e.source for e in exchanges if isinstance(e, Share))]


def shared_inputs(steps: Sequence[Step], mapped: Collection[str]) -> dict[str, str]:
    """Return the shared buffers that are copies of mapped inputs, with the input of each.

    Only copies by instructions that write nothing else, since these are then skipped.
    """
    instructions = [s.instruction for s in steps]
    shares = [i for i in instructions if isinstance(i, Share) and i.copy_of in mapped]
    made = [writes(i) for i in instructions if not isinstance(i, Unshare)]
    return {
        share.source: share.copy_of
        for share in shares
        if all(names <= {share.source} for names in made if share.source in names)
    }


def views(steps: Sequence[Step]) -> dict[str, tuple[str, int]]:
    """Return the views of peers' memory: the shared buffer and rank index, by name."""
    shares = (s.instruction for s in steps if isinstance(s.instruction, Share))
    return {name: (e.source, place) for e in shares for place, name in enumerate(e.views)}
