"""Kernels whose texts differ in names alone are compiled once, and keep their names."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_tools import EXAMPLES, fusec, small

from fusec import driver
from fusec.codegen.matmul_names import renamed as with_names
from fusec.codegen.render import KernelSource
from fusec.ir.graph import Fusion
from fusec.kernel.ctext import TEMPLATE_NAMES
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.run import build as build_module
from fusec.run.build import Builder, Source
from fusec.run.cache import Cache
from fusec.run.cubin import kernel_stats, renamed
from fusec.run.headers import headers_for
from fusec.run.nvrtc import Compiled, compile_cuda

pytest.importorskip("cuda.bindings.nvrtc")
Capture = pytest.CaptureFixture[str]
OPTIONS = CompileOptions(targets=("sm_90a",), targets_given=True, use_cache=False)

# --- of a fusion and the same with other names, what has one digest has one code ---------------


def other_names(fusion: Fusion) -> Fusion:
    """Return a fusion under other names of the same length: lines end where they did."""
    # What a template has a variable for is called otherwise in the text, and is longer.
    own = (v.name for v in fusion.values if v.name not in TEMPLATE_NAMES)
    names = {name: name.swapcase() for name in own}
    return replace(with_names(fusion, names), name=fusion.name.swapcase())


def sources_of(fusion: Fusion) -> list[KernelSource]:
    planned = driver.plan(fusion, OPTIONS)
    return list(planned.kernel_sources)


def code_of(source: KernelSource) -> dict[str, bytes]:
    """Return the sections of a kernel's cubin that a GPU sees."""
    from fusec.run.elf import Elf

    headers = headers_for(source.text)
    cubin = compile_cuda(source.text, name=source.name, arch="sm_90a", headers=headers).cubin
    elf = Elf(cubin)
    seen = (".text", ".nv.info", ".nv.constant", ".nv.global", ".nv.shared")
    return {
        s.name.replace(source.name, "kernel"): elf.content(s)
        for s in elf.sections
        if s.name.startswith(seen)
    }


NAMED = ["cross_entropy", "gelu_bias", "linear_gelu", "layernorm_backward", "rope", "transpose"]


@pytest.mark.parametrize("name", NAMED)
def test_other_names_give_the_same_code(name: str) -> None:
    fusion = driver.load(str(EXAMPLES / f"{name}.yaml"))
    ours, theirs = sources_of(fusion), sources_of(other_names(fusion))
    assert [s.digest for s in ours] == [s.digest for s in theirs]
    for our, their in zip(ours, theirs, strict=True):
        assert our.text != their.text
        assert code_of(our) == code_of(their)


def test_kernels_that_differ_have_other_digests() -> None:
    """Of the kernels of all examples none does the work of another, whatever its names."""
    sources = [s for path in EXAMPLES.glob("*.yaml") for s in sources_of(driver.load(str(path)))]
    digests = Counter(source.digest for source in sources)
    assert len(sources) > 30
    assert [n for n in digests.values() if n > 1] == []


ROWS = """fusion: rows
doc: Rows.
dims: {B: 64, H: 512}
inputs: {x: "f32[B, H]", w: "f32[H]"}
ops:
  - y = mul(softmax(x, 1), w)
outputs: [y]
"""


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (r"\bx\b", "input_of_rows", True),
        (r"\by\b", "w2", True),
        ("rows", "columns", True),
        ("Rows.", "Anything, as `x`", True),
        ("H: 512", "H: 1024", False),
        ("softmax", "log_softmax", False),
        ("mul", "add", False),
        (r"f32\[H\]", "bf16[H]", False),
    ],
)
def test_names_and_comments_do_not_count_and_all_else_does(old: str, new: str, same: bool) -> None:
    (ours,), (theirs,) = (
        sources_of(read_text(t, "f.yaml")) for t in (ROWS, re.sub(old, new, ROWS))
    )
    assert ours.text != theirs.text
    if len(ours.text.splitlines()) == len(theirs.text.splitlines()):  # the line table counts lines
        assert (ours.digest == theirs.digest) == same
    else:
        assert ours.digest != theirs.digest


