"""From a kernel plan to CUDA source: the family of a template determines the module of its view."""

from __future__ import annotations

from importlib import import_module

from fusec.codegen.render import render
from fusec.codegen.source import KernelSource
from fusec.kernel.names import names_made
from fusec.schedule.plan import Kernel, KernelPlan
from fusec.schedule.templates import find_template


def kernel_source(plan: KernelPlan, kernel: Kernel) -> KernelSource:
    """Return the CUDA source of one kernel of a plan."""
    found = find_template(kernel.template)
    with names_made() as made:
        view = import_module(f"fusec.codegen.{found.view}").view(kernel.of or plan, kernel)
    return render(kernel, view, frozenset(made))


def plan_sources(plan: KernelPlan) -> tuple[KernelSource, ...]:
    """Return the CUDA source of every kernel of a plan, in launch order."""
    return tuple(kernel_source(plan, k) for k in plan.kernels)
