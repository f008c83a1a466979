"""Runs a plan's kernels on the host, thread by thread: slow, but without a GPU.

`backwards` runs the threads of a block in the other order between barriers, which shows races;
copies from global to shared memory are done when they are waited for, or (`at_once`) when they are
begun.
"""

from __future__ import annotations

import atexit
import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fusec.codegen.dispatch import plan_sources
from fusec.codegen.render import parameters
from fusec.ir.evaluate import extents
from fusec.run.arrays import StridedArray
from fusec.run.headers import device_headers
from fusec.schedule.layout import output_strides_in
from fusec.schedule.plan import Kernel, KernelPlan, ScalarArgument, SizeArgument

FLAGS = ("-std=c++17", "-O1", "-w", "-fPIC", "-fno-gnu-unique")
HEADER = Path(__file__).parent / "device" / "cuda_on_cpu.h"
MMA = Path(__file__).parent / "device" / "mma_on_cpu.h"
ASYNC_COPY = """#pragma once
namespace fusec {
inline void copy_async_16(void* to, const void* from, bool inside = true) {
  cpu::copy(to, from, 16, inside ? 16 : 0);
}
template <int kBytes>
void copy_async(void* to, const void* from, bool inside) {
  cpu::copy(to, from, kBytes, inside ? kBytes : 0);
}
inline void copy_commit() { cpu::commit(); }
template <int kPending>
void copy_wait() {
  cpu::wait_copies(kPending);
}
}  // namespace fusec
"""
# What an inline PTX instruction does, in terms of the C++ operands that follow it.
INSTRUCTIONS = {
    "mov.b32 %0, {%1, %2}": "result = cpu::bf16_to_float(value.bits);",
    "cvt.f32.f16 %0, %1": "result = cpu::f16_to_float(value.bits);",
    "cvt.rn.f16.f32 %0, %1": "result.bits = cpu::float_to_f16(value);",
    "cvt.rn.bf16.f32 %0, %1": "result.bits = cpu::float_to_bf16(value);",
    "div.full.f32 %0, %1, %2": "quotient = a / b;",
    "ld.acquire.gpu.global.u32 %0, [%1]": "value = *flag;",
    "st.release.gpu.global.u32 [%0], %1": "*flag = value;",
    "atom.add.acq_rel.gpu.global.u32 %0, [%1], %2": "before = *flag; *flag += amount;",
    "atom.inc.acq_rel.gpu.global.u32 %0, [%1], %2": (
        "before = *counter; *counter = before + 1 >= count ? 0 : before + 1;"
    ),
    "cp.async.cg.shared.global [%0], [%1], 16, %2": "cpu::copy(shared, global, 16, bytes);",
    "max.NaN.f32 %0, %1, %2": "result = cpu::max_nan(a, b);",
    "min.NaN.f32 %0, %1, %2": "result = cpu::min_nan(a, b);",
}
DECODE = r"\1 = cpu::f16_to_float(half_bits);"
ASM = re.compile(r'asm(?: volatile)?\(\s*"([^;"]*);?".*?\);', re.DOTALL)


def on_host(text: str) -> str:
    """Return CUDA text with inline PTX replaced."""
    text = text.replace(
        "extern __shared__ __align__(16) char shared_memory[];",
        "char* shared_memory = cpu::shared;",
    )
    text = text.replace(
        "extern __shared__ __align__(16) unsigned char shared[];",
        "auto* shared = reinterpret_cast<unsigned char*>(cpu::shared);",
    )
    return ASM.sub(lambda m: INSTRUCTIONS.get(m[1], f'cpu::missing("{m[1]}");'), text)


def host_header(name: str, text: str) -> str:
    """Return a device header for the host."""
    if name == "async_copy.cuh":
        return ASYNC_COPY
    if name == "mma.cuh":
        return MMA.read_text()
    if name == "fp8.cuh":
        text = re.sub(r'asm\("cvt.f32.f16[^=]*"=f"\((\w+)\)[^;]*;', DECODE, text)
    return on_host(text)


