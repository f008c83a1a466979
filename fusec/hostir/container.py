"""The tensors of a host program, numbered and printed as nvFuser does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fusec.dataclasses import dataclass
from fusec.dumps.numbering import Numbering
from fusec.hostir.instructions import Alias, Allocate, For, Instruction, writes
from fusec.hostir.program import Buffer, HostProgram
from fusec.ir.dim import Dim


@dataclass(frozen=True)
class PartOf:
    """Identifies a view as one of several equal parts of a dim of another buffer.

    single: whether the part is one element of that dim, which its shape may lack.
    """

    dim: int
    parts: Dim
    number: Dim
    single: bool


def parts_of(program: HostProgram, alias: Alias) -> PartOf | None:
    """Return which part of a dim a view is; None if it is not such a part."""
    view, whole = program.buffer[alias.buffer], program.buffer[alias.of]
    if len(whole.shape) == len(view.shape) + 1:
        number = alias.offset.divide(whole.strides[0])
        return None if number is None else PartOf(0, whole.shape[0], number, single=True)
    if len(whole.shape) != len(view.shape) or whole.strides != view.strides:
        return None
    differ = [
        k for k, pair in enumerate(zip(whole.shape, view.shape, strict=True)) if pair[0] != pair[1]
    ]
    if len(differ) != 1:
        return None
    (at,) = differ
    parts = whole.shape[at].divide(view.shape[at])
    number = alias.offset.divide(view.shape[at] * whole.strides[at])
    if parts is None or number is None:
        return None
    return PartOf(at, parts, number, single=view.shape[at] == 1)


@dataclass(frozen=True)
class _Axis:
    """A dim that is printed: its number in the buffer, and its text."""

    dim: int
    text: str


class Tensors:
    """Prints buffers: inputs are numbered first, then memory in the order of its first write.

    Views follow, in the order in which they are created.
    """

    def __init__(self, program: HostProgram, names: Numbering) -> None:
        """Number all of a program's buffers; `names` numbers sizes."""
        self.program, self.names = program, names
        self.stacked = dict(self._stacked())
        self.selected = {
            i.buffer for loop in _loops(program) for i in loop.body if isinstance(i, Alias)
        }
        self.numbers = {name: k for k, name in enumerate(dict.fromkeys(self._order()))}
        self.axes: dict[str, tuple[_Axis, ...]] = {}
        first = 0
        for name in self.numbers:
            self.axes[name] = tuple(self._axes(program.buffer[name], first))
            first += len(self.axes[name])

    def text(self, name: str) -> str:
        """Return `T3_g_float[iS5{i0}, iS6{1024}]`."""
        buffer = self.program.buffer[name]
        place = "l" if name in self.selected else "g"
        axes = ", ".join(axis.text for axis in self.axes[name])
        return f"T{self.numbers[name]}_{place}_{buffer.dtype.printed}[{axes}]"

    def axis(self, name: str, dim: int) -> str:
        """Return one axis of a buffer."""
        return next(axis.text for axis in self.axes[name] if axis.dim == dim)

    def loop_axis(self, loop: For) -> str | None:
        """Return the axis that a loop produces element by element, if there is one."""
        for alias in loop.body:
            if isinstance(alias, Alias) and alias.of in self.stacked:
                at = self.stacked[alias.of]
                if self.program.buffer[alias.of].shape[at] == loop.count:
                    return self.axis(alias.of, at)
        return None

    def _stacked(self) -> Iterator[tuple[str, int]]:
        """Yield the buffers that loops fill part by part, with the dim of the parts."""
        for loop in _loops(self.program):
            written = writes(loop)
            for alias in loop.body:
                if isinstance(alias, Alias) and alias.buffer in written:
                    part = parts_of(self.program, alias)
                    if part is not None:
                        yield alias.of, part.dim

    def _order(self) -> Iterator[str]:
        yield from (b.name for b in self.program.inputs)
        every = list(_flat(self.program.instructions))
        of = {i.buffer: i.of for i in every if isinstance(i, Alias)}
        for instruction in every:
            for name in sorted(writes(instruction)) if not isinstance(instruction, For) else ():
                while name in of:
                    name = of[name]
                yield name
        yield from (i.buffer for i in every if isinstance(i, Allocate))
        yield from (i.buffer for i in every if isinstance(i, Alias))

    def _axes(self, buffer: Buffer, first: int) -> Iterator[_Axis]:
        drops = buffer.name in self.selected or buffer.name.endswith(".slices")
        at = self.stacked.get(buffer.name)
        for k, (extent, stride) in enumerate(zip(buffer.shape, buffer.strides, strict=True)):
            if drops and extent == 1 and k != at:
                continue
            size, kind = self.names.size(extent), "bS" if extent == 1 else "iS"
            if stride == 0 and extent != 1:
                size, kind = f"1 ex {size}", "bS"
            kind = "iStreamIdx" if k == at else kind
            yield _Axis(k, f"{kind}{first}{{{size}}}")
            first += 1


def _loops(program: HostProgram) -> list[For]:
    return [i for i in program.instructions if isinstance(i, For)]


def _flat(instructions: Iterable[Instruction]) -> Iterator[Instruction]:
    for instruction in instructions:
        yield instruction
        if isinstance(instruction, For):
            yield from _flat(instruction.body)
