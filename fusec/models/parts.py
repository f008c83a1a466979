"""Partitions a model around its external calls: fusions, and the calls between them, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import Unsupported
from fusec.ir.graph import Fusion, Type
from fusec.models.calls import Call
from fusec.models.convert import Converted
from fusec.models.folder import FUSION
from fusec.models.fusion_text import fusion_text
from fusec.models.graph import ModelInput, ModelNode
from fusec.models.rules.build import WORD, Line
from fusec.ops.names import fresh_name


@dataclass(frozen=True)
class Part:
    """A fusion of a model: its file name, its text, and the fusion itself."""

    file: str
    text: str
    fusion: Fusion


def parts_of(model: Converted) -> list[Part | Call]:
    """Return the fusions and external calls of a model in execution order.

    The model must come from `with_late_writes`. A line is in the first part that has all its
    operands; one that only reads inputs, which all parts have, is in the first part that needs it.
    FusecError names the node whose line is wrong.
    """
    if not any(line.call for line in model.lines):
        return [Part(FUSION, *fusion_text(model))]
    if all(line.call for line in model.lines):
        raise Unsupported(f"`{model.graph.file}` has nothing but external calls")
    levels = _levels(model)
    crossing = {*model.outputs, *_crossing(model.lines, levels)}
    types = {name: entry.type for name, entry in model.inputs}
    found: list[Part | Call] = []
    numbers = iter(range(len(levels)))
    for level in sorted({*levels}):
        here = [line for line, k in zip(model.lines, levels, strict=True) if k == level]
        lines = [line for line in here if line.call is None]
        if lines:
            part = _part(model, lines, types, crossing, next(numbers))
            types |= {o.value.name: o.value.type for o in part.fusion.outputs}
            found.append(part)
        for line in here:
            if line.call is not None:
                types |= {n: model.types[n] for n in line.names if n != "_"}
                results = [n if n in line.names else None for n in line.call.results]
                found.append(replace(line.call, results=tuple(results)))
    return found


def with_late_writes(model: Converted) -> Converted:
    """Return a model whose writes into inputs are separate lines, if it has external calls.

    No line reads the written values, so the last part can write: others may read the old contents.
    """
    if not any(line.call for line in model.lines):
        return model
    taken = {*model.types, *(n for line in model.lines for n in line.names)}
    copies = {name: fresh_name(taken, f"{name}_new") for name in model.aliases}
    lines = tuple(Line((copy,), f"set({name})", _WRITE) for name, copy in copies.items())
    return replace(
        model, lines=(*model.lines, *lines),
        outputs=tuple(copies.get(name, name) for name in model.outputs),
        aliases={copies[name]: into for name, into in model.aliases.items()},
    )  # fmt: skip


def _levels(model: Converted) -> list[int]:
    """Return the level at which each line runs: the number of chained external calls before it."""
    lines, levels = model.lines, _earliest(model.lines)
    last = 1 + max(level for line, level in zip(lines, levels, strict=True) if line.call)
    kept, first_use = {*model.outputs}, dict[str, int]()
    for k in reversed(range(len(lines))):
        line = lines[k]
        uses = [first_use[n] for n in line.names if n in first_use]
        if not model.aliases.keys().isdisjoint(line.names):
            levels[k] = last
        elif line.call is None and levels[k] == 0 and uses and kept.isdisjoint(line.names):
            levels[k] = min(uses)
        for name in line.reads:
            first_use[name] = min(levels[k], first_use.get(name, levels[k]))
    return levels


_WRITE = ModelNode("output", "output", (), {}, ())


def _earliest(lines: Sequence[Line]) -> list[int]:
    """Return the first level at which each line can be computed."""
    made: dict[str, int] = {}
    found: list[int] = []
    for line in lines:
        level = max((made.get(name, 0) for name in line.reads), default=0)
        made |= dict.fromkeys(line.names, level + (line.call is not None))
        found.append(level)
    return found


def _crossing(lines: Sequence[Line], levels: Sequence[int]) -> Iterator[str]:
    """Yield the values that are read by a call, or at another level than they are computed."""
    made = {n: k for line, k in zip(lines, levels, strict=True) for n in line.names}
    for line, level in zip(lines, levels, strict=True):
        yield from (n for n in line.reads if line.call or made.get(n, level) != level)


def _part(
    model: Converted, lines: Sequence[Line], types: dict[str, Type], crossing: set[str], number: int
) -> Part:
    """Return the fusion of some lines; types: of all values that are computed before it."""
    name = f"{model.graph.name}_{number}"
    own = {n for line in lines for n in line.names}
    read = {n for line in lines for n in line.reads} - own
    outputs = tuple(n for line in lines for n in line.names if n in crossing)
    aliases = {n: into for n, into in model.aliases.items() if n in own}
    read |= {*aliases.values()}
    given = dict(model.inputs)
    inputs = [(n, e) for n, e in model.inputs if n in read]
    makers = {n: line for line in model.lines for n in line.names}
    inputs += [
        (n, ModelInput(n, types[n], "value", _origin(makers[n])))
        for n in makers if n in read and n in types and n not in given
    ]  # fmt: skip
    symbols = {s: size for s, size in model.graph.symbols.items() if _reads(inputs, lines, s)}
    part = replace(
        model, graph=replace(model.graph, name=name, symbols=symbols), inputs=tuple(inputs),
        lines=tuple(lines), outputs=outputs, aliases=aliases,
    )  # fmt: skip
    return Part(f"part_{number}.yaml", *fusion_text(part, f"part_{number}.yaml"))


def _origin(line: Line) -> str:
    """Return the source of a value from another part."""
    return f"of {line.call.target}" if line.call is not None else "of a part before"


def _reads(inputs: Sequence[tuple[str, ModelInput]], lines: Sequence[Line], symbol: str) -> bool:
    """Return whether a size occurs in the inputs or the lines of a part."""
    return any(symbol in line.reads for line in lines) or any(
        symbol in WORD.findall(str(entry.type)) for _, entry in inputs
    )
