"""The view of the scatter templates."""

from __future__ import annotations

from fusec.codegen.views import KernelView, head
from fusec.dataclasses import dataclass
from fusec.schedule.plan import StepKernel
from fusec.schedule.scatter.algorithms import THREADS, shares_warps
from fusec.schedule.scatter.family import ScatterPlan
from fusec.schedule.scatter.kernel.elements import ScatterNodes, nodes_of


@dataclass(frozen=True, kw_only=True)
class ScatterView(KernelView, ScatterNodes):
    """Elements of lines, and their destinations.

    length, extent: elements of a line, and destinations; adds: whether to accumulate;
    elements_first: whether adjacent threads take elements of one line; together: whether those of a
    warp share an element.
    """

    threads: int
    length: int
    extent: int
    adds: bool
    elements_first: bool
    together: bool


def view(plan: ScatterPlan, kernel: StepKernel[str]) -> ScatterView:
    """Return the view of a kernel that writes to data-dependent positions."""
    scatter, nodes = plan.problem, nodes_of(plan, kernel)
    return ScatterView(
        **head(plan, kernel, nodes),  # pyright: ignore[reportArgumentType]
        schedule=_sentence(plan.parameters.algorithm, kernel.step),
        threads=THREADS,
        length=scatter.length,
        extent=scatter.node.output.shape[scatter.axis].value,
        adds=scatter.adds,
        elements_first=scatter.axis == len(scatter.shape) - 1,
        together=shares_warps(scatter, nodes.vector_width),
    )


def _sentence(algorithm: str, step: str) -> str:
    what = {
        "lines": "a thread for each line of the source, element by element",
        "elements": "a thread for each element; they are added in arrival order",
        "sorted": "a thread for each element in the order of indices; the first of an index adds",
        "compared": "a thread for each element; the first of an index adds, or the last one writes",
        "winners": {
            "clear": "a thread for each element clears the claims on its index",
            "claim": "a thread for each element claims its index; the last one wins",
            "win": "a thread for each element; the one that won its index writes",
        }.get(step, ""),
    }[algorithm]
    return f"Schedule: {what}."
