"""Checks that accesses of rendered kernels lie in their buffers: `check(plan, source)`.

The text is parsed and followed once for all threads (`reader`), at sizes of the plan; what is
known of numbers is a linear program (`linear`). No kernel is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from fences import constants_of_header, functions_by_name
from fences.parser import constants_of
from fences.scopes import Scope
from fences.syntax import functions_of

from fusec.run.arrays import span
from fusec.run.binary.headers import device_headers, headers_for
from fusec.schedule.plan import Guard, ScalarArgument, SizeArgument, TensorMapArgument

from .linear import Sum
from .reader import Access, Reader
from .values import Pointer, Struct, Thing

STRUCT = re.compile(
    r"^(?:template <([^>]*)>\n)?struct (\w+) \{\n(.*?)^\};", re.MULTILINE | re.DOTALL
)
CONSTANT = re.compile(r"^  static constexpr (?:int|bool|u32) (\w+) =\s*([^;]*);", re.MULTILINE)
MEMBER = re.compile(
    r"  (?:const )?((?!using|static|return)[\w:]+(?:<[^>]*>)?)[*]? (\w+(?:, \w+)*)(?: = (.*))?;"
)

__all__ = ["Access", "check", "sizes_of"]


def check(
    plan: Any,
    source: Any,
    sizes: Mapping[str, int] | None = None,
    text: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> list[Access]:
    """Return the accesses to memory of one of a plan's kernels, each judged.

    sizes: of the plan's symbols, None for their defaults. text, headers: instead of the source's
    and of device headers, by their names.
    """
    text = text or str(source.text)
    sizes = dict(plan.fusion.hints) if sizes is None else sizes
    used = headers_for(text, {**device_headers(), **(headers or {})})
    functions = functions_by_name(tuple(used.values()))
    kernel = source.kernel
    grid, block = [d.evaluate(sizes) for d in kernel.grid], kernel.block
    shapes = {f"blockIdx.{a}": n for a, n in zip("xyz", grid, strict=True)}
    shapes |= {f"gridDim.{a}": n for a, n in zip("xyz", grid, strict=True)}
    shapes |= {f"threadIdx.{a}": n for a, n in zip("xyz", block, strict=True)}
    shapes |= {f"blockDim.{a}": n for a, n in zip("xyz", block, strict=True)}
    shapes["cluster"] = kernel.cluster[0]
    if not all(grid):
        return []  # nothing is launched
    (function,) = (f for f in functions_of(text) if f.name == kernel.name)
    arguments = dict(zip((p.name for p in function.parameters), kernel.arguments, strict=True))
    buffers = bytes_of_buffers(plan, sizes)
    reader = Reader(
        functions,
        {name: buffers[a.name] for name, a in arguments.items() if a.name in buffers},
        shapes,
        {
            name: source.alignments[a.name]
            for name, a in arguments.items()
            if a.name in source.alignments
        },
        structs_of("".join(used.values())),
    )
    for node in [n for t in used.values() for n in constants_of_header(t)] + constants_of(text):
        declare(reader, node)
    reader.scope = Scope(reader.globals)
    for parameter in function.parameters:
        argument = arguments[parameter.name]
        if isinstance(argument, SizeArgument):
            value: Any = Sum(argument.value.evaluate(sizes))
        elif isinstance(argument, TensorMapArgument):
            value = Thing("TensorMap")
        elif isinstance(argument, ScalarArgument):
            kind = reader.scope.type_of(parameter.type.split()[-2])
            value = reader.typed(Thing(kind, f"`{parameter.name}`"), kind)
        else:
            kind = next(w for w in parameter.type.split() if w not in ("const", "unsigned"))
            value = Pointer(parameter.name, "global", type=kind)
        reader.scope.values[parameter.name] = value
    reader.run(function.body)
    seen = {a.buffer for a in reader.found.values()}
    missed = (n for n, a in arguments.items() if a.name in buffers and n not in seen)
    unseen = [Access("used", n, function.line, "undecided", "nowhere that is seen") for n in missed]
    return [*reader.found.values(), *unseen]


@cache
def structs_of(text: str) -> dict[str, Struct]:
    """Return the structs of device headers."""
    found: dict[str, Struct] = {}
    for template, name, body in STRUCT.findall(text):
        lines = (line.partition("//")[0].rstrip() for line in body.split("\n"))
        members = [m for line in lines if (m := MEMBER.fullmatch(line))]
        each = [(n.strip(), m[1], m[3] or "") for m in members for n in m[2].split(",")]
        names = tuple(part.split()[-1] for part in template.split(",") if part.split())
        kinds = tuple(kind.replace(" ", "") for _, kind, _ in each)
        found[name] = Struct(
            names,
            tuple(e[0] for e in each),
            kinds,
            tuple(e[2] for e in each),
            dict(CONSTANT.findall(body)),
        )
    return found


def declare(reader: Reader, node: Any) -> None:
    """Declare what stands outside of functions."""
    if node.kind != "struct":
        reader.run(node)
        return
    reader.scope = Scope(reader.globals)
    for member in node.kids:
        reader.run(member)
    inner, reader.scope = reader.scope, reader.globals
    reader.globals.values |= {f"{node.text}::{n}": v for n, v in inner.values.items()}
    reader.globals.types |= {f"{node.text}::{n}": t for n, t in inner.types.items()}


def bytes_of_buffers(plan: Any, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return how many bytes each buffer of a plan has."""
    fusion = plan.fusion
    found: dict[str, int] = {}
    for entry in fusion.inputs:
        if not entry.value.is_scalar:
            shape = [d.evaluate(sizes) for d in entry.value.shape]
            steps = [d.evaluate(sizes) for d in entry.strides]
            # Parts of a complex tensor lie between each other: each ends with the other's element.
            count = span(shape, steps) + (entry.part is not None)
            found[entry.value.name] = count * entry.value.dtype.size
    for output in fusion.outputs:
        if output.alias is None:
            shape = [d.evaluate(sizes) for d in output.value.shape]
            steps = [d.evaluate(sizes) for d in fusion.effects.strides(output.value)]
            count = span(shape, steps) + (output.part is not None)
            found[output.value.name] = count * output.value.dtype.size
    for space in plan.workspaces:
        found[space.name] = space.size.evaluate(sizes) * space.dtype.size
    return found


def sizes_of(plan: Any, guards: Iterable[Guard] = ()) -> Iterator[dict[str, int]]:
    """Yield sizes at which a plan may run: its defaults, and others that are no round numbers.

    guards: of the program, beside the plan's own.
    """
    known = {**plan.specialised, **plan.fusion.hints}
    asked = [*plan.guards, *(g for g in guards if g.value.symbols <= {*known})]
    hints = {**plan.specialised, **plan.fusion.hints}
    yield hints
    free = [d for d in plan.fusion.dims if d.name not in plan.specialised]
    for start in (1, 37):
        found = {**hints}
        for each in free:
            step = max(each.multiple_of, 1)
            tried = [step * (start + k) for k in range(64)]
            found[each.name] = next(
                (n for n in tried if all(g.holds({**found, each.name: n}) for g in asked)),
                hints[each.name],
            )
        if found != hints and all(g.holds(found) for g in asked):
            yield found
