"""The size of the kernel cache: its limit, what leaves it first, and how it is shown."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_tools import fusec, small

from fusec.diagnostics import FusecError
from fusec.run import entries as cache_module
from fusec.run.binary.nvrtc import Compiled, compile_cuda
from fusec.run.cache import Cache, user_cache
from fusec.run.cache_size import DEFAULT_LIMIT, clear, entries, size_limit

pytest.importorskip("cuda.bindings.nvrtc")
Capture = pytest.CaptureFixture[str]
TEXT = 'extern "C" __global__ void k(int* x) { *x = 1; }\n'
SMALLEST = compile_cuda(TEXT, name="k", arch="sm_80", headers={})


def key(number: int) -> str:
    return f"{number * 37 % 256:02x}{number:062x}"


def compiled(size: int) -> Compiled:
    """Return a cubin of a size: what follows the last table of an ELF file does not count."""
    return replace(SMALLEST, cubin=SMALLEST.cubin + b"\0" * (size - len(SMALLEST.cubin)))


def held(cache: Cache, numbers: range) -> list[int]:
    """Return which entries a cache holds, without using them."""
    assert cache.directory is not None
    names = {entry.path.name.removesuffix(".kernel") for entry in entries(cache.directory)}
    return [number for number in numbers if key(number) in names]


def total(cache: Cache) -> int:
    assert cache.directory is not None
    return sum(entry.size for entry in entries(cache.directory))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", DEFAULT_LIMIT),
        ("0", 0),
        ("1234", 1234),
        ("500M", 500_000_000),
        ("500 MB", 500_000_000),
        ("2g", 2_000_000_000),
        ("1.5GiB", 3 << 29),
        ("64ki", 1 << 16),
        (" 1T ", 10**12),
    ],
)
def test_the_limit_is_read(text: str, size: int) -> None:
    assert size_limit({"FUSEC_CACHE_LIMIT": text}) == size
    assert size_limit({}) == DEFAULT_LIMIT


@pytest.mark.parametrize("text", ["many", "-1", "1X", "1 2", "M", "1e9", "inf", "1..5G", "9" * 400])
def test_what_is_no_limit(text: str, tmp_path: Path, capsys: Capture) -> None:
    with pytest.raises(FusecError, match=r"FUSEC_CACHE_LIMIT=.* is not a size"):
        size_limit({"FUSEC_CACHE_LIMIT": text})


def test_a_wrong_limit_is_told_by_every_command_that_builds(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSEC_CACHE_LIMIT", "lots")
    for command in (["cache"], ["compile", small(tmp_path), "-o", tmp_path / "out"]):
        fusec(capsys, *command).says(2, "FUSEC_CACHE_LIMIT=lots is not a size", "500M")


def test_the_least_recently_used_leaves_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=110_000)
    for number in range(8):
        assert cache.store(key(number), compiled(10_000))
        _age(cache, 1000)
    assert held(cache, range(8)) == list(range(8))
    for number in (0, 3):  # used again
        assert cache.load(key(number)) is not None
    assert cache.store(key(8), compiled(40_000))
    assert held(cache, range(9)) == [0, 3, 5, 6, 7, 8]
    assert total(cache) <= 110_000


def _age(cache: Cache, seconds: int) -> None:
    """Let time go by: every entry was used so much longer ago."""
    assert cache.directory is not None
    for entry in entries(cache.directory):
        then = entry.used - seconds * 10**9
        os.utime(entry.path, ns=(then, then))


def test_the_limit_is_never_exceeded_for_long(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=100_000)
    for number in range(60):
        assert cache.store(key(number), compiled(5_000 + 700 * (number % 9)))
        assert total(cache) <= 100_000
        assert held(cache, range(60))[-1] == number, "the newest stays"
    assert total(cache) > 70_000


def test_what_is_larger_than_the_limit_is_not_kept(tmp_path: Path) -> None:
    for limit in (0, 9_000):
        cache = Cache(tmp_path / str(limit), limit=limit)
        assert not cache.store(key(1), compiled(10_000))
        assert held(cache, range(2)) == []


def test_a_lower_limit_counts_from_the_next_kernel_on(tmp_path: Path) -> None:
    for number in range(10):
        Cache(tmp_path).store(key(number), compiled(10_000))
    cache = Cache(tmp_path, limit=30_000)
    cache.store(key(10), compiled(10_000))
    assert total(cache) <= 30_000
    assert held(cache, range(11))[-1] == 10
    assert not Cache(tmp_path, limit=9_000).store(key(11), compiled(10_000))
    assert total(cache) <= 9_000


@pytest.mark.parametrize("damage", ["gone", "wrong", "too low", "a folder"])
def test_the_total_is_found_again(damage: str, tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=100_000)
    for number in range(9):
        cache.store(key(number), compiled(10_000))
    kept = tmp_path / "total"
    if damage in ("gone", "a folder"):
        kept.unlink()
    if damage == "a folder":
        kept.mkdir()
    if damage == "wrong":
        kept.write_text("nonsense")
    if damage == "too low":
        kept.write_text("95000")
    for number in range(9, 14):
        cache.store(key(number), compiled(10_000))
        assert total(cache) <= 100_000 + 15_000 * (damage == "too low")


def test_many_threads_store_at_once(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=200_000)

    def store(start: int) -> None:
        for number in range(start, start + 15):
            assert cache.store(key(number), compiled(10_000))

    threads = [threading.Thread(target=store, args=(15 * k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 100_000 < total(cache) <= 200_000


def test_files_of_others_stay(tmp_path: Path) -> None:
    """Also in a folder that is not the cache's alone."""
    cache = Cache(tmp_path, limit=50_000)
    theirs = [tmp_path / "notes.txt", tmp_path / "ab" / "x.kernel", tmp_path / "src" / "a.part"]
    for path in theirs:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 100_000)
    for number in range(9):
        cache.store(key(number), compiled(10_000))
    count = len(held(cache, range(9)))
    assert count >= 3
    assert clear(tmp_path)[0] == count
    assert held(cache, range(9)) == []
    assert all(path.stat().st_size == 100_000 for path in theirs)


