"""The cache of built kernels and the parallel build on top of it."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fusec.diagnostics import InternalError
from fusec.run import build as build_module
from fusec.run import nvrtc
from fusec.run.build import Artifact, Source, build
from fusec.run.cache import Cache, cache_directory, entry_key
from fusec.run.nvrtc import Compiled, CompileError

COMPILED = Compiled(b"\x7fELF\n\0cubin", ("a warning", "another\nline"))
KEY = "ab" + "0" * 62
FACTS = {
    "source": "text",
    "name": "k",
    "headers": {"a.cuh": "1", "b.cuh": "2"},
    "arch": "sm_80",
    "options": ("-G",),
    "compiler": "nvrtc 13.0",
}


def text(value: int) -> str:
    return f'extern "C" __global__ void k(int* x) {{ x[threadIdx.x] = {value}; }}\n'


def entry_file(folder: Path) -> Path:
    (path,) = folder.glob("*/*.kernel")
    return path


def test_an_entry_comes_back_whole(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.load(KEY) is None
    assert cache.store(KEY, COMPILED)
    assert cache.load(KEY) == COMPILED
    assert [path.suffix for path in tmp_path.glob("*/*")] == [".kernel"]


@pytest.mark.parametrize("where", [0, 20, 90, -1])
def test_a_damaged_entry_is_not_used(tmp_path: Path, where: int) -> None:
    cache = Cache(tmp_path)
    cache.store(KEY, COMPILED)
    path = entry_file(tmp_path)
    content = bytearray(path.read_bytes())
    content[where] ^= 1
    path.write_bytes(content)
    assert cache.load(KEY) is None


def test_a_truncated_entry_is_built_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    source = [Source("k", text(1))]
    first = build(source, ["sm_80"], cache=cache)
    path = entry_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-7])
    second = build(source, ["sm_80"], cache=cache)
    third = build(source, ["sm_80"], cache=cache)
    key = ("k", "sm_80")
    assert [r[key].cached for r in (first, second, third)] == [False, False, True]
    assert first[key].cubin == third[key].cubin


@pytest.mark.parametrize(
    "change",
    [
        {"source": "text2"},
        {"name": "k2"},
        {"headers": {"a.cuh": "12", "b.cuh": ""}},
        {"headers": {"a.cuh": "1"}},
        {"arch": "sm_90"},
        {"options": ()},
        {"options": ("-G", "headers")},
        {"compiler": "nvrtc 13.1"},
    ],
)
def test_everything_that_decides_counts(change: dict[str, object]) -> None:
    assert entry_key(**{**FACTS, **change}) != entry_key(**FACTS)
    swapped = {"b.cuh": "2", "a.cuh": "1"}
    assert entry_key(**{**FACTS, "headers": swapped}) == entry_key(**FACTS)


def test_where_the_cache_lies() -> None:
    assert cache_directory({"FUSEC_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_directory({"XDG_CACHE_HOME": "/b"}) == Path("/b/fusec")
    assert cache_directory({}) == Path.home() / ".cache" / "fusec"


def test_without_a_writable_folder_it_still_builds(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    for cache in (Cache(blocked / "cache"), Cache(None)):
        assert not cache.store(KEY, COMPILED)
        result = build([Source("k", text(2))], ["sm_80"], cache=cache)
        assert not result["k", "sm_80"].cached
        assert result["k", "sm_80"].cubin.startswith(b"\x7fELF")


def test_stale_parts_of_killed_writers_go(tmp_path: Path) -> None:
    folder = tmp_path / KEY[:2]
    folder.mkdir()
    old, fresh = folder / ".old.part", folder / ".new.part"
    old.write_text("half")
    fresh.write_text("half")
    os.utime(old, (time.time() - 7200,) * 2)
    Cache(tmp_path).store(KEY, COMPILED)
    assert not old.exists()
    assert fresh.exists()


def test_the_build_lock_keeps_others_waiting(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    order: list[str] = []
    inside = threading.Event()

    def second() -> None:
        inside.wait()
        with cache.building(KEY):
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with cache.building(KEY):
        inside.set()
        time.sleep(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def _write_for_ever(folder: str) -> None:
    compiled = replace(COMPILED, cubin=os.urandom(1 << 20))
    while True:
        Cache(Path(folder)).store(KEY, compiled)


def test_killed_writers_leave_no_broken_entry(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("fork")
    for _ in range(4):
        writer = spawn.Process(target=_write_for_ever, args=(str(tmp_path),))
        writer.start()
        deadline = time.time() + 10
        while not list(tmp_path.glob("*/*.kernel")) and time.time() < deadline:
            time.sleep(0.005)
        time.sleep(0.02)
        writer.kill()
        writer.join()
        loaded = Cache(tmp_path).load(KEY)
        assert loaded is not None
        assert len(loaded.cubin) == 1 << 20


def test_a_hit_imports_no_cuda(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from fusec.run.build import Source, build\nfrom fusec.run.cache import Cache\n"
        f"result = build([Source('k', {text(3)!r})], ['sm_80'], cache=Cache(Path(sys.argv[1])))\n"
        "print(result['k', 'sm_80'].cached, any(m.startswith('cuda') for m in sys.modules))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(nvrtc.__file__).parents[2])}
    lines = [
        subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for _ in range(2)
    ]
    assert lines == ["False True", "True False"]


def test_all_kernels_for_all_architectures_in_order(tmp_path: Path) -> None:
    sources = [Source(f"k{i}", text(i)) for i in (3, 1, 2)]
    seen: list[tuple[str, int, int]] = []

    def progress(artifact: Artifact, done: int, total: int) -> None:
        seen.append((artifact.name, done, total))

    archs = ["sm_90a", "sm_80"]
    result = build(sources, archs, 2, cache=Cache(tmp_path), progress=progress)
    assert list(result) == [(s.name, arch) for s in sources for arch in archs]
    assert all((a.name, a.arch) == key for key, a in result.items())
    assert len({a.cubin for a in result.values()}) == 6
    assert all(a.registers > 0 and a.compiler.startswith("nvrtc ") for a in result.values())
    assert [(done, total) for _, done, total in seen] == [(i, 6) for i in range(1, 7)]
    assert sorted(name for name, _, _ in seen) == ["k1", "k1", "k2", "k2", "k3", "k3"]


def test_the_first_error_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    real = build_module.compile_cuda

    def recording(source: str, *, name: str, **rest: object) -> Compiled:
        built.append(name)
        return real(source, name=name, **rest)

    monkeypatch.setattr(build_module, "compile_cuda", recording)
    sources = [Source("good", text(1)), Source("bad", "nonsense"), Source("later", text(2))]
    with pytest.raises(CompileError, match=r"bad\.cu"):
        build(sources, ["sm_80"], 1, cache=Cache(tmp_path))
    assert built[:2] == ["good", "bad"]


def test_equal_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="same name"):
        build([Source("k", text(1)), Source("k", text(2))], ["sm_80"], cache=Cache(tmp_path))
