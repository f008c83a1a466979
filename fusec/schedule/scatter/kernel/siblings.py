"""The statements of elementwise outputs that additional blocks of a scatter compute."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import Alias, Scope
from fusec.kernel.lowering.stores import emit_store, plan_stores
from fusec.kernel.names import parameter_names
from fusec.kernel.nodes import Statement
from fusec.schedule.plan import Kernel
from fusec.schedule.scatter.problem import Scatter


@dataclass(frozen=True)
class SiblingsBody:
    """blocks: of the scatter before them; width, elements: of the flat loop; lines: of a vector."""

    blocks: int
    width: int
    elements: int
    lines: tuple[Statement, ...]


def siblings_body(scatter: Scatter, kernel: Kernel, *, wide: bool) -> SiblingsBody | None:
    """Return the elementwise work fused with a scatter, or None."""
    part = scatter.siblings
    if part is None:
        return None
    row, chunk, lane = part.nest.loops
    emitter = Emitter(
        (
            Scope("kernel", frozenset(), per_phase=False),
            Scope("vector", frozenset({row, chunk})),
            Scope("lane", frozenset({lane})),
        ),
        parameter_names(kernel.argument_names),
        Facts(part.fusion.hints),
        lane=lane if part.width > 1 else None,
        width=part.width,
        width_name="kFlatVec",
        aliases={chunk: Alias("column", part.width)},
        wide=wide,
    )
    plans = plan_stores(part.nest.lowering, part.fusion.outputs, emitter.store_kind)
    emitter.count(p.instance for p in plans)
    for each in plans:
        emit_store(emitter, each, 0)
    blocks = kernel.grid[0].value - -(-part.elements // (part.width * kernel.block[0]))
    lines = (*emitter.take(0, "kernel"), *emitter.statements(0))
    return SiblingsBody(blocks, part.width, part.elements, lines)
