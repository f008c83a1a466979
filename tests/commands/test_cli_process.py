"""fusec as a process: pipes, terminals, signals, equal bytes."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_tools import EXAMPLES, ROOT, small

from fusec.commands.folder.reading import read_folder

FUSEC = [sys.executable, "-m", "fusec"]


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return variables for processes that share built kernels."""
    base = tmp_path_factory.mktemp("process")
    own = ("PYTHONPYCACHEPREFIX",)  # of the tests: where byte code is kept
    dropped = ("PYTHON", "FUSEC", "NVFUSER")
    kept = {k: v for k, v in os.environ.items() if k in own or not k.startswith(dropped)}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "FUSEC_CACHE_DIR": str(base / "cache"),
    }


def run(
    surroundings: dict[str, str], *arguments: object, cwd: Path | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FUSEC, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**surroundings, **more},
        cwd=cwd,
        check=False,
    )


def test_output_is_the_same_from_run_to_run(surroundings: dict[str, str], tmp_path: Path) -> None:
    made: list[dict[str, bytes]] = []
    printed: list[str] = []
    for number in (1, 2):
        cwd = tmp_path / f"folder{number}"
        cwd.mkdir()
        (cwd / "seed_2146.yaml").write_bytes((EXAMPLES / "seed_2146.yaml").read_bytes())
        more = {"PYTHONHASHSEED": str(number), "FUSEC_PLAN_CACHE": "0"}  # each plans by itself
        dumps = ["--segmented_fusion", "--preseg", "--scheduler_params", "--host-program"]
        commands = [["compile", "seed_2146.yaml"], ["dump", "seed_2146.yaml", *dumps]]
        code = f"from fusec.cli import run_main\nfor c in {commands}: assert run_main(c) == 0"
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, capture_output=True, text=True, env={**surroundings, **more}, cwd=cwd
        )
        assert done.returncode == 0, done.stderr
        out = cwd / "seed_2146.fusec"
        made.append(
            {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}
        )
        printed.append(done.stdout)
    assert made[0].keys() == made[1].keys()
    assert [n for n in made[0] if made[0][n] != made[1][n]] == []
    assert printed[0] == printed[1]
    everything = b"".join(made[0].values()) + printed[0].encode()
    assert str(tmp_path).encode() not in everything
    assert str(ROOT).encode() not in everything


def test_no_progress_in_a_pipe(surroundings: dict[str, str], tmp_path: Path) -> None:
    done = run(
        surroundings, "compile", small(tmp_path), "-o", tmp_path / "out", "--no-cache",
        TERM="xterm",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout


@pytest.mark.parametrize("command", ["compile", "run"])
def test_progress_on_a_terminal(command: str, surroundings: dict[str, str], tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    arguments = [command, str(small(tmp_path)), "--no-cache"]
    arguments += ["-o", str(tmp_path / "out")] if command == "compile" else ["--print", "1"]
    process = subprocess.Popen(
        [*FUSEC, *arguments], stdout=subprocess.PIPE, stderr=theirs,
        env={**surroundings, "TERM": "xterm", "COLUMNS": "100"},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:
        pass  # the other end is closed
    os.close(ours)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"building" in shown
    assert b"small_pointwise" in shown
    assert ("evaluating the reference" in shown.decode()) == (command == "run")
    assert b"\x1b" not in out


def test_a_reader_that_has_enough(surroundings: dict[str, str]) -> None:
    with subprocess.Popen(
        [*FUSEC, "ops"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=surroundings
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk(surroundings: dict[str, str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*FUSEC, "ops"], stdout=full, stderr=subprocess.PIPE, env=surroundings, check=False
        )
    assert done.returncode == 4
    assert done.stderr == b"environment: cannot write the output: No space left on device\n"


def test_an_interrupt(surroundings: dict[str, str], tmp_path: Path) -> None:
    script = small(tmp_path, "import time\nprint('ready', flush=True)\ntime.sleep(60)\n", "s.py")
    process = subprocess.Popen(
        [*FUSEC, "run", str(script)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=surroundings,
        # A shell's background job ignores interrupts, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.strip()) == (130, "interrupted")


@pytest.mark.nightly  # tests/commands/test_swap.py kills a command, too
def test_a_killed_compile_leaves_a_whole_folder_or_none(
    surroundings: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "here" / "out"
    path = EXAMPLES / "seed_2146.yaml"
    process = subprocess.Popen([*FUSEC, "compile", path, "-o", out, "--no-cache"], env=surroundings)
    time.sleep(0.5)
    process.kill()
    process.wait(timeout=60)
    if out.exists():  # it was faster: then it is whole
        read_folder(out)
    assert run(surroundings, "compile", path, "-o", out).returncode == 0
    read_folder(out)


def test_exit_codes_reach_the_shell(surroundings: dict[str, str], tmp_path: Path) -> None:
    path = small(tmp_path)
    refused = tmp_path / "refused.yaml"
    refused.write_text(path.read_text().replace("x: bf16", "x: f4e2m1"))
    lines = [
        ["check", path], ["golden", path], ["check", tmp_path / "none.yaml"], ["check", refused],
        ["run", EXAMPLES / "rope.yaml", "--device", "cuda"],
    ]  # fmt: skip
    code = (
        "import runpy, sys\n"
        f"for line in {[[*map(str, line)] for line in lines]}:\n"
        "    sys.argv = ['fusec', *line]\n"
        "    try:\n        runpy.run_module('fusec', run_name='__main__')\n"
        "    except SystemExit as end:\n        print('exit', end.code)\n"
    )
    environment = {**surroundings, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert re.findall(r"^exit (.*)$", done.stdout, re.MULTILINE) == ["0", "1", "2", "3", "4"]
    assert run(surroundings, "check", refused).returncode == 3
