"""Emitted C of loops over streams and of several ranks computes what the reference does."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pytest
from emitted import FAKE, STRICT, Emitted, FakeCuda, compile_c, link_flags, stand_in
from emitted_golden import FOLDER as GOLDEN
from emitted_golden import NAMES as GOLDEN_NAMES
from emitted_golden import golden_files
from emitted_ranks import Ranks, UniqueId, packaged, results
from emitted_streams import OPTIONS, STREAMED
from nightly import mostly_nightly
from paths import TESTS
from peer_links import quick_barriers  # noqa: F401
from streamed_programs import B, buffer
from test_emit_files import DOCS, check_compiles, check_formatted
from test_parallel_examples import FOLDER, SIZES, small

from fusec import driver
from fusec.codegen.render import environment
from fusec.diagnostics import Unsupported
from fusec.emit.code import Code
from fusec.emit.expressions import Sizes
from fusec.emit.local import check_program
from fusec.emit.plan import PlanPrinter
from fusec.emit.view import Axis, Field
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    EncodeTensorMap,
    For,
    Instruction,
    Launch,
    Post,
    Share,
    Wait,
)
from fusec.hostir.program import HostProgram, every
from fusec.ir.dim import Dim, dim, floordiv, symbol
from fusec.ir.dtype import F32
from fusec.ir.graph import Fusion
from fusec.ir.sharding import Mesh
from fusec.parse import read_file, read_text
from fusec.reference.verdict import compare
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.schedule.plan import SizeArgument

SEEDS = range(4)


def check(
    fusion: Fusion, package: driver.Package, folder: Path, sizes: dict[str, int] | None = None
) -> None:
    """Fail unless the emitted program's results are right, however its streams are mixed."""
    chosen = sizes or choose_sizes(fusion)
    inputs = random_inputs(fusion, chosen, 3, "integers")
    found = results(package, inputs, folder, SEEDS, sizes)
    verdict = compare(fusion, chosen, inputs, found[0])
    assert verdict.ok, verdict
    for other in found[1:]:
        assert all(np.array_equal(other[n], array) for n, array in found[0].items())


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "count"), [*product(SIZES, (2, 4))])
def test_examples(name: str, count: int, tmp_path: Path) -> None:
    fusion = small(name, count)
    check(fusion, packaged(fusion), tmp_path)


@pytest.mark.nightly
def test_tensor_maps_in_loops(tmp_path: Path) -> None:
    fusion = small("ring_gather_matmul", 2, "bf16", "{M: 64, K: 64, N: 128}")
    package = packaged(fusion, target="sm_90a")
    assert any(isinstance(i, EncodeTensorMap) for i in every(package.program.host.instructions))
    check(fusion, package, tmp_path)


@pytest.mark.parametrize("name", mostly_nightly(STREAMED, 6))
def test_fusions(name: str, tmp_path: Path) -> None:
    fusion = read_text(STREAMED[name], f"{name}.yaml")
    check(fusion, packaged(fusion, **OPTIONS.get(name, {})), tmp_path)


@pytest.mark.parametrize("rows", mostly_nightly([3, 11, 0], 3))
def test_loops_run_as_often_as_sizes_say(rows: int, tmp_path: Path) -> None:
    """Fewer times than there are streams, and more often; the program was planned for 8."""
    file = TESTS / "host_ir" / "three_set_ops.yaml"
    fusion = read_file(file)
    check(fusion, packaged(fusion), tmp_path, choose_sizes(fusion, {"A": rows}))


@pytest.mark.nightly
@pytest.mark.usefixtures("quick_barriers")
@pytest.mark.parametrize("count", [2, 4])
def test_what_ranks_read_of_one_another_is_copied_before(count: int, tmp_path: Path) -> None:
    fusion = small("allreduce_residual_rmsnorm", count, sizes="{B: 3, H: 40}")
    package = packaged(fusion, target="sm_90a")
    assert any(isinstance(i, Share) for i in package.program.host.instructions)
    check(fusion, package, tmp_path)


WAITS = {
    "for a stream": "cuda(cuStreamWaitEvent(stream, streams->turn, 0))",
    "for an exchange": "cuda(cuStreamWaitEvent(stream, streams->over[exchange], 0))",
}


