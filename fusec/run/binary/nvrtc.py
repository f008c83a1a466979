"""Compiles CUDA source to cubin or PTX with NVRTC, without include paths or files on disk.

cuda.bindings is imported on the first call only. NVRTC releases the GIL while it compiles, so
threads build in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from fusec.dataclasses import dataclass
from fusec.diagnostics import EnvironmentProblem, InternalError, Span
from fusec.properties import cached_property
from fusec.run.binary.compiler_log import first_error, parse_warnings
from fusec.run.binary.cubin import KernelStats, kernel_stats
from fusec.run.binary.headers import anchor_includes
from fusec.run.binary.version import bindings, compiler_version

# Line tables contain the folder of every file. A fixed folder instead of the current one makes
# cubins independent of the working directory.
_FOLDER = "/fusec/"
_STANDARD = "-std=c++17"
FLAGS = (_STANDARD, "-lineinfo")
"""Flags of every compilation to cubin."""


class CompileError(InternalError):
    """NVRTC rejected a kernel; `log` is its log.

    Generated source that does not compile is a bug of fusec. A caller that compiles user-edited
    source raises its own error from this one's span and log.
    """

    def __init__(
        self,
        message: str,
        *,
        span: Span | None = None,
        notes: Sequence[str] = (),
        help: str | None = None,
        log: str = "",
    ) -> None:
        """Store the full log in addition to the diagnostic."""
        super().__init__(message, span=span, notes=notes, help=help)
        self.log = log


@dataclass(frozen=True)
class Compiled:
    """A cubin, and the warnings of the compiler's log."""

    cubin: bytes
    warnings: tuple[str, ...] = ()

    @cached_property
    def kernels(self) -> tuple[KernelStats, ...]:
        """Return the statistics of each kernel in the cubin."""
        return kernel_stats(self.cubin)

    @property
    def registers(self) -> int:
        """Registers per thread, the maximum over kernels."""
        return max((k.registers for k in self.kernels), default=0)

    @property
    def spill_bytes(self) -> int:
        """Bytes of spill stores and loads, over all kernels."""
        return sum(k.spill_bytes for k in self.kernels)

    @property
    def stack_bytes(self) -> int:
        """Bytes of stack per thread, the maximum over kernels."""
        return max((k.stack_bytes for k in self.kernels), default=0)

    @property
    def shared_bytes(self) -> int:
        """Bytes of static shared memory per block, the maximum over kernels."""
        return max((k.shared_bytes for k in self.kernels), default=0)


def compile_cuda(
    source: str,
    *,
    name: str,
    arch: str,
    headers: Mapping[str, str],
    options: tuple[str, ...] = (),
) -> Compiled:
    """Return the cubin of `source` for `arch` (as `sm_90a`), with line information."""
    flags = (f"--gpu-architecture={arch}", *FLAGS, *options)
    cubin, log = _compile(source, name, headers, flags, "CUBIN")
    return Compiled(cubin, parse_warnings(log))


def compile_ptx(
    source: str,
    *,
    name: str,
    arch: str,
    headers: Mapping[str, str],
    options: tuple[str, ...] = (),
) -> str:
    """Return the PTX of `source` for `arch`; for reading, never for shipping."""
    virtual = arch.replace("sm_", "compute_")
    flags = (f"--gpu-architecture={virtual}", _STANDARD, *options)
    ptx, _ = _compile(source, name, headers, flags, "PTX")
    return ptx.rstrip(b"\0").decode()


def least_driver(compiler: str) -> int:
    """Return the minimum CUDA version of drivers for code built by `nvrtc 13.0.88`: 13000.

    Any driver of the same major version loads it (CUDA's minor version compatibility).
    """
    return int(compiler.split()[-1].partition(".")[0]) * 1000


@cache
def supported_architectures() -> tuple[int, ...]:
    """Return the compute capabilities that this NVRTC builds for: 80, 90, ..."""
    _, archs = bindings().nvrtcGetSupportedArchs()
    return tuple(archs)


@cache
def _usual() -> tuple[str, ...]:
    """Return the flags of every compilation that this NVRTC supports.

    `--minimal` disables what kernels never use: textures, the CUDA runtime's functions. NVRTC's own
    cache is disabled: kernels found there come without ptxas warnings.
    """
    _, major, minor = bindings().nvrtcVersion()
    known = {"--minimal": (12, 4), "--no-cache": (12, 9)}
    return tuple(flag for flag, since in known.items() if (major, minor) >= since)


def _compile(
    source: str, name: str, headers: Mapping[str, str], flags: Sequence[str], kind: str
) -> tuple[bytes, str]:
    """Run one NVRTC program and return its image and log."""
    nvrtc = bindings()
    flags = (*flags, *_usual())
    texts = [anchor_includes(text, headers, _FOLDER).encode() for text in headers.values()]
    result, program = nvrtc.nvrtcCreateProgram(
        anchor_includes(source, headers, _FOLDER).encode(),
        f"{_FOLDER}{name}.cu".encode(),
        len(texts),
        texts,
        [f"{_FOLDER}{header}".encode() for header in headers],
    )
    _check(nvrtc, result, name)
    try:
        (result,) = nvrtc.nvrtcCompileProgram(program, len(flags), [f.encode() for f in flags])
        log = _read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        text = log.rstrip(b"\0").decode(errors="replace").replace(_FOLDER, "").strip()
        if int(result) == int(nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION):
            raise EnvironmentProblem(
                f"{compiler_version()} does not accept {' '.join(flags)}",
                notes=text.splitlines(),
                help=f"it builds for {', '.join(f'sm_{a}' for a in supported_architectures())}",
            )
        if int(result) != 0:
            raise _compile_error(source, name, flags, text)
        size = getattr(nvrtc, f"nvrtcGet{kind}Size")
        return _read(size, getattr(nvrtc, f"nvrtcGet{kind}"), program), text
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _compile_error(source: str, name: str, flags: Sequence[str], log: str) -> CompileError:
    """Return the error with the span of the first line that NVRTC rejects."""
    what, line = first_error(log, f"{name}.cu")
    span = None
    if line:
        lines = source.splitlines()
        text = lines[line - 1] if line <= len(lines) else ""
        column = len(text) - len(text.lstrip()) + 1
        span = Span(f"{name}.cu", line, column, max(1, len(text.strip())), text)
    return CompileError(
        f"NVRTC cannot compile {name}.cu: {what}",
        span=span,
        notes=[*log.splitlines()[:40], f"flags: {' '.join(flags)}"],
        log=log,
    )


def _read(size: Callable[..., Any], content: Callable[..., Any], program: Any) -> bytes:
    """Read one sized buffer of a program."""
    _, count = size(program)
    buffer = bytearray(count)
    content(program, buffer)
    return bytes(buffer)


def _check(nvrtc: Any, result: Any, name: str) -> None:
    """Raise on any other failure of NVRTC."""
    if int(result) != 0:
        _, text = nvrtc.nvrtcGetErrorString(result)
        raise CompileError(f"NVRTC failed on {name}.cu: {text.decode()}")
