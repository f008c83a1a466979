"""`fusec schema` and `fusec doctor`."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

from fusec.commands.terminal.diagnose import Report
from fusec.options import ENVIRONMENT, environment
from fusec.version import __version__


def print_schema() -> int:
    """Print the JSON Schema of fusion files."""
    from fusec.pages.schema import schema_text

    sys.stdout.write(schema_text())
    return 0


def doctor(report: Report) -> int:
    """Print what fusec finds on this machine: packages, compiler, tools, cache and GPU."""
    from fusec.diagnostics import FusecError
    from fusec.run.binary.sass import find_tool
    from fusec.run.binary.version import compiler_version
    from fusec.run.device import Device, device_available
    from fusec.run.entries import cache_directory

    rows = [("fusec", __version__), ("python", sys.version.split()[0])]
    for package in ("cuda-python", "cuda-bindings", "nvidia-cuda-nvrtc", "numpy", "ml-dtypes"):
        try:
            rows.append((package, version(package)))
        except PackageNotFoundError:
            rows.append((package, "not installed"))
    for name, ask in (
        ("NVRTC", compiler_version),
        ("nvdisasm", lambda: str(find_tool("nvdisasm"))),
    ):
        try:
            rows.append((name, ask()))
        except FusecError as error:
            rows.append((name, f"missing: {error.diagnostic.message}"))
    rows.append(("cache", str(cache_directory())))
    rows += [(name, value) for name in ENVIRONMENT if (value := environment(name)) is not None]
    reason = device_available()
    if reason is None:
        with Device() as device:
            rows.append(("GPU", device.facts.text()))
    else:
        rows.append(("GPU", f"none: {reason}"))
    report.facts["machine"] = dict(rows)
    for name, value in rows:
        print(f"{name:<18} {value}")
    return 0
