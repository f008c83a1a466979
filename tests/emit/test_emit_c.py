"""Emitted C does what fusec's own launcher does, on a stand-in for libcuda that checks calls."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cli_tools import fusec, small
from cuda_on_cpu import tensor_map
from emitted import Called, Emitted, FakeCuda, Workspace, compiled, compiled_for
from emitted_fusions import FUSIONS, SIZED, SIZES, TARGETS, TURNS
from emulated import emulated
from nightly import mostly_nightly

from fusec import driver
from fusec.emit.c import view_of
from fusec.hostir.instructions import Launch
from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.run import bound
from fusec.run.execute import execute
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.target import find

Capture = pytest.CaptureFixture[str]


def fusion_of(name: str) -> Fusion:
    return read_text(FUSIONS[name], f"{name}.yaml")


@pytest.mark.parametrize("name", mostly_nightly(FUSIONS, 4))
def test_runs_as_fusec_does(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound, "encode_tensor_map", lambda device, *map_: tensor_map(*map_))
    fusion = fusion_of(name)
    emitted = Emitted(compiled(fusion, TARGETS.get(name, "sm_80")), tmp_path)
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes)
    cuda = FakeCuda(find(TARGETS.get(name, "sm_80")).capability)
    modules = cuda.count("modules")
    program = emitted.create()
    workspace = emitted.workspace(cuda, program, sizes)
    called = Called(emitted, cuda, inputs, folder=tmp_path)
    device = emulated(emitted.program, tmp_path)
    cubins = dict.fromkeys(device.kernels, b"")
    expected = execute(device, emitted.program.host, cubins, inputs, sizes)
    kernels = [x.kernel for x in emitted.program.host.launches]
    assert called.run(program, workspace) == 0
    assert called.launched == kernels
    assert cuda.count("launches") == len(kernels)
    for output in emitted.program.host.outputs:
        assert np.array_equal(called.output(output), expected[output], equal_nan=True), output
    if not emitted.program.host.aliases:
        assert called.run(program, workspace) == 0
        for output in emitted.program.host.outputs:
            assert np.array_equal(called.output(output), expected[output], equal_nan=True), output
    blocks = cuda.count("blocks")
    assert emitted.function("destroy")(program) == 0
    assert cuda.count("modules") == modules
    assert cuda.count("blocks") == blocks


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    """A kernel with clusters, tensor maps, and memory that it finds zeroed and leaves so."""
    fusion = read_text(TURNS, "turns.yaml")
    return Emitted(compiled(fusion, "sm_90a"), tmp_path_factory.mktemp("turns"))


class Dirtying(Called):
    """Instead of a kernel: fails unless its memory is zeroed, and writes into all the other."""

    space: Workspace

    def _memory(self, name: str) -> int:
        return (1 + ord(name[0])) << 20  # nothing reads it

    def _run(self, launch: Launch, shape: object, parameters: object) -> None:
        ends: list[int] = []
        for name in ("s0.turns", "s0.tickets"):
            size = self.emitted.program.host.buffer[name].elements.evaluate(self.sizes) * 4
            assert ctypes.string_at(self.addresses[name], size) == bytes(size), name
            ends.append(self.addresses[name] + size)
        start, end = -(-max(ends) // 256) * 256, self.space.memory + self.space.bytes
        ctypes.memset(start, 0xAA, end - start)


def test_workspaces_are_zeroed_once_and_for_other_sizes(turns: Emitted, tmp_path: Path) -> None:
    fusion, cuda, program = turns.program.original, FakeCuda(), turns.create()
    space = turns.workspace(cuda, program, choose_sizes(fusion, {"M": 1000}))
    calls: list[int] = []
    for rows in (1000, 1000, 0, 5, 300, 1000, 1000):
        called = Dirtying(turns, cuda, {}, choose_sizes(fusion, {"M": rows}), tmp_path)
        called.space = space
        before = cuda.count("memsets")
        assert called.run(program, space) == 0
        assert len(called.launched) == (rows > 0)
        calls.append(cuda.count("memsets") - before)
    assert calls == [1, 0, 1, 1, 0, 1, 0]  # 5 and 300 rows have as many bytes to zero
    turns.function("destroy")(program)


def error_of(emitted: Emitted, called: Called, program: object, space: Workspace | None) -> str:
    """Return what a run that must fail says; nothing may have been launched."""
    before = called.cuda.count("calls")
    error = called.run(program, space)
    assert error != 0
    assert called.cuda.count("calls") == before
    return emitted.text(error)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    return Emitted(compiled(fusion_of("several")), tmp_path_factory.mktemp("several"))


@pytest.fixture(scope="module")
def strided(tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    return Emitted(compiled(fusion_of("strided")), tmp_path_factory.mktemp("strided"))


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({"N": 25}, "`N == 24` does not hold: the kernel is specialized for this size"),
        ({"M": -1}, "`M` is negative"),
        (
            {"x.stride0": 30},
            "`x.stride0 % 4 == 0` does not hold: vectorized accesses need aligned rows",
        ),
        ({"M": 2**40}, "`M * x.stride0 - x.stride0 + 24 <= 1073741823` does not hold: "),
        ({"M": 2**40, "x.stride0": 2**40}, "`M * x.stride0` is too large for 64 bits"),
        ({"M": 0, "x.stride0": 2**30}, None),
    ],
)
def test_sizes_are_checked(strided: Emitted, sizes: dict[str, int], text: str | None) -> None:
    fusion, cuda = strided.program.original, FakeCuda(80)
    program = strided.create()
    called = Called(strided, cuda, random_inputs(fusion, choose_sizes(fusion)))
    called.arguments.sizes = strided.sizes({**choose_sizes(fusion), **sizes})
    if text is None:
        assert called.run(program, None) == 0
    else:
        assert error_of(strided, called, program, None).startswith(text)


def test_pointers_are_checked(strided: Emitted) -> None:
    fusion, cuda = strided.program.original, FakeCuda(80)
    program = strided.create()
    called = Called(strided, cuda, random_inputs(fusion, choose_sizes(fusion)))
    for wrong in (None, called.arguments.y + 8, called.arguments.y + 4):
        kept, called.arguments.y = called.arguments.y, wrong
        text = error_of(strided, called, program, None)
        assert text == "`y` is NULL, or at no multiple of the bytes that it needs: 16"
        called.arguments.y = kept
    assert called.run(program, None) == 0


def test_nothing_is_asked_of_pointers_to_nothing(strided: Emitted) -> None:
    fusion, cuda = strided.program.original, FakeCuda(80)
    sizes = choose_sizes(fusion, {"M": 0})
    called = Called(strided, cuda, random_inputs(fusion, sizes), sizes)
    called.arguments.x = called.arguments.y = called.arguments.z = None
    assert called.run(strided.create(), None) == 0
    assert cuda.count("launches") == 0


def test_workspaces_are_checked(several: Emitted) -> None:
    fusion, cuda = several.program.original, FakeCuda(80)
    sizes, program = choose_sizes(fusion), several.create()
    called = Called(several, cuda, random_inputs(fusion, sizes))
    space = several.workspace(cuda, program, sizes)
    small = Workspace(space.memory, space.bytes - 1)
    askew = Workspace(cuda.allocate(space.bytes, 16), space.bytes)
    for wrong in (None, Workspace(None, space.bytes), small, askew):
        text = error_of(several, called, program, wrong)
        assert text == "the workspace is too small, or at no multiple of 256 bytes"
    assert called.run(program, space) == 0


def test_programs_are_created_where_they_can_run(several: Emitted) -> None:
    """Nothing stays loaded where one cannot be made."""
    program = ctypes.c_void_p(1)

    def failure() -> str:
        error = several.function("create")(ctypes.byref(program))
        assert not program
        assert cuda.count("modules") == before
        return several.text(error)

    cuda = FakeCuda(80)
    before = cuda.count("modules")
    cuda = FakeCuda(80, driver=12080)
    assert failure() == "the driver is older than CUDA 13.0"
    for other in (75, 90, 120):
        cuda = FakeCuda(other)
        assert failure() == "the kernels are for other GPUs: sm_80"
    cuda = FakeCuda(80)
    cuda("cuCtxSetCurrent", None)
    assert failure() == "no CUDA context is current"
    cuda = FakeCuda(80)
    cuda.library.fake_cuda_fail(b"cuModuleGetFunction", 2)
    assert failure() == "out of memory"


def test_errors_of_the_driver_come_through(several: Emitted) -> None:
    cuda = FakeCuda(80)
    fusion = several.program.original
    program = several.create()
    called = Called(several, cuda, random_inputs(fusion, choose_sizes(fusion)))
    space = several.workspace(cuda, program, choose_sizes(fusion))
    cuda.library.fake_cuda_fail(b"cuLaunchKernel", 2)
    assert several.text(called.run(program, space)) == "out of memory"
    assert several.text(-3) == several.text(7) == several.text(19999) == "unknown error"
    assert several.text(0) == "no error"


TARGETS_OF = {80: "sm_80", 86: "sm_80", 89: "sm_89", 90: "sm_90a"}


@pytest.mark.parametrize("capability", mostly_nightly(TARGETS_OF, 4))
def test_the_build_for_the_gpu_is_taken(
    capability: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    package = _several_targets()
    folder = tmp_path_factory.mktemp("targets")
    wanted = TARGETS_OF[capability]
    number = next(k for k, p in enumerate(package.programs) if wanted in p.targets)
    emitted = Emitted(package, folder, number=number)
    cuda = FakeCuda(capability)
    fusion = package.program.original
    sizes = choose_sizes(fusion)
    called = Called(emitted, cuda, random_inputs(fusion, sizes))
    program = emitted.create()
    assert called.run(program, emitted.workspace(cuda, program, sizes)) == 0
    (launch,) = emitted.program.host.launches
    image = package.artifacts[launch.kernel, wanted].cubin
    assert called.images == [image]


@cache
def _several_targets() -> driver.Package:
    return compiled(fusion_of("maps"), "sm_89", "sm_80", "sm_90a")


@pytest.fixture(scope="module")
def sized(tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    """Builds for two sizes, of which the second writes where the first wants zeros."""
    package = compiled_for(read_text(SIZED, "run.yaml"), SIZES, "sm_80", "sm_90a")
    return Emitted(package, tmp_path_factory.mktemp("sized"))


@pytest.mark.nightly
def test_the_build_for_the_sizes_is_taken(sized: Emitted, tmp_path: Path) -> None:
    """One program and one workspace are for all sizes."""
    package, cuda = sized.package, FakeCuda(80)
    own = [p for p in package.programs if "sm_80" in p.targets]
    before = cuda.count("modules")
    program = sized.create()
    assert cuda.count("modules") - before == sum(len(p.host.launches) for p in own) == 4
    space = sized.workspace(cuda, program, choose_sizes(own[0].original))
    for seed, chosen in enumerate((own[0], own[1], own[0])):
        sizes = choose_sizes(chosen.original)
        sized.program, inputs = chosen, random_inputs(chosen.original, sizes, seed)
        called = Called(sized, cuda, inputs, sizes, tmp_path)
        assert called.run(program, space) == 0
        assert called.launched == [x.kernel for x in chosen.host.launches]
        device = emulated(chosen, tmp_path)
        cubins = dict.fromkeys(device.kernels, b"")
        expected = execute(device, chosen.host, cubins, inputs, sizes)
        assert np.array_equal(called.output("y"), expected["y"])
    assert sized.workspace(cuda, program, choose_sizes(own[1].original)).bytes < space.bytes
    assert sized.function("destroy")(program) == 0
    assert cuda.count("modules") == before


def test_where_no_build_is_for_the_sizes_the_first_one_says_why(sized: Emitted) -> None:
    cuda, sizes = FakeCuda(90), {"B": 100, "H": 8}
    sized.program = sized.package.program
    program, size = sized.create(), ctypes.c_size_t(1)
    called = Called(sized, cuda, random_inputs(sized.program.original, sizes), sizes)
    text = error_of(sized, called, program, None)
    assert text == "`B == 4096` does not hold: the kernel is specialized for this size"
    given = ctypes.byref(called.arguments.sizes)
    error = sized.function("workspace_bytes")(program, given, ctypes.byref(size))
    assert (sized.text(error), size.value) == (text, 0)


def test_a_target_with_several_builds_is_named_once(sized: Emitted) -> None:
    FakeCuda(75)
    error = sized.function("create")(ctypes.byref(ctypes.c_void_p()))
    assert sized.text(error) == "the kernels are for other GPUs: sm_90a, sm_80"


def test_equal_machine_code_is_embedded_once(sized: Emitted) -> None:
    known = sized.package.artifacts
    same = dict.fromkeys(known, next(iter(known.values())))
    view = view_of(replace(sized.package, artifacts=same))
    (cubin,) = view.cubins
    assert {k.cubin for b in view.builds for k in b.kernels} == {cubin.name}


def test_indices_that_are_checked_are_refused(tmp_path: Path, capsys: Capture) -> None:
    text = FUSIONS["one_kernel"].replace(
        "ops:", "  i: i64[B]\nops:\n  - t = index_select(w, i, dim=0)"
    )
    text = text.replace("[y]", "[y, t]")
    file = small(tmp_path, text)
    done = fusec(capsys, "compile", file, "-o", tmp_path / "out", "--emit", "c", "--check-bounds")
    assert done.code == 3
    assert "cannot be emitted as C with --check-bounds" in done.err


def test_names_of_headers_are_refused(tmp_path: Path, capsys: Capture) -> None:
    file = small(tmp_path, FUSIONS["one_kernel"].replace("one_kernel", "cuda"))
    done = fusec(capsys, "compile", file, "-o", tmp_path / "out", "--emit", "c")
    assert done.code == 3
    assert "rename the fusion" in done.err
