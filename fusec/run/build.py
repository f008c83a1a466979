"""Kernels to artifacts, in parallel and through the cache."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fusec.diagnostics import InternalError
from fusec.processors import usable_processors
from fusec.run.cache import Cache, entry_key, user_cache
from fusec.run.cubin import renamed
from fusec.run.headers import headers_for
from fusec.run.nvrtc import FLAGS, Compiled, compile_cuda, compiler_version

if TYPE_CHECKING:
    from fusec.codegen.render import KernelSource


@dataclass(frozen=True)
class Source:
    """The CUDA text of one kernel file; headers: what it may include, by default fusec's own.

    digest: equal for sources that differ in names alone, so that one of them is built for all;
    empty for a source that is built for itself.
    """

    name: str
    text: str
    headers: Mapping[str, str] | None = None
    digest: str = ""

    @classmethod
    def of(cls, kernel: KernelSource) -> Source:
        """Return the source of a kernel that code generation made."""
        return cls(kernel.name, kernel.text, digest=kernel.digest)


@dataclass(frozen=True)
class Artifact:
    """A built kernel file and what is known about it."""

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


# A kernel's name and an architecture.
Key = tuple[str, str]
Futures = dict[Key, Future[Artifact]]
# Called after each artifact with it, how many are done, and how many there are.
Progress = Callable[[Artifact, int, int], None]


class Builder:
    """Builds kernels for some architectures; of those that differ in names alone, one for all.

    `cache` defaults to the user's; `Cache(None)` keeps nothing. `jobs` defaults to the processors
    this process may use.
    """

    def __init__(
        self,
        archs: Sequence[str],
        jobs: int | None = None,
        *,
        options: tuple[str, ...] = (),
        cache: Cache | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Start with nothing built."""
        self._archs, self._jobs, self._options = archs, jobs, options
        self._cache = user_cache() if cache is None else cache
        self._progress = progress
        # By digest and architecture: how long the name is, and what was built.
        self._models: dict[tuple[str, str], tuple[int, Future[Artifact]]] = {}

    def build(self, sources: Sequence[Source]) -> dict[Key, Artifact]:
        """Return the artifact of every (name, arch), in the order of `sources`.

        After an error nothing more is begun; of several, the first in that order is raised.
        """
        wanted = {(source.name, arch): source for source in sources for arch in self._archs}
        if len(wanted) != len(sources) * len(self._archs):
            raise InternalError("two kernels of one build have the same name")
        workers = max(1, min(self._jobs or usable_processors(), len(wanted)))
        with ThreadPoolExecutor(workers, thread_name_prefix="fusec-build") as pool:
            futures = self._submit(pool, wanted)
            try:
                for done, future in enumerate(as_completed(futures.values()), start=1):
                    if future.exception() is not None:
                        break
                    if self._progress is not None:
                        self._progress(future.result(), done, len(futures))
            finally:
                for future in futures.values():
                    future.cancel()
        return {key: _result(future, futures) for key, future in futures.items()}

    def _submit(self, pool: ThreadPoolExecutor, wanted: Mapping[Key, Source]) -> Futures:
        """Begin to compile one kernel of each text, and to rename it for the others.

        It is the one with the longest name, as a cubin has room for shorter names alone.
        """

        def compiled(key: Key) -> Future[Artifact]:
            return pool.submit(_build_one, wanted[key], key[1], self._options, self._cache)

        futures: Futures = {}
        groups: dict[tuple[str, str], list[Key]] = {}
        for key, source in wanted.items():
            if source.digest:
                groups.setdefault((source.digest, key[1]), []).append(key)
            else:
                futures[key] = compiled(key)
        for form, keys in groups.items():
            longest = max(keys, key=_name_size)
            if form not in self._models or self._models[form][0] < _name_size(longest):
                futures[longest] = compiled(longest)
                self._models[form] = _name_size(longest), futures[longest]
        # Last, so that none of them keeps a worker waiting for what has not begun.
        for form, keys in groups.items():
            for key in keys:
                if key not in futures:
                    futures[key] = pool.submit(_renamed, self._models[form][1], key[0])
        return {key: futures[key] for key in wanted}


def build(
    sources: Sequence[Source],
    archs: Sequence[str],
    jobs: int | None = None,
    *,
    options: tuple[str, ...] = (),
    cache: Cache | None = None,
    progress: Progress | None = None,
) -> dict[Key, Artifact]:
    """Return the artifacts of one set of sources, as a new Builder makes them."""
    builder = Builder(archs, jobs, options=options, cache=cache, progress=progress)
    return builder.build(sources)


def _name_size(key: Key) -> int:
    return len(key[0].encode())


def _renamed(model: Future[Artifact], name: str) -> Artifact:
    """Return the artifact of a kernel whose text is that of `model` but for names."""
    start = time.perf_counter()
    built = model.result()
    own = re.compile(rf"\b{re.escape(built.name)}\b")
    return replace(
        built,
        name=name,
        cubin=renamed(built.cubin, built.name, name),
        warnings=tuple(own.sub(name, warning) for warning in built.warnings),
        seconds=time.perf_counter() - start,
    )


def _result(future: Future[Artifact], futures: Futures) -> Artifact:
    """Return the result; for a cancelled one, raise the error that cancelled it."""
    if future.cancelled():
        for other in futures.values():
            if not other.cancelled():
                other.result()
    return future.result()


def _build_one(source: Source, arch: str, options: tuple[str, ...], cache: Cache) -> Artifact:
    """Return one artifact, from the cache or from NVRTC."""
    start = time.perf_counter()
    headers = headers_for(source.text, source.headers)
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
    return replace(artifact, cached=cached, seconds=time.perf_counter() - start)


def artifact_of(name: str, arch: str, compiler: str, compiled: Compiled) -> Artifact:
    """Return the artifact of machine code that was there."""
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
