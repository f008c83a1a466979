"""Runs a plan's kernels on the host, thread by thread: slow, but without a GPU.

Warps run ahead of each other and blocks run mixed, in an order drawn from a seed; `backwards` runs
the lanes of a warp in the other order. Asynchronous work is done when it is waited for, or
(`at_once`) when it is begun. Guard zones lie around every buffer and every array in shared memory.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from guards import Guarded
from paths import TESTS
from text_on_cpu import on_host

from fusec.codegen.dispatch import plan_sources
from fusec.codegen.parameters import parameters
from fusec.ir.evaluate import extents
from fusec.run.arrays import StridedArray, span
from fusec.run.binary.headers import device_headers
from fusec.run.launch import TENSOR_MAP_BYTES, aligned_block, tensor_map_operands
from fusec.schedule.plan import (
    Kernel,
    KernelPlan,
    ScalarArgument,
    SizeArgument,
    TensorMapArgument,
)

COMMON = ("-std=c++17", "-w", "-fPIC", "-fno-gnu-unique", "-fno-threadsafe-statics")
FLAGS = (
    *(*COMMON, "-Og"),  # of a kernel, which runs for less time than it is compiled
    # An index beyond a thread's own array is a trap, and so is a word beyond its own variable.
    *("-fsanitize=bounds,object-size", "-fsanitize-undefined-trap-on-error"),
    "-ftrivial-auto-var-init=pattern",
)
LIBRARY = (*COMMON, "-O3")
# Every load and store of a kernel calls read_of or note_write (memory_on_cpu.cpp).
ACCESSES = (
    "-fsanitize=kernel-address",
    "--param=asan-instrumentation-with-call-threshold=0",
    *("--param=asan-stack=0", "--param=asan-globals=0"),
)
COUNTED = "FUSEC_COUNT_LINES"
"""Set where kernels count how often each line runs, as lines_on_cpu.py reads it (gcov)."""
PARTS = (
    *("cuda", "contexts", "fibers", "memory", "releases", "proxies"),
    *("barriers", "copies", "tensors", "products"),
)
FOLDER = TESTS / "device"
SHARED = "FUSEC_TESTS_SHARED"
"""Names a folder that all processes of a run of the tests have; conftest.py sets it."""
KEPT = "FUSEC_TESTS_KEPT"
"""Names a folder that later runs of the tests have, too: in pytest's cache; conftest.py sets it."""
HEADERS = ("cuda_on_cpu.h", "ptx_on_cpu.h", "fibers_on_cpu.h")
SHARED_LIBRARY = "libcuda_on_cpu.so"
SOURCES = tuple(f"{name}_on_cpu.cpp" for name in PARTS)
INCLUDE = re.compile(r"^#include .*$", re.MULTILINE)
ASYNCHRONOUS = (
    "bulk_reduce",
    "cluster",
    "matmul_hopper",
    "matmul_semaphores",
    "mbarrier",
    "proxy",
    "tma",
    "attention",
    "attention_backward",
    "wgmma",
)
"""Headers with instructions of the asynchronous proxy."""


