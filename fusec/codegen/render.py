"""Rendering: a kernel's view and its template make CUDA text."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING

from fusec.codegen.canonical import digest_without_names
from fusec.codegen.layout import laid_out
from fusec.kernel.alignment import WIDEST, alignments
from fusec.kernel.ctext import compute_type, identifier, storage_type
from fusec.kernel.device import NAMESPACE, header_of
from fusec.kernel.facts import device_names, names_used
from fusec.kernel.nodes import (
    I64,
    INT,
    Call,
    Constexpr,
    Evaluate,
    Literal,
    Name,
    Node,
    Noted,
    Statement,
    Type,
)
from fusec.schedule.plan import (
    Argument,
    Kernel,
    ScalarArgument,
    SizeArgument,
    TensorArgument,
    TensorMapArgument,
    WorkspaceArgument,
)

if TYPE_CHECKING:
    from jinja2 import Environment

    from fusec.codegen.views import KernelView


ALL_REGISTERS = "All registers of an SM for one block: with fewer the compiler spills."
"""What the schedule of a kernel says that was built again for want of registers."""


@dataclass(frozen=True)
class KernelSource:
    """The CUDA text of one kernel.

    kernel: as planned, with the arguments that the text reads; nodes: what its template printed.
    """

    kernel: Kernel
    text: str
    nodes: tuple[Node, ...] = ()

    @property
    def name(self) -> str:
        """Return the kernel's name."""
        return self.kernel.name

    @cached_property
    def alignments(self) -> dict[str, int]:
        """Return by buffer, in bytes, of what each address that the kernel takes is a multiple."""
        tensors = [a for a in self.kernel.arguments if isinstance(a, TensorArgument)]
        asked = alignments({identifier(a.name): a.dtype.size for a in tensors}, self.nodes)
        found = {a.name: asked[identifier(a.name)] for a in tensors}
        maps = (a for a in self.kernel.arguments if isinstance(a, TensorMapArgument))
        return found | dict.fromkeys((a.buffer for a in maps), WIDEST)

    @cached_property
    def digest(self) -> str:
        """Return what kernels share whose texts differ in names and comments alone."""
        return digest_without_names(self.text, self.name)


@cache
def environment() -> Environment:
    """Return the Jinja environment of the CUDA templates."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("fusec", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        finalize=_noted,
    )
    known: dict[str, object] = {
        "constant": _constant,
        "fn": DeviceNames(),
        "headers_here": HEADERS_HERE,
        "parameters_here": PARAMETERS_HERE,
    }
    found.globals.update(known)  # pyright: ignore[reportUnknownMemberType]
    return found


@dataclass(frozen=True)
class Parameter:
    """A kernel's parameter: what is passed, and its name in the text."""

    argument: Argument
    name: str

    @property
    def type(self) -> Type:
        """Return its type without qualifiers; a pointer's, that of an element."""
        argument = self.argument
        if isinstance(argument, TensorArgument | WorkspaceArgument | ScalarArgument):
            return storage_type(argument.dtype)
        if isinstance(argument, SizeArgument):
            return I64 if argument.wide else INT
        return Type("fusec::TensorMap")

    def __str__(self) -> str:
        argument = self.argument
        if isinstance(argument, TensorArgument):
            const = "" if argument.written else "const "
            restrict = " __restrict__" if argument.restrict else ""
            return f"{const}{self.type}*{restrict} {self.name}"
        if isinstance(argument, WorkspaceArgument):
            return f"{self.type}* {self.name}"
        if isinstance(argument, SizeArgument | ScalarArgument):
            return f"{self.type} {self.name}"
        return f"const __grid_constant__ {self.type} {self.name}"


def parameters(kernel: Kernel) -> tuple[Parameter, ...]:
    """Return what a kernel's arguments are to its text."""
    return tuple(Parameter(a, identifier(a.name)) for a in kernel.arguments)


HEADERS_HERE, PARAMETERS_HERE = "@headers@", "@parameters@"
"""Where a template has what is known once its body is rendered."""
_NOTED: ContextVar[list[Node] | None] = ContextVar("noted", default=None)


def _noted(value: object) -> object:
    """Note a node, or the name of a variable, that a template prints."""
    noted = _NOTED.get()
    if noted is not None:
        if isinstance(value, Node):
            noted.append(value)
        elif isinstance(value, str) and value.isidentifier():
            noted.append(Name(value))
    return value


def _constant(name: str, value: int) -> Constexpr:
    """Return the declaration of a constant whose value tells what accesses ask."""
    return Constexpr(INT, name, Literal(str(value)))


class DeviceNames:
    """`fn.NAME` in a template: a device function, type or constant by its name."""

    def __getitem__(self, name: str) -> Name:
        header_of(name)
        return Name(NAMESPACE + name)

    __getattr__ = __getitem__


def headers_of(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return the device headers of what nodes use, sorted."""
    found = {header_of(name) for name in device_names(nodes)}
    return tuple(sorted(found - {"storage.cuh"} | {"types.cuh"}))


def render(kernel: Kernel, view: KernelView) -> KernelSource:
    """Return a kernel's template filled with its view.

    The nodes that the template prints are noted: what they use is included, and passed.
    """
    if kernel.all_registers:
        view = replace(view, least_blocks=1, schedule=f"{view.schedule}\n// {ALL_REGISTERS}")
    template = environment().get_template(f"{kernel.template}.cu.j2")
    nodes: list[Node] = []
    token = _NOTED.set(nodes)
    try:
        body = template.render(k=view)
    finally:
        _NOTED.reset(token)
    first = _first(kernel)
    nodes += first
    named = names_used(nodes)
    taken = tuple(p for p in view.parameters if p.name in named or _is_in_place(p.argument))
    nodes += [p.type for p in taken]
    includes = "\n".join(f'#include "{header}"' for header in headers_of(nodes))
    declared = ",\n    ".join(map(str, taken)) + ") {"
    before, _, after = body.replace(HEADERS_HERE, includes).partition(PARAMETERS_HERE)
    begin = "\n".join((declared, *map(str, first)))
    text = laid_out(f"{before}{begin}\n{after.lstrip()}")
    kernel = replace(kernel, arguments=tuple(p.argument for p in taken))
    return KernelSource(kernel, text, tuple(nodes))


def _first(kernel: Kernel) -> list[Statement]:
    """Return what a kernel does first where launches overlap."""
    found: list[Statement] = []
    if kernel.followed:
        start = Evaluate(Call("fusec::let_next_kernel_start"))
        found.append(Noted(start, "it waits for this kernel's end"))
    if kernel.overlapped:
        found.append(Evaluate(Call("fusec::wait_for_kernels_before")))
    return found


def _is_in_place(argument: Argument) -> bool:
    """Return whether an argument is an input that is written: by it the host knows that it is."""
    return isinstance(argument, TensorArgument) and argument.written and not argument.restrict


__all__ = [
    "KernelSource", "Parameter", "compute_type", "environment", "parameters", "render"
]  # fmt: skip
