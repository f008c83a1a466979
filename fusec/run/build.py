"""Builds kernels in parallel and through the cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import InternalError
from fusec.processors import usable_processors
from fusec.run.binary.headers import headers_for, with_included
from fusec.run.binary.nvrtc import FLAGS, Compiled, compile_cuda
from fusec.run.binary.version import compiler_version
from fusec.run.cache import Cache, entry_key, user_cache

if TYPE_CHECKING:
    from fusec.codegen.source import KernelSource


@dataclass(frozen=True)
class Source:
    """The CUDA source of one kernel file.

    headers: the sources of those that it includes; by default fusec's own headers that it names.
    """

    name: str
    text: str
    headers: Mapping[str, str] | None = None

    @classmethod
    def of(cls, kernel: KernelSource) -> Source:
        """Return the source of a generated kernel."""
        return cls(kernel.name, kernel.text, with_included(kernel.headers))


@dataclass(frozen=True)
class Artifact:
    """A built kernel file and its statistics; key: of its entry in the cache."""

    name: str
    arch: str
    cubin: bytes
    compiler: str
    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int
    cached: bool
    seconds: float
    warnings: tuple[str, ...] = ()
    key: str = ""


# A kernel's name and an architecture.
Key = tuple[str, str]
Futures = dict[Key, Future[Artifact]]
# Called after each artifact, with it, the number done, and the total number.
Progress = Callable[[Artifact, int, int], None]


def build(
    sources: Sequence[Source],
    archs: Sequence[str],
    jobs: int | None = None,
    *,
    options: tuple[str, ...] = (),
    cache: Cache | None = None,
    progress: Progress | None = None,
) -> dict[Key, Artifact]:
    """Return the artifact of every (name, arch), in the order of `sources`.

    After an error no further build starts; of several errors, the first in that order is raised.
    `cache` defaults to the user's; `Cache(None)` keeps nothing. `jobs` defaults to the number of
    processors available to this process.
    """
    cache = user_cache() if cache is None else cache
    wanted = {(source.name, arch): source for source in sources for arch in archs}
    if len(wanted) != len(sources) * len(archs):
        raise InternalError("two kernels of one build have the same name")
    workers = max(1, min(jobs or usable_processors(), len(wanted)))
    with ThreadPoolExecutor(workers, thread_name_prefix="fusec-build") as pool:
        futures = {
            key: pool.submit(_build_one, source, key[1], options, cache)
            for key, source in wanted.items()
        }
        try:
            for done, future in enumerate(as_completed(futures.values()), start=1):
                if future.exception() is not None:
                    break
                if progress is not None:
                    progress(future.result(), done, len(futures))
        finally:
            for future in futures.values():
                future.cancel()
    return {key: _result(future, futures) for key, future in futures.items()}


def _result(future: Future[Artifact], futures: Futures) -> Artifact:
    """Return the result; for a cancelled build, raise the error that cancelled it."""
    if future.cancelled():
        for other in futures.values():
            if not other.cancelled():
                other.result()
    return future.result()


def _build_one(source: Source, arch: str, options: tuple[str, ...], cache: Cache) -> Artifact:
    """Return one artifact, from the cache or from NVRTC."""
    start = time.perf_counter()
    headers = headers_for(source.text) if source.headers is None else source.headers
    compiler = compiler_version()
    key = entry_key(
        source=source.text,
        name=source.name,
        headers=headers,
        arch=arch,
        options=(*FLAGS, *options),
        compiler=compiler,
    )
    compiled = cache.load(key)
    cached = compiled is not None
    if compiled is None:
        with cache.building(key):
            compiled = cache.load(key)
            cached = compiled is not None
            if compiled is None:
                compiled = compile_cuda(
                    source.text, name=source.name, arch=arch, headers=headers, options=options
                )
                cache.store(key, compiled)
    artifact = artifact_of(source.name, arch, compiler, compiled)
    return replace(artifact, key=key, cached=cached, seconds=time.perf_counter() - start)


def artifact_of(name: str, arch: str, compiler: str, compiled: Compiled) -> Artifact:
    """Return the artifact of existing machine code."""
    return Artifact(
        name=name,
        arch=arch,
        cubin=compiled.cubin,
        compiler=compiler,
        registers=compiled.registers,
        spill_bytes=compiled.spill_bytes,
        stack_bytes=compiled.stack_bytes,
        shared_bytes=compiled.shared_bytes,
        cached=True,
        seconds=0.0,
        warnings=compiled.warnings,
    )
