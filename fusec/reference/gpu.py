"""Evaluation on a GPU through CuPy: whether it is enabled, and how results are copied back.

Off unless `fusec run --reference cupy` or FUSEC_REFERENCE=cupy enables it. It shares nothing with
the kernels that it judges but the GPU itself.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from fusec.dataclasses import replace
from fusec.diagnostics import EnvironmentProblem, FusecError
from fusec.ir.arrays import computed_by, host, on_gpu
from fusec.options import REFERENCES, environment
from fusec.reference.errors.estimate import Alike, Estimate, Shared

_asked: ContextVar[str | None] = ContextVar("asked", default=None)
_is_chosen: ContextVar[bool] = ContextVar("is_chosen", default=False)


@contextmanager
def asked(name: str | None) -> Generator[None]:
    """Select one of REFERENCES for evaluations inside; None: the one in FUSEC_REFERENCE."""
    token = _asked.set(name)
    try:
        yield
    finally:
        _asked.reset(token)


@contextmanager
def chosen() -> Generator[None]:
    """Evaluate everything inside with the selected reference, the same for nested contexts.

    FusecError if FUSEC_REFERENCE is not one of REFERENCES, EnvironmentProblem if CuPy does not run.
    """
    if on_gpu() or _is_chosen.get():
        yield
        return
    module = _module(_asked.get() or environment("FUSEC_REFERENCE") or REFERENCES[0])
    token = _is_chosen.set(True)
    try:
        with computed_by(module):
            yield
    finally:
        _is_chosen.reset(token)


def _module(name: str) -> Any:
    """Return the array module: None for NumPy."""
    if name not in REFERENCES:
        known = " or ".join(f"`{n}`" for n in REFERENCES)
        raise FusecError(f"FUSEC_REFERENCE is `{name}`", help=f"expected {known}")
    if name == "numpy":
        return None
    try:
        import cupy  # pyright: ignore[reportMissingImports]

        module: Any = cupy
        module.zeros(1)
    except Exception as error:
        raise EnvironmentProblem(
            f"the reference cannot be evaluated by CuPy: {error}",
            help="install CuPy for this CUDA (`pip install cupy-cuda12x`), or let NumPy evaluate",
        ) from error
    return module


def on_the_host(estimate: Estimate) -> Estimate:
    """Return an estimate with its arrays on the host."""
    if not on_gpu():
        return estimate
    alike, shared = estimate.alike, estimate.shared
    if alike is not None:
        alike = Alike(alike.axes, host(alike.variance))
    if shared is not None:
        shared = Shared(host(shared.variance), host(shared.slope), host(shared.rest))
    names = ("value", "independent", "common", "part", "most", "factor")
    arrays: dict[str, Any] = {name: host(getattr(estimate, name)) for name in names}
    rivals = None if estimate.rivals is None else estimate.rivals.on_the_host()
    return replace(estimate, **arrays, alike=alike, shared=shared, rivals=rivals)