# --- cubins under another name ------------------------------------------------------------------

SUMS = """extern "C" __global__ void {name}(const float* x, float* y) {{
  __shared__ float cells[64];
  auto twice = [&](int i) {{ return cells[i] * 2.0f; }};
  cells[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = twice(threadIdx.x ^ 1);
}}
"""


def cubin_of(name: str, arch: str = "sm_90a") -> bytes:
    return compile_cuda(SUMS.format(name=name), name=name, arch=arch, headers={}).cubin


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_a_name_of_the_same_size_gives_what_the_compiler_gives(arch: str) -> None:
    assert renamed(cubin_of("sums_12", arch), "sums_12", "sums_97") == cubin_of("sums_97", arch)


@pytest.mark.parametrize("new", ["s", "sums_of_rows", "sums_of_column", "text"])
def test_a_shorter_name(new: str, tmp_path: Path) -> None:
    old = "sums_of_columns"
    before, own = cubin_of(old), cubin_of(new)
    after = renamed(before, old, new)
    assert len(after) == len(before)
    assert old.encode() not in after
    assert kernel_stats(after) == kernel_stats(own)
    # Where much is to be filled, the line table says `./` before the name of the file.
    assert disassembled(after, tmp_path).replace("./", "") == disassembled(own, tmp_path)


