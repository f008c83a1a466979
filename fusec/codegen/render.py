"""Rendering: a kernel's view and its template make CUDA text."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING

from fusec.codegen.canonical import digest_without_names
from fusec.codegen.layout import laid_out
from fusec.diagnostics import InternalError
from fusec.kernel.ctext import compute_type, identifier, storage_type
from fusec.schedule.plan import (
    Argument,
    Kernel,
    ScalarArgument,
    SizeArgument,
    TensorArgument,
    WorkspaceArgument,
)

if TYPE_CHECKING:
    from jinja2 import Environment

    from fusec.codegen.views import KernelView


ALL_REGISTERS = "All registers of an SM for one block: with fewer the compiler spills."
"""What the schedule of a kernel says that was built again for want of registers."""


@dataclass(frozen=True)
class KernelSource:
    """The CUDA text of one kernel; kernel: as planned, with the arguments that the text reads."""

    kernel: Kernel
    text: str

    @property
    def name(self) -> str:
        """Return the kernel's name."""
        return self.kernel.name

    @cached_property
    def digest(self) -> str:
        """Return what kernels share whose texts differ in names and comments alone."""
        return digest_without_names(self.text, self.name)


@cache
def environment() -> Environment:
    """Return the Jinja environment of the CUDA templates."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("fusec", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


@dataclass(frozen=True)
class Parameter:
    """A kernel's parameter: what is passed, and its name in the text."""

    argument: Argument
    name: str

    def __str__(self) -> str:
        argument = self.argument
        if isinstance(argument, TensorArgument):
            const = "" if argument.written else "const "
            restrict = " __restrict__" if argument.restrict else ""
            return f"{const}{storage_type(argument.dtype)}*{restrict} {self.name}"
        if isinstance(argument, WorkspaceArgument):
            return f"{storage_type(argument.dtype)}* {self.name}"
        if isinstance(argument, SizeArgument):
            return f"{'fusec::i64' if argument.wide else 'int'} {self.name}"
        if isinstance(argument, ScalarArgument):
            return f"{storage_type(argument.dtype)} {self.name}"
        return f"const __grid_constant__ fusec::TensorMap {self.name}"


def parameters(kernel: Kernel) -> tuple[Parameter, ...]:
    """Return what a kernel's arguments are to its text."""
    return tuple(Parameter(a, identifier(a.name)) for a in kernel.arguments)


_WORD = re.compile(r"\w+")
_COMMENT = re.compile(r"//[^\n]*")
_QUALIFIED = re.compile(r"fusec::(\w+)")
_DEFINED = re.compile(
    r"^(?:struct\b.*?(\w+) \{|using (\w+) =|(?:__device__|__host__).*?(\w+)\(|inline.*?(k\w+) =)"
    # In the body of a macro, whose lines end with a backslash.
    r"|^  __device__.*?(\w+)\(.*\\$",
    re.MULTILINE,
)


@cache
def _headers_by_name() -> dict[str, str]:
    """Return the device header that defines each name."""
    from importlib.resources import files

    found: dict[str, str] = {}
    for entry in files("fusec").joinpath("templates/device").iterdir():
        if entry.name.endswith(".cuh"):
            for names in _DEFINED.findall(entry.read_text(encoding="utf-8")):
                found.setdefault("".join(names), entry.name)
    return found


def headers_used(text: str) -> tuple[str, ...]:
    """Return the device headers of the `fusec::` names in a kernel's text, sorted."""
    names = set(_QUALIFIED.findall(text))
    by_name = _headers_by_name()
    unknown = sorted(n for n in names if n not in by_name)
    if unknown:
        raise InternalError(f"no device header defines {', '.join(unknown)}")
    return tuple(sorted({by_name[n] for n in names if by_name[n] != "storage.cuh"} | {"types.cuh"}))


def render(kernel: Kernel, view: KernelView) -> KernelSource:
    """Return a kernel's template filled with its view, the headers in use sorted in.

    It is filled without parameters first: what it names then is read, and becomes one.
    """
    if kernel.all_registers:
        view = replace(view, least_blocks=1, schedule=f"{view.schedule}\n// {ALL_REGISTERS}")
    template = environment().get_template(f"{kernel.template}.cu.j2")
    body = _overlapping(kernel, template.render(k=replace(view, parameters=())))
    named = set(_WORD.findall(_COMMENT.sub("", body)))
    taken = tuple(p for p in view.parameters if p.name in named or _is_in_place(p.argument))
    headers = headers_used("\n".join((body, *map(str, taken))))
    whole = template.render(k=replace(view, parameters=taken, headers=headers))
    text = laid_out(_overlapping(kernel, whole))
    return KernelSource(replace(kernel, arguments=tuple(p.argument for p in taken)), text)


_ENTRY = re.compile(r'extern "C" __global__ [^{]*\{\n+')


def _overlapping(kernel: Kernel, text: str) -> str:
    """Return a kernel's text with what it does first where launches overlap."""
    lines = ""
    if kernel.followed:
        lines += "  fusec::let_next_kernel_start();  // it waits for this kernel's end\n"
    if kernel.overlapped:
        lines += "  fusec::wait_for_kernels_before();\n"
    if not lines:
        return text
    return _ENTRY.sub(lambda entry: entry[0].rstrip() + "\n" + lines, text, count=1)


def _is_in_place(argument: Argument) -> bool:
    """Return whether an argument is an input that is written: by it the host knows that it is."""
    return isinstance(argument, TensorArgument) and argument.written and not argument.restrict


__all__ = [
    "KernelSource", "Parameter", "compute_type", "environment", "parameters", "render"
]  # fmt: skip