@pytest.mark.parametrize("wait", mostly_nightly(WAITS, 2))
def test_a_wait_that_is_left_out_shows(wait: str, tmp_path: Path) -> None:
    def edit(text: str) -> str:
        assert WAITS[wait] in text
        unread = "exchange" if "exchange" in wait else "streams"
        return text.replace(WAITS[wait], f"((void)streams, (void)stream, (void){unread}, 0)")

    fusion = read_text(STREAMED["hidden"], "hidden.yaml")
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes, 3, "integers")
    expected = driver.reference(fusion, inputs, sizes)
    emitted = Emitted(packaged(fusion), tmp_path, edit=edit)
    right = list[bool]()
    for seed in range(6):
        ranks = Ranks(emitted, inputs, tmp_path)  # nothing is left of the run before
        ranks.gpus[0].defer(seed)
        ranks.issue()
        ranks.finish()
        right += [np.array_equal(call.output("y"), expected["y"]) for call in ranks.calls]
    assert not all(right)


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ranks, Path]:
    """Two ranks that send slices on several streams, of which some wait for one another."""
    folder = tmp_path_factory.mktemp("ring")
    fusion = small("matmul_reduce_scatter", 2)
    inputs = random_inputs(fusion, choose_sizes(fusion), 3, "integers")
    return Ranks(Emitted(packaged(fusion), folder), inputs, folder), folder


def error_text(ranks: Ranks, rank: int = 0) -> str:
    """Return what the run of a rank says, which must fail."""
    ranks.gpus[rank].use()
    error = ranks.calls[rank].run(ranks.programs[rank], ranks.spaces[rank])
    assert error != 0
    return ranks.emitted.text(error)


def test_streams_and_communicators_are_checked(ring: tuple[Ranks, Path]) -> None:
    ranks, _ = ring
    calls = ranks.library.fake_cuda_calls()
    streams, ranks.spaces[0].streams = ranks.spaces[0].streams, None
    assert error_text(ranks) == "the workspace has no streams"
    ranks.spaces[0].streams = streams
    own = ranks.calls[0].arguments.ranks.mesh
    wrong = "a communicator is NULL, or has another number of ranks than the mesh"
    ranks.calls[0].arguments.ranks.mesh = None
    assert error_text(ranks) == wrong
    alone, identity = ctypes.c_void_p(), UniqueId()
    assert ranks.nccl.ncclGetUniqueId(ctypes.byref(identity)) == 0
    assert ranks.nccl.ncclCommInitRank(ctypes.byref(alone), 1, identity, 0) == 0
    ranks.calls[0].arguments.ranks.mesh = alone
    assert error_text(ranks) == wrong
    assert ranks.nccl.ncclCommDestroy(alone) == 0
    ranks.calls[0].arguments.ranks.mesh = own
    assert ranks.library.fake_cuda_calls() == calls


@pytest.mark.parametrize("fails", [False, True])
def test_streams_join_a_capture(fails: bool, ring: tuple[Ranks, Path]) -> None:
    """They wait for no stream that has not joined it, and the caller's waits for all of them."""
    ranks, _ = ring
    ranks.gpus[0].defer(7)
    for gpu in ranks.gpus:
        ranks.library.fake_cuda_begin_capture(gpu.stream)
        ranks.nccl.fake_nccl_fail(b"ncclSend" if fails else b"")
        gpu.use()
        rank = ranks.gpus.index(gpu)
        error = ranks.calls[rank].run(ranks.programs[rank], ranks.spaces[rank])
        ranks.nccl.fake_nccl_fail(b"")
        assert (error != 0) == fails
        assert ranks.library.fake_cuda_end_capture(gpu.stream)
    ranks.finish()


@pytest.mark.parametrize(
    ("library", "function"),
    [
        ("nccl", "ncclSend"),
        ("nccl", "ncclRecv"),
        ("nccl", "ncclGroupEnd"),
        ("cuda", "cuLaunchKernel"),
    ],
)
def test_a_run_that_fails_leaves_nothing_on_its_streams(
    library: str, function: str, ring: tuple[Ranks, Path]
) -> None:
    """The caller's stream still waits for all others, and the next run is right."""
    ranks, _ = ring
    ranks.gpus[0].defer(5)

    def fail(name: bytes) -> None:
        if library == "nccl":
            ranks.nccl.fake_nccl_fail(name)
        else:
            ranks.library.fake_cuda_fail(name, 2)

    fail(function.encode())
    expected = {"nccl": "unhandled cuda error", "cuda": "out of memory"}[library]
    assert {error_text(ranks, rank) for rank in (0, 1)} == {expected}
    fail(b"")
    ranks.finish()
    assert ranks.library.fake_cuda_waiting() == 0
    assert ranks.issue() == [0, 0]
    ranks.finish()
    fusion, sizes = ranks.fusion, choose_sizes(ranks.fusion)
    inputs = random_inputs(fusion, sizes, 3, "integers")
    expected_y = driver.reference(fusion, inputs, sizes)["y"]
    assert np.array_equal(ranks.outputs()["y"], expected_y)


COUNTS = ("streams", "events", "modules")


