"""The statements of scans."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.index.instances import Lowering
from fusec.ir.expression import Var
from fusec.kernel.ctext import compute_type, dim_text
from fusec.kernel.formulas import parsed
from fusec.kernel.lowering.accumulators import combiner
from fusec.kernel.lowering.emit import Emitter, rounded
from fusec.kernel.lowering.nest import Alias, Scope, named
from fusec.kernel.lowering.stores import emit_store, plan_stores
from fusec.kernel.names import parameter_names
from fusec.kernel.nodes import Assign, Expression, Let, Name, Statement, Static, Type, item
from fusec.schedule.plan import Kernel
from fusec.schedule.scan.family import ScanParameters, ScanPlan

OP = Type("Op")
"""The combiner's name in the templates."""


@dataclass(frozen=True, kw_only=True)
class ScanNodes:
    """Tiles of rows (or of columns): read, combined, and finished where they were read.

    combiner: the functor that combines two parts, or combine, identity: the combination of parts
    `a` and `b`, and its identity element; rows, columns: extents; initial: the first carry; row:
    statements before the tiles; before: fills the tile; after: the consumers of the prefixes, and
    the stores.
    """

    combiner: Type | None
    combine: Expression | None
    identity: Expression | None
    rows: Expression
    columns: Expression
    initial: Expression
    row: tuple[Statement, ...]
    before: tuple[Statement, ...]
    after: tuple[Statement, ...]


def nodes_of(plan: ScanPlan, kernel: Kernel) -> ScanNodes:
    """Return the statements of a scan kernel."""
    inner, scan = plan.parameters.inner, plan.problem
    initial, row, before, after = _bodies(plan, kernel)
    dtype, cuda = scan.node.output.dtype.compute, scan.node.op.cuda
    rows, columns = scan.rows.rows, scan.rows.columns
    return ScanNodes(
        combiner=combiner(scan.node.op, dtype) if "default" in cuda else None,
        combine=parsed(cuda["combine"]) if "combine" in cuda else None,
        identity=parsed(cuda["identity"]) if "identity" in cuda else None,
        rows=dim_text(rows if inner else columns),
        columns=dim_text(columns if inner else rows),
        initial=initial,
        row=row,
        before=before,
        after=after,
    )


Lines = tuple[Statement, ...]


def _bodies(plan: ScanPlan, kernel: Kernel) -> tuple[Expression, Lines, Lines, Lines]:
    """Return the first carry, the statements of a row, those that fill a tile, those after it."""
    p, scan = plan.parameters, plan.problem
    binding, (row, chunk, lane) = scan.bind(p.vector_width)
    lowering = Lowering(scan.fusion, scan.domain, binding)
    emitter = Emitter(
        _scopes(p, row, chunk, lane),
        parameter_names(kernel.argument_names),
        Facts(scan.fusion.hints),
        lane=lane if p.vector_width > 1 else None,
        width=p.vector_width,
        aliases={chunk: Alias("column", p.vector_width)},
        written=scan.fusion.effects.overwritten,
        wide=p.wide_index,
        in_range="is_column" if not p.inner else "is_row" if p.threads_y > 1 else "",
        symbols=named(kColumns=scan.rows.columns) if p.inner else named(columns=scan.rows.rows),
    )
    scanned = scan.scanned(lowering, (row, chunk, lane))
    plans = plan_stores(lowering, scan.fusion.outputs, emitter.store_kind)
    name = emitter.names.fresh(scan.node.output.name)
    emitter.given[scanned] = Name(name)
    emitter.count([*scanned.operands, *(s.instance for s in plans)])
    dtype = scan.node.output.dtype.compute
    value = emitter.convert(scanned.operands[0], dtype, 0)
    element = emitter.element_of_vector
    own = item("part", "c", element)
    emitter.add(0, "lane", Assign(own, value))
    before = Name("before") if p.inner else item("before", element)
    prefix: Expression = Static(OP, "combine", (before, own))
    if scan.node.output.dtype.is_half:
        prefix = rounded(scan.node.output.dtype, prefix)
    emitter.add(1, "lane", Let(compute_type(dtype), name, prefix))
    initial: Expression = Static(OP, "identity")
    if len(scanned.operands) > 1:
        initial = emitter.convert(scanned.operands[1], dtype, 0)
    for each in plans:
        emit_store(emitter, each, 1)
    return initial, emitter.before(0), emitter.statements(0), emitter.statements(1)


def _scopes(p: ScanParameters, row: Var, chunk: Var, lane: Var) -> tuple[Scope, ...]:
    """Return the loop nest: rows with vectors along them, or columns with rows along them."""
    outer, inner = (
        (("row", row), ("vector", chunk)) if p.inner else (("column", chunk), ("row", row))
    )
    return (
        Scope("kernel", frozenset(), per_phase=False),
        Scope(outer[0], frozenset({outer[1]}), per_phase=False),
        Scope(inner[0], frozenset({inner[1]})),
        Scope("lane", frozenset({lane})),
    )
