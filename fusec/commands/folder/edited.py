"""Kernels of a compiled folder with a source that the user edited: rebuild and check them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fusec.commands.folder.records import KernelRecord
from fusec.commands.terminal.progress import build_progress
from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError, Span
from fusec.options import CompileOptions
from fusec.run.binary.kernel_parameters import sizes_taken
from fusec.run.binary.nvrtc import CompileError
from fusec.run.build import Artifact, Source, build
from fusec.run.cache import Cache


@dataclass(frozen=True)
class KernelFile:
    """A kernel of a compiled folder; edited: its source, or one of its headers, was changed.

    passed: the bytes of each argument of its launches.
    """

    record: KernelRecord
    path: Path
    source: Source
    edited: bool
    passed: tuple[int, ...]

    @property
    def name(self) -> str:
        """Return the kernel's name."""
        return self.record.name


def rebuild(
    kernels: Sequence[KernelFile], target: str, options: CompileOptions
) -> dict[tuple[str, str], Artifact]:
    """Return machine code for `target`, built from the source of kernels."""
    by_name = {k.name: k for k in kernels}
    cache = None if options.use_cache else Cache(None)
    sources = [k.source for k in kernels]
    try:
        with build_progress() as progress:
            built = build(sources, [target], options.jobs, cache=cache, progress=progress)
    except CompileError as error:
        failed = error.diagnostic.span.file.removesuffix(".cu") if error.diagnostic.span else ""
        edited = [by_name[failed]] if failed in by_name else kernels
        if not any(k.edited for k in edited):
            raise
        raise _broken_edit(edited, error.diagnostic.span, error.log) from None
    for (name, _), artifact in built.items():
        if f".text.{name}\0".encode() not in artifact.cubin:
            raise FusecError(
                f"`{by_name[name].path}` no longer defines the kernel `{name}`",
                help=f'keep `extern "C" __global__ void {name}(...)`',
            )
    return built


def check_parameters(kernel: KernelFile, cubin: bytes) -> None:
    """Raise FusecError if a kernel's parameters differ from the ones that its launch passes."""
    taken = sizes_taken(cubin, kernel.name)
    if taken is not None and taken != kernel.passed:
        raise FusecError(
            f"`{kernel.path}`: the parameters of `{kernel.name}` have {_bytes(taken)}, its launch "
            f"passes {_bytes(kernel.passed)}",
            help="keep the number, order and types of the parameters",
        )


def _bytes(sizes: Sequence[int]) -> str:
    return f"{', '.join(map(str, sizes)) or 'no'} bytes"


def _broken_edit(kernels: Sequence[KernelFile], span: Span | None, log: str) -> FusecError:
    """Return NVRTC's error for a source that the user edited, with its location in the folder."""
    path = str(kernels[0].path)
    if span is not None:
        span = Span(path, span.line, span.column, span.width, span.text)
    return FusecError(
        f"the edited `{path}` does not compile",
        span=span,
        notes=log.splitlines()[:40],
        help="fix the source, or compile the fusion into another folder",
    )
