"""Every device header builds alone, every function of it in a kernel, all without warnings."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from paths import TESTS

from fusec.run.binary.headers import anchor_includes, device_headers, headers_for
from fusec.run.binary.nvrtc import Compiled, compile_cuda
from fusec.run.binary.sass import find_tool, sass

KERNELS = {path.stem: path for path in sorted((TESTS / "device").glob("*.cu"))}
HOPPER_ONLY = {"cluster", "reduce_group", "proxy", "mbarrier", "tma", "bulk_reduce", "wgmma"}
CASES = [
    *((name, "sm_90a") for name in KERNELS),
    *(pytest.param(n, "sm_80", marks=pytest.mark.nightly) for n in KERNELS if n not in HOPPER_ONLY),
]
# `name(` after the attributes of a device function, and methods inside structs.
FUNCTION = re.compile(r"__forceinline__ (?:static |explicit )?[\w:<>,& *]*?\b(\w+)\(")
MACRO_NAMES = {"NAME", "TYPE"}


def build(name: str, text: str, arch: str) -> Compiled:
    return compile_cuda(text, name=name, arch=arch, headers=headers_for(text))


@pytest.mark.parametrize(("name", "arch"), CASES)
def test_every_function_builds_without_warnings(name: str, arch: str) -> None:
    built = build(name, KERNELS[name].read_text(), arch)
    assert built.warnings == ()
    assert built.spill_bytes == 0
    assert "kernel" in [kernel.name for kernel in built.kernels]


@pytest.mark.parametrize("name", sorted(device_headers()))
def test_every_header_builds_alone(name: str) -> None:
    built = build(
        "alone", f'#include "{name}"\nextern "C" __global__ void kernel() {{}}\n', "sm_90a"
    )
    assert built.warnings == ()


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_the_kernel_of_a_header_calls_all_its_functions(name: str) -> None:
    header = re.sub(r"//.*", "", device_headers()[f"{name}.cuh"])
    kernel = KERNELS[name].read_text()
    functions = set(FUNCTION.findall(header)) - {"asm", "operator"}
    missing = {f for f in functions if not re.search(rf"\b{f}\b", kernel)}
    # What a header's own functions call in turn is built through them.
    called = {f for f in missing if len(re.findall(rf"\b{f}\b", header)) > 1}
    assert functions, name
    assert missing - called == set()


@pytest.mark.parametrize("name", sorted(device_headers()))
def test_headers_are_plain_and_self_contained(name: str) -> None:
    text = device_headers()[name]
    assert text.startswith("// ")
    assert "#pragma once" in text
    assert not re.search(r"#\s*include\s*<", text)
    assert "{{" not in text.replace("{{{", "")
    assert set(headers_for(text)) <= set(device_headers())


def test_wide_vectors_are_one_instruction() -> None:
    find_tool("nvdisasm")
    code = sass(build("vector", KERNELS["vector"].read_text(), "sm_90a").cubin)
    wide = code[code.index(".text.wide:") :].split(".text.", 2)[1]
    assert re.findall(r"LDG\.E\.128\.CONSTANT|LDG\S*", wide) == ["LDG.E.128.CONSTANT"]
    assert re.findall(r"STG\S*", wide) == ["STG.E.128"]


def test_headers_are_formatted(tmp_path: Path) -> None:
    formatter = shutil.which("clang-format") or pytest.importorskip("clang_format").get_executable(
        "clang-format"
    )
    for name in KERNELS:
        (tmp_path / f"{name}.cuh").write_text(device_headers()[f"{name}.cuh"])
    files = [*sorted(tmp_path.iterdir()), *KERNELS.values()]
    style = "--style={BasedOnStyle: Google, ColumnLimit: 100}"
    command = [formatter, style, "--dry-run", "-Werror", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_anchored_includes_keep_lines_and_unknown_names() -> None:
    text = '#include "types.cuh"\n  #  include "mine.h"\n#include <x>\nint x;\n'
    anchored = anchor_includes(text, {"types.cuh": ""}, "/fusec/")
    assert anchored == '#include "/fusec/types.cuh"\n  #  include "mine.h"\n#include <x>\nint x;\n'


def test_only_used_headers_are_taken() -> None:
    assert list(headers_for('#include "fp8.cuh"\n')) == ["fp8.cuh", "storage.cuh"]
    assert headers_for('// #include is "fp8.cuh"\nint x;') == {}