def test_what_cannot_be_made_leaves_nothing(ring: tuple[Ranks, Path]) -> None:
    ranks, _ = ring
    emitted, cuda = ranks.emitted, ranks.gpus[0]
    cuda.use()
    before = [cuda.count(what) for what in COUNTS]
    for function in (b"cuStreamCreate", b"cuEventCreate"):
        cuda.library.fake_cuda_fail(function, 2)
        streams = ctypes.c_void_p(1)
        error = emitted.function("streams_create")(ctypes.byref(streams))
        assert (emitted.text(error), streams.value) == ("out of memory", None)
        cuda.library.fake_cuda_fail(b"", 0)
        assert [cuda.count(what) for what in COUNTS] == before


def test_all_that_is_made_is_destroyed(tmp_path: Path) -> None:
    """Communicators of two axes, too, where one of them cannot be made."""
    fusion = read_text(STREAMED["grid"], "grid.yaml")
    inputs = random_inputs(fusion, choose_sizes(fusion), 3, "integers")
    cuda = FakeCuda(80)
    before = [cuda.count(what) for what in COUNTS]
    ranks = Ranks(Emitted(packaged(fusion), tmp_path), inputs, tmp_path)
    connected = ranks.nccl.fake_nccl_comms()
    ranks.nccl.fake_nccl_fail(b"ncclCommDestroy")
    given = ctypes.byref(ranks.calls[0].arguments.ranks)
    assert ranks.emitted.text(ranks.emitted.function("disconnect")(given)) == "unhandled cuda error"
    ranks.nccl.fake_nccl_fail(b"")
    assert not ranks.calls[0].arguments.ranks.dp
    ranks.close()
    assert ranks.nccl.fake_nccl_comms() == connected - 6  # two of rank 0 could not be destroyed
    callers = 1 + len(ranks.gpus)
    assert [cuda.count(what) for what in COUNTS] == [before[0] + callers, *before[1:]]


def test_copies_between_layouts(tmp_path: Path) -> None:
    class View:
        helpers = frozenset({"copy", "copy_layout"})
        macro = "SMALL"

    text = environment().get_template("c/copies.j2").render(k=View())
    source, library = tmp_path / "copies.c", tmp_path / "copies.so"
    head = '#include <stdbool.h>\n#include "cuda.h"\nenum { SMALL_OK = 0 };\n'
    head += "static int cuda(CUresult result) { return (int)result; }\n"
    tail = (
        "int run(CUdeviceptr target, CUdeviceptr source, int rank, const Dim* dims, int64_t item) "
        "{ return copy_layout(target, source, rank, dims, item, NULL); }\n"
    )
    source.write_text(head + text + tail)
    link = link_flags(ranks=False)
    compile_c("-std=c11", *STRICT, "-shared", source, *link, "-o", library)
    cuda, run = FakeCuda(80), ctypes.CDLL(str(library)).run
    draw = Random(0)
    for _ in range(200):
        shape = [draw.choice((0, 1, 2, 3, 5)) for _ in range(draw.randint(0, 4))]
        target, source_ = (_layout(draw, shape) for _ in range(2))
        values = np.arange(1, source_.size + 1, dtype=np.int32)
        to = np.zeros(target.size, np.int32)
        ends = [cuda.allocate(4 * max(1, a.size)) for a in (to, values)]
        ctypes.memmove(ends[0], to.ctypes.data, to.nbytes)
        ctypes.memmove(ends[1], values.ctypes.data, values.nbytes)
        dims = [v for d in zip(shape, target.steps, source_.steps, strict=True) for v in d]
        given = (ctypes.c_int64 * max(1, len(dims)))(*dims)
        addresses = [ctypes.c_ulonglong(a) for a in ends]
        assert run(*addresses, len(shape), given, ctypes.c_int64(4)) == 0, cuda.complaint
        target.of(to)[...] = source_.of(values)
        assert ctypes.string_at(ends[0], to.nbytes) == to.tobytes(), (shape, target, source_)
    assert not cuda.complaint


class _layout:
    """A tensor in memory with its dims in some order, and gaps."""

    def __init__(self, draw: Random, shape: list[int]) -> None:
        self.shape, self.steps, self.size = shape, [0] * len(shape), 1
        for k in (
            draw.sample(range(len(shape)), len(shape))
            if draw.random() < 0.5
            else [*reversed(range(len(shape)))]
        ):
            self.steps[k] = self.size
            self.size *= max(1, shape[k]) + draw.choice((0, 0, 2))

    def of(self, memory: np.ndarray) -> np.ndarray:
        steps = [4 * s for s in self.steps]
        return np.lib.stride_tricks.as_strided(memory, self.shape, steps)


