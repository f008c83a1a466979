"""`fusec run --ranks`: processes that run a divided fusion together, and end together."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documented import documented
from paths import ROOT

from fusec.cli import run_main
from fusec.commands.running.rank import assembled
from fusec.diagnostics import FusecError
from fusec.driver import load
from fusec.files import with_sizes
from fusec.ir.dim import dim
from fusec.ir.sharding import Mesh, Part, Sharding
from fusec.parse.reader import read_text
from fusec.run.distributed.ranks import LOCAL
from fusec.shard.partition import partition

FILE = """\
fusion: divided
mesh: [2]
dims: {B: 4, H: 6}
inputs:
  x: {type: "f32[B, H]", shard: {0: mesh}}
  w: {type: "f32[H, H]", shard: {1: mesh}}
ops:
  - y = mul(x, 2.0)
  - z = matmul(y, w)
outputs:
  - y
  - z: {shard: {1: mesh}}
"""
ALONE = FILE.replace("mesh: [2]\n", "").replace(", shard: {0: mesh}", "").replace(
    ", shard: {1: mesh}", ""
).replace("  - z: {shard: {1: mesh}}", "  - z")  # fmt: skip

# Python imports it when it starts: what ranks do is replaced by exchanges without end.
EXCHANGING = """
import os, signal, sys, time
from pathlib import Path
if "FUSEC_RANK" in os.environ:
    import numpy as np
    import fusec.commands.running.ranks as ranks
    from fusec.diagnostics import FusecError
    from fusec.hostir.instructions import Collective
    from fusec.run.transports.host import HostTransport

    def run_rank(links, program, options, report):
        transport, own = HostTransport(links), os.environ["FUSEC_RANK"]
        Path(os.environ["FOLDER"], own).write_text(str(os.getpid()))
        exchange = Collective("all_reduce", "y", "x", "mesh", links.size, "sum")
        for step in range(10**6):
            x, y = np.ones(3), np.empty(3)
            transport.begin(exchange, y, x, tuple(range(links.size)), links.rank)
            transport.wait("y", 0)
            if step == 3 and own == "1":
                ACT
        return 0

    ranks.run_rank = run_rank
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "divided.yaml"
    path.write_text(FILE)
    return path


def environment(**more: str) -> dict[str, str]:
    """Return the environment of processes of this source tree."""
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": paths, "FUSEC_RANK_TIMEOUT": "15", **more}


def acting(tmp_path: Path, act: str, **more: str) -> dict[str, str]:
    """Return the environment in which ranks exchange for ever, and rank 1 does something."""
    folder = tmp_path / "start"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(EXCHANGING.replace("ACT", act))
    (tmp_path / "pids").mkdir()
    own = environment(FOLDER=str(tmp_path / "pids"), **{"FUSEC_RANK_TIMEOUT": "15", **more})
    return {**own, "PYTHONPATH": f"{folder}{os.pathsep}{own['PYTHONPATH']}"}


