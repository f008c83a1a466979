"""Evaluation on a GPU through CuPy: whether it is wanted, and how results come back.

Off unless FUSEC_REFERENCE says `cupy`. It shares nothing with the kernels that it judges but the
GPU itself.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fusec.diagnostics import EnvironmentProblem, FusecError
from fusec.ir.arrays import computed_by, host, on_gpu
from fusec.options import environment
from fusec.reference.estimate import Alike, Estimate, Shared

VARIABLE = "FUSEC_REFERENCE"


@contextmanager
def chosen() -> Generator[None]:
    """Evaluate what runs inside where FUSEC_REFERENCE says, unless something has chosen already."""
    if on_gpu() or environment(VARIABLE) in (None, "numpy"):
        yield
        return
    with computed_by(_module(environment(VARIABLE))):
        yield


def _module(name: str | None) -> Any:
    """Return CuPy; EnvironmentProblem where it does not run."""
    if name != "cupy":
        raise FusecError(f"{VARIABLE} is `{name}`", help="`numpy` or `cupy`")
    try:
        import cupy  # pyright: ignore[reportMissingImports]

        module: Any = cupy
        module.zeros(1)
    except Exception as error:
        raise EnvironmentProblem(
            f"{VARIABLE}=cupy: CuPy does not run here: {error}",
            help="install a package of CuPy for this CUDA, or leave the variable unset",
        ) from error
    return module


def on_the_host(estimate: Estimate) -> Estimate:
    """Return an estimate with its arrays on the host."""
    if not on_gpu():
        return estimate
    alike, shared = estimate.alike, estimate.shared
    return replace(
        estimate,
        value=host(estimate.value),
        independent=host(estimate.independent),
        common=host(estimate.common),
        part=host(estimate.part),
        most=host(estimate.most),
        factor=host(estimate.factor),
        alike=None if alike is None else Alike(alike.axes, host(alike.variance)),
        shared=None
        if shared is None
        else Shared(host(shared.variance), host(shared.slope), host(shared.rest)),
    )
