"""The cache of built kernels and the parallel build on top of it."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from fusec.diagnostics import InternalError
from fusec.run import build as build_module
from fusec.run.binary import nvrtc
from fusec.run.binary.nvrtc import Compiled, CompileError
from fusec.run.build import Artifact, Source, build
from fusec.run.cache import Cache, entry_key
from fusec.run.entries import cache_directory

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


COMPILED = replace(
    nvrtc.compile_cuda(text(0), name="k", arch="sm_80", headers={}),
    warnings=("a warning", "another\nline"),
)


def entry_file(folder: Path) -> Path:
    (path,) = folder.glob("*/*.kernel")
    return path


def test_an_entry_comes_back_whole(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.load(KEY) is None
    assert cache.store(KEY, COMPILED)
    assert cache.load(KEY) == COMPILED
    assert [path.suffix for path in tmp_path.glob("??/*")] == [".kernel"]


@pytest.mark.parametrize("where", [0, 20, 90, -1])
def test_a_damaged_entry_is_not_used(tmp_path: Path, where: int) -> None:
    cache = Cache(tmp_path)
    cache.store(KEY, COMPILED)
    path = entry_file(tmp_path)
    content = bytearray(path.read_bytes())
    content[where] ^= 1
    path.write_bytes(content)
    assert cache.load(KEY) is None


def laid_out(first: bytes) -> Callable[[Path], None]:
    """Return what gives an entry another layout, whole by its digest."""

    def change(path: Path) -> None:
        body = path.read_bytes().split(b"\n", 2)[2]
        path.write_bytes(b"\n".join([first, sha256(body).hexdigest().encode(), body]))

    return change


def other_body(body: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        first = path.read_bytes().split(b"\n", 1)[0]
        path.write_bytes(b"\n".join([first, sha256(body).hexdigest().encode(), body]))

    return change


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").touch()


def a_file_above(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("not a directory")


def a_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-7]),
    "empty": lambda path: path.write_bytes(b""),
    "other bytes": lambda path: path.write_bytes(os.urandom(4000)),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "unreadable": lambda path: path.chmod(0),
    "an older layout": laid_out(b"fusec kernel 1"),
    "a later layout": laid_out(b"fusec kernel 99"),
    "no layout": laid_out(b""),
    "no JSON": other_body(b"log\n\x7fELF"),
    "other JSON": other_body(b"[1, 2]\n\x7fELF"),
    "other keys": other_body(b'{"log": ""}\n\x7fELF'),
    "no cubin": other_body(b'{"warnings": []}\n\x7fELF'),
    "a folder": a_folder,
    "a file for its folder": a_file_above,
    "a link to nothing": a_link,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_built_again(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = Cache(tmp_path)
    source = [Source("k", text(1))]
    first = build(source, ["sm_80"], cache=cache)
    DAMAGES[damage](entry_file(tmp_path))
    second = build(source, ["sm_80"], cache=cache)
    third = build(source, ["sm_80"], cache=cache)
    key = ("k", "sm_80")
    reads_all = damage == "unreadable" and os.access(entry_file(tmp_path), os.R_OK)
    assert [r[key].cached for r in (first, third)] == [False, True]
    assert second[key].cached == (reads_all and os.getuid() == 0)
    facts = [replace(r[key], cached=False, seconds=0.0) for r in (first, second, third)]
    assert facts[0] == facts[1] == facts[2]
    assert capsys.readouterr().err == ""


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
    swap_ab = {"b.cuh": "2", "a.cuh": "1"}
    assert entry_key(**{**FACTS, "headers": swap_ab}) == entry_key(**FACTS)


def test_where_the_cache_lies() -> None:
    assert cache_directory({"FUSEC_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_directory({"XDG_CACHE_HOME": "/b"}) == Path("/b/fusec")
    assert cache_directory({}) == Path.home() / ".cache" / "fusec"


def test_without_a_writable_folder_it_still_builds(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
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
    compiled = replace(COMPILED, cubin=COMPILED.cubin + os.urandom(1 << 20))
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
        assert len(loaded.cubin) == len(COMPILED.cubin) + (1 << 20)


def test_a_hit_imports_no_cuda(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from fusec.run.build import Source, build\nfrom fusec.run.cache import Cache\n"
        f"result = build([Source('k', {text(3)!r})], ['sm_80'], cache=Cache(Path(sys.argv[1])))\n"
        "print(result['k', 'sm_80'].cached, any(m.startswith('cuda') for m in sys.modules))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(nvrtc.__file__).parents[3])}
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
