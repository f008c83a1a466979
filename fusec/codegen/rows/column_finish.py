"""The view of the column_finish template."""

from __future__ import annotations

from fusec.codegen.views import KernelView, equations, view_of
from fusec.dataclasses import dataclass
from fusec.ir.graph import Fusion, Node
from fusec.kernel.nodes import Type
from fusec.schedule.plan import StepKernel
from fusec.schedule.rows.inner_outer_persistent.choice import FinishParameters, FinishShape
from fusec.schedule.rows.inner_outer_persistent.family import InnerOuterPlan
from fusec.schedule.rows.inner_outer_persistent.split import Split
from fusec.schedule.rows.kernel.column_finish import FinishNodes, nodes_of


@dataclass(frozen=True, kw_only=True)
class FinishView(KernelView, FinishNodes):
    """Columns by partial rows, one column set at a time."""

    index_type: Type
    threads: int
    columns: int


def view(plan: InnerOuterPlan, kernel: StepKernel[FinishParameters]) -> FinishView:
    """Return the view of the finish of all column sets."""
    split, chosen = plan.problem, kernel.step
    shapes = " and ".join(_shape_text(s) for s in chosen.shapes)
    return view_of(
        FinishView,
        plan,
        kernel,
        nodes_of(plan, kernel),
        f"{shapes}; partial rows are added in a fixed order",
        equations=equations(_shown(split, chosen)),
        threads=chosen.threads,
        columns=split.bands.columns.value,
    )


def _shape_text(shape: FinishShape) -> str:
    return f"{shape.threads_x} columns by {shape.threads_y} partial rows at a time"


def _shown(split: Split, chosen: FinishParameters) -> Fusion:
    """Return the reductions and the values derived from them, for the banner."""
    nodes: list[Node] = []
    for shape in chosen.shapes:
        each = split.sets[shape.column_set]
        results = {n.output for n in each.nodes}
        nodes += [*each.nodes, *(n for n in each.finish.nodes if n.output not in results)]
    return split.fusion.with_nodes(dict.fromkeys(nodes))
