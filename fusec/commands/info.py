"""`fusec ops`, `fusec schema` and `fusec doctor`."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

from fusec.ir.op import REQUIRED, OpDef
from fusec.options import ENVIRONMENT, environment
from fusec.version import __version__


def list_ops(name: str | None) -> int:
    """Print all operations by family, or all that is known of one."""
    from fusec.ops import REFUSED, TABLE, find_op

    if name is not None:
        sys.stdout.write(describe(find_op(name)))
        return 0
    families: dict[str, list[OpDef]] = {}
    for op in TABLE.values():
        families.setdefault(op.family, []).append(op)
    for family, ops in families.items():
        print(f"{family}:")
        for op in ops:
            print(f"  {signature(op):<60} {op.doc.splitlines()[0]}")
    print("refused:")
    for refused, reason in REFUSED.items():
        print(f"  {refused:<60} {reason}")
    return 0


def signature(op: OpDef) -> str:
    """Return `name(x, dims, keepdim=false)`."""
    parts = [
        p.name if p.default is REQUIRED else f"{p.name}={_default(p.default)}" for p in op.params
    ]
    return f"{op.name}({', '.join(parts)})"


def _default(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def describe(op: OpDef) -> str:
    """Return an operation's documentation."""
    lines = [signature(op), "", op.doc, "", f"family: {op.family}"]
    if len(op.results) > 1:
        lines.append(f"results: {', '.join(op.results)}")
    if op.cuda:
        lines += [f"CUDA ({kind}): {text}" for kind, text in op.cuda.items()]
    from fusec.ops.complexes import COMPLEX

    if op.name in COMPLEX:
        lines.append("takes complex numbers")
    if op.family == "pointwise":
        low, high = op.domain
        lines += [f"random inputs from [{low:g}, {high:g}]", f"accuracy: {op.accuracy:g} ulp"]
    return "\n".join(lines) + "\n"


def print_schema() -> int:
    """Print the JSON Schema of fusion files."""
    from fusec.parse import schema_text

    sys.stdout.write(schema_text())
    return 0


def doctor() -> int:
    """Print what fusec finds on this machine: packages, compiler, tools, cache and GPU."""
    from fusec.diagnostics import FusecError
    from fusec.run.cache import cache_directory
    from fusec.run.device import Device, device_available
    from fusec.run.nvrtc import compiler_version
    from fusec.run.sass import find_tool

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
    for name, value in rows:
        print(f"{name:<18} {value}")
    return 0
