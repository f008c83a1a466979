"""One host program as C: what is checked, where its memory lies, and each step of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fusec.codegen.layout import WIDTH
from fusec.emit.expressions import Sizes
from fusec.emit.names import C_TYPES, FieldNames, views_of
from fusec.emit.scratch import is_given, places
from fusec.emit.view import (
    Address,
    Condition,
    CopyBytes,
    Field,
    Fill,
    LaunchKernel,
    Map,
    PlacedMemory,
    PlanView,
    Pointer,
    SetView,
    Step,
)
from fusec.hostir.instructions import Alias, Allocate, Copy, EncodeTensorMap, Launch, Memset
from fusec.hostir.program import HostProgram
from fusec.ir.dim import Dim
from fusec.run.launch import map_enumerators
from fusec.schedule.plan import (
    Argument,
    ScalarArgument,
    SizeArgument,
    TensorArgument,
    TensorMapArgument,
    WorkspaceArgument,
)


@dataclass
class PlanPrinter:
    """Prints one program.

    purpose: targets and sizes. fields: of the arguments, by buffer or scalar. kernels: their
    numbers.
    """

    name: str
    purpose: str
    program: HostProgram
    fields: Mapping[str, Field]
    size_fields: Mapping[str, str]
    kernels: Mapping[str, int]
    sizes: Sizes
    _variables: FieldNames = field(default_factory=FieldNames)

    def view(self, held: tuple[Condition, ...], pointers: tuple[Pointer, ...]) -> PlanView:
        """Return what the templates print."""
        self._placed = {b: p for p in self._places() for b in p.comment.split(", then ")}
        memory = tuple(dict.fromkeys(self._placed.values()))
        if memory:
            self.sizes.called.add("take")
        if any(p.zeroed for p in memory):
            self.sizes.called |= {"fail", "fill"}
        if pointers:
            self.sizes.called.add("is_aligned")
        steps = tuple(self._needed(list(self._steps())))
        return PlanView(self.name, self.purpose, held, pointers, memory, steps)

    def _variable(self, prefix: str, name: str) -> str:
        return self._variables.add(f"{prefix}_{name}", "of")

    def _at(self, name: str) -> str:
        """Return the variable with a buffer's address."""
        return self._variable("at", name)

    def _places(self) -> Iterator[PlacedMemory]:
        for number, place in enumerate(places(self.program)):
            yield PlacedMemory.of(f"at_{number}", place, self.sizes.text(place.bytes))

    def _steps(self) -> Iterator[tuple[str, Step, tuple[str, ...]]]:
        """Yield the steps, each with the buffer it gives an address, if any, and those it uses."""
        program, views = self.program, views_of(self.program)
        for buffer in program.inputs:
            yield self._address(buffer.name, f"(CUdeviceptr)a->{self.fields[buffer.name].name}")
        for instruction in program.instructions:
            match instruction:
                case Allocate(name) if is_given(program, name):
                    yield self._address(name, f"(CUdeviceptr)a->{self.fields[name].name}")
                case Allocate(name):
                    place = self._placed[name].name
                    yield self._address(name, f"(CUdeviceptr)w->memory + places.{place}")
                case Alias(name, of, offset):
                    size = program.buffer[name].dtype.size
                    far = "" if offset == 0 else f" + {self._cast(offset * size)}"
                    yield self._address(name, f"{self._at(of)}{far}", of)
                    if name in views:
                        yield "", SetView(self.fields[name].name, self._at(name)), (name,)
                case Memset(name, False):
                    self.sizes.called.add("fill")
                    yield "", Fill(self._at(name), self._bytes(name)), (name,)
                case Copy(target, source):
                    self.sizes.called.add("copy")
                    both = (target, source)
                    yield (
                        "",
                        CopyBytes(self._at(target), self._at(source), self._bytes(target)),
                        both,
                    )
                case EncodeTensorMap(name, described):
                    self.sizes.called.add("encode")
                    yield "", self._map(name, described), (described.buffer,)
                case Launch():
                    pointers = (TensorArgument, WorkspaceArgument)
                    used = tuple(a.name for a in instruction.arguments if isinstance(a, pointers))
                    yield "", self._launch(instruction), used
                case _:
                    pass

    def _address(self, name: str, value: str, *uses: str) -> tuple[str, Step, tuple[str, ...]]:
        return name, Address(f"CUdeviceptr {self._at(name)} = {value};"), uses

    def _needed(self, steps: list[tuple[str, Step, tuple[str, ...]]]) -> Iterator[Step]:
        """Yield the steps without the addresses that nothing uses."""
        used = set[str]()
        for gives, _, uses in reversed(steps):
            if not gives or gives in used:
                used |= {*uses}
        yield from (step for gives, step, _ in steps if not gives or gives in used)

    def _bytes(self, name: str) -> str:
        buffer = self.program.buffer[name]
        return self.sizes.text(buffer.elements * buffer.dtype.size)

    def _cast(self, value: Dim) -> str:
        text = self.sizes.factor(value)
        return text if value.is_const else f"(CUdeviceptr)({self.sizes.text(value)})"

    def _map(self, name: str, described: TensorMapArgument) -> Map:
        def numbers(values: tuple[Dim, ...]) -> str:
            return ", ".join(
                self.sizes.text(v) if v.is_const else f"(cuuint64_t)({self.sizes.text(v)})"
                for v in values
            )

        kind, *modes = map_enumerators(described).values()
        return Map(
            name=self._variable("map", name),
            address=self._at(described.buffer),
            type=kind,
            rank=len(described.extents),
            extents=numbers(described.extents),
            strides=numbers(described.strides),
            box=", ".join(map(str, described.box)),
            modes=", ".join(modes),
        )

    def _launch(self, launch: Launch) -> LaunchKernel:
        locals_, parameters = list[str](), list[str]()
        for number, argument in enumerate(launch.arguments):
            declared, pointer = self._argument(argument, f"n{number}")
            locals_ += [declared] if declared else []
            parameters.append(pointer)
        function = f"functions[{self.kernels[launch.kernel]}]"
        shape = [*map(self.sizes.text, launch.grid), *map(str, launch.block)]
        name = "launch"
        if launch.cluster != (1, 1, 1):
            name = "launch_clusters"
            shape += map(str, launch.cluster)
        elif launch.overlapped:
            name = "launch_overlapped"
        self.sizes.called.add(name)
        rest = (str(launch.shared_bytes), "stream", "parameters")
        call = f"{name}({', '.join((function, *shape, *rest))})"
        locals_ += _array(parameters or ["NULL"])
        return LaunchKernel(launch.kernel, tuple(locals_), call)

    def _argument(self, argument: Argument, local: str) -> tuple[str, str]:
        """Return the declaration of a local variable, or nothing, and the pointer to a value."""
        if isinstance(argument, SizeArgument):
            value = self.sizes.text(argument.value)
            if argument.wide:
                return f"long long {local} = {value};", f"&{local}"
            cast = value if argument.value.is_const else f"(int)({value})"
            return f"int {local} = {cast};", f"&{local}"
        if isinstance(argument, ScalarArgument):
            if argument.name in self.size_fields:
                kind = C_TYPES[argument.dtype.name]
                value = f"({kind})s->{self.size_fields[argument.name]}"
                return f"{kind} {local} = {value};", f"&{local}"
            return "", f"(void*)&a->{self.fields[argument.name].name}"
        if isinstance(argument, TensorMapArgument):
            return "", f"&{self._variable('map', argument.name)}"
        return "", f"&{self._at(argument.name)}"


def _array(parameters: list[str]) -> list[str]:
    """Return the array of pointers to parameters, one by one where they do not fit a line."""
    line = f"void* parameters[] = {{{', '.join(parameters)}}};"
    if len(line) <= WIDTH - 4:
        return [line]
    each = (f"parameters[{k}] = {pointer};" for k, pointer in enumerate(parameters))
    return [f"void* parameters[{len(parameters)}];", *each]