def start(file: Path, variables: Mapping[str, str], *more: str) -> subprocess.Popen[str]:
    """Start a run in a process that Ctrl-C ends: shells have their background jobs ignore it."""
    command = [sys.executable, "-m", "fusec", "run", str(file), "--device", "reference", *more]
    return subprocess.Popen(
        command, env=dict(variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def launch(
    file: Path, variables: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, *more: str
) -> int:
    """Return the exit code of two ranks that this process starts."""
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    return run_main(["run", str(file), "--device", "reference", "--ranks", "2", *more])


def pids(tmp_path: Path) -> list[int]:
    """Return the processes of both ranks, once they exchange."""
    folder = tmp_path / "pids"
    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        found = [path.read_text() for path in folder.iterdir()]
        if len(found) == 2 and all(found):
            return [int(text) for text in found]
        time.sleep(0.02)
    raise AssertionError("the ranks did not start")


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def gone(processes: list[int], seconds: float) -> bool:
    limit = time.monotonic() + seconds
    while any(map(is_running, processes)):
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True


def test_ranks_verify_what_they_compute_together(
    file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    out, alone = tmp_path / "out.npz", tmp_path / "alone.yaml"
    alone.write_text(ALONE)
    assert run_main(["run", str(alone), "--device", "reference", "--outputs", str(out)]) == 0
    capfd.readouterr()
    both = ["--ranks", "2", "--device", "reference", "--expect", str(out), "--print", "2"]
    assert run_main(["run", str(file), *both]) == 0
    said = capfd.readouterr()
    assert said.err == ""
    lines = said.out.splitlines()
    assert lines[0] == "verified (checked: all)"
    assert [line.split(":")[0] for line in lines[1:3]] == ["y", "z"]
    assert lines[-1] == f"as in {out}"
    assert said.out.count("verified") == 1


@pytest.mark.nightly
def test_ranks_report_to_the_process_that_started_them(
    file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As JSON on request; what people read then goes to stderr, and is the same."""
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    both = ["--ranks", "2", "--device", "reference", "--print", "2"]
    assert run_main(["run", str(file), *both]) == 0
    said = capfd.readouterr()
    assert run_main(["run", str(file), *both, "--json"]) == 0
    told = capfd.readouterr()
    assert told.err == said.out
    (run,) = documented(told.out)["runs"]
    assert (run["ranks"], run["verdict"]["word"], run["copies"]) == (2, "verified", [])
    assert [len(o["values"]) for o in run["outputs"]] == [2, 2]


def test_ranks_that_torchrun_starts_find_one_another(file: Path) -> None:
    with socket.create_server((LOCAL, 0)) as taken:  # as by torchrun's store
        port = str(taken.getsockname()[1])
        told = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": LOCAL}
        ranks = [
            start(file, environment(RANK=r, LOCAL_RANK=r, MASTER_PORT=port, **told)) for r in "01"
        ]
        said = [rank.communicate(timeout=60) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    assert said[0][0].startswith("verified")
    assert said[1] == ("", "")


@pytest.mark.nightly
def test_of_ranks_that_others_start_the_first_prints_json(file: Path) -> None:
    with socket.create_server((LOCAL, 0)) as taken:
        port = str(taken.getsockname()[1])
        told = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": LOCAL}
        ranks = [
            start(file, environment(RANK=r, LOCAL_RANK=r, MASTER_PORT=port, **told), "--json")
            for r in "01"
        ]
        said = [rank.communicate(timeout=60) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    (run,) = documented(said[0][0])["runs"]
    assert run["verdict"]["accepted"]
    assert said[1] == ("", "")


@pytest.mark.parametrize(
    ("act", "seconds", "headline", "end"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "15", "environment: rank 1 died",
         "environment: rank 1 was ended by SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGSTOP)", "1", "environment: rank 1 is stopped",
         "  = rank 0 was in `all_reduce sum y <- x over mesh: 2`"),
    ],
)  # fmt: skip
def test_the_others_end_with_a_rank_that_dies_or_stops(
    file: Path, tmp_path: Path, act: str, seconds: str, headline: str, end: str,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    shared, begun = set(os.listdir("/dev/shm")), time.monotonic()
    variables = acting(tmp_path, act, FUSEC_RANK_TIMEOUT=seconds)
    assert launch(file, variables, monkeypatch) == 4
    assert time.monotonic() - begun < 30
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines()[0] == headline
    assert "`all_reduce sum y <- x over mesh: 2`" in err
    assert err.splitlines()[-1] == end
    assert not any(map(is_running, pids(tmp_path)))
    assert set(os.listdir("/dev/shm")) == shared


def test_a_rank_that_fails_says_why_and_decides_the_exit_code(
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    act = 'raise FusecError("an index is out of bounds")'
    assert launch(file, acting(tmp_path, act), monkeypatch, "--json") == 2
    out, err = capfd.readouterr()
    assert "environment: rank 1 failed\n  = error: an index is out of bounds\n" in err
    assert err.endswith("error: an index is out of bounds\n")
    assert '"message": "an index is out of bounds"' in out


def test_ctrl_c_ends_all(file: Path, tmp_path: Path) -> None:
    launcher = start(file, acting(tmp_path, "pass"), "--ranks", "2")
    ranks = pids(tmp_path)
    launcher.send_signal(signal.SIGINT)
    try:
        _, err = launcher.communicate(timeout=30)
    finally:
        launcher.kill()
    assert launcher.returncode == 130
    assert err.strip() == "interrupted"
    assert gone(ranks, 0.0)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_ranks_do_not_outlive_the_process_that_started_them(
    file: Path, tmp_path: Path, how: signal.Signals
) -> None:
    launcher = start(file, acting(tmp_path, "pass"), "--ranks", "2")
    ranks = pids(tmp_path)
    launcher.send_signal(how)
    launcher.communicate(timeout=30)
    assert gone(ranks, 3.0)


@pytest.mark.parametrize(
    ("given", "message", "help"),
    [
        (["--ranks", "3"], "dim 0 of `x`: an extent of B, 4 by default, is not "
         "divisible into 3 equal parts\n  --> FILE:5:3",
         "the mesh has 2 ranks, and --ranks 3 resizes it"),
        (["--ranks", "3", "--set", "mesh=8"], "dim 0 of `x`: an extent of B, 4 by default",
         "the mesh has 8 ranks, and --ranks 3 resizes it"),
        (["--set", "mesh=4", "--device", "reference"], "the mesh of `divided` is larger than the "
         "run: 4 ranks (mesh: 4), 1 rank\n  --> FILE:2:7", "help: --ranks 4, or torchrun"),
        (["--set", "mesh=0"], "a mesh axis has at least 1 rank, found `mesh` of 0\n"
         "  --> FILE:2:7", ""),
        ([], "the mesh of `divided` is larger than the run: 2 ranks (mesh: 2), 1 rank\n"
         "  --> FILE:2:7", "--set mesh=SIZE resizes the mesh"),
    ],
)  # fmt: skip
def test_a_mesh_of_other_ranks_is_an_error_with_its_place_before_anything_starts(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    given: list[str], message: str, help: str,
) -> None:  # fmt: skip
    for name in ("launch", "meet", "run_rank"):
        monkeypatch.delattr(f"fusec.commands.running.ranks.{name}")
    assert run_main(["run", str(file), *given]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: " + message.replace("FILE", str(file)))
    assert help in err


TWO_AXES = """
fusion: two
mesh: {dp: 2, tp: 2}
dims: {B: 8, dp: 6}
inputs: {x: {type: "f32[B, dp]", shard: {0: dp, 1: tp}}}
ops: ["y = sum(x, dims=[1])"]
outputs: [y]
"""


@pytest.mark.parametrize(
    ("old", "new", "said", "code"),
    [
        ("B: 4", "B: 5", "is not divisible into 2 equal parts", 2),
        ("mul(x, 2.0)", "cumsum(x, dim=0)", "carries a dependence through `cumsum`", 2),
        ("mul(x, 2.0)", "set(x)", "`y` is written to `x` slice by slice", 3),
    ],
)
def test_what_cannot_be_divided_is_an_error_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    old: str, new: str, said: str, code: int,
) -> None:  # fmt: skip
    monkeypatch.delattr("fusec.commands.running.ranks.launch")
    alias = "alias: x, " if code == 3 else ""
    text = FILE.replace(old, new).replace("  - y\n", f"  - y: {{{alias}stream: {{0: 2}}}}\n")
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    assert run_main(["run", str(path), "--ranks", "2", "--device", "reference"]) == code
    assert said in capsys.readouterr().err


def test_axes_of_a_mesh_are_resized_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """But a dim of the name takes the size; several axes are resized one by one."""
    path = tmp_path / "two.yaml"
    path.write_text(TWO_AXES, encoding="utf-8")
    fusion = load(str(path), {"tp": 3, "dp": 12})
    assert fusion.mesh is not None
    assert (str(fusion.mesh), fusion.hints) == ("dp: 2, tp: 3", {"B": 8, "dp": 12})
    assert with_sizes(load(str(path)), {"tp": 3, "dp": 12}) == fusion
    assert run_main(["run", str(path), "--ranks", "2"]) == 2
    assert "4 ranks (dp: 2, tp: 2), 2 ranks (of --ranks 2)" in capsys.readouterr().err
    with pytest.raises(FusecError, match="not divisible into 5 equal parts"):
        partition(load(str(path), {"tp": 5}))


@pytest.mark.parametrize("ranks", [1, 4])
def test_ranks_that_are_asked_for_resize_a_mesh_of_one_axis(
    file: Path, ranks: int, capfd: pytest.CaptureFixture[str]
) -> None:
    file.write_text(FILE.replace("H: 6", "H: 8"))
    run = ["run", str(file), "--device", "reference", "--ranks", str(ranks)]
    assert run_main(run) == 0
    assert "verified" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("variables", "given", "message"),
    [
        ({"RANK": "0"}, [], "RANK is set, but WORLD_SIZE is not"),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}, ["--ranks", "3"],
         "--ranks 3, but PMI started 2 ranks"),
        ({"PMI_RANK": "0", "PMI_SIZE": "3", "MPI_LOCALNRANKS": "3"}, [],
         "the mesh of `divided` is smaller than the run: 2 ranks (mesh: 2), 3 ranks (of PMI)"),
        ({"FUSEC_RANK_TIMEOUT": "soon"}, ["--ranks", "2"],
         "FUSEC_RANK_TIMEOUT='soon': expected seconds above 0"),
    ],
)  # fmt: skip
def test_wrong_environments_are_told(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str], given: list[str], message: str,
) -> None:  # fmt: skip
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert run_main(["run", str(file), *given]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}\n")


def test_what_several_ranks_do_not_run_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(["run", str(ROOT / "examples/layernorm.yaml"), "--ranks", "2"]) == 2
    assert "fusion `layernorm` has no mesh, and the run has 2 ranks" in capsys.readouterr().err
    assert run_main(["run", str(tmp_path), "--ranks", "2"]) == 3
    assert "a compiled folder on several ranks" in capsys.readouterr().err


def test_compiled_folders_are_of_what_one_rank_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = tmp_path / "alone.yaml", str(tmp_path / "out")
    file.write_text(ALONE.replace("  - y\n", "  - y: {stream: {0: 2}}\n", 1))
    assert run_main(["compile", str(file), "-o", folder]) == 0
    assert run_main(["run", folder, "--device", "reference"]) == 0
    file.write_text(FILE)
    assert run_main(["compile", str(file), "-o", folder]) == 0
    capsys.readouterr()
    assert run_main(["run", folder]) == 3
    assert "a compiled folder on several ranks" in capsys.readouterr().err


def test_starters_do_not_matter_where_nothing_is_divided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    file = tmp_path / "alone.yaml"
    file.write_text(ALONE)
    assert run_main(["run", str(file), "--device", "reference"]) == 0
    assert "reference evaluated" in capsys.readouterr().out


def test_copies_that_differ_between_ranks_are_named() -> None:
    fusion, mesh = read_text(FILE, "divided.yaml"), Mesh((("mesh", 2),), (0, 1))
    placed = {"y": Sharding.of(2, {0: (Part("mesh", dim(2)),)}), "z": Sharding.whole(2)}
    parts: list[dict[str, Any]] = [
        {"y": np.full((2, 6), rank), "z": np.zeros((4, 6))} for rank in range(2)
    ]
    outputs, copies = assembled(fusion, parts, placed, mesh, {})
    assert outputs["y"].tolist() == [[0] * 6] * 2 + [[1] * 6] * 2
    assert copies == []
    parts[0]["z"][3, 3] = 1
    _, copies = assembled(fusion, parts, placed, mesh, {})
    assert copies == ["`z`: rank 0 differs from the ranks that hold the same shard"]