# --- a cache that cannot be written --------------------------------------------------------------


@pytest.fixture(autouse=True)
def nothing_said() -> None:
    cache_module._SAID.clear()


def test_it_says_once_that_it_cannot_be_written(tmp_path: Path, capsys: Capture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    caches = [Cache(blocked / "cache"), Cache(blocked / "cache"), Cache(blocked / "other")]
    for cache in caches:
        for number in range(3):
            assert not cache.store(key(number), SMALLEST)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        f"fusec: kernel cache disabled: cannot write `{blocked / name}`: Not a directory"
        for name in ("cache", "other")
    ]


def test_a_full_disk_is_told_once_and_leaves_nothing(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache_module.os, "replace", full)
    monkeypatch.setenv("FUSEC_CACHE_DIR", str(tmp_path / "cache"))
    done = fusec(capsys, "compile", small(tmp_path), "-o", tmp_path / "out")
    assert done.code == 0
    assert done.err.count("No space left on device") == 1
    assert "kernel cache disabled" in done.err
    assert [p for p in (tmp_path / "cache").rglob("*") if p.suffix in (".part", ".kernel")] == []


def test_a_read_only_cache_that_has_everything_is_silent(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSEC_CACHE_DIR", str(tmp_path / "cache"))
    command = ["compile", small(tmp_path), "-o", tmp_path / "out"]
    assert fusec(capsys, *command).code == 0

    def read_only(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for function in ("utime", "replace", "mkdir"):
        monkeypatch.setattr(cache_module.os, function, read_only)
    done = Cache(tmp_path / "cache")
    assert done.load(next(entries(tmp_path / "cache")).path.stem) is not None
    assert capsys.readouterr().err == ""


# --- the command ---------------------------------------------------------------------------------


def test_the_command_shows_and_clears(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    monkeypatch.setenv("FUSEC_CACHE_DIR", str(folder))
    monkeypatch.setenv("FUSEC_CACHE_LIMIT", "3M")
    none = f"place      {folder}\nentries    0\nsize       0 B\n"
    limit = "limit      3 MB (FUSEC_CACHE_LIMIT sets it)\n"
    done = fusec(capsys, "cache")
    assert (done.code, done.out, done.err) == (0, none + limit, "")
    assert not folder.exists(), "looking does not make it"
    cache = user_cache()
    assert (cache.directory, cache.limit) == (folder, 3_000_000)
    for number in range(3):
        cache.store(key(number), compiled(20_000))
    done = fusec(capsys, "cache")
    size = f"{total(cache) / 1000:.1f} kB"
    assert f"entries    3\nsize       {size}\n" in done.out
    done = fusec(capsys, "cache", "--clear")
    assert (done.code, done.out) == (0, f"3 files, {size} removed from {folder}\n")
    assert list(folder.iterdir()) == []
    done = fusec(capsys, "cache", "--clear")
    assert (done.code, done.out) == (0, f"0 files, 0 B removed from {folder}\n")
    cache.store(key(1), SMALLEST)
    assert held(cache, range(3)) == [1]


def test_what_cannot_be_cleared(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSEC_CACHE_DIR", str(tmp_path))
    Cache(tmp_path).store(key(1), SMALLEST)

    def forbidden(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "unlink", forbidden)
    fusec(capsys, "cache", "--clear").says(2, f"cannot clear `{tmp_path}`: Permission denied")


def test_the_command_says_what_it_does_not_know(capsys: Capture) -> None:
    fusec(capsys, "cache", "--cler").says(2, "--clear")
    fusec(capsys, "cache", "show").says(2, "unexpected extra argument")
