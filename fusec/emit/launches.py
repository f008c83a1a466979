"""Kernel launches and tensor maps of one emitted program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusec.codegen.layout import WIDTH
from fusec.emit.names import C_TYPES
from fusec.emit.variables import Variables
from fusec.emit.view import Field, LaunchKernel, Map
from fusec.hostir.instructions import EncodeTensorMap, Launch
from fusec.run.launch import map_enumerators
from fusec.schedule.plan import Argument, ScalarArgument, SizeArgument, TensorMapArgument


@dataclass(frozen=True)
class LaunchPrinter:
    """Prints launches; kernels: the places of their functions."""

    variables: Variables
    fields: Mapping[str, Field]
    size_fields: Mapping[str, str]
    kernels: Mapping[str, int]

    def map(self, encode: EncodeTensorMap) -> Map:
        """Return what describes a buffer to the bulk copy unit."""
        self.variables.sizes.called.add("encode")
        described = encode.map
        extents, strides = (
            ", ".join(self.variables.cast(v, "cuuint64_t") for v in values)
            for values in (described.extents, described.strides)
        )
        kind, *modes = map_enumerators(described).values()
        return Map(
            name=self.variables.map(encode.name),
            address=self.variables.at(described.buffer),
            type=kind,
            rank=len(described.extents),
            extents=extents,
            strides=strides,
            box=", ".join(map(str, described.box)),
            modes=", ".join(modes),
        )

    def launch(self, launch: Launch, stream: str, *, overlapped: bool) -> LaunchKernel:
        """Return the launch on a stream; overlapped: with the end of the kernel before it."""
        sizes = self.variables.sizes
        locals_, parameters = list[str](), list[str]()
        for number, argument in enumerate(launch.arguments):
            declared, pointer = self._argument(argument, f"n{number}")
            locals_ += [declared] if declared else []
            parameters.append(pointer)
        function = f"functions[{self.kernels[launch.kernel]}]"
        shape = [*map(sizes.text, launch.grid), *map(str, launch.block)]
        name = "launch"
        if launch.cluster != (1, 1, 1):
            name = "launch_clusters"
            shape += map(str, launch.cluster)
        elif overlapped:
            name = "launch_overlapped"
        sizes.called.add(name)
        rest = (str(launch.shared_bytes), stream, "parameters")
        call = f"{name}({', '.join((function, *shape, *rest))})"
        locals_ += _array(parameters or ["NULL"])
        return LaunchKernel(launch.kernel, launch.segment, tuple(locals_), call)

    def _argument(self, argument: Argument, local: str) -> tuple[str, str]:
        """Return the declaration of a local variable, or nothing, and the pointer to a value."""
        if isinstance(argument, SizeArgument):
            value = self.variables.sizes.text(argument.value)
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
            return "", f"&{self.variables.map(argument.name)}"
        return "", f"&{self.variables.at(argument.name)}"


def _array(parameters: list[str]) -> list[str]:
    """Return the array of pointers to parameters, one by one where they do not fit a line."""
    line = f"void* parameters[] = {{{', '.join(parameters)}}};"
    if len(line) <= WIDTH - 4:
        return [line]
    each = (f"parameters[{k}] = {pointer};" for k, pointer in enumerate(parameters))
    return [f"void* parameters[{len(parameters)}];", *each]
