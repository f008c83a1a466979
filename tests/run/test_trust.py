"""What another user may have written is not executed, and not planned by."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_tools import SMALL, fusec, small
from nightly import mostly_nightly

from fusec import trust
from fusec.call import helper
from fusec.commands import tune
from fusec.diagnostics import FusecError
from fusec.run.build import Source, build
from fusec.run.cache import Cache
from fusec.tuned import store

Capture = pytest.CaptureFixture[str]
NO_RANK = 65534
TEXT = 'extern "C" __global__ void k(int* x) { *x = 1; }\n'
KEY = ("k", "sm_80")


@pytest.fixture(autouse=True)
def warned_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_WARNED", set())


def give_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    os.chown(path, NO_RANK, NO_RANK)


FOREIGN: dict[str, tuple[Callable[[Path], None], str]] = {
    "all may write": (lambda path: path.chmod(0o777), "other users may write it (mode 0777)"),
    "sticky": (lambda path: path.chmod(0o1777), "other users may write it (mode 1777)"),
    "a group may write": (lambda path: path.chmod(0o770), "other users may write it (mode 0770)"),
    "another user's": (give_away, f"it belongs to user {NO_RANK}, not to user 0"),
}


def build_in(folder: Path) -> bool:
    """Return whether a kernel came from the cache."""
    pytest.importorskip("cuda.bindings.nvrtc")
    return build([Source("k", TEXT)], ["sm_80"], cache=Cache(folder))[KEY].cached


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_cache_of_others_is_not_used(kind: str, tmp_path: Path, capsys: Capture) -> None:
    make, message = FOREIGN[kind]
    folder = tmp_path / "cache"
    assert not build_in(folder)
    before = sorted(folder.rglob("*"))
    assert build_in(folder)
    make(folder)
    assert not build_in(folder)
    assert not build_in(folder)
    assert sorted(folder.rglob("*")) == before, "nothing is written there"
    err = capsys.readouterr().err
    assert f"the kernel cache is not used: `{folder}`: {message}" in err
    assert "set FUSEC_CACHE_DIR to your own directory" in err
    assert "chmod -R go-w" in err
    assert err.count("warning") == 1


@pytest.mark.parametrize("kind", ["all may write", "another user's"])
def test_an_entry_of_others_is_built_again(kind: str, tmp_path: Path, capsys: Capture) -> None:
    assert not build_in(tmp_path)
    (entry,) = tmp_path.rglob("*.kernel")
    FOREIGN[kind][0](entry)
    assert not build_in(tmp_path)
    assert f"an entry of the cache is not used: `{entry}`" in capsys.readouterr().err
    assert build_in(tmp_path), "it was replaced"


def test_a_link_of_others_is_not_followed(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    (tmp_path / "own").mkdir()
    link = tmp_path / "link"
    link.symlink_to("own")
    trust.check(link)
    os.chown(link, NO_RANK, NO_RANK, follow_symlinks=False)
    with pytest.raises(trust.Untrusted, match=f"belongs to user {NO_RANK}"):
        trust.check(link)


def test_what_root_owns_may_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = os.stat_result((0o40755, 1, 1, 1, 0, 0, 0, 0, 0, 0))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert trust.why_untrusted(status) is None
    other = os.stat_result((0o40755, 1, 1, 1, 1001, 0, 0, 0, 0, 0))
    assert trust.why_untrusted(other) == "it belongs to user 1001, not to user 1000"


@pytest.fixture
def open_umask() -> Iterator[None]:
    old = os.umask(0)
    yield
    os.umask(old)


def test_folders_are_made_for_the_user_alone(tmp_path: Path, open_umask: None) -> None:
    folder = tmp_path / "a" / "b"
    assert not build_in(folder)
    assert build_in(folder)
    path = tmp_path / "tuned" / "sm_90a.toml"
    store.write(path, [])
    assert store.is_usable(path)
    made = [p for p in tmp_path.rglob("*") if p.is_dir()]
    assert len(made) >= 5
    assert {stat.S_IMODE(p.stat().st_mode) for p in made} == {0o700}
    files = [p for p in folder.rglob("*.kernel")]
    assert {stat.S_IMODE(p.stat().st_mode) for p in files} == {0o600}


# --- the launch helper ---------------------------------------------------------------------------

PLANTED = '#include <stdio.h>\n__attribute__((constructor)) void run() { puts("PLANTED"); }\n'
ASK = "from fusec.call.helper import helper; print('helper', helper() is not None)"


def ask_helper(folder: Path) -> subprocess.CompletedProcess[str]:
    """Return what a process prints that asks for the helper."""
    given = {**os.environ, "FUSEC_CACHE_DIR": str(folder), "FUSEC_HELPER": ""}
    command = [sys.executable, "-c", ASK]
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=100)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the helper's library in a folder of its own, built where files are open to all."""
    old = os.umask(0)
    try:
        return helper.built(tmp_path_factory.mktemp("cache") / "helper")
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"no C compiler: {error}")
    finally:
        os.umask(old)


