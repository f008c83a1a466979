"""From a kernel plan to CUDA text: each template's view is made by the module of its family."""

from __future__ import annotations

from importlib import import_module

from fusec.codegen.render import render
from fusec.codegen.source import KernelSource
from fusec.kernel.names import names_made
from fusec.schedule.plan import Kernel, KernelPlan

# Each module has `view(plan, kernel)`; loaded when a kernel of its family is rendered.
VIEWS = {
    "pointwise": "fusec.codegen.pointwise",
    "transpose": "fusec.codegen.transpose",
    "transpose_shifted": "fusec.codegen.transpose_shifted",
    "reduction": "fusec.codegen.reduction",
    "reduction_inner": "fusec.codegen.reduction",
    "reduction_outer": "fusec.codegen.reduction",
    "inner_persistent": "fusec.codegen.inner_persistent",
    "inner_persistent_pushed": "fusec.codegen.inner_persistent_pushed",
    "inner_persistent_ring": "fusec.codegen.inner_persistent_ring",
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
    "topk_lanes": "fusec.codegen.sort_lanes",
    "scatter_lines": "fusec.codegen.scatter",
    "scatter_elements": "fusec.codegen.scatter",
    "scatter_sorted": "fusec.codegen.scatter",
    "scatter_compared": "fusec.codegen.scatter",
    "column_finish": "fusec.codegen.column_finish",
    "attention_wgmma": "fusec.codegen.attention",
    "attention_decode": "fusec.codegen.attention_decode",
    "attention_backward": "fusec.codegen.attention_backward",
    "matmul_simt": "fusec.codegen.matmul",
    "matmul_mma": "fusec.codegen.matmul",
    "matmul_vector": "fusec.codegen.matmul",
    "matmul_wgmma": "fusec.codegen.matmul",
    "matmul_split_k": "fusec.codegen.matmul",
    "matmul_ranges": "fusec.codegen.matmul",
    "matmul_sum_slices": "fusec.codegen.matmul",
}


def kernel_source(plan: KernelPlan, kernel: Kernel) -> KernelSource:
    """Return the CUDA source of one kernel of a plan."""
    with names_made() as made:
        view = import_module(VIEWS[kernel.template]).view(kernel.of or plan, kernel)
    return render(kernel, view, frozenset(made))


def plan_sources(plan: KernelPlan) -> tuple[KernelSource, ...]:
    """Return the CUDA source of every kernel of a plan, in launch order."""
    return tuple(kernel_source(plan, k) for k in plan.kernels)
