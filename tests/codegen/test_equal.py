"""Kernels that differ in names and comments alone are one kernel, launched for each segment."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_tools import EXAMPLES, fusec, small
from emulated import emulated

from fusec import driver
from fusec.bench.counters import Counted, compare_traffic
from fusec.bench.work import of_package
from fusec.codegen.equal import first_equal
from fusec.codegen.source import KernelSource
from fusec.commands.facts import timed_facts
from fusec.explain.record import record_of
from fusec.ir.graph import Fusion
from fusec.kernel.ctext import TEMPLATE_NAMES
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.reference.verdict import compare
from fusec.run import build as build_module
from fusec.run.binary.cubin import kernel_stats
from fusec.run.binary.headers import headers_for
from fusec.run.binary.nvrtc import Compiled, compile_cuda
from fusec.run.execute import execute
from fusec.run.inputs import random_inputs
from fusec.run.measure import KernelTime, Timing
from fusec.schedule.matmul.kernel.names import renamed as with_names
from fusec.schedule.plan import TensorArgument
from fusec.segment.roofline import Rates
from fusec.segment.segmented import Segment

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
    from fusec.run.binary.elf import Elf

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


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.nightly)])
def test_kernels_that_differ_have_other_digests(every: int) -> None:
    """Of the kernels of examples none does the work of another, whatever its names."""
    paths = sorted(EXAMPLES.glob("*.yaml"))[::every]
    sources = [s for path in paths for s in sources_of(driver.load(str(path)))]
    digests = Counter(source.digest for source in sources)
    assert len(sources) > len(paths)
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
    assert (ours.digest == theirs.digest) == same
    assert first_equal([ours, theirs]) == [0, 0 if same else 1]


@pytest.mark.parametrize(
    "changed",
    [{"block": (64, 1, 1)}, {"shared_bytes": 1024}, {"cluster": (2, 1, 1)}, {"template": "other"}],
    ids=lambda c: next(iter(c)),
)
def test_what_all_launches_of_a_kernel_share(changed: dict[str, Any]) -> None:
    (source,) = sources_of(read_text(ROWS, "f.yaml"))
    kernel = replace(source.kernel, name="other", **changed)
    assert first_equal([source, replace(source, kernel=kernel)]) == [0, 1]
    grid = (source.kernel.grid[0] * 2, *source.kernel.grid[1:])
    kernel = replace(source.kernel, name="other", grid=grid)
    assert first_equal([source, replace(source, kernel=kernel)]) == [0, 0]


def test_a_text_of_others_is_equal_to_none() -> None:
    (source,) = sources_of(read_text(ROWS, "f.yaml"))
    others = [replace(source, kernel=replace(source.kernel, name=n), body=None) for n in "ab"]
    assert first_equal([*others, source]) == [0, 1, 2]


def test_a_program_of_distinct_kernels_needs_no_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_digest(source: KernelSource) -> str:
        raise AssertionError(source.name)

    monkeypatch.setattr(KernelSource, "digest", property(no_digest))
    text = f"{HEAD}  - r = sum(x, dims=[1])\n  - y = relu(x)\n"
    pinned = f"{text}segments: {{s0: [r], s1: [y]}}\noutputs: [r, y]\n"
    program = driver.plan(read_text(pinned, "two.yaml"), OPTIONS)
    assert len(program.kernel_sources) == 2


# --- programs: fewer kernels than launches ------------------------------------------------------

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


EQUAL = """fusion: equal
dims: {B: 12, N: 9, H: 64}
inputs: {x: 'f32[B, H]', z: 'f32[N, H]', bias: 'f32[H]', b: 'f32[H]'}
ops:
  - first = mul(softmax(x, 1), bias)
  - second = mul(softmax(z, 1), b)
  - third = mul(log_softmax(z, 1), b)
segments: {s0: [first], s1: [second], s2: [third]}
outputs: [first, second, third]
"""
SHARED, OWN = "equal_s0_inner_persistent", "equal_s2_inner_persistent"


def test_a_kernel_is_launched_for_each_segment(tmp_path: Path) -> None:
    """Its arguments and grid are those of the segment; the results are right."""
    fusion = read_text(EQUAL, "equal.yaml")
    program = driver.plan(fusion, OPTIONS)
    launches = program.host.launches
    assert [(e.kernel, e.segment) for e in launches] == [
        (SHARED, "s0"), (SHARED, "s1"), (OWN, "s2"),
    ]  # fmt: skip
    assert [s.name for s in program.kernel_sources] == [SHARED, OWN]
    passed = [[a.name for a in e.arguments if isinstance(a, TensorArgument)] for e in launches]
    assert passed == [["x", "bias", "first"], ["z", "b", "second"], ["z", "b", "third"]]
    sizes = dict(fusion.hints)
    inputs = random_inputs(fusion, sizes)
    device: Any = emulated(program, tmp_path)
    found = execute(device, program.host, dict.fromkeys(device.kernels, b""), inputs, sizes)
    model = driver.model_of(program.host, sizes)
    verdict = compare(fusion, sizes, inputs, found, model=model)
    assert verdict.ok, verdict.text()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that NVRTC's calls go to, by the name of the kernel."""
    made: list[str] = []

    def counted(source: str, **rest: Any) -> Compiled:
        made.append(rest["name"])
        return compile_cuda(source, **rest)

    monkeypatch.setattr(build_module, "compile_cuda", counted)
    return made


