"""What is read from cubins: the numbers that the assembler reports, whether or not it says them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT, TESTS

from fusec import driver
from fusec.options import CompileOptions
from fusec.run.binary import nvrtc
from fusec.run.binary.cubin import KernelStats, kernel_stats
from fusec.run.binary.nvrtc import compile_cuda
from fusec.run.build import Artifact
from fusec.run.spills import SPILL_LIMIT

pytest.importorskip("cuda.bindings.nvrtc")
SPILLING = TESTS / "regressions" / "quotients_beside_kept_columns.yaml"

PLAIN = 'extern "C" __global__ void plain(float* x) { x[threadIdx.x] *= 2.0f; }\n'
MANY = """extern "C" __global__ void __launch_bounds__(1024) many(T* x, int n) {
  T v[96];
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
STACK = """extern "C" __global__ void chosen(float* x, int n) {
  __shared__ float cells[96];
  float own[256];
#pragma unroll 1
  for (int i = 0; i < 256; ++i) own[i] = x[i] * x[i + n];
  cells[threadIdx.x % 96] = own[n];
  __syncthreads();
  own[n] = cells[n];
  x[threadIdx.x] = own[int(x[7])];
}
"""
CALLING = """__device__ __noinline__ float helper(const float* x, int n) {
  float v[40];
#pragma unroll
  for (int i = 0; i < 40; ++i) v[i] = x[i * 33];
  for (int k = 0; k < n; ++k) {
#pragma unroll
    for (int i = 0; i < 40; ++i) v[i] = v[i] * v[(i + 7) % 40] + v[(i * 3 + 1) % 40];
  }
  float s = 0;
#pragma unroll
  for (int i = 0; i < 40; ++i) s += v[i];
  return s;
}
extern "C" __global__ void __launch_bounds__(1024, 2) first(float* x, int n) { *x = helper(x, n); }
extern "C" __global__ void second(float* x, int n) { *x += helper(x + 1, n); }
"""
SOURCES = {
    "plain": PLAIN,
    "spills": "using T = float;\n" + MANY,
    "spilled doubles": "using T = double;\n" + MANY,
    "stack": STACK,
    "calls": CALLING,
}


def reported(log: str) -> dict[str, KernelStats]:
    """Return what `ptxas -v` says of each kernel, those of functions that it calls included."""
    found: dict[str, KernelStats] = {}
    for part in log.split("Compiling entry function '")[1:]:
        name = part.partition("'")[0]
        spills = re.findall(r"(\d+) bytes spill (?:stores|loads)", part)
        frames = re.findall(r"(\d+) bytes stack frame", part)
        shared = re.findall(r"(\d+) bytes smem", part)
        found[name] = KernelStats(
            name,
            registers=int(re.findall(r"Used (\d+) registers", part)[0]),
            stack_bytes=max(map(int, frames)),
            spill_bytes=sum(map(int, spills)),
            shared_bytes=int(shared[0]) if shared else 0,
        )
    return found


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_100", "sm_120"])
@pytest.mark.parametrize("kind", SOURCES)
def test_a_cubin_says_what_the_assembler_reports(kind: str, arch: str) -> None:
    flags = (f"--gpu-architecture={arch}", "-std=c++17", "-lineinfo", "--ptxas-options=-v")
    cubin, log = nvrtc._compile(SOURCES[kind], "k", {}, flags, "CUBIN")
    stats = {s.name: s for s in kernel_stats(cubin)}
    assert stats == reported(log)
    assert list(stats) == sorted(stats)
    if kind in ("spills", "spilled doubles"):
        assert all(s.spill_bytes > SPILL_LIMIT and s.stack_bytes for s in stats.values())
    if kind == "stack":
        assert stats["chosen"].stack_bytes >= 1024
        assert stats["chosen"].shared_bytes == 96 * 4


@pytest.mark.parametrize("content", [b"", b"\x7fELF\n\0cubin", b"\x7fELF\x02\x01" + b"\xff" * 60])
def test_what_is_no_cubin(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"cubin|ELF"):
        kernel_stats(content)


def test_a_truncated_cubin() -> None:
    cubin = compile_cuda(PLAIN, name="plain", arch="sm_90a", headers={}).cubin
    tables = int.from_bytes(cubin[0x28:0x30], "little")
    for size in range(0, tables, 97):
        with pytest.raises(ValueError, match=r"cubin|ELF|subsection"):
            kernel_stats(cubin[:size])


# --- the log is empty for what NVRTC finds in a cache of its own -------------------------------


class Silent:
    """NVRTC as it is when its own cache holds the kernel: the same cubin, and an empty log."""

    def __init__(self, bindings: Any) -> None:
        self._bindings = bindings

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bindings, name)

    def nvrtcGetProgramLogSize(self, program: Any) -> tuple[Any, int]:
        return self._bindings.nvrtcResult.NVRTC_SUCCESS, 1

    def nvrtcGetProgramLog(self, program: Any, buffer: bytearray) -> None:
        buffer[:] = b"\0"


