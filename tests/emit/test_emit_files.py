"""Emitted files: any C compiler takes them, they read well, and a folder with them is still one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_tools import EXAMPLES, fusec, small
from emitted import FAKE, STRICT, compile_c, stand_in
from test_golden import STYLE

Capture = pytest.CaptureFixture[str]
REAL = [Path(p) / "include" for p in (os.environ.get("CUDA_PATH", ""), "/usr/local/cuda") if p]
HEADERS = [FAKE, *(p for p in REAL if (p / "cuda.h").is_file())]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled folder with kernels for two targets, scratch memory, tensor maps and clusters."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from fusec.cli import run_main

    out = tmp_path_factory.mktemp("emitted") / "out"
    example = str(EXAMPLES / "matmul_long_k.yaml")
    targets = "sm_80,sm_90a"
    assert run_main(["compile", example, "-o", str(out), "--emit", "c", "--target", targets]) == 0
    return out


@pytest.mark.parametrize("headers", HEADERS, ids=str)
def test_c_and_cpp_take_the_files(folder: Path, headers: Path, tmp_path: Path) -> None:
    check_compiles(folder, "matmul_long_k", headers, tmp_path)


def check_compiles(folder: Path, fusion: str, headers: Path, work: Path) -> None:
    """Fail unless compilers take a folder's files, and its interface in C99 and C++11."""
    include = (f"-I{folder}", "-isystem", headers)
    for name in (fusion, "example"):
        compile_c("-std=c11", *STRICT, *include, "-c", folder / f"{name}.c", "-o", "/dev/null")
    user = work / "user.c"
    user.write_text(f'#include "{fusion}.h"\n')
    compile_c("-std=c99", *STRICT, *include, "-fsyntax-only", user)
    compile_c("-std=c++11", *STRICT, *include, "-fsyntax-only", "-x", "c++", user, compiler="g++")


def test_the_files_are_formatted(folder: Path) -> None:
    check_formatted(folder, "matmul_long_k")


def check_formatted(folder: Path, fusion: str) -> None:
    """Fail unless a folder's files are as clang-format has them."""
    formatter = shutil.which("clang-format") or pytest.importorskip("clang_format").get_executable(
        "clang-format"
    )
    style = STYLE.replace(", BinPackParameters: OnePerLine", "")
    for name in (f"{fusion}.h", f"{fusion}.c", "example.c"):
        text = (folder / name).read_text().partition("// clang-format off")[0].rstrip() + "\n"
        command = [formatter, f"--style={style}", f"--assume-filename={name}"]
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        assert done.stdout == text, name


DOCS = (EXAMPLES.parent / "docs" / "c.md").read_text()


def test_the_documented_commands_build_the_example_which_runs(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(EXAMPLES)
    first, second = re.findall(r"```sh\n(.*?)```", DOCS, re.DOTALL)[0].splitlines()
    assert fusec(capsys, *first.split()[1:]).code == 0
    where = f"-B build -DCUDA_INCLUDE={FAKE} -DCUDA_DRIVER={stand_in()}"
    command = second.replace("-B build", where)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.stdout.splitlines()[-1], done.stderr) == ("layernorm has run", "")
    code, _ = re.findall(r"```c\n(.*?)```", DOCS, re.DOTALL)
    (tmp_path / "user.c").write_text(code)
    compile_c("-std=c99", *STRICT, "-Ilayernorm.fusec", "-fsyntax-only", "user.c")


(USER,) = re.findall(r"```cmake\n(.*?)```", DOCS, re.DOTALL)
"""The project of somebody who uses the library, in C++."""
NVCC = """\
#!/bin/sh
echo "#\\$ TOP=$(dirname "$0")/.." >&2
echo "Cuda compilation tools, release 13.0, V13.0.88"
"""


def toolkit(folder: Path) -> Path:
    """Return a folder that CMake takes for a CUDA toolkit with the stub of the driver."""
    nvcc, stubs = folder / "bin" / "nvcc", folder / "lib64" / "stubs"
    shutil.copytree(FAKE, folder / "include")
    nvcc.parent.mkdir()
    stubs.mkdir(parents=True)
    nvcc.write_text(NVCC)
    nvcc.chmod(0o755)
    (folder / "include" / "cuda_runtime.h").touch()
    for library in (stubs / "libcuda.so", folder / "lib64" / "libcudart.so"):
        shutil.copyfile(stand_in(), library)
    return folder


@pytest.mark.nightly
@pytest.mark.parametrize("found", [True, False])
def test_a_project_finds_the_installed_library(
    tmp_path: Path, capsys: Capture, found: bool
) -> None:
    """With the toolkit that CMake finds, and with one that the user names."""
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    folder = tmp_path / "layernorm.fusec"
    done = fusec(capsys, "compile", EXAMPLES / "layernorm.yaml", "-o", folder, "--emit", "c")
    assert done.code == 0
    (code,) = re.findall(r"```c\n(#include \"layernorm.*?)```", DOCS, re.DOTALL)
    user, options = tmp_path / "user", [f"-DCUDA_INCLUDE={FAKE}", f"-DCUDA_DRIVER={stand_in()}"]
    user.mkdir()
    (user / "user.cpp").write_text(f"{code}\nint main() {{ return !call; }}\n")
    (user / "CMakeLists.txt").write_text(USER)
    if found:
        options = [f"-DCUDAToolkit_ROOT={toolkit(tmp_path / 'toolkit')}"]
    build, users, prefix = tmp_path / "build", tmp_path / "users", tmp_path / "prefix"
    for command in (
        ["-S", folder, "-B", build, *options], ["--build", build],
        ["--install", build, "--prefix", prefix],
        ["-S", user, "-B", users, f"-DCMAKE_PREFIX_PATH={prefix}", *options], ["--build", users],
    ):  # fmt: skip
        done = subprocess.run(["cmake", *map(str, command)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    subprocess.run([users / "user"], check=True)


def test_a_folder_with_emitted_files_is_run_and_written_again(
    tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "out"
    file = small(tmp_path)
    assert fusec(capsys, "compile", file, "-o", out, "--emit", "c").code == 0
    assert {p.name for p in out.iterdir() if p.is_file()} == {
        "CMakeLists.txt", "example.c", "fusion.yaml", "manifest.json", "small.c", "small.h",
    }  # fmt: skip
    assert fusec(capsys, "run", out).code == 0
    (out / "example.c").write_text("int main(void) { return 0; }\n")
    assert fusec(capsys, "run", out).code == 0, "what is edited there is none of fusec's business"
    done = fusec(capsys, "compile", file, "-o", out)
    assert done.code == 2
    assert "`example.c` was edited" in done.err.replace(f"{out}/", "")
    (out / "example.c").unlink()
    assert fusec(capsys, "compile", file, "-o", out).code == 0
    assert not (out / "small.c").exists()


def test_the_same_fusion_gives_the_same_bytes(
    folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    example, out = EXAMPLES / "matmul_long_k.yaml", tmp_path / "again"
    targets = ("--target", "sm_80,sm_90a")
    assert fusec(capsys, "compile", example, "-o", out, "--emit", "c", *targets).code == 0
    for path in folder.glob("*.[ch]"):
        assert path.read_bytes() == (out / path.name).read_bytes()
