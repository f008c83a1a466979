"""Emits compiled folders as C: launchers without fusec, for the CUDA driver API and TVM-FFI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusec.dataclasses import replace

if TYPE_CHECKING:
    from fusec.driver import Package

KINDS = ("c", "tvm-ffi")
"""What can be emitted; tvm-ffi includes c."""


def emitted(package: Package, kinds: Sequence[str]) -> dict[str, bytes]:
    """Return the files of some kinds by path; Unsupported for programs they cannot launch."""
    if not kinds:
        return {}
    from fusec.emit.c import files_of, view_of

    view = view_of(package)
    if "tvm-ffi" not in kinds:
        return files_of(view)
    from fusec.emit.tvm_ffi import source_of

    program = package.program
    source = source_of(view, program.local, program.host)
    return {
        **files_of(replace(view, languages=" CXX")),
        f"{view.name}_tvm_ffi.cc": source,
    }


def paths_of(name: str) -> frozenset[str]:
    """Return the paths of all files that may be emitted for a fusion."""
    named = (f"{name}.h", f"{name}.c", f"{name}_tvm_ffi.cc")
    return frozenset({*named, "example.c", "CMakeLists.txt"})
