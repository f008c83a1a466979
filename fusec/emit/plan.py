"""One host program as C: what is checked, where its memory lies, and each step of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fusec.emit.expressions import Sizes
from fusec.emit.launches import LaunchPrinter
from fusec.emit.names import views_of
from fusec.emit.scratch import is_given, places
from fusec.emit.variables import Variables
from fusec.emit.view import (
    Address,
    Call,
    Condition,
    Field,
    PlacedMemory,
    PlanView,
    Pointer,
    SetView,
    Step,
)
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Copy,
    EncodeTensorMap,
    Instruction,
    Launch,
    Memset,
)
from fusec.hostir.program import HostProgram
from fusec.schedule.plan import TensorArgument, WorkspaceArgument


@dataclass(frozen=True)
class _Made:
    """A step, the buffer that it gives an address, if any, and those that it uses."""

    step: Step
    uses: tuple[str, ...] = ()
    gives: str = ""


class PlanPrinter:
    """Prints one program."""

    def __init__(
        self,
        name: str,
        purpose: str,
        program: HostProgram,
        fields: Mapping[str, Field],
        size_fields: Mapping[str, str],
        kernels: Mapping[str, int],
        sizes: Sizes,
    ) -> None:
        """Place its memory.

        purpose: targets and sizes. fields: of the arguments, by buffer or scalar. kernels: their
        numbers.
        """
        self.name, self.purpose, self.program = name, purpose, program
        self.fields, self.sizes = fields, sizes
        self.variables = Variables(program, sizes)
        self.launches = LaunchPrinter(self.variables, fields, size_fields, kernels)
        self._views = views_of(program)
        placed = {
            PlacedMemory.of(f"at_{k}", place, sizes.text(place.bytes)): place.buffers
            for k, place in enumerate(places(program))
        }
        self._memory = tuple(placed)
        self._placed = {name: memory for memory, names in placed.items() for name in names}

    def view(self, held: tuple[Condition, ...], pointers: tuple[Pointer, ...]) -> PlanView:
        """Return what the templates print."""
        if self._memory:
            self.sizes.called.add("take")
        if any(p.zeroed for p in self._memory):
            self.sizes.called |= {"fail", "fill"}
        if pointers:
            self.sizes.called.add("is_aligned")
        made = [self._input(b.name) for b in self.program.inputs]
        for instruction in self.program.instructions:
            made += self._steps(instruction)
        steps = tuple(_needed(made))
        return PlanView(self.name, self.purpose, held, pointers, self._memory, steps)

    def _input(self, name: str) -> _Made:
        return self._address(name, f"(CUdeviceptr)a->{self.fields[name].name}")

    def _steps(self, instruction: Instruction) -> Iterator[_Made]:
        """Yield the steps of an instruction."""
        at, size_of = self.variables.at, self.variables.bytes
        match instruction:
            case Allocate(name) if is_given(self.program, name):
                yield self._input(name)
            case Allocate(name):
                yield self._address(name, f"memory + places->{self._placed[name].name}")
            case Alias(name, of, offset):
                size = self.program.buffer[name].dtype.size
                far = self.variables.cast(offset * size, "CUdeviceptr")
                yield self._address(name, at(of) if offset == 0 else f"{at(of)} + {far}", of)
                if name in self._views:
                    yield _Made(SetView(self.fields[name].name, at(name)), (name,))
            case Memset(name, False):
                self.sizes.called.add("fill")
                yield _Made(Call(f"fill({at(name)}, {size_of(name)}, stream)"), (name,))
            case Copy(target, source):
                self.sizes.called.add("copy")
                call = f"copy({at(target)}, {at(source)}, {size_of(target)}, stream)"
                yield _Made(Call(call), (target, source))
            case EncodeTensorMap(_, described):
                yield _Made(self.launches.map(instruction), (described.buffer,))
            case Launch():
                pointers = (TensorArgument, WorkspaceArgument)
                used = tuple(a.name for a in instruction.arguments if isinstance(a, pointers))
                overlapped = instruction.overlapped
                step = self.launches.launch(instruction, "stream", overlapped=overlapped)
                yield _Made(step, used)
            case _:
                pass

    def _address(self, name: str, value: str, *uses: str) -> _Made:
        return _Made(Address(f"CUdeviceptr {self.variables.at(name)} = {value};"), uses, name)


def _needed(made: list[_Made]) -> Iterator[Step]:
    """Yield the steps without the addresses that nothing uses."""
    used = set[str]()
    for each in reversed(made):
        if not each.gives or each.gives in used:
            used |= {*each.uses}
    yield from (each.step for each in made if not each.gives or each.gives in used)
