"""NVRTC: what it returns, what its log says, and how its errors point."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fusec.diagnostics import EnvironmentProblem
from fusec.run.binary import version
from fusec.run.binary.compiler_log import first_error, parse_warnings
from fusec.run.binary.nvrtc import CompileError, compile_cuda, compile_ptx
from fusec.run.binary.sass import find_tool, sass

DOUBLE_IT = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }\n'


def test_a_cubin_and_its_numbers() -> None:
    source = """extern "C" __global__ void tile(float* x) {
  __shared__ float cells[128];
  cells[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = cells[threadIdx.x ^ 1];
}
"""
    built = compile_cuda(source, name="tile", arch="sm_90a", headers={})
    assert built.cubin.startswith(b"\x7fELF")
    assert built.shared_bytes == 512
    assert 0 < built.registers < 32
    assert (built.spill_bytes, built.stack_bytes) == (0, 0)
    assert [k.name for k in built.kernels] == ["tile"]


def test_spills_and_stack_are_seen() -> None:
    source = """extern "C" __global__ void __launch_bounds__(1024) many(float* x, int n) {
  float v[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) v[i] = x[i * 1024 + threadIdx.x];
  for (int k = 0; k < n; ++k) {
#pragma unroll
    for (int i = 0; i < 96; ++i) v[i] = v[i] * v[(i + 7) % 96] + v[(i + 13) % 96];
  }
#pragma unroll
  for (int i = 0; i < 96; ++i) x[i * 1024 + threadIdx.x] = v[i];
}
"""
    built = compile_cuda(source, name="many", arch="sm_80", headers={})
    assert built.registers == 64
    assert built.spill_bytes > 0
    assert built.stack_bytes > 0


def test_headers_come_from_memory() -> None:
    headers = {"scale.h": '#include "two.h"\n', "two.h": "#define TWO 2.0f\n"}
    source = '#include "scale.h"\n' + DOUBLE_IT.replace("2.0f", "TWO")
    built = compile_cuda(source, name="twice", arch="sm_80", headers=headers)
    assert built.warnings == ()


def test_the_current_folder_does_not_matter(tmp_path: Path) -> None:
    """The line table names folders: builds from two of them must agree, and see no stray header."""
    script = (
        "import hashlib, sys\nfrom fusec.run.binary.nvrtc import compile_cuda\n"
        f"text = '#include \"two.h\"\\n' + {DOUBLE_IT.replace('2.0f', 'TWO')!r}\n"
        "built = compile_cuda(text, name='twice', arch='sm_90a',"
        " headers={'two.h': '#define TWO 2.0f\\n'})\n"
        "print(hashlib.sha256(built.cubin).hexdigest())\n"
    )
    (tmp_path / "two.h").write_text("#error stray header\n")
    package = str(Path(version.__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": package}
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for folder in (tmp_path, Path("/"))
    }
    assert len(digests) == 1


def test_an_error_points_at_the_line() -> None:
    source = DOUBLE_IT + 'extern "C" __global__ void bad(float* x) {\n  x[0] = nothing;\n}\n'
    with pytest.raises(CompileError) as caught:
        compile_cuda(source, name="bad", arch="sm_80", headers={})
    error = caught.value
    span = error.diagnostic.span
    assert span is not None
    assert (span.file, span.line, span.column) == ("bad.cu", 3, 3)
    assert span.text == "  x[0] = nothing;"
    assert 'identifier "nothing" is undefined' in error.diagnostic.message
    assert 'bad.cu(3): error: identifier "nothing"' in error.log
    assert error.exit_code == 70


def test_an_unknown_architecture_is_the_environment() -> None:
    with pytest.raises(EnvironmentProblem, match="sm_999") as caught:
        compile_cuda(DOUBLE_IT, name="twice", arch="sm_999", headers={})
    assert "sm_90" in (caught.value.diagnostic.help or "")


def test_missing_nvrtc_is_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> object:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(version.importlib, "import_module", absent)
    version.bindings.cache_clear()
    try:
        with pytest.raises(EnvironmentProblem, match="NVRTC") as caught:
            compile_cuda(DOUBLE_IT, name="twice", arch="sm_80", headers={})
    finally:
        version.bindings.cache_clear()
    assert caught.value.exit_code == 4
    assert "pip install" in (caught.value.diagnostic.help or "")


def test_ptx_is_text() -> None:
    ptx = compile_ptx(DOUBLE_IT, name="twice", arch="sm_90a", headers={})
    assert ".visible .entry twice(" in ptx
    assert ".target sm_90a" in ptx
    assert not ptx.endswith("\0")


def test_sass_is_text() -> None:
    built = compile_cuda(DOUBLE_IT, name="twice", arch="sm_90a", headers={})
    assert "FADD" in sass(built.cubin)


def test_a_missing_tool_names_its_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("fusec.run.binary.sass._wheel_folders", lambda: iter(()))
    monkeypatch.setattr("fusec.run.binary.sass._installation_folders", lambda environment: iter(()))
    with pytest.raises(EnvironmentProblem, match="nvdisasm") as caught:
        find_tool("nvdisasm", {"PATH": str(tmp_path)})
    assert caught.value.diagnostic.help == "pip install nvidia-cuda-nvdisasm"


def test_a_tool_on_the_path_comes_first(tmp_path: Path) -> None:
    tool = tmp_path / "nvdisasm"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert find_tool("nvdisasm", {"PATH": str(tmp_path)}) == tool


def test_the_warnings_of_a_log() -> None:
    log = """ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async are serialized
ptxas info    : (C7517) warpgroup.wait is injected in around line 46 by compiler
ptxas info    : 8 bytes gmem, 24 bytes cmem[4]
k.cu(3): warning #177-D: variable "x" was declared but never referenced
"""
    first, second, _, last = log.splitlines()
    assert parse_warnings(log) == (first, second, last)


def test_the_first_error_of_the_file_itself() -> None:
    log = "types.cuh(4): error: in the header\nk.cu(9): error: in the kernel\n"
    assert first_error(log, "k.cu") == ("in the kernel", 9)
    assert first_error(log, "other.cu") == ("types.cuh: in the header", 0)
    assert first_error("", "k.cu") == ("no log", 0)
