"""Compiled folders are exchanged in one step: what a kill leaves is the old one or the new one."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cli_tools import SMALL, fusec, small
from paths import ROOT

from fusec.commands.folder import swap
from fusec.commands.folder.artifacts import write_folder
from fusec.diagnostics import FusecError

OLD = {"manifest.json": b'{"files": {"kernels/old": "%s"}}', "kernels/old": b"old"}
NEW = {"manifest.json": b'{"files": {"cubins/a": "", "cubins/b": ""}}', "cubins/a": b"a"}
NEW |= {"cubins/b": b"b" * 100_000}
DIGEST = b"cba06b5736faf67e54b07b561eae94395e774c517a7d910a54369e1263ccfbd4"  # of b"old"
OLD["manifest.json"] %= DIGEST
STEPS = ("open", "os.", "shutil.", "tempfile.")
"""Events of Python's audit that begin what changes files, among others."""


def files(folder: Path) -> dict[str, bytes]:
    """Return the content of every file of a folder by its path."""
    found = (p for p in folder.rglob("*") if p.is_file())
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in found}


def beside(place: Path) -> list[str]:
    return sorted(p.name for p in place.parent.iterdir() if p != place)


def no_exchange(one: Path, other: Path) -> None:
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def write_and_die(place: str, step: int, exchanges: bool) -> None:
    """Write a folder; the process is killed before the step of this number begins."""
    if not exchanges:
        swap._exchange = no_exchange
    begun = 0

    def hook(event: str, _: Any) -> None:
        nonlocal begun
        if event.startswith(STEPS):
            begun += 1
            if begun == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    write_folder(Path(place), NEW)
    os._exit(0)


def killed_at(place: Path, step: int, exchanges: bool) -> bool:
    """Return whether a process that writes a folder was killed at a step, as it has one."""
    process = multiprocessing.get_context("fork").Process(
        target=write_and_die, args=(str(place), step, exchanges)
    )
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


@pytest.mark.parametrize("before", [OLD, None], ids=["an old folder", "not a directory"])
def test_a_kill_at_any_step_leaves_one_of_the_two(
    before: dict[str, bytes] | None, tmp_path: Path
) -> None:
    seen: list[str] = []
    for step in range(1, 1000):
        place = tmp_path / str(step) / "out"
        place.parent.mkdir()
        if before is not None:
            write_folder(place, before)
        if not killed_at(place, step, exchanges=True):
            break
        found = files(place) if place.exists() else None
        assert found in (before, NEW), f"step {step}"
        seen.append("new" if found == NEW else "old")
        write_folder(place, NEW)
        assert files(place) == NEW
        assert beside(place) == [], "what the killed process left is gone"
    else:
        pytest.fail("no end")
    assert len(seen) > 15
    assert seen == sorted(seen, key="old new".index), "first the old one, then the new one"
    assert {"old", "new"} == set(seen)


def test_without_exchange_a_kill_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between its two steps neither folder is in place: the next call puts the old one back."""
    absent = 0
    for step in range(1, 1000):
        place = tmp_path / str(step) / "out"
        place.parent.mkdir()
        write_folder(place, OLD)
        if not killed_at(place, step, exchanges=False):
            break
        absent += not place.exists()
        swap.tidy(place)
        assert files(place) in (OLD, NEW), f"step {step}"
        assert beside(place) == []
    assert absent == 1


def test_without_exchange_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "out"
    write_folder(place, OLD)
    write_folder(place, NEW)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(swap, "_exchange", no_exchange)
    write_folder(place, NEW)
    said = capsys.readouterr().err
    assert "`" + str(place) + "` was not replaced atomically" in said
    assert "file system" in said
    assert files(place) == NEW
    assert beside(place) == []


@pytest.mark.parametrize("failing", [1, 2])
@pytest.mark.parametrize("exchanges", [True, False])
def test_a_step_that_fails_leaves_the_old_folder(
    failing: int, exchanges: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "out"
    write_folder(place, OLD)
    real, calls = os.rename, 0

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def rename(*names: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == failing:
            full()
        real(*names)

    monkeypatch.setattr(swap, "_exchange", full if exchanges else no_exchange)
    monkeypatch.setattr(swap.os, "rename", rename)
    with pytest.raises(FusecError, match="No space left on device"):
        write_folder(place, NEW)
    monkeypatch.undo()
    assert files(place) == OLD
    assert beside(place) == []


def test_what_is_not_left_behind_stays(tmp_path: Path) -> None:
    """Folders of users, and of processes that are still at work."""
    place = tmp_path / "out"
    theirs = [tmp_path / name for name in (".out.settings", ".outer.fusec-abcdefgh", "out.fusec-x")]
    for folder in theirs:
        folder.mkdir()
    (tmp_path / ".out.fusec-file").write_text("a file")
    with swap.working_folder(place) as busy:
        (busy / "half").touch()
        write_folder(place, NEW)
        assert (busy / "half").exists()
    assert not busy.exists()
    assert beside(place) == sorted([*(f.name for f in theirs), ".out.fusec-file"])


def test_an_edit_that_a_kill_put_aside_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "out"
    write_folder(place, OLD)
    (place / "kernels" / "old").write_text("edited")
    aside = tmp_path / ".out.fusec-abcdefgh"
    aside.mkdir()
    place.rename(aside / "old")
    with pytest.raises(FusecError, match="edited since it was compiled"):
        write_folder(place, NEW)
    assert (place / "kernels" / "old").read_text() == "edited"


def test_many_writers_of_one_folder(tmp_path: Path) -> None:
    place = tmp_path / "out"
    write_folder(place, NEW)
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_often, args=(place,)) for _ in range(3)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert (place / "manifest.json").exists(), "there is a folder at any time"
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert files(place) == NEW
    assert beside(place) == []


def _write_often(place: Path) -> None:
    for _ in range(20):
        write_folder(place, NEW)


def test_a_command_that_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At random moments of a whole `fusec compile` over a folder."""
    path, out = small(tmp_path), tmp_path / "out"
    assert fusec(capsys, "compile", path, "-o", out).code == 0
    old = files(out)
    small(tmp_path, SMALL.replace("exp(", "sin("))
    assert fusec(capsys, "compile", path, "-o", tmp_path / "other").code == 0
    new = files(tmp_path / "other")
    command = [sys.executable, "-m", "fusec", "compile", str(path), "-o", str(out)]
    generator = random.Random(3)
    for _ in range(3):
        process = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL
        )
        time.sleep(generator.uniform(0.1, 1.0))
        process.kill()
        process.wait()
        assert files(out) in (old, new)
    assert fusec(capsys, "compile", path, "-o", out).code == 0
    assert files(out) == new
    assert not [name for name in beside(out) if ".fusec-" in name]


def test_a_file_that_is_never_there(tmp_path: Path) -> None:
    place = tmp_path / "out"
    write_folder(place, OLD)
    (place / "kernels" / "old").unlink()
    (place / "kernels" / "old").symlink_to("nowhere")
    with pytest.raises(FusecError, match=r"no such file: `.*old`"):
        write_folder(place, NEW)


def test_a_folder_on_which_somebody_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FusecError, match=r"cannot write `\.`"):
        write_folder(Path(), NEW)
    assert list(tmp_path.iterdir()) == []
