"""Builds of kernels: each text for itself, with progress, and the first error of several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fusec.run import build as build_module
from fusec.run.binary.cubin import kernel_stats
from fusec.run.binary.headers import device_headers
from fusec.run.binary.nvrtc import Compiled, CompileError, compile_cuda
from fusec.run.build import Source, build
from fusec.run.cache import Cache

pytest.importorskip("cuda.bindings.nvrtc")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that NVRTC's calls go to: the name of the kernel, and of its headers."""
    made: list[Any] = []

    def counted(source: str, **rest: Any) -> Compiled:
        made.append((rest["name"], [*rest["headers"]]))
        return compile_cuda(source, **rest)

    monkeypatch.setattr(build_module, "compile_cuda", counted)
    return made


def doubled(name: str, factor: str = "2.0f") -> Source:
    text = f'extern "C" __global__ void {name}(float* x) {{ x[threadIdx.x] *= {factor}; }}\n'
    return Source(name, text)


def test_each_source_is_built_for_each_architecture(calls: list[Any]) -> None:
    built = build([doubled("a"), doubled("b")], ["sm_80", "sm_90a"], cache=Cache(None))
    assert sorted(name for name, _ in calls) == ["a", "a", "b", "b"]
    assert [*built] == [("a", "sm_80"), ("a", "sm_90a"), ("b", "sm_80"), ("b", "sm_90a")]
    for (name, arch), artifact in built.items():
        assert (artifact.name, artifact.arch) == (name, arch)
        assert [k.name for k in kernel_stats(artifact.cubin)] == [name]


def test_headers_are_those_given_or_those_that_the_text_names(calls: list[Any]) -> None:
    text = '#include "storage.cuh"\n' + doubled("k").text
    build([Source("k", text)], ["sm_80"], cache=Cache(None))
    build([Source("k", text, {"storage.cuh": ""})], ["sm_80"], cache=Cache(None))
    build([Source("k", doubled("k").text, device_headers())], ["sm_80"], cache=Cache(None))
    assert [headers for _, headers in calls] == [
        ["storage.cuh"], ["storage.cuh"], [*device_headers()],
    ]  # fmt: skip


def test_the_first_of_several_errors_is_raised() -> None:
    sources = [doubled("a"), doubled("bbb", "nonsense"), doubled("c", "nonsense")]
    with pytest.raises(CompileError, match=r"bbb\.cu"):
        build(sources, ["sm_80"], 1, cache=Cache(None))


def test_progress_counts_all() -> None:
    seen: list[tuple[str, int, int]] = []
    note: Callable[..., None] = lambda a, done, total: seen.append((a.name, done, total))  # noqa: E731
    build([doubled("a"), doubled("b")], ["sm_80"], 2, cache=Cache(None), progress=note)
    assert sorted(name for name, _, _ in seen) == ["a", "b"]
    assert [(done, total) for _, done, total in seen] == [(1, 2), (2, 2)]
