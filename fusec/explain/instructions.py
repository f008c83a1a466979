"""Instruction counts of kernels: as facts of a record, and as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fusec.codegen.counted import counts_of
from fusec.codegen.source import KernelSource
from fusec.explain.facts import InstructionFacts, KernelFacts, LevelFacts

Counted = Mapping[str, InstructionFacts]


def counted(sources: Iterable[KernelSource], sizes: Mapping[str, int]) -> Counted:
    """Return the instructions of kernels by their names; none for sources that are not rendered."""
    found: dict[str, InstructionFacts] = {}
    for source in sources:
        counts = counts_of(source, sizes)
        if counts is not None:
            levels = tuple(
                LevelFacts(level.name, depth, level.trips, level.shown, level.counts)
                for depth, level in counts.kernel.levels()
            )
            total = dict(sorted(counts.kernel.total().items()))
            found[source.name] = InstructionFacts(total, levels, counts.not_counted)
    return found


def instructions(kernel: KernelFacts) -> Iterator[str]:
    """Yield the instructions of a thread of a kernel, and of one trip of each of its loops."""
    facts = kernel.instructions
    if facts is None:
        return
    missing = f"; not counted: {', '.join(facts.not_counted)}" if facts.not_counted else ""
    yield f"{kernel.name}, per thread: {_listed(facts.per_thread)}{missing}"
    for level in facts.levels[1:]:
        trips = "unknown" if level.trips is None else f"{level.trips:.4g}"
        head = f"{'- ' * level.depth}`{level.loop}`, {trips} trips ({level.expression})"
        yield f"{head}: {_listed(level.per_trip)}"


def _listed(counts: Mapping[str, float]) -> str:
    return ", ".join(f"{count:.4g} {name}" for name, count in counts.items()) or "none"
