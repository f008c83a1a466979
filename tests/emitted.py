"""Emitted C, compiled and run on the stand-in for libcuda, whose kernels the host emulates."""

from __future__ import annotations

import atexit
import ctypes
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import cuda_on_cpu
import numpy as np
import pytest
from named_kernels import named_kernels
from paths import TESTS

from fusec import driver
from fusec.emit.c import files_of, view_of
from fusec.emit.view import ProgramView
from fusec.hostir.instructions import Launch
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.run.arrays import StridedArray
from fusec.run.binary.kernel_parameters import sizes_passed
from fusec.run.inputs import choose_sizes
from fusec.run.launch import pack_arguments
from fusec.schedule.plan import TensorArgument, TensorMapArgument, WorkspaceArgument
from fusec.variants import compile_variants, variants

FAKE = TESTS / "fake_cuda"
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")
HOOK = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint), ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
)  # fmt: skip


def compile_c(*arguments: object, compiler: str = "gcc") -> None:
    """Run a C compiler; any warning of strict flags fails."""
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    command = [compiler, "-O1", "-fPIC", f"-I{FAKE}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@cache
def stand_in() -> Path:
    """Return the stand-in for libcuda, built once a process; that for libnccl lies beside it."""
    folder = Path(mkdtemp(prefix="fake_cuda."))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, *link in (("cuda", "-lpthread"), ("nccl", f"-L{folder}", "-lcuda")):
        source, library = FAKE / f"fake_{name}.c", folder / f"lib{name}.so"
        shared = ("-shared", f"-Wl,-soname,lib{name}.so")
        flags = ("-std=c11", *STRICT, "-D_GNU_SOURCE", *shared)
        compile_c(*flags, source, *link, "-o", library)
    return folder / "libcuda.so"


def link_flags(*, ranks: bool) -> tuple[str, ...]:
    """Return what links a program with the stand-ins."""
    folder = stand_in().parent
    nccl = ("-lnccl",) if ranks else ()
    return (f"-L{folder}", *nccl, "-lcuda", f"-Wl,-rpath,{folder}")


class FakeCuda:
    """The stand-in: its own functions and those of the driver."""

    def __init__(
        self, capability: int = 90, driver: int = 13000, device: int = 0, *, new: bool = True
    ) -> None:
        """Start as new, on a GPU and with a driver, in a current context and with a stream.

        new: whether nothing is kept of others, those of other devices, too.
        """
        self.library = ctypes.CDLL(str(stand_in()), mode=ctypes.RTLD_GLOBAL)
        self.library.fake_cuda_complaint.restype = ctypes.c_char_p
        self.library.fake_cuda_end_capture.restype = ctypes.c_bool
        if new:
            self.library.fake_cuda_reset(driver, capability)
        self._context, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        self("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self.use()
        self("cuStreamCreate", ctypes.byref(self.stream), 1)

    def use(self) -> None:
        """Make the device's context the current one of this thread."""
        self("cuCtxSetCurrent", self._context)

    def defer(self, seed: int) -> None:
        """Let streams run late from now on, in an order drawn from a seed."""
        self.library.fake_cuda_defer(ctypes.c_ulonglong(seed * 2 + 1))

    def synchronise(self) -> None:
        """Wait for the stream."""
        self("cuStreamSynchronize", self.stream)

    def __call__(self, function: str, *arguments: Any) -> None:
        """Call a driver function, which must succeed."""
        assert getattr(self.library, function)(*arguments) == 0, function

    @property
    def complaint(self) -> str:
        """The first rule that was broken, if any."""
        return self.library.fake_cuda_complaint().decode()

    def count(self, what: str) -> int:
        """Return how many launches, calls, modules or blocks of memory there are."""
        return getattr(self.library, f"fake_cuda_{what}")()

    def allocate(self, size: int, offset: int = 0) -> int:
        """Return the address of fresh memory of 0xFF bytes; NULL for none."""
        address = ctypes.c_ulonglong()
        if size == 0:
            return 0
        self("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size + offset))
        return address.value + offset

    def kernel(self, launch: Launch) -> None:
        """Tell what parameters a kernel takes."""
        sizes = sizes_passed(launch.arguments)
        values = (ctypes.c_int * max(1, len(sizes)))(*sizes)
        self.library.fake_cuda_kernel(launch.kernel.encode(), len(sizes), values)


def compiled(fusion: Fusion, *targets: str) -> driver.Package:
    """Return a fusion compiled for targets, sm_80 where none are named."""
    return compiled_for(fusion, {}, *targets)


def compiled_for(
    fusion: Fusion, sizes: Mapping[str, Sequence[int]], *targets: str
) -> driver.Package:
    """Return a fusion planned for all of some sizes, with names in the place of machine code.

    The stand-in runs kernels by their names; test_emit_files.py compiles them.
    """
    pytest.importorskip("cuda.bindings.nvrtc")
    options = CompileOptions(targets=targets or ("sm_80",), targets_given=True)
    with named_kernels():
        return compile_variants(variants(driver.Compilation(fusion, options), sizes))


_KINDS = {
    "double": ctypes.c_double, "float": ctypes.c_float, "bool": ctypes.c_bool,
    **{f"int{n}_t": getattr(ctypes, f"c_int{n}") for n in (8, 16, 32, 64)},
    **{f"uint{n}_t": getattr(ctypes, f"c_uint{n}") for n in (8, 16, 32, 64)},
}  # fmt: skip


class Workspace(ctypes.Structure):
    """NAME_workspace."""

    _fields_ = (
        ("memory", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("zeroed", ctypes.c_size_t),
        ("streams", ctypes.c_void_p),
    )


@dataclass
class Launched:
    """A launch as the stand-in saw it."""

    kernel: str
    image: int
    shape: tuple[int, ...]
    stream: int
    parameters: Any


class Emitted:
    """A package's C library, loaded with the stand-in."""

    def __init__(
        self,
        package: driver.Package,
        folder: Path,
        *,
        number: int = 0,
        edit: Callable[[str], str] = str,
    ) -> None:
        """Compile and load it.

        number: of the program that the stand-in's GPU gets. edit: changes the C source before.
        """
        self.view: ProgramView = view_of(package)
        self.package, self.program = package, package.programs[number]
        for path, content in files_of(self.view).items():
            (folder / path).write_bytes(content)
        name = self.view.name
        source, library = folder / f"{name}.c", folder / f"lib{name}.so"
        source.write_text(edit(source.read_text()))
        link = link_flags(ranks=bool(self.view.axes))
        compile_c("-std=c11", *STRICT, "-shared", source, *link, "-o", library)
        self.path, self.library = library, ctypes.CDLL(str(library))
        self.function("error_text").restype = ctypes.c_char_p
        sizes = [(s.name, ctypes.c_int64) for s in self.view.sizes] or [("none", ctypes.c_int64)]
        self.Sizes = type("Sizes", (ctypes.Structure,), {"_fields_": sizes})
        fields = [
            (f.name, ctypes.c_void_p if f.type.endswith("*") else _KINDS[f.type])
            for f in self.view.fields
        ]
        ranks = [(axis.name, ctypes.c_void_p) for axis in self.view.axes]
        self.Ranks = type("Ranks", (ctypes.Structure,), {"_fields_": ranks})
        members = [("sizes", self.Sizes), *([("ranks", self.Ranks)] if ranks else []), *fields]
        self.Arguments = type("Arguments", (ctypes.Structure,), {"_fields_": members})

    def function(self, name: str) -> Any:
        """Return NAME_... of the library."""
        return getattr(self.library, f"{self.view.name}_{name}")

    def create(self) -> ctypes.c_void_p:
        """Return a program in the current context."""
        program = ctypes.c_void_p()
        error = self.function("create")(ctypes.byref(program))
        assert error == 0, self.text(error)
        return program

    def text(self, error: int) -> str:
        """Return what an error says."""
        return self.function("error_text")(error).decode()

    def sizes(self, sizes: Mapping[str, int]) -> Any:
        """Return sizes as the struct of the library."""
        return self.Sizes(*(sizes[s.symbol] for s in self.view.sizes))

    def workspace(self, cuda: FakeCuda, program: Any, sizes: Mapping[str, int]) -> Workspace:
        """Return a fresh workspace of just the size that is asked for."""
        space, given = Workspace(), self.sizes(sizes)
        size = ctypes.c_size_t()
        error = self.function("workspace_bytes")(program, ctypes.byref(given), ctypes.byref(size))
        assert error == 0, self.text(error)
        space.bytes, space.memory = size.value, cuda.allocate(size.value)
        if self.view.streams:
            streams = ctypes.c_void_p()
            error = self.function("streams_create")(ctypes.byref(streams))
            assert error == 0, self.text(error)
            space.streams = streams.value
        return space


@dataclass
class Called:
    """Memory and arguments of calls at some sizes; keeps what each launch passed."""

    emitted: Emitted
    cuda: FakeCuda
    inputs: Mapping[str, Any]
    given: Mapping[str, int] | None = None
    folder: Path | None = None
    launched: list[str] = field(default_factory=list[str])
    images: list[bytes] = field(default_factory=list[bytes])

    def __post_init__(self) -> None:
        """Give tensors memory, and scalars their values."""
        host = self.emitted.program.host
        self.sizes = self.given or choose_sizes(self.emitted.program.original)
        self.addresses: dict[str, int] = {}
        self.arguments = self.emitted.Arguments(sizes=self.emitted.sizes(self.sizes))
        for each in self.emitted.view.fields:
            if each.type.endswith("*"):
                if each.given:
                    self.addresses[each.source] = self._memory(each.source)
                    setattr(self.arguments, each.name, self.addresses[each.source])
            else:
                scalar = next(s for s in host.scalars if s.name == each.source)
                value = self.inputs[scalar.of or scalar.name]
                value = getattr(value, scalar.part) if scalar.of else value
                if each.dtype.is_half:
                    kind = np.uint16 if each.dtype.size == 2 else np.uint8
                    value = int(np.asarray(value).astype(each.dtype.numpy).view(kind))
                setattr(self.arguments, each.name, value)
        for launch in host.launches:
            self.cuda.kernel(launch)
        self._hook = HOOK(self._launch)
        self.cuda.library.fake_cuda_hook(self._hook)
        self.failures: list[BaseException] = []
        self.functions: dict[str, Any] = {}

    def _memory(self, name: str) -> int:
        host = self.emitted.program.host
        buffer = host.buffer[name]
        given = self.inputs.get(name)
        if isinstance(given, StridedArray):
            address = self.cuda.allocate(given.storage.nbytes)
            ctypes.memmove(address, given.storage.ctypes.data, given.storage.nbytes)
            return address
        count = int(np.prod([d.evaluate(self.sizes) for d in buffer.shape]))
        return self.cuda.allocate(count * buffer.dtype.size)

    def _launch(self, name: bytes, image: int, shape: Any, stream: int, parameters: Any) -> None:
        try:
            # Segments that launch one kernel do in turn.
            kernel = name.decode()
            of = [x for x in self.emitted.program.host.launches if x.kernel == kernel]
            launch = of[self.launched.count(kernel) % len(of)]
            self._check_image(launch.kernel, image)
            self._check(launch, stream, parameters)
            self.launched.append(launch.kernel)
            if self.folder is not None:
                self._run(launch, shape, parameters)
        except BaseException as failure:  # kept: it cannot pass through C
            self.failures.append(failure)

    def _check_image(self, kernel: str, image: int) -> None:
        package = self.emitted.package
        cubins = [
            a.cubin
            for (name, arch), a in package.artifacts.items()
            if name == kernel and arch in self.emitted.program.targets
        ]
        found = [c for c in cubins if ctypes.string_at(image, len(c)) == c]
        assert found
        self.images.append(found[0])

    def _check(self, launch: Launch, stream: int, parameters: Any) -> None:
        assert stream == self.cuda.stream.value
        self._check_parameters(launch, parameters)

    def _check_parameters(self, launch: Launch, parameters: Any) -> None:
        """Compare every byte with what fusec's own launcher passes."""
        maps: dict[str, Any] = {}
        for argument, place in zip(launch.arguments, parameters, strict=False):
            if isinstance(argument, (TensorArgument, WorkspaceArgument)):
                address = ctypes.c_uint64.from_address(place).value
                assert self.addresses.setdefault(argument.name, address) == address
            elif isinstance(argument, TensorMapArgument):
                held = ctypes.c_uint64.from_address(place).value
                address = self.addresses.setdefault(argument.buffer, held)
                maps[argument.name] = cuda_on_cpu.tensor_map(argument, address, self.sizes)
        scalars = dict(self.inputs) | {
            s.name: getattr(self.inputs[s.of], s.part)
            for s in self.emitted.program.host.scalars
            if s.of
        }
        packed = pack_arguments(launch.arguments, self.sizes, self.addresses, scalars, maps)
        for number, value in enumerate(packed.values):
            found = ctypes.string_at(parameters[number], ctypes.sizeof(value))
            assert found == bytes(value), f"{launch.kernel}, parameter {number}"

    def _run(self, launch: Launch, shape: Any, parameters: Any) -> None:
        assert self.folder is not None
        if launch.kernel not in self.functions:
            sources = self.emitted.program.kernel_sources
            source = next(s for s in sources if s.name == launch.kernel)
            built = cuda_on_cpu.build(source.kernel, source.text, self.folder)
            self.functions[launch.kernel] = built
        given = (ctypes.c_void_p * len(launch.arguments))(*parameters[: len(launch.arguments)])
        self.functions[launch.kernel](given, tuple(shape[:6]), shape[9])

    def run(self, program: Any, workspace: Workspace | None) -> int:
        """Run once on the stand-in's stream, and return the error."""
        space = None if workspace is None else ctypes.byref(workspace)
        run = self.emitted.function("run")
        error = run(program, self.cuda.stream, ctypes.byref(self.arguments), space)
        for failure in self.failures:
            raise failure
        assert not self.cuda.complaint, self.cuda.complaint
        return error

    def output(self, name: str) -> np.ndarray:
        """Return what lies in an output, in place or its own."""
        host = self.emitted.program.host
        buffer, into = host.buffer[name], dict(host.aliases)
        views = {f.source: f.name for f in self.emitted.view.fields if not f.given}
        address = (
            getattr(self.arguments, views[name])
            if name in views
            else self.addresses[into.get(name, name)]
        )
        shape, strides = (
            tuple(d.evaluate(self.sizes) for d in dims) for dims in (buffer.shape, buffer.strides)
        )
        reach = 1 + sum((e - 1) * s for e, s in zip(shape, strides, strict=True))
        raw = ctypes.string_at(address, reach * buffer.dtype.size) if 0 not in shape else b""
        return StridedArray(np.frombuffer(raw, buffer.dtype.numpy), shape, strides).array