MESH = Mesh((("mesh", 2),), (0, 1))
ONE = dim(1)
LOOP = symbol("loop0.index", extent=False)
PLACE = symbol("mesh.place", extent=False)


def launch(grid: Dim, size: Dim) -> Launch:
    return Launch("k", "s0", (grid, ONE, ONE), (32, 1, 1), (SizeArgument("n", size),))


@pytest.mark.parametrize(
    ("inside", "why"),
    [
        (Allocate("t"), "it is in a loop"),
        (Post("s0", ("x",), ("y",)), "it is in a loop"),
        (launch(LOOP, ONE), "`loop0.index` depends on the iteration or the rank"),
        (launch(ONE, PLACE * B), "`B * mesh.place` depends on the iteration or the rank"),
        (Alias("t", "x", floordiv(B, PLACE)), "`mesh.place` depends on the iteration or the rank"),
    ],
)
def test_what_c_does_not_say_is_refused(inside: Instruction, why: str) -> None:
    buffers = (buffer("x", "input", B), buffer("t", "temporary", B))
    loop = For("loop0.index", dim(2), (inside,))
    program = HostProgram("p", buffers, (), (loop,), ())
    with pytest.raises(Unsupported, match="`p` cannot be emitted as C: ") as error:
        check_program(program, MESH)
    assert why in error.value.diagnostic.message
    assert error.value.diagnostic.notes == (f"the instruction is `{inside}`",)


def test_an_exchange_ends_in_the_loop_in_which_it_begins() -> None:
    buffers = (buffer("x", "input", B), buffer("y", "temporary", B))
    loop = For("loop0.index", dim(2), (Collective("all_reduce", "y", "x", "mesh", 2, "sum"),))
    instructions = (Allocate("y"), loop, Wait("y"))
    program = HostProgram("p", buffers, (), instructions, ())
    fields = {"x": Field("x", "const void*", "", "x", F32)}
    sizes = {"B": "B"}
    axes = (Axis("mesh", 2, 1, "mesh"),)
    printer = PlanPrinter("p", "", program, fields, sizes, {}, Sizes({"B": Code("B")}), MESH, axes)
    with pytest.raises(Unsupported, match="is waited for outside of the loop") as error:
        printer.view((), ())
    assert error.value.diagnostic.help == "--without sink_waits"


@pytest.fixture(scope="module", params=mostly_nightly(["stream_rows", "ring_gather_matmul"], 2))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled folder of an example."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from fusec.cli import run_main

    out = tmp_path_factory.mktemp(request.param) / request.param
    file = str(FOLDER / f"{request.param}.yaml")
    assert run_main(["compile", file, "-o", str(out), "--emit", "c", "--untuned"]) == 0
    return out


@pytest.mark.nightly
def test_the_example_runs(folder: Path, tmp_path: Path) -> None:
    """On four ranks as threads, which wait for one another."""
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    cuda = stand_in()
    given = {
        "CUDA_INCLUDE": FAKE, "CUDA_DRIVER": cuda, "NCCL_INCLUDE": FAKE,
        "NCCL_LIBRARY": cuda.parent / "libnccl.so",
    }  # fmt: skip
    build = tmp_path / "build"
    options = [f"-D{name}={path}" for name, path in given.items()]
    for command in (["-S", folder, "-B", build, *options], ["--build", build]):
        done = subprocess.run(["cmake", *map(str, command)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    program = build / f"{folder.name}_example"
    done = subprocess.run([program], capture_output=True, text=True, timeout=60)
    found = sorted(done.stdout.splitlines())
    ranks = [f" as rank {k}" for k in range(4)] if folder.name == "ring_gather_matmul" else [""]
    assert (found, done.stderr) == ([f"{folder.name} has run{rank}" for rank in ranks], "")


@pytest.mark.nightly
def test_c_and_cpp_take_the_files(folder: Path, tmp_path: Path) -> None:
    check_compiles(folder, folder.name, FAKE, tmp_path)
    if folder.name == "ring_gather_matmul":
        _, code = re.findall(r"```c\n(.*?)```", DOCS, re.DOTALL)
        (tmp_path / "user.c").write_text(code)
        include = (f"-I{folder}", "-isystem", FAKE)
        compile_c("-std=c99", *STRICT, *include, "-fsyntax-only", tmp_path / "user.c")


def test_the_files_are_formatted(folder: Path) -> None:
    check_formatted(folder, folder.name)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_emitted_text_is_as_kept(name: str) -> None:
    """Rewritten by python tests/emitted_golden.py; the machine code is left out."""
    made = golden_files(name)
    kept = {p.name: p.read_bytes().decode() for p in (GOLDEN / name).iterdir()}
    assert made == kept
