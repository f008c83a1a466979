"""Rendering: a kernel's view and its template produce CUDA source."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

from fusec.codegen.layout import laid_out
from fusec.codegen.parameters import Parameter
from fusec.codegen.source import KernelSource
from fusec.codegen.views import KernelView
from fusec.dataclasses import dataclass, replace
from fusec.kernel.alignment import WIDEST, alignments
from fusec.kernel.counting.levels import Level, Typed, without_levels
from fusec.kernel.device import NAMESPACE, header_of
from fusec.kernel.facts import uses
from fusec.kernel.fold import folded
from fusec.kernel.nodes import (
    I64,
    INT,
    Call,
    Constexpr,
    Evaluate,
    Expression,
    Grouped,
    Name,
    Node,
    Noted,
    Operand,
    Pointer,
    Statement,
    Type,
    call,
    item,
    operand,
    vector_of,
)
from fusec.kernel.numbering import Numbering
from fusec.schedule.plan import (
    Argument,
    Kernel,
    PushedKernel,
    TensorArgument,
    TensorMapArgument,
)

if TYPE_CHECKING:
    from jinja2 import Environment


ALL_REGISTERS = "All registers of an SM for one block: with fewer the compiler spills."
"""Added to the schedule of a kernel that was compiled again because it needed more registers."""


_TEMPLATES = os.path.join(os.path.dirname(os.path.dirname(__file__)), "templates")
_SETTINGS: dict[str, Any] = {
    "trim_blocks": True,
    "lstrip_blocks": True,
    "keep_trailing_newline": True,
    "autoescape": False,
}
"""Options that determine how templates are compiled."""


@cache
def environment() -> Environment:
    """Return the Jinja environment of the CUDA templates."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from fusec.codegen.template_cache import TemplateCache

    found = Environment(
        loader=PackageLoader("fusec", "templates"),
        bytecode_cache=TemplateCache(_TEMPLATES, _SETTINGS),
        undefined=StrictUndefined,
        finalize=_printed,
        **_SETTINGS,
    )
    known: dict[str, object] = {
        "constant": _constant,
        "cuda": CudaNames(),
        "level": _level,
        "quoted": Quoted,
        "typed": _typed,
        "vector": vector_of,
        "grouped": Grouped,
        "item": item,
        "fn": DeviceNames(),
        "headers_here": HEADERS_HERE,
        "invoke": _invoke,
        "parameters_here": PARAMETERS_HERE,
        "pointer": _pointer,
    }
    found.globals.update(known)  # pyright: ignore[reportUnknownMemberType]
    found.tests.update({"wide": I64.__eq__})  # pyright: ignore[reportUnknownMemberType]
    return found


HEADERS_HERE, PARAMETERS_HERE = "@headers@", "@parameters@"
"""Placeholders in a template for text that is known once its body is rendered."""


Printing = Callable[[object], object]
"""Returns the object to print for a value that a template prints."""


class Quoted(str):
    """Text quoted by a comment: names of the fusion in it are not names of variables."""

    __slots__ = ()