def run_plan(
    plan: KernelPlan,
    inputs: Mapping[str, Any],
    folder: Path,
    *,
    backwards: bool = False,
    at_once: bool = False,
    edit: Callable[[str], str] = str,
) -> dict[str, np.ndarray]:
    """Return the outputs of a plan's kernels, edited first; memory starts as 0xFF bytes."""
    sizes = dict(plan.fusion.hints)
    memory: dict[str, np.ndarray] = {}
    for entry in plan.fusion.inputs:
        if not entry.value.is_scalar:
            given = inputs[entry.value.name]
            assert isinstance(given, StridedArray)
            memory[entry.value.name] = given.storage.copy()
    for output in plan.fusion.outputs:
        if output.alias is None:
            count = int(np.prod(extents(output.value.type, sizes), dtype=np.int64))
            memory[output.value.name] = poisoned(count, output.value.dtype.numpy)
    for space in plan.workspaces:
        memory[space.name] = poisoned(space.size.evaluate(sizes), space.dtype.numpy)
        if space.init != "none":
            memory[space.name][...] = 0
    for kernel, source in zip(plan.kernels, plan_sources(plan), strict=True):
        launch(kernel, edit(source.text), memory, inputs, sizes, folder, backwards, at_once)
    results: dict[str, np.ndarray] = {}
    for output in plan.fusion.outputs:
        shape = extents(output.value.type, sizes)
        strides = tuple(s.evaluate(sizes) for s in output_strides_in(plan.fusion, output))
        buffer = memory[output.alias or output.value.name]
        results[output.value.name] = StridedArray(buffer, shape, strides).array
    return results


def poisoned(count: int, dtype: Any) -> np.ndarray:
    """Return an array of 0xFF bytes, aligned as GPU memory is."""
    kind = np.dtype(dtype)
    raw = np.full(count * kind.itemsize + 256, 0xFF, np.uint8)
    start = -raw.ctypes.data % 256
    return raw[start : start + count * kind.itemsize].view(kind)


def launch(
    kernel: Kernel,
    text: str,
    memory: dict[str, np.ndarray],
    inputs: Mapping[str, Any],
    sizes: Mapping[str, int],
    folder: Path,
    backwards: bool,
    at_once: bool,
) -> None:
    """Run one kernel on `memory`."""
    function = build(kernel, text, folder)
    values: list[Any] = []
    for argument in kernel.arguments:
        if isinstance(argument, SizeArgument):
            kind = ctypes.c_longlong if argument.wide else ctypes.c_int
            values.append(kind(argument.value.evaluate(sizes)))
        elif isinstance(argument, ScalarArgument):
            scalar = np.array([inputs[argument.name]], argument.dtype.numpy)
            values.append((ctypes.c_char * scalar.nbytes).from_buffer_copy(scalar.tobytes()))
        else:
            aligned = memory[argument.name]
            if aligned.ctypes.data % 256:
                copied = poisoned(aligned.size, aligned.dtype)
                copied[...] = aligned
                memory[argument.name] = aligned = copied
            values.append(ctypes.c_void_p(aligned.ctypes.data))
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
    shape = (ctypes.c_uint * 6)(*(g.evaluate(sizes) for g in kernel.grid), *kernel.block)
    function(pointers, shape, kernel.shared_bytes, int(backwards), int(at_once))


@cache
def precompiled(compiler: str) -> tuple[Path, Path]:
    """Return header and object file of what kernels share, both compiled once a process.

    Nine tenths of the time of a small kernel would go into them.
    """
    folder = Path(tempfile.mkdtemp(prefix="cuda_on_cpu."))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    header, shared = folder / HEADER.name, folder / "cuda_on_cpu.o"
    header.write_text(HEADER.read_text())
    subprocess.run([compiler, *FLAGS, "-x", "c++-header", str(header)], check=True)
    source = str(HEADER.with_suffix(".cpp"))
    subprocess.run([compiler, *FLAGS, "-c", source, "-o", str(shared)], check=True)
    return header, shared


def build(kernel: Kernel, text: str, folder: Path) -> Any:
    """Return a kernel's launch function, compiled for the host."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    for name, header in device_headers().items():
        target = folder / name
        if not target.exists():
            target.write_text(host_header(name, header))
    kinds = [p.rsplit(" ", 1)[0].replace(" __restrict__", "") for p in parameters(kernel)]
    arguments = ", ".join(f"*static_cast<{kind}*>(a[{k}])" for k, kind in enumerate(kinds))
    arguments = re.sub(
        r"static_cast<(const )?([\w:]+)\*\*>", r"static_cast<\1\2* const*>", arguments
    )
    header, shared = precompiled(compiler)
    source = folder / f"{kernel.name}.cpp"
    text = (
        f'#include "{header}"\n{on_host(text)}\n'
        'extern "C" void launch(void** a, const unsigned* shape, unsigned shared, int b, int o) {\n'
        f"  cpu::run(shape, shape + 3, shared, b, o, [=] {{ {kernel.name}({arguments}); }});\n}}\n"
    )
    library = source.with_suffix(".so")
    if library.exists() and source.read_text() == text:
        return ctypes.CDLL(str(library)).launch
    source.write_text(text)
    # Each library has fibers of its own.
    linked = [str(source), str(shared), "-shared", "-Wl,-Bsymbolic", "-o", str(library)]
    command = [compiler, *FLAGS, f"-I{folder}", *linked]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library)).launch