def run_plan(
    plan: KernelPlan,
    inputs: Mapping[str, Any],
    folder: Path,
    *,
    backwards: bool = False,
    at_once: bool = False,
    seed: int | None = None,
    edit: Callable[[str], str] = str,
    built: Sequence[Function] = (),
    offsets: Mapping[str, int] | None = None,
) -> dict[str, np.ndarray]:
    """Return the outputs of a plan's kernels; they and the headers are edited first.

    built: the kernels' functions, where they are built already; offsets: by name, how many bytes
    behind a multiple of 256 an input begins.

    Memory starts as 0xFF bytes. Each order of lanes has a seed of its own, so that two runs see
    two orders of warps.
    """
    sizes = dict(plan.fusion.hints)
    memory = Guarded()
    for entry in plan.fusion.inputs:
        if not entry.value.is_scalar:
            given = inputs[entry.value.name]
            assert isinstance(given, StridedArray)
            memory.add(entry.value.name, given.storage, (offsets or {}).get(entry.value.name, 0))
    for output in plan.fusion.outputs:
        if output.alias is None:
            steps = [s.evaluate(sizes) for s in plan.fusion.effects.strides(output.value)]
            count = span(extents(output.value.type, sizes), steps)
            memory.add(output.value.name, poisoned(count, output.value.dtype.numpy))
    for space in plan.workspaces:
        memory.add(space.name, poisoned(space.size.evaluate(sizes), space.dtype.numpy))
        if space.init != "none":
            memory[space.name][...] = 0
    order = Order(int(backwards) if seed is None else seed, backwards, at_once)
    functions = built or build_all(
        [(source.kernel, source.text) for source in plan_sources(plan)], folder, edit
    )
    for function in functions:
        launch(function, memory, inputs, sizes, order)
    for space in plan.workspaces:
        zeroed = space.init != "zeroed once" or not memory[space.name].any()
        assert zeroed, f"{order}: `{space.name}` is not zero for the next launch"
    results: dict[str, np.ndarray] = {}
    for output in plan.fusion.outputs:
        shape = extents(output.value.type, sizes)
        strides = tuple(s.evaluate(sizes) for s in plan.fusion.effects.strides(output.value))
        buffer = memory[output.alias or output.value.name]
        results[output.value.name] = StridedArray(buffer, shape, strides).array
    return results


def poisoned(count: int, dtype: Any) -> np.ndarray:
    """Return an array of 0xFF bytes."""
    kind = np.dtype(dtype)
    return np.full(count * kind.itemsize, 0xFF, np.uint8).view(kind)


@dataclass(frozen=True)
class Order:
    """In which order threads run."""

    seed: int = 0
    backwards: bool = False
    at_once: bool = False

    @property
    def options(self) -> int:
        """The bits of cpu::Options."""
        return self.backwards | self.at_once << 1


FIRST = Order()


def tensor_map(described: TensorMapArgument, address: int, sizes: Mapping[str, int]) -> Any:
    """Return a tensor map as the host reads it (Map in copies_on_cpu.cpp)."""
    given = tensor_map_operands(described, address, sizes)
    rank = len(given["extents"])
    missing = 4 - rank
    item = described.dtype.size
    swizzle = {"NONE": 0, "32B": 1, "64B": 3, "128B": 7}[described.swizzle]
    names = ("u8", "f64", "f32", "f16", "bf16", "i64", "i32", "u64", "u32", "TFLOAT32")
    name = described.data_type or described.dtype.name
    kind = names.index(name) if name in names else 0
    block = aligned_block(TENSOR_MAP_BYTES, 128)
    words = (ctypes.c_uint64 * 16).from_buffer(block)
    words[:] = (
        *(address, rank, item, swizzle, kind),
        *(*given["extents"], *[1] * missing),
        *(*given["strides"], *[0] * missing),
        *(*given["box"], *[1] * missing),
    )
    return block


def launch(
    function: Function,
    memory: Guarded,
    inputs: Mapping[str, Any],
    sizes: Mapping[str, int],
    order: Order,
) -> None:
    """Run one kernel on `memory`."""
    kernel = function.kernel
    values: list[Any] = []
    for argument in kernel.arguments:
        if isinstance(argument, SizeArgument):
            kind = ctypes.c_longlong if argument.wide else ctypes.c_int
            values.append(kind(argument.value.evaluate(sizes)))
        elif isinstance(argument, ScalarArgument):
            scalar = np.array([inputs[argument.name]], argument.dtype.numpy)
            values.append((ctypes.c_char * scalar.nbytes).from_buffer_copy(scalar.tobytes()))
        elif isinstance(argument, TensorMapArgument):
            address = memory[argument.buffer].ctypes.data
            values.append(tensor_map(argument, address, sizes))
        else:
            values.append(ctypes.c_void_p(memory[argument.name].ctypes.data))
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
    shape = (*(g.evaluate(sizes) for g in kernel.grid), *kernel.block)
    buffers = memory.buffers if kernel.overlapped else ()
    function(pointers, shape, kernel.shared_bytes, order, memory.zones, buffers)
    memory.check(f"{kernel.name}, {order}")


