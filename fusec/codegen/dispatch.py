"""From a kernel plan to CUDA text: each template's view is made by the module of its family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import import_module

from fusec.codegen.render import KernelSource, render
from fusec.ir.recent import Recent
from fusec.schedule.plan import Argument, Kernel, KernelPlan, TensorArgument

# Each module has `view(plan, kernel)`; loaded when a kernel of its family is rendered.
VIEWS = {
    "pointwise": "fusec.codegen.pointwise",
    "transpose": "fusec.codegen.transpose",
    "reduction": "fusec.codegen.reduction",
    "reduction_inner": "fusec.codegen.reduction",
    "reduction_outer": "fusec.codegen.reduction",
    "inner_persistent": "fusec.codegen.inner_persistent",
    "outer_persistent": "fusec.codegen.outer_persistent",
    "inner_outer_persistent": "fusec.codegen.inner_outer_persistent",
    "scan_rows": "fusec.codegen.scan",
    "scan_tiles": "fusec.codegen.scan",
    "scan_columns": "fusec.codegen.scan",
    "sort_rows": "fusec.codegen.sort",
    "sort_count": "fusec.codegen.sort",
    "sort_offsets": "fusec.codegen.sort",
    "sort_scatter": "fusec.codegen.sort",
    "topk": "fusec.codegen.sort_top",
    "scatter_lines": "fusec.codegen.scatter",
    "scatter_elements": "fusec.codegen.scatter",
    "scatter_sorted": "fusec.codegen.scatter",
    "scatter_compared": "fusec.codegen.scatter",
    "column_finish": "fusec.codegen.column_finish",
    "matmul_simt": "fusec.codegen.matmul",
    "matmul_mma": "fusec.codegen.matmul",
    "matmul_wgmma": "fusec.codegen.matmul",
    "matmul_split_k": "fusec.codegen.matmul",
}


def kernel_source(plan: KernelPlan, kernel: Kernel) -> KernelSource:
    """Return the CUDA text of one kernel of a plan."""
    return render(kernel, import_module(VIEWS[kernel.template]).view(kernel.of or plan, kernel))


def plan_sources(plan: KernelPlan) -> tuple[KernelSource, ...]:
    """Return the CUDA text of every kernel of a plan, in launch order."""
    return _RECENT.of(plan, None, lambda: tuple(kernel_source(plan, k) for k in plan.kernels))


def without_unread(plan: KernelPlan) -> KernelPlan:
    """Return a plan whose kernels take what their texts read, and nothing else."""
    sources = plan_sources(plan)
    kernels = tuple(
        replace(k, arguments=tuple(_read(k.arguments, source.unread)))
        for k, source in zip(plan.kernels, sources, strict=True)
    )
    return plan if kernels == plan.kernels else replace(plan, kernels=kernels)


def _read(arguments: Iterable[Argument], unread: frozenset[int]) -> Iterator[Argument]:
    """Yield what is read, and what is written in place: by that the host knows that it is."""
    for number, each in enumerate(arguments):
        in_place = isinstance(each, TensorArgument) and each.written and not each.restrict
        if number not in unread or in_place:
            yield each


_RECENT: Recent[tuple[KernelSource, ...]] = Recent()
