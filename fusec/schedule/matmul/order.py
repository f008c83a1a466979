"""The summation order of GEMM kernels."""

from __future__ import annotations

from fusec.ir.dtype import F32
from fusec.schedule.matmul.choice import MatmulParameters
from fusec.schedule.matmul.problem import Product
from fusec.schedule.matmul.sums import partials_dtype, slice_groups
from fusec.schedule.orders import GROUP, TF32_GROUP, PlannedOrder, of_products, of_tensor_cores


def order_of(problem: Product, p: MatmulParameters) -> PlannedOrder:
    """Return the order of a kernel's sums; for groups along K that of the longest."""
    if not p.on_tensor_cores:
        return of_products(problem.k)
    part, each = p.part_of_k
    promoted = p.uses_tma and problem.narrow is not None
    group = TF32_GROUP if problem.dtype == F32 else GROUP
    groups = slice_groups(p) if p.has_second else 1
    half = partials_dtype(problem, p).name if p.leaves_halves else ""
    return of_tensor_cores(
        problem.k, part, each, p.summed_splits, groups=groups, promoted=promoted, group=group,
        kept="" if p.is_serial else half, rounded=half if p.is_serial else "",
        arrives=p.in_arrival_order,
    )  # fmt: skip