@dataclass(frozen=True)
class Function:
    """A kernel for the host."""

    kernel: Kernel
    library: ctypes.CDLL
    entry: Any
    proxies: bool

    def __call__(
        self,
        pointers: Any,
        shape: Sequence[int],
        shared_bytes: int,
        order: Order = FIRST,
        zones: Sequence[tuple[int, int]] = (),
        buffers: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Run the kernel; shape: its grid and its block. Fail where it hangs or breaks a rule.

        zones: where memory begins and ends that the kernel must not read; buffers: the same of what
        a thread of an overlapped kernel must not touch before it has waited.
        """
        for withhold, limits in (("forbid_reads", zones), ("withhold", buffers)):
            places = [place for limit in limits for place in limit]
            getattr(self.library, withhold)((ctypes.c_uint64 * len(places))(*places), len(limits))
        words = (ctypes.c_uint * 9)(*shape, *self.kernel.cluster)
        options = order.options | self.proxies << 2
        failure = self.entry(pointers, words, shared_bytes, order.seed, options)
        assert failure is None, f"{self.kernel.name}, {order}: {failure.decode()}"


@cache
def precompiled(compiler: str) -> tuple[Path, Path]:
    """Return header and library of what kernels share, compiled once until they change.

    Nine tenths of the time of a small kernel would go into them.
    """
    flags = (*FLAGS, *ACCESSES, *counting())
    texts = {name: (FOLDER / name).read_text() for name in (*HEADERS, *SOURCES)}
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True).stdout
    kept = Path(os.environ.get(KEPT) or shared_folder())
    digest = sha256(repr((texts, flags, LIBRARY, version, kept)).encode()).hexdigest()[:12]
    folder = kept / f"cuda_on_cpu_{digest}"
    header, shared = folder / HEADERS[0], folder / SHARED_LIBRARY
    with FileLock(f"{folder}.lock"):
        if shared.exists():
            forget_old(folder)
            return header, shared
        folder.mkdir(exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text)
        command = [compiler, *flags, "-x", "c++-header", str(header)]
        subprocess.run(command, check=True, cwd=folder)
        whole = folder / "whole.cpp"
        whole.write_text("".join(f'#include "{name}"\n' for name in (HEADERS[0], *SOURCES)))
        built = folder / "whole.so"  # under its name when it is whole
        options = (*LIBRARY, f"-I{folder}", "-shared", "-Wl,-Bsymbolic", "-o", str(built))
        subprocess.run([compiler, str(whole), *options], check=True)
        built.rename(shared)
    return header, shared


def forget_old(folder: Path) -> None:
    """Remove the kernels that no run of the tests has needed for a week."""
    limit = time.time() - 7 * 24 * 3600
    for library in folder.glob("*.so"):
        with suppress(FileNotFoundError):  # another process forgets it, too
            if library.name != SHARED_LIBRARY and library.stat().st_mtime < limit:
                library.unlink()


def counting() -> tuple[str, ...]:
    """Return the flags by which kernels count how often each line runs, if they are to."""
    return ("--coverage",) if os.environ.get(COUNTED) else ()


def shared_folder() -> Path:
    """Return a folder for the processes of one run of the tests, or for this one alone."""
    given = os.environ.get(SHARED)
    if given is not None:
        return Path(given)
    folder = Path(tempfile.mkdtemp(prefix="cuda_on_cpu."))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def hosted(name: str) -> str:
    """Return a device header for the host."""
    return on_host(device_headers()[name])


def build(kernel: Kernel, text: str, folder: Path, edit: Callable[[str], str] = str) -> Function:
    """Return a kernel's launch function, compiled for the host; it and its headers edited first.

    A folder is for one edit: what is compiled and loaded stays as it is.
    """
    return build_all([(kernel, text)], folder, edit)[0]


def build_all(
    kernels: Sequence[tuple[Kernel, str]], folder: Path, edit: Callable[[str], str] = str
) -> list[Function]:
    """Return the launch functions of kernels that are compiled together, which takes less time."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    if not kernels:
        return []
    for name, header in device_headers().items():
        target = folder / name
        if not target.exists():
            target.write_text(on_host(edit(header)) if edit is not str else hosted(name))
    header, _ = precompiled(compiler)
    texts = [edit(text) for _, text in kernels]
    includes = dict.fromkeys(line for text in texts for line in INCLUDE.findall(text))
    parts = [f'#include "{header}"', *includes]
    for number, ((kernel, _), text) in enumerate(zip(kernels, texts, strict=True)):
        parts += [
            f"namespace part{number} {{",
            f'#line 1 "{kernel.name}.cu"',
            on_host(INCLUDE.sub("", text).replace('extern "C" ', "")),
            "}",
        ]
        parts.append(_launcher(kernel, number))
    whole = "\n".join(parts)
    loaded = ctypes.CDLL(str(library_of(compiler, whole, folder, kernels[0][0].name)))
    return [_function(loaded, k, text, n) for n, (k, text) in enumerate(kernels)]


def library_of(compiler: str, text: str, folder: Path, name: str) -> Path:
    """Return the library of a text and the headers of a folder, compiled once until they change.

    What is loaded from a path stays: another text is another file. Where lines are counted, each
    test has files of its own, beside which the counts lie.
    """
    _, shared = precompiled(compiler)
    headers = [(p.name, p.read_bytes()) for p in sorted(folder.glob("*.cuh"))]
    digest = sha256(repr((text, headers)).encode()).hexdigest()[:16]
    place = folder if counting() else shared.parent
    library = place / f"{name}_{digest}.so"
    if library.exists():
        os.utime(library)
        return library
    source, built = folder / f"{name}_{digest}.cpp", folder / f"{name}_{digest}.built.so"
    source.write_text(text)
    # Libraries come with the shared one; to look for them takes a third of a small build.
    linked = [str(source), str(shared), "-shared", "-nodefaultlibs", "-Wl,-Bsymbolic"]
    command = [compiler, *FLAGS, *ACCESSES, *counting(), f"-I{folder}", *linked, "-o", str(built)]
    command += ["-lgcov"] if counting() else []
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    whole = place / f".{name}_{digest}.{os.getpid()}"
    shutil.copyfile(built, whole)
    whole.rename(library)  # under its name when it is whole
    return library


def _launcher(kernel: Kernel, number: int) -> str:
    kinds = [str(p).rsplit(" ", 1)[0].replace(" __restrict__", "") for p in parameters(kernel)]
    arguments = ", ".join(f"*static_cast<{kind}*>(a[{k}])" for k, kind in enumerate(kinds))
    arguments = re.sub(
        r"static_cast<(const )?([\w:]+)\*\*>", r"static_cast<\1\2* const*>", arguments
    )
    return (
        f'extern "C" const char* launch{number}(void** a, const unsigned* shape, unsigned bytes,\n'
        "                              unsigned seed, int options) {\n"
        f"  const auto body = [=] {{ part{number}::{kernel.name}({arguments}); }};\n"
        "  return cpu::run(shape, bytes, seed, options, body);\n}\n"
    )


def _function(loaded: ctypes.CDLL, kernel: Kernel, text: str, number: int) -> Function:
    entry = getattr(loaded, f"launch{number}")
    entry.restype = ctypes.c_char_p
    proxies = any(f'"{name}.cuh"' in text for name in ASYNCHRONOUS)
    return Function(kernel, loaded, entry, proxies)