def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    bindings = nvrtc.bindings()
    monkeypatch.setattr(nvrtc, "bindings", lambda: Silent(bindings))


def facts(artifact: Artifact) -> tuple[object, ...]:
    return (
        artifact.cubin,
        artifact.registers,
        artifact.spill_bytes,
        artifact.stack_bytes,
        artifact.shared_bytes,
        artifact.warnings,
    )


def test_an_empty_log_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SOURCES["spills"]
    told = compile_cuda(source, name="many", arch="sm_90a", headers={})
    silence(monkeypatch)
    untold = compile_cuda(source, name="many", arch="sm_90a", headers={})
    assert untold.kernels == told.kernels
    assert (untold.registers, untold.cubin) == (told.registers, told.cubin)
    assert untold.spill_bytes > SPILL_LIMIT


def test_an_empty_log_does_not_hide_what_is_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    options = CompileOptions(targets=("sm_90a",), targets_given=True, use_cache=False)
    planned = driver.plan(driver.load(str(SPILLING)), options)
    told = driver.build(planned)
    silence(monkeypatch)
    untold = driver.build(planned)
    assert told.program.plans != planned.plans
    assert untold.program.plans == told.program.plans
    assert untold.program.host == told.program.host
    assert {k: facts(a) for k, a in untold.artifacts.items()} == {
        k: facts(a) for k, a in told.artifacts.items()
    }


BUILD = """
import sys
from fusec import driver
from fusec.options import CompileOptions
from fusec.run.binary import nvrtc

if sys.argv[2] == "with NVRTC's cache":
    nvrtc._usual = lambda: ("--minimal",)
options = CompileOptions(targets=("sm_90a",), targets_given=True, use_cache=False)
compiled = driver.build(driver.plan(driver.load(sys.argv[1]), options))
for (name, arch), a in compiled.artifacts.items():
    print(name, arch, a.registers, a.spill_bytes, a.stack_bytes, a.shared_bytes, a.cubin.hex())
print([plan.parameters for plan in compiled.program.plans])
"""


def build_in_a_process(how: str, own_cache: Path) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "CUDA_CACHE_PATH": str(own_cache),
        "CUDA_CACHE_DISABLE": "0",
    }
    command = [sys.executable, "-c", BUILD, str(SPILLING), how]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.nightly
def test_two_processes_build_the_same(tmp_path: Path) -> None:
    first, second = (build_in_a_process("as usual", tmp_path) for _ in range(2))
    assert first == second


@pytest.mark.gpu
@pytest.mark.skipif(bool(os.environ.get("FUSEC_GPU_DRY")), reason="needs a GPU")
def test_two_processes_build_the_same_with_a_warm_cache_of_nvrtc(tmp_path: Path) -> None:
    """NVRTC caches through the driver: without one it builds everything again."""
    plain = build_in_a_process("as usual", tmp_path)
    cold, warm = (build_in_a_process("with NVRTC's cache", tmp_path) for _ in range(2))
    assert plain == cold == warm