def disassembled(cubin: bytes, folder: Path) -> str:
    """Return the code with its lines, as NVIDIA's own tool reads them."""
    from fusec.run.sass import find_tool

    (folder / "k.cubin").write_bytes(cubin)
    command = [find_tool("nvdisasm"), "-g", "-c", folder / "k.cubin"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert '//## File "' in done.stdout
    return done.stdout


@pytest.mark.parametrize(("old", "new"), [("sums", "longer"), ("other", "o"), ("um", "u")])
def test_what_cannot_be_renamed(old: str, new: str) -> None:
    with pytest.raises(ValueError, match=r"longer|no kernel"):
        renamed(cubin_of("sums"), old, new)


# --- builds --------------------------------------------------------------------------------------


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that NVRTC's calls go to, by the name of the kernel."""
    made: list[str] = []

    def counted(source: str, **rest: Any) -> Compiled:
        made.append(rest["name"])
        return compile_cuda(source, **rest)

    monkeypatch.setattr(build_module, "compile_cuda", counted)
    return made


HEAD = "fusion: many\ndims: {R: 96, C: 128}\ninputs: {x: 'f32[R, C]'}\nops:\n"


def apart(count: int) -> str:
    """Return reductions of one input, each in a segment of its own."""
    kinds, numbers = ("sum", "max", "min"), range(count)
    lines = "".join(f"  - r{k} = {kinds[k % 3]}(x, dims=[{k // 3 % 2}])\n" for k in numbers)
    pins = "".join(f"  s{k}: [r{k}]\n" for k in numbers)
    outputs = ", ".join(f"r{k}" for k in numbers)
    return f"{HEAD}{lines}segments:\n{pins}outputs: [{outputs}]\n"


def alternating(count: int) -> str:
    """Return sums along alternating axes, each subtracted before the next."""
    text, last = HEAD, "x"
    for k in range(count):
        text += f"  - s{k} = sum({last}, dims=[{k % 2}], keepdim=true)\n"
        text += f"  - y{k} = sub({last}, s{k})\n"
        last = f"y{k}"
    return f"{text}outputs: [{last}]\n"


@pytest.mark.parametrize("text", [apart(42), alternating(60)], ids=["apart", "alternating"])
def test_many_kernels_are_compiled_few_times(text: str, calls: list[str]) -> None:
    compiled = driver.compile_fusion(read_text(text, "many.yaml"), OPTIONS)
    sources = compiled.program.kernel_sources
    assert len(calls) == len({s.digest for s in sources}) <= 10
    if "segments:" in text:
        assert len(sources) == 42
    for source in sources:
        artifact = compiled.artifacts[source.name, "sm_90a"]
        (stats,) = kernel_stats(artifact.cubin)
        assert (stats.name, stats.registers) == (source.name, artifact.registers)
        assert f" {source.name}(" in source.text


def test_a_build_is_the_same_by_any_way(tmp_path: Path, capsys: Capture) -> None:
    """The bytes hang on the fusion alone: on no cache, and on no order of threads."""
    path = small(tmp_path, apart(14))
    ways = (["--no-cache"], ["--no-cache", "-j", "1"], [], ["-j", "1"])
    for k, way in enumerate(ways):
        assert fusec(capsys, "compile", path, "-o", tmp_path / str(k), *way).code == 0
    first, *rest = (
        {p.name: p.read_bytes() for p in (tmp_path / str(k)).rglob("*") if p.is_file()}
        for k in range(len(ways))
    )
    assert all(other == first for other in rest)


def test_an_edit_of_one_of_many_is_built_by_itself(
    tmp_path: Path, capsys: Capture, calls: list[str]
) -> None:
    out = tmp_path / "out"
    assert fusec(capsys, "compile", small(tmp_path, apart(6)), "-o", out, "--no-cache").code == 0
    *_, edited = sorted((out / "kernels").glob("*.cu"))
    edited.write_text(edited.read_text().replace("// ", "// edited: ", 1))
    calls.clear()
    done = fusec(capsys, "run", out, "--no-cache")
    assert (done.code, done.err) == (0, "")
    assert calls == [edited.stem]


def named(name: str, factor: str = "2.0f") -> Source:
    text = f'extern "C" __global__ void {name}(float* x) {{ x[threadIdx.x] *= {factor}; }}\n'
    return Source(name, text, digest=f"doubled {factor}")


def test_what_a_builder_has_built_before(calls: list[str]) -> None:
    builder = Builder(["sm_80", "sm_90a"], cache=Cache(None))
    first = builder.build([named("a"), named("bb"), named("c", "3.0f")])
    assert sorted(calls) == ["bb", "bb", "c", "c"]
    calls.clear()
    second = builder.build([named("dd"), named("eee"), named("ff", "3.0f")])
    assert sorted(calls) == ["eee", "eee", "ff", "ff"], "no room for longer names"
    calls.clear()
    third = builder.build([named("eee"), named("g")])
    assert calls == []
    for built in (first, second, third):
        for (name, arch), artifact in built.items():
            assert (artifact.name, artifact.arch) == (name, arch)
            assert [k.name for k in kernel_stats(artifact.cubin)] == [name]
    assert third["eee", "sm_80"].cubin == second["eee", "sm_80"].cubin


def test_sources_of_others_are_built_for_themselves(calls: list[str]) -> None:
    text = 'extern "C" __global__ void k(float* x) { *x = 1.0f; }\n'
    builder = Builder(["sm_80"], cache=Cache(None))
    for source in (Source("one", text), Source("two", text), Source("one", text + "\n")):
        builder.build([source])
    assert calls == ["one", "two", "one"]


def test_an_error_in_a_shared_text(calls: list[str]) -> None:
    from fusec.run.nvrtc import CompileError

    sources = [named(name, "nonsense") for name in ("a", "bbb", "c")]
    with pytest.raises(CompileError, match=r"bbb\.cu"):
        Builder(["sm_80"], 1, cache=Cache(None)).build(sources)
    assert calls == ["bbb"]


def test_progress_counts_all(calls: list[str]) -> None:
    seen: list[tuple[str, int, int]] = []
    note: Callable[..., None] = lambda a, done, total: seen.append((a.name, done, total))  # noqa: E731
    Builder(["sm_80"], 2, cache=Cache(None), progress=note).build([named("a"), named("b")])
    assert sorted(name for name, _, _ in seen) == ["a", "b"]
    assert [(done, total) for _, done, total in seen] == [(1, 2), (2, 2)]


@pytest.mark.gpu
def test_kernels_under_another_name_run() -> None:
    from gpu_check import check_on_gpu

    checked = check_on_gpu(read_text(apart(14), "many.yaml"))
    sources = checked.compiled.program.kernel_sources
    assert len({s.digest for s in sources}) < len(sources)