class _Notes:
    """The nodes, and the names of variables, that a template prints, by level.

    The content of comments does not count: templates print it as `Quoted`.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def __call__(self, value: object) -> object:
        if isinstance(value, Node):
            self.nodes.append(value)
        elif isinstance(value, str) and value.isidentifier() and not isinstance(value, Quoted):
            self.nodes.append(Name(value))
        return value

    def inside(self, level: Level, body: Callable[[], str]) -> str:
        """Return the output of `body`, whose nodes are those of a level."""
        around, self.nodes = self.nodes, []
        try:
            text = body()
            around.append(replace(level, body=tuple(self.nodes)))
        finally:
            self.nodes = around
        return text


def _numbered(numbering: Numbering) -> Printing:
    """Print numbers for names, and omit text quoted by comments."""

    def printed(value: object) -> object:
        if isinstance(value, Quoted):
            return ""
        if isinstance(value, Node):
            return numbering.node(value)
        return numbering.of(value) if isinstance(value, str) else value

    return printed


_PRINTING: ContextVar[Printing | None] = ContextVar("printing", default=None)


def _printed(value: object) -> object:
    printing = _PRINTING.get()
    return value if printing is None else printing(value)


def _filled(template: str, view: KernelView, printing: Printing) -> str:
    """Return a template filled with a view."""
    token = _PRINTING.set(printing)
    try:
        return environment().get_template(f"{template}.cu.j2").render(k=view)
    finally:
        _PRINTING.reset(token)


@dataclass(frozen=True)
class Body:
    """The parts of a kernel's CUDA source.

    names: those that are derived from names of the fusion; first: the statements before the
    template; headers: the included ones; nodes: those of `first`, and those that the template
    prints by level.
    """

    template: str
    view: KernelView
    names: frozenset[str]
    taken: tuple[Parameter, ...]
    first: tuple[Statement, ...]
    headers: tuple[str, ...]
    nodes: tuple[Node, ...]

    def text(self, printed: str) -> str:
        """Return the whole source, with what the template has printed."""
        declared = ",\n    ".join(map(str, self.taken)) + ") {"
        includes = "\n".join(f'#include "{header}"' for header in self.headers)
        before, _, after = printed.replace(HEADERS_HERE, includes).partition(PARAMETERS_HERE)
        begin = "\n".join((declared, *map(str, self.first)))
        return f"{before}{begin}\n{after.lstrip()}"

    def numbered(self) -> str:
        """Return the source with numbers for names, and without text quoted in comments."""
        names = self.names | {p.name for p in self.view.parameters} | {self.view.name}
        numbering = Numbering(names)
        body = _filled(self.template, self.view, _numbered(numbering))
        taken = tuple(replace(p, name=numbering.of(p.name)) for p in self.taken)
        return replace(self, taken=taken).text(body)


def _constant(name: str, value: Operand, kind: Operand = INT) -> Constexpr:
    """Return the declaration of a constant that determines access alignments or trip counts."""
    kind = Type(kind) if isinstance(kind, str) else kind
    assert isinstance(kind, Type)
    return Constexpr(kind, name, operand(value))


def _invoke(function: Name, *arguments: Operand, about: Iterable[Operand] = ()) -> Call:
    """Return a call of a function by its name; about: its template arguments."""
    return call(function.name, *arguments, about=about)


def _typed(kind: Type, name: str, extents: int = 0, place: str = "") -> Typed:
    """Return a name that a template declares, with the type of its elements."""
    return Typed(Name(name), kind, extents, place)


def _pointer(buffer: Operand, index: Operand) -> Pointer:
    """Return the address of an element of a buffer."""
    return Pointer(operand(buffer), operand(index))


def _level(
    name: str,
    trips: Operand | None,
    unroll: Operand | None = None,
    when: object = True,
    *,
    caller: Callable[[], str],
) -> str:
    """Return the source of a loop or function of a template, whose nodes are those of a level.

    `{% call level("c", cuda.kChunks) %}`, up to `{% endcall %}`. unroll: as in `#pragma unroll`: ""
    for all trips, else how many; when: whether there is a loop.
    """
    notes = _PRINTING.get()
    if not isinstance(notes, _Notes) or not when:
        return caller()
    count = None if trips is None else operand(trips)
    copies = count if unroll == "" else None if unroll is None else operand(unroll)
    return notes.inside(Level(name, count, copies), caller)


class CudaNames:
    """`cuda.NAME` in a template: a variable, a constant or a function of CUDA by its name."""

    def __getitem__(self, name: str) -> Name:
        return Name(name)

    def __getattr__(self, name: str) -> Name:
        return Name(name)

    def __call__(self, value: Operand) -> Expression:
        return operand(value)


class DeviceNames:
    """`fn.NAME` in a template: a device function, type or constant by its name."""

    def __getitem__(self, name: str) -> Name:
        header_of(name)
        return Name(NAMESPACE + name)

    def __getattr__(self, name: str) -> Name:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]


def render(kernel: Kernel, view: KernelView, names: frozenset[str] = frozenset()) -> KernelSource:
    """Return a kernel's template filled with its view.

    The nodes that the template prints are recorded: their headers are included, and their arguments
    passed. names: those that are derived from names of the fusion.
    """
    if kernel.all_registers:
        view = replace(view, least_blocks=1, schedule=f"{view.schedule}\n// {ALL_REGISTERS}")
    view = folded(view, names)
    notes = _Notes()
    printed, first = _filled(kernel.template, view, notes), _first(kernel)
    nodes = tuple(without_levels(notes.nodes))
    used = uses([*nodes, *first])
    taken = tuple(p for p in view.parameters if p.name in used.names or _is_in_place(p.argument))
    headers = {header_of(name) for name in used.device | uses(p.type for p in taken).device}
    included = tuple(sorted(headers - {"storage.cuh"} | {"types.cuh"}))
    own = (*first, *notes.nodes)
    body = Body(kernel.template, view, names, taken, first, included, own)
    kernel = replace(kernel, arguments=tuple(p.argument for p in taken))
    text = laid_out(body.text(printed))
    asked = _alignments(taken, nodes)
    if isinstance(kernel, PushedKernel):
        asked.pop(kernel.source, None)  # it checks the address itself, as transports do
    return KernelSource(kernel, text, asked, included, body)


def _alignments(taken: Iterable[Parameter], nodes: Iterable[Node]) -> dict[str, int]:
    """Return by buffer the alignment that a kernel requires of the addresses that it takes."""
    tensors = {p.name: p.argument for p in taken if isinstance(p.argument, TensorArgument)}
    asked = alignments({name: a.dtype.size for name, a in tensors.items()}, nodes)
    found = {argument.name: asked[name] for name, argument in tensors.items()}
    maps = (p.argument for p in taken if isinstance(p.argument, TensorMapArgument))
    return found | dict.fromkeys((a.buffer for a in maps), WIDEST)


def _first(kernel: Kernel) -> tuple[Statement, ...]:
    """Return the first statements of a kernel if launches overlap."""
    found: list[Statement] = []
    if kernel.followed:
        start = Evaluate(Call("fusec::let_next_kernel_start"))
        found.append(Noted(start, "it waits for this kernel's end"))
    if kernel.overlapped:
        found.append(Evaluate(Call("fusec::wait_for_kernels_before")))
    return tuple(found)


def _is_in_place(argument: Argument) -> bool:
    """Return whether an argument is a written input, which informs the host that it is."""
    return isinstance(argument, TensorArgument) and argument.written and not argument.restrict