@pytest.mark.parametrize("text", [apart(42), alternating(60)], ids=["apart", "alternating"])
def test_many_launches_are_of_few_kernels(text: str, calls: list[str]) -> None:
    compiled = driver.compile_fusion(read_text(text, "many.yaml"), OPTIONS)
    program = compiled.program
    launches, sources = program.host.launches, program.kernel_sources
    assert sorted(calls) == sorted(s.name for s in sources)
    assert len(sources) <= 10 < 42 <= len(launches)
    assert {key for key in compiled.artifacts} == {(s.name, "sm_90a") for s in sources}
    # A kernel has the name of the first segment that launches it.
    planned = {n.name: s.name for s, n in pairs_of(program)}
    first: dict[str, str] = {}
    for launch in launches:
        first.setdefault(launch.kernel, launch.segment)
    assert first == {name: planned[name] for name in first}
    for source in sources:
        (stats,) = kernel_stats(compiled.artifacts[source.name, "sm_90a"].cubin)
        assert stats.name == source.name


def pairs_of(program: driver.Compilation) -> list[tuple[Segment, KernelSource]]:
    pairs = zip(program.segmented.segments, program.sources, strict=True)
    return [(segment, source) for segment, own in pairs for source in own]


def test_a_folder_has_one_file_and_one_entry_of_a_kernel(tmp_path: Path, capsys: Capture) -> None:
    out, path = tmp_path / "out", small(tmp_path, EQUAL)
    done = fusec(capsys, "compile", path, "-o", out, "--no-cache")
    assert done.code == 0
    assert "3 segments, 2 kernels (3 launches) for sm_90a" in done.out
    assert sorted(p.stem for p in (out / "kernels").glob("*.cu")) == [SHARED, OWN]
    assert sorted(p.name for p in (out / "cubins").iterdir()) == [
        f"{SHARED}.sm_90a.cubin", f"{OWN}.sm_90a.cubin",
    ]  # fmt: skip
    (plan,) = json.loads((out / "manifest.json").read_text())["plans"]
    assert [k["name"] for k in plan["kernels"]] == [SHARED, OWN]
    launched = {s["name"]: [each["kernel"] for each in s["launches"]] for s in plan["segments"]}
    assert launched == {"s0": [SHARED], "s1": [SHARED], "s2": [OWN]}
    done = fusec(capsys, "run", out, "--json")
    (run,) = json.loads(done.out)["runs"]
    assert [(k["name"], k["segment"]) for k in run["kernels"]] == [
        (SHARED, "s0"), (SHARED, "s1"), (OWN, "s2"),
    ]  # fmt: skip
    assert [s["name"] for s in run["segments"]] == ["s0", "s1", "s2"]
    assert f"{SHARED} for s1" in fusec(capsys, "run", out).out


def test_times_are_those_of_segments() -> None:
    """The first second of a kernel is that of its first segment, and so on."""
    package = driver.compile_fusion(read_text(EQUAL, "equal.yaml"), OPTIONS)
    launches = package.program.host.launches
    times = [KernelTime(e.kernel, e.segment, float(k + 1)) for k, e in enumerate(launches)]
    timing = Timing(6.0, tuple(times), 1)
    facts = timed_facts(package, {}, timing, "a played GPU", Rates(1e12, 1e15))
    assert [s["seconds"] for s in facts["segments"]] == [1.0, 2.0, 3.0]
    assert [k["seconds"] for k in facts["kernels"]] == [1.0, 2.0, 3.0]
    work = of_package(package, "sm_90a")
    assert [(k.name, k.segment) for k in work.kernels] == [(e.kernel, e.segment) for e in launches]
    counted = [(e.kernel, Counted(k + 1, 0, 0)) for k, e in enumerate((*launches, *launches))]
    found = {each.segment.name: each.counted.read for each in compare_traffic(work, counted)}
    assert found == {"s0": 1 + 4, "s1": 2 + 5, "s2": 3 + 6}
    record = record_of(package.program, "sm_90a", package.artifacts)
    built = [k.built_registers for s in record.segments for k in s.occupancy]
    assert None not in built
    assert built[0] == built[1]


def test_a_build_is_the_same_by_any_way(tmp_path: Path, capsys: Capture) -> None:
    """The bytes hang on the fusion alone: on no cache, and on no order of threads."""
    path = small(tmp_path, apart(4))
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
    assert fusec(capsys, "compile", small(tmp_path, apart(3)), "-o", out, "--no-cache").code == 0
    *_, edited = sorted((out / "kernels").glob("*.cu"))
    edited.write_text(edited.read_text().replace("// ", "// edited: ", 1))
    calls.clear()
    done = fusec(capsys, "run", out, "--no-cache")
    assert (done.code, done.err) == (0, "")
    assert calls == [edited.stem]


@pytest.mark.gpu
def test_kernels_of_several_segments_run() -> None:
    from gpu_check import check_on_gpu

    checked = check_on_gpu(read_text(apart(14), "many.yaml"))
    program = checked.compiled.program
    assert len(program.kernel_sources) < len(program.host.launches)