def plant(folder: Path, library: Path) -> Path:
    """Put a library that prints into the helper's place."""
    place = folder / "helper" / library.name
    place.parent.mkdir(parents=True)
    source = folder / "planted.c"
    source.write_text(PLANTED)
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(place)], check=True)
    return place


CASES = [
    (k, w) for w in ("cache", "helper", "library") for k in ("all may write", "another user's")
]


@pytest.mark.parametrize(("kind", "where"), mostly_nightly(CASES, 2))
def test_a_planted_helper_is_not_loaded(
    kind: str, where: str, library: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    place = plant(folder, library)
    if where == "cache":
        assert "PLANTED" in ask_helper(folder).stdout, "it is what would be loaded"
    of = {"cache": folder, "helper": place.parent, "library": place}[where]
    FOREIGN[kind][0](of)
    done = ask_helper(folder)
    assert "PLANTED" not in done.stdout
    assert done.returncode == 0
    if where != "library":
        assert f"the C launch helper is not used: `{of}`: " in done.stderr
        assert place.read_bytes() != library.read_bytes(), "nothing is written there"
    else:
        assert place.read_bytes()[:4] == b"\x7fELF", "it was built again"


def test_a_helper_that_was_built_is_used_again(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linkers write what all may write, where the umask lets them."""
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert helper.built(library.parent) == library


# --- measured schedules --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["all may write", "another user's"])
@pytest.mark.parametrize("where", ["folder", "file"])
def test_measured_schedules_of_others_are_not_used(
    kind: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    folder = tmp_path / "tuned"
    monkeypatch.setenv("FUSEC_TUNED", str(folder))
    path = folder / "sm_90a.toml"
    store.write(path, [])
    path.write_text("not TOML")
    with pytest.raises(FusecError):
        [s.blocks for s in store.store_for("sm_90a")]
    of = folder if where == "folder" else path
    FOREIGN[kind][0](of)
    assert [s.source for s in store.store_for("sm_90a")] == [store.SHIPPED]
    fusec(capsys, "check", small(tmp_path, SMALL))
    with pytest.raises(FusecError, match="FUSEC_TUNED"):
        tune._own_file("sm_90a")
    # The schedules of a compiled folder belong to it, whoever made it.
    assert [s.path for s in store.store_for("sm_90a", folder)] == [str(path)]


def test_it_is_told_why_schedules_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    folder = tmp_path / "tuned"
    monkeypatch.setenv("FUSEC_TUNED", str(folder))
    store.write(folder / "sm_90a.toml", [])
    folder.chmod(0o777)
    done = fusec(capsys, "check", small(tmp_path, SMALL), "--target", "sm_90a")
    assert done.code == 0
    assert f"the file of measured schedules is not used: `{folder}`: other users" in done.err
    assert "set FUSEC_TUNED to your own directory" in done.err


def test_the_cache_command_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("FUSEC_CACHE_DIR", str(tmp_path))
    assert "not used" not in fusec(capsys, "cache").out
    tmp_path.chmod(0o777)
    assert f"not used   `{tmp_path}`: other users may write it" in fusec(capsys, "cache").out
