"""Alignment that kernels require of buffers, propagated to the buffers they are views of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fusec.codegen.source import KernelSource
from fusec.dataclasses import replace
from fusec.diagnostics import Span, Unsupported
from fusec.hostir.check import IN_LOOPS
from fusec.hostir.instructions import Alias, For, Instruction
from fusec.hostir.own_slices import own_slices
from fusec.hostir.program import Buffer
from fusec.index.access import Facts
from fusec.ir.dim import Dim, product
from fusec.schedule.plan import Guard


def aligned(
    buffers: Sequence[Buffer],
    instructions: Sequence[Instruction],
    sources: Sequence[Sequence[KernelSource]],
    spans: Mapping[str, Span | None],
) -> tuple[tuple[Buffer, ...], tuple[Guard, ...]]:
    """Return the buffers with the alignments that kernels require; workspaces have their own.

    A buffer that has views gets the alignment of each view, as far as the view's offset permits.
    For views whose index is only known at run time, guards require that each is aligned. spans: the
    source location that defines the contents of a buffer.
    """
    asked = {b.name: b.dtype.size for b in buffers}
    for texts in sources:
        for source in texts:
            for name, alignment in source.alignments.items():
                asked[name] = max(asked.get(name, 1), alignment)
    sizes = {b.name: b.dtype.size for b in buffers}
    guards: list[Guard] = []
    for part in reversed([*_parts(instructions, _own_parts(buffers, instructions))]):
        alignment, offset = asked[part.buffer], part.offset * sizes[part.buffer]
        own, rest = _numbered(part, offset, alignment, spans.get(part.buffer))
        guards += own
        while not Facts.proven(rest, alignment):
            alignment //= 2
        asked[part.of] = max(asked[part.of], alignment)
    found = tuple(
        b if b.role == "workspace" else replace(b, alignment=asked[b.name]) for b in buffers
    )
    return found, tuple({str(g): g for g in guards}.values())


def _parts(instructions: Iterable[Instruction], own: Mapping[str, Alias]) -> Iterator[Alias]:
    for instruction in instructions:
        if isinstance(instruction, Alias):
            yield instruction
            if instruction.buffer in own:
                yield own[instruction.buffer]
        elif isinstance(instruction, For):
            yield from _parts(instruction.body, own)


def _own_parts(
    buffers: Sequence[Buffer], instructions: Sequence[Instruction]
) -> Mapping[str, Alias]:
    """Return by name the slices that alias another buffer when they are a rank's own."""
    loops = (i for i in instructions if isinstance(i, For))
    found = (each for loop in loops for each in own_slices(loop, buffers, instructions))
    return {each.own_alias.buffer: each.own_alias for each in found}


def _numbered(
    part: Alias, offset: Dim, alignment: int, span: Span | None
) -> tuple[list[Guard], Dim]:
    """Return guards that align every one of several equal parts of a buffer.

    Also the terms of the part's offset that no guard covers.
    """
    guards, left = list[Guard](), offset
    for monomial, coefficient in offset.terms:
        factors = [Dim((((atom,), 1),)) for atom in monomial]
        rest = [factor for factor in factors if not _is_number(factor)]
        step = product(rest) * coefficient
        if len(rest) == len(factors) or Facts.proven(step, alignment):
            continue
        why = f"each part of `{part.of}` has an aligned address"
        if step.is_const:
            raise Unsupported(
                f"`{part.buffer}` is a part of `{part.of}` aligned to {step} bytes, and kernels "
                f"need {alignment}",
                span=span,
                help=f"divide it into fewer parts of at least {alignment} bytes, or another dim",
            )
        guards.append(Guard(step, "%", alignment, why))
        left -= Dim(((monomial, coefficient),))
    return guards, left


def _is_number(value: Dim) -> bool:
    """Return whether a factor is the index of a part: a loop's index, or a rank's index."""
    return any(name.endswith((*IN_LOOPS, ".place")) for name in value.symbols)
