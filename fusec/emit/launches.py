"""Kernel launches and tensor maps of one emitted program."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.codegen.layout import WIDTH
from fusec.dataclasses import dataclass
from fusec.emit.code import Code, code, field_of, joined
from fusec.emit.names import C_TYPES
from fusec.emit.variables import Variables
from fusec.emit.view import Field, LaunchKernel, Map
from fusec.hostir.instructions import EncodeTensorMap, Launch
from fusec.run.launch import map_enumerators
from fusec.schedule.plan import Argument, ScalarArgument, SizeArgument, TensorMapArgument


@dataclass(frozen=True)
class LaunchPrinter:
    """Prints launches; kernels: the indices of their functions."""

    variables: Variables
    fields: Mapping[str, Field]
    size_fields: Mapping[str, str]
    kernels: Mapping[str, int]

    def map(self, encode: EncodeTensorMap) -> Map:
        """Return the tensor map of a buffer."""
        self.variables.sizes.called.add("encode")
        described = encode.map
        extents, strides = (
            joined(", ", (self.variables.cast(v, "cuuint64_t") for v in values))
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

    def launch(self, launch: Launch, stream: Code | str, *, overlapped: bool) -> LaunchKernel:
        """Return the launch on a stream; overlapped: with the end of the previous kernel."""
        sizes = self.variables.sizes
        locals_, parameters = list[Code](), list[Code]()
        for number, argument in enumerate(launch.arguments):
            declared, pointer = self._argument(argument, f"n{number}")
            locals_ += [] if declared is None else [declared]
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
        call = code("{}({})", name, joined(", ", (function, *shape, *rest)))
        locals_ += _array(parameters or [Code("NULL")])
        return LaunchKernel(launch.kernel, launch.segment, tuple(locals_), call)

    def _argument(self, argument: Argument, local: str) -> tuple[Code | None, Code]:
        """Return a local variable's declaration, or None, and the pointer to its value."""
        own = Code(f"&{local}")
        if isinstance(argument, SizeArgument):
            value = self.variables.sizes.text(argument.value)
            if argument.wide:
                return code("long long {} = {};", local, value), own
            cast = value if argument.value.is_const else code("(int)({})", value)
            return code("int {} = {};", local, cast), own
        if isinstance(argument, ScalarArgument):
            if argument.name in self.size_fields:
                kind = C_TYPES[argument.dtype.name]
                value = field_of("s", self.size_fields[argument.name])
                return code("{0} {1} = ({0}){2};", kind, local, value), own
            return None, code("(void*)&{}", field_of("a", self.fields[argument.name].name))
        if isinstance(argument, TensorMapArgument):
            return None, Code(f"&{self.variables.map(argument.name)}")
        return None, Code(f"&{self.variables.at(argument.name)}")


def _array(parameters: list[Code]) -> list[Code]:
    """Return the array of pointers to parameters, one per line if they do not fit on one."""
    line = code("void* parameters[] = {{{}}};", joined(", ", parameters))
    if len(line.text) <= WIDTH - 4:
        return [line]
    each = (code("parameters[{}] = {};", k, pointer) for k, pointer in enumerate(parameters))
    return [Code(f"void* parameters[{len(parameters)}];"), *each]
