"""Wrong input of every class: the exit code, a message that helps, and never a traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cli_tools import EXAMPLES, SCRIPT, SMALL, fusec, small

from fusec import driver

Capture = pytest.CaptureFixture[str]
COMMANDS = ("check", "compile", "run", "dump", "golden")


def refuse(*_: object, **__: object) -> None:
    """Answer as the system does."""
    raise PermissionError(13, "Permission denied")


def edit(old: str, new: str) -> str:
    assert old in SMALL
    return SMALL.replace(old, new)


# name of the file: its bytes (None: a directory), what the message says
FILES: dict[str, tuple[bytes | None, str]] = {
    "empty.yaml": (b"", "`{}` is empty"),
    "empty.py": (b"", "`{}` is empty"),
    "blank.yaml": (b" \n\n", "`{}` is empty"),
    "binary.yaml": (b"\x7fELF\0\1\2", "`{}` is a binary file"),
    "binary.py": (b"\x7fELF\0\1\2", "`{}` is a binary file"),
    "latin.yaml": (b"fusion: caf\xe9\n", "not UTF-8"),
    "utf16.yaml": ("fusion: f".encode("utf-16"), "`{}` is UTF-16 text"),
    "folder.yaml": (None, "`{}` is "),
    "folder.py": (None, "`{}` is "),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", FILES)
def test_files_that_are_none(name: str, command: str, tmp_path: Path, capsys: Capture) -> None:
    content, message = FILES[name]
    path = tmp_path / name
    path.mkdir() if content is None else path.write_bytes(content)
    fusec(capsys, command, path).says(2, message.format(path))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["", "missing.yaml", "missing.py", "missing", "a/b/c.yaml"])
def test_missing_files(name: str, command: str, tmp_path: Path, capsys: Capture) -> None:
    small(tmp_path, name="missin.yaml")
    path = str(tmp_path / name) if name else ""
    done = fusec(capsys, command, path)
    done.says(2, f"no such file: `{path}`")
    if name == "missing.yaml":
        assert "did you mean" in done.err


def test_an_unreadable_file(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = small(tmp_path)
    path.chmod(0)
    if os.access(path, os.R_OK):
        # The superuser may read everything: the system's answer is played.
        opened = os.open
        monkeypatch.setattr(
            os, "open", lambda name, *a: refuse() if name == str(path) else opened(name, *a)
        )
    fusec(capsys, "check", path).says(2, "cannot read", "Permission denied")


FUSIONS = {
    "unknown op": (edit("exp(", "expp("), 2, "did you mean `exp`?"),
    "unknown dtype": (edit("x: bf16", "x: bf17"), 2, "unknown dtype `bf17`"),
    "unknown field": (edit("doc:", "docs:"), 2, "unknown field `docs`"),
    "refused dtype": (edit("x: bf16", "x: f4e2m1"), 3, "unsupported[E0901]: tensors of f4e2m1"),
    "refused of complex": (
        edit("cast(x, f32), w", "cast(x, c64), w").replace("= exp(", "= relu("),
        3,
        "`relu` of complex numbers",
    ),
    "shape mismatch": (edit("w: f32[H]", "w: f32[B]"), 2, "do not broadcast"),
    "undefined value": (edit("w))", "v))"), 2, "undefined name `v`"),
    "doubly defined": (edit("- y =", "- z ="), 2, "`z` is defined twice"),
    "recursive alias": ("fusion: &a [*a]\n", 2, "contains itself"),
    "not an identifier": (edit("fusion: small", "fusion: a-b"), 2, "is not an identifier"),
    "path as a name": (edit("fusion: small", "fusion: ../../x"), 2, "is not an identifier"),
    "CUDA keyword": (edit("- z = exp", "- int = exp").replace("(z", "(int"), 2, "CUDA C++"),
    "overflow": (edit("B: 8", "B: 9223372036854775807"), 2, "is too large"),
    "deep nesting": (edit("exp(", "exp(" * 3000).replace("))\n", ")" * 3001 + "\n"), 2, "nested"),
    "duplicate key": (SMALL + "doc: again\n", 2, "`doc`"),
    "no fusion": ("a: 1\n", 2, "unknown field `a`"),
    "a script": (SCRIPT, 2, "error[E0108]: this is Python"),
}


@pytest.mark.parametrize("case", FUSIONS)
def test_fusions_that_are_wrong(case: str, tmp_path: Path, capsys: Capture) -> None:
    text, code, message = FUSIONS[case]
    path = small(tmp_path, text)
    for command in ("check", "run"):
        fusec(capsys, command, path).says(code, message, f"--> {path}:")


SETS = {
    "Q=3": "no such dim",
    "B": "expected NAME=INTEGER",
    "B=": "expected NAME=INTEGER",
    "=3": "expected NAME=INTEGER",
    "B=x": "expected NAME=INTEGER",
    "B=1e3": "expected NAME=INTEGER",
    "B=2.5": "expected NAME=INTEGER",
    "B=" + "9" * 5000: "expected NAME=INTEGER",
    "B=-1": "it is not a size",
    "B=99999999999999999999": "it is not a size",
    "B=4611686018427387904": "is too large",
    "H=6": "a multiple of 4",
    "x=4": "`x` is a tensor",
}


@pytest.mark.parametrize("given", SETS, ids=lambda s: s[:24])
def test_sizes_that_cannot_be_set(given: str, tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path)
    for command in ("check", "run"):
        fusec(capsys, command, path, "--set", given).says(2, SETS[given])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("Q=3", "has no dim `Q`"),
        ("B=-1", "cannot be negative"),
        ("H=100", "a multiple of 8"),
        ("B=99999999999999999999", "is too large"),
    ],
)
def test_sizes_that_a_script_cannot_have(given: str, message: str, capsys: Capture) -> None:
    fusec(capsys, "check", EXAMPLES / "layernorm.py", "--set", given).says(2, message)


USAGE: list[tuple[list[str], str]] = [
    (["--target", "sm_70"], "unknown target `sm_70`"),
    (["--target", ","], "--target is empty"),
    (["--without", "nothing"], "unknown pass `nothing`"),
    (["--stop-after", "nothing"], "unknown pass `nothing`"),
    (["--jobs", "0"], "--jobs"),
    (["--nonsense"], "no such option"),
]


@pytest.mark.parametrize(("options", "message"), USAGE, ids=lambda v: str(v)[:20])
def test_wrong_options(options: list[str], message: str, tmp_path: Path, capsys: Capture) -> None:
    fusec(capsys, "check", small(tmp_path), *options).says(2, message)


@pytest.mark.parametrize(
    "options",
    [
        ["dump", "--style", "modern"],
        ["run", "--seed", "-1"],
        ["run", "--seed", "x"],
        ["run", "--repeat", "-1"],
        ["run", "--device", "gpu"],
        ["golden", "--dialect", "json"],
        ["compile", "-o", ""],
    ],
    ids=" ".join,
)
def test_wrong_values_of_options(options: list[str], tmp_path: Path, capsys: Capture) -> None:
    command, *rest = options
    fusec(capsys, command, small(tmp_path), *rest).says(2, rest[0])


def test_an_unknown_target_in_the_environment(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSEC_TARGET", "sm_1")
    fusec(capsys, "check", small(tmp_path)).says(2, "unknown target `sm_1`", "sm_90a")


def test_an_unknown_operation(capsys: Capture) -> None:
    fusec(capsys, "ops", "rsqrtt").says(2, "unknown operation `rsqrtt`", "did you mean `rsqrt`?")


SCRIPTS = {
    "raises": ("def f():\n    return 1 / 0\nf()\n", "raises ZeroDivisionError", ":2:12"),
    "exits": ("import sys\nsys.exit(3)\n", "exits with 3", ""),
    "syntax": ("def f(:\n    pass\n", "not valid Python", ":1:7"),
    "no fusion": ("print(1)\n", "defines no fusion", ""),
    "missing module": ("import no_such_module\n", "ModuleNotFoundError", ":1:1"),
    "unknown op": (SCRIPT.replace("ops.exp", "ops.expp"), "expp", ":10:"),
    "scheduling": (SCRIPT + "first.sched.split(1, 2, 3)\n", "sched", ":12:"),
}


@pytest.mark.parametrize("case", SCRIPTS)
def test_scripts_that_are_wrong(case: str, tmp_path: Path, capsys: Capture) -> None:
    text, message, place = SCRIPTS[case]
    path = small(tmp_path, text, "script.py")
    code = 3 if case == "scheduling" else 2
    for command in ("check", "run"):
        fusec(capsys, command, path).says(code, message, f"{path}{place}")


def test_an_assertion_of_a_script_points_at_it(tmp_path: Path, capsys: Capture) -> None:
    text = (
        SCRIPT + "import numpy\n(y,) = first.execute([numpy.ones((2, 2), 'f4')])\nassert 0 in y\n"
    )
    path = small(tmp_path, text, "script.py")
    fusec(capsys, "run", path).says(2, "AssertionError", "assert 0 in y", f"{path}:14:")


@pytest.mark.parametrize("flag", ["--inputs", "--expect"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.npz", "no such file"),
        ("folder.npz", "is a directory"),
        ("plain.txt", "neither a .safetensors nor an .npz file"),
        ("broken.npz", "is not a readable .safetensors or .npz file"),
        ("broken.safetensors", "is not a readable .safetensors or .npz file"),
    ],
)
def test_array_files_that_are_none(
    flag: str, name: str, message: str, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "folder.npz").mkdir()
    for bad in ("plain.txt", "broken.npz", "broken.safetensors"):
        (tmp_path / bad).write_bytes(b"PK no archive")
    path = tmp_path / name
    fusec(capsys, "run", small(tmp_path), flag, path).says(2, message, str(path))


@pytest.mark.parametrize("name", ["o.txt", "o", "nowhere/o.npz", "folder.npz"])
def test_outputs_that_cannot_be_written(name: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "folder.npz").mkdir()
    done = fusec(capsys, "run", small(tmp_path), "--outputs", tmp_path / name)
    done.says(2, f"--outputs {tmp_path / name}: ")
    assert done.out == "", "it is told before anything runs"


@pytest.mark.parametrize("command", ["compile", "golden", "run"])
def test_no_right_to_write(
    command: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = small(tmp_path)
    options = {
        "compile": ["-o", tmp_path / "locked" / "out"],
        "golden": ["--update"],
        "run": ["--outputs", tmp_path / "locked" / "o.npz"],
    }[command]
    locked = tmp_path if command == "golden" else tmp_path / "locked"
    locked.mkdir(exist_ok=True)
    locked.chmod(0o500)
    try:
        if os.access(locked, os.W_OK):
            # The superuser may write everywhere: the system's answer is played.
            monkeypatch.setattr(os, "access", lambda *_, **__: False)
            monkeypatch.setattr(Path, "mkdir", refuse)
        fusec(capsys, command, path, *options).says(2, "writ")
    finally:
        locked.chmod(0o700)


def test_no_gpu_is_an_environment_problem(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusec.run.device.device_available", lambda: "no CUDA GPU is visible")
    path = small(tmp_path)
    fusec(capsys, "run", path, "--device", "cuda").says(4, "no CUDA GPU is visible")
    done = fusec(capsys, "run", path)
    assert done.code == 0
    assert "not verified on a GPU: no CUDA GPU is visible" in done.out


def test_out_of_memory_is_an_environment_problem(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("fusec.run.inputs.random_inputs", fail)
    path = small(tmp_path)
    fusec(capsys, "run", path, "--device", "reference").says(4, "out of memory", "--set")


def test_a_bug_says_how_to_reproduce_it(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("seven")

    monkeypatch.setattr(driver.Compilation.segmented, "run", fail)
    path = small(tmp_path)
    done = fusec(capsys, "check", path, "--set", "B=2")
    done.says(70, "internal error: ValueError: seven", "this is a bug in fusec", "test_cli_bad")
    assert f"to reproduce: fusec check {path} --set B=2" in done.err
    script = small(tmp_path, SCRIPT, "script.py")
    fusec(capsys, "run", script).says(70, "ValueError: seven", "to reproduce: fusec run")
    monkeypatch.setenv("FUSEC_TRACEBACK", "1")
    with pytest.raises(ValueError, match="seven"):
        fusec(capsys, "check", path)


def test_unknown_dump_names_of_the_environment(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVFUSER_DUMP", "segmented_fusion,nonsense")
    done = fusec(capsys, "run", small(tmp_path))
    done.says(2, "unknown name `nonsense`", "segmented_fusion", "cuda_kernel")
    assert done.out == ""
