"""Rendering: a kernel's view and its template make CUDA text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from fusec.codegen.canonical import digest_without_names
from fusec.codegen.ctext import compute_type, identifier, storage_type
from fusec.codegen.layout import laid_out
from fusec.diagnostics import InternalError
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


ALL_REGISTERS = "All registers of an SM for one block: with fewer the compiler spills."
"""What the schedule of a kernel says that was built again for want of registers."""


@dataclass(frozen=True)
class KernelSource:
    """The CUDA text of one kernel; unread: the numbers of the parameters that it never reads."""

    name: str
    text: str
    unread: frozenset[int] = frozenset()

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


def parameter(argument: Argument) -> str:
    """Return a kernel parameter's declaration."""
    if isinstance(argument, TensorArgument):
        const = "" if argument.written else "const "
        restrict = " __restrict__" if argument.restrict else ""
        return f"{const}{storage_type(argument.dtype)}*{restrict} {identifier(argument.name)}"
    if isinstance(argument, WorkspaceArgument):
        return f"{storage_type(argument.dtype)}* {identifier(argument.name)}"
    if isinstance(argument, SizeArgument):
        return f"{'fusec::i64' if argument.wide else 'int'} {identifier(argument.name)}"
    if isinstance(argument, ScalarArgument):
        return f"{storage_type(argument.dtype)} {identifier(argument.name)}"
    return f"const __grid_constant__ fusec::TensorMap {identifier(argument.name)}"


def parameters(kernel: Kernel) -> tuple[str, ...]:
    """Return the declarations of all parameters."""
    return tuple(parameter(a) for a in kernel.arguments)


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


def render(kernel: Kernel, view: Any) -> KernelSource:
    """Return a kernel's template filled with its view, the headers in use sorted in."""
    if kernel.all_registers:
        view = replace(view, least_blocks=1, schedule=f"{view.schedule}\n// {ALL_REGISTERS}")
    template = environment().get_template(f"{kernel.template}.cu.j2")
    text = template.render(k=view)
    final = laid_out(template.render(k=replace(view, headers=headers_used(text))))
    return KernelSource(kernel.name, final, _unread(text, view.parameters))


def _unread(text: str, declarations: Sequence[str]) -> frozenset[int]:
    """Return which parameters a kernel's text only declares."""
    words = Counter(_WORD.findall(_COMMENT.sub("", text)))
    names = [_WORD.findall(each)[-1] for each in declarations]
    return frozenset(k for k, name in enumerate(names) if words[name] == 1)


__all__ = ["KernelSource", "compute_type", "environment", "parameter", "parameters", "render"]
