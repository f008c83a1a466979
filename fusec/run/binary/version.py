"""The version of NVRTC that builds kernels, and its bindings, imported on first use."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from functools import cache
from typing import Any

from fusec.diagnostics import EnvironmentProblem

_WHEELS = {"12": "nvidia-cuda-nvrtc-cu12"}
"""NVRTC's wheel by the major version of the bindings, where the name is not the usual one."""
_INSTALL = "pip install 'cuda-python>=13,<14' 'nvidia-cuda-nvrtc>=13.0,<14'"


@cache
def compiler_version() -> str:
    """Return `nvrtc 13.0.88`: from the wheel's metadata, or else from NVRTC itself."""
    known = _installed("cuda-bindings")
    wheel = known and _installed(_WHEELS.get(known.partition(".")[0], "nvidia-cuda-nvrtc"))
    if wheel:
        return f"nvrtc {wheel}"
    _, major, minor = bindings().nvrtcVersion()
    return f"nvrtc {major}.{minor}"


def _installed(distribution: str) -> str | None:
    """Return the version of an installed distribution, None where it is not installed."""
    start, end = f"{distribution.replace('-', '_')}-", ".dist-info"
    for folder in sys.path:
        with suppress(OSError), os.scandir(folder or ".") as files:
            for name in (file.name for file in files):
                if name.startswith(start) and name.endswith(end):
                    return name.removeprefix(start).removesuffix(end)
    from importlib import metadata  # much slower to import than to look for a usual folder

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


@cache
def bindings() -> Any:
    """Import cuda.bindings.nvrtc and load the NVRTC library."""
    try:
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")
        nvrtc.nvrtcVersion()
    except (ImportError, OSError, RuntimeError) as problem:
        reason = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise EnvironmentProblem(
            "NVRTC, the CUDA run-time compiler, is not available", notes=[reason], help=_INSTALL
        ) from problem
    return nvrtc
