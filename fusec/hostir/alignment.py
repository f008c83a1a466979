"""What kernels ask of the addresses of buffers, also of those that others are a part of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fusec.codegen.alignment import alignments
from fusec.codegen.render import KernelSource
from fusec.hostir.instructions import Alias, Instruction
from fusec.hostir.program import Buffer
from fusec.index.access import Facts
from fusec.schedule.plan import KernelPlan


def aligned(
    buffers: Sequence[Buffer],
    instructions: Iterable[Instruction],
    plans: Sequence[KernelPlan],
    sources: Sequence[Sequence[KernelSource]],
) -> tuple[Buffer, ...]:
    """Return the buffers with the alignments that the kernels' texts ask; workspaces have theirs.

    A buffer that another one is a part of has what that asks, where the part begins.
    """
    asked = {b.name: b.dtype.size for b in buffers}
    for plan, texts in zip(plans, sources, strict=True):
        for kernel, source in zip(plan.kernels, texts, strict=True):
            for name, alignment in alignments(kernel, source.text).items():
                asked[name] = max(asked.get(name, 1), alignment)
    sizes = {b.name: b.dtype.size for b in buffers}
    for part in reversed([i for i in instructions if isinstance(i, Alias)]):
        alignment = asked[part.buffer]
        while not Facts.proven(part.offset * sizes[part.buffer], alignment):
            alignment //= 2
        asked[part.of] = max(asked[part.of], alignment)
    return tuple(
        b if b.role == "workspace" else replace(b, alignment=asked[b.name]) for b in buffers
    )
