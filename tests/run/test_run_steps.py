"""`fusec run` of programs with loops, without a GPU; traces of runs."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import rank_processes
from cli_tools import Result, fusec, small
from draws import drawn
from hypothesis import given
from hypothesis import strategies as st
from stream_device import StreamDevice
from streamed_programs import Threads, by_ranks
from test_run_execute import CUBINS, double
from test_streams import SIZES, X, loop

from fusec import driver, lowering
from fusec.commands.running import traced
from fusec.commands.running.rank import assembled, parts_of
from fusec.diagnostics import FusecError, Unsupported
from fusec.driver import Compilation
from fusec.hostir.instructions import Alias, For, Launch, Post
from fusec.hostir.program import HostProgram
from fusec.hostir.steps import steps_of
from fusec.ir.dim import dim
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.rank import run_rank
from fusec.run import measure as measuring
from fusec.run.arrays import load_arrays
from fusec.run.distributed.links import Links
from fusec.run.execute import Executable
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.run.measure import measure, timeline
from fusec.run.trace import Slice, nvtx_range, trace_text
from fusec.shard.partition import partitioned

Capture = pytest.CaptureFixture[str]

STREAMED = """
fusion: streamed
dims: {B: 16, H: 32}
inputs:
  x: f32[B, H]
  w: f32[H, H]
ops:
  - h = matmul(x, w)
  - y = relu(h)
  - z = mul(y, 2.0)
  - s = sum(z, dims=[1])
outputs: [z, s]
shardings:
  h: {stream: {0: 4}}
  y: {stream: {0: 4}}
  z: {stream: {0: 4}}
"""


@pytest.fixture
def streamed(tmp_path: Path) -> Path:
    """Return the file of a fusion with a loop."""
    path = tmp_path / "streamed.yaml"
    path.write_text(STREAMED)
    return path


def run(capsys: Capture, path: Path, *options: object) -> Result:
    """Run without a GPU."""
    return fusec(capsys, "run", path, "--device", "reference", *options)


def test_a_loop_is_run_and_compared(streamed: Path, capsys: Capture, tmp_path: Path) -> None:
    """As the program has it, not as the reference of the whole would; its values are printed."""
    saved = tmp_path / "out.npz"
    done = run(capsys, streamed, "--print", 2, "--outputs", saved, "--time")
    assert (done.code, done.err) == (0, "")
    first, verdict, *rest = done.out.splitlines()
    assert first == "streamed: host program run without a GPU"
    assert verdict == "host program verified, no kernel was run (checked: all)"
    assert "  z: f32[16, 32]" in rest
    assert any(line.split()[:1] == ["interpret"] for line in rest)
    fusion = driver.load(str(streamed))
    sizes = choose_sizes(fusion)
    wanted = driver.reference(fusion, random_inputs(fusion, sizes), sizes)
    np.testing.assert_allclose(load_arrays(saved)["z"], wanted["z"], rtol=1e-5)
    close = run(capsys, streamed, "--rtol", 1e-4)
    assert "within the tolerances" in close.out
    assert "host program verified" not in run(capsys, streamed, "--no-verify").out


def test_what_no_loop_has_is_evaluated_as_before(tmp_path: Path, capsys: Capture) -> None:
    """The reference, of the whole."""
    done = run(capsys, small(tmp_path))
    assert (done.code, done.out.splitlines()[0]) == (0, "small: reference evaluated")


def test_a_wrong_program_is_found_out(
    streamed: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here every iteration takes the first slice of what it reads."""
    lower = lowering.lower

    def wrong(*given: Any, **named: Any) -> HostProgram:
        program = lower(*given, **named)
        return replace(program, instructions=tuple(map(first, program.instructions)))

    def first(instruction: Any) -> Any:
        if isinstance(instruction, For):
            return replace(instruction, body=tuple(map(first, instruction.body)))
        sliced = isinstance(instruction, Alias) and instruction.of == "x"
        return replace(instruction, offset=dim(0)) if sliced else instruction

    monkeypatch.setattr(Compilation.posts, "run", wrong)
    done = run(capsys, streamed)
    assert done.code == 1
    assert done.out.splitlines()[1].startswith("differs")
    assert run(capsys, streamed, "--rtol", 1e-4).code == 1


def checked(text: str) -> list[dict[str, Any]]:
    """Return the slices of a trace, which is in Chrome's trace event format."""
    trace = json.loads(text)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    events = trace["traceEvents"]
    named = {
        (e["name"], e["pid"], e["tid"] if e["name"] == "thread_name" else 0)
        for e in events
        if e["ph"] == "M" and isinstance(e["args"]["name"], str)
    }
    slices = [e for e in events if e["ph"] == "X"]
    assert len(named) + len(slices) == len(events)
    busy: dict[Any, float] = {}
    for event in sorted(slices, key=lambda e: e["ts"]):
        row = event["pid"], event["tid"]
        assert ("process_name", row[0], 0) in named
        assert ("thread_name", *row) in named
        assert all(isinstance(number, int) for number in row)
        assert isinstance(event["name"], str)
        assert event["ts"] >= busy.get(row, 0.0) - 0.002, "two at once on a stream"
        assert event["dur"] >= 0
        busy[row] = event["ts"] + event["dur"]
    return slices


def test_a_trace_has_every_step(streamed: Path, capsys: Capture, tmp_path: Path) -> None:
    """On the stream where it ran, by its segment."""
    path = tmp_path / "trace.json"
    assert run(capsys, streamed, "--trace", path).code == 0
    slices = checked(path.read_text())
    program = Compilation(driver.load(str(streamed)), CompileOptions())
    posts = [s.instruction for s in steps_of(program.posts, {"B": 16, "H": 32}).steps]
    texts = [str(post) for post in posts if isinstance(post, Post)]
    assert sorted(s["args"]["instruction"] for s in slices) == sorted(texts)
    assert {s["cat"] for s in slices} == {"segment"}
    first = [s["tid"] for s in slices if s["name"] == program.posts.posts[0].segment]
    assert first == [1, 2, 3, 4]
    plain = tmp_path / "plain.json"
    assert run(capsys, small(tmp_path), "--trace", plain).code == 0
    assert [s["tid"] for s in checked(plain.read_text())] == [0]


def test_traces_that_cannot_be_written(streamed: Path, capsys: Capture, tmp_path: Path) -> None:
    """They are refused before anything runs."""
    done = run(capsys, streamed, "--trace", tmp_path / "no" / "t.json")
    assert done.code == 2
    assert "t.json: cannot be written there" in done.err
    folder = tmp_path / "out.fusec"
    assert fusec(capsys, "compile", small(tmp_path), "--target", "sm_90a", "-o", folder).code == 0
    done = run(capsys, folder, "--trace", tmp_path / "t.json")
    assert done.code == 2
    assert "--trace of a compiled folder needs a GPU" in done.err


def test_ranks_are_processes() -> None:
    """And streams their threads; what began first is at 0."""
    slices = [
        Slice("s0", "kernel", rank, stream, 5.0 + rank, 1e-6 * (stream + 1), "launch")
        for rank in (1, 0)
        for stream in (2, 0)
    ]
    found = checked(trace_text("f", slices))
    assert sorted((s["pid"], s["tid"], s["ts"], s["dur"]) for s in found) == [
        (0, 0, 0, 1), (0, 2, 0, 3), (1, 0, 1e6, 1), (1, 2, 1e6, 3),
    ]  # fmt: skip
    assert checked(trace_text("f", [])) == []


def test_times_on_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step between two events of its own stream; on one stream none of that is asked for."""
    monkeypatch.setattr(measuring, "FLUSH_BYTES", 1 << 12)
    monkeypatch.setattr(measuring, "WARMUP_SECONDS", 0.0)
    device: Any = StreamDevice({"double": double})
    with Executable(device, loop(), CUBINS).bind({"x": X}, SIZES) as bound:
        bound.reset()
        times = timeline(bound)
        launches = [t for t in times if isinstance(t.step.instruction, Launch)]
        assert len(launches) == 8
        for timed in launches:
            # One unit of the clock for the launch, one for the event, and what others did between.
            assert timed.end - timed.begin >= 2e-3 * 0.999
        np.testing.assert_array_equal(bound.outputs()["z"], 4 * X)
        slices = traced.slices_of(bound, rank=3)
        assert {s.stream for s in slices} == {1, 2}
        assert {(s.rank, s.name, s.kind) for s in slices} == {(3, "s0", "kernel")}
        checked(trace_text("f", slices))
        timing = measure(bound, repeats=3)
        assert len(timing.kernels) == 8
        assert all(k.seconds > 0 for k in timing.kernels)
    assert not device.blocks


def test_ranges_of_nvtx(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are pushed and popped where the package is there, and left out where it is not."""
    asked: list[str] = []
    module: Any = ModuleType("nvtx")
    module.__spec__ = ModuleSpec("nvtx", None)
    module.push_range = asked.append
    module.pop_range = lambda: asked.append("end")
    monkeypatch.setitem(sys.modules, "nvtx", module)
    with pytest.raises(ZeroDivisionError), nvtx_range("s0"):
        _ = 1 / 0
    assert asked == ["s0", "end"]
    monkeypatch.setattr("fusec.run.trace.find_spec", lambda name: None)
    with nvtx_range("s1"):
        pass
    assert asked == ["s0", "end"]


OPS = (
    "add({0}, {1})",
    "mul({0}, {1})",
    "relu({0})",
    "neg({0})",
    "permute({0}, dims=[1, 0])",
    "sum",
)


@st.composite
def streamed_texts(draw: st.DrawFn) -> str:
    """Return a fusion of square matrices, some of which streams divide, as text."""
    names, ops, said = ["x", "y"], list[str](), list[str]()
    for number in range(draw(st.integers(1, 5))):
        op, name = draw(st.sampled_from(OPS)), f"t{number}"
        a, b = (draw(st.sampled_from(names)) for _ in range(2))
        if op == "sum":
            axis = draw(st.integers(0, 1))
            ops.append(f"  - {name}_r = sum({a}, dims=[{axis}], keepdim=true)")
            ops.append(f"  - {name} = add({name}_r, {b})")
        else:
            ops.append(f"  - {name} = {op.format(a, b)}")
        names.append(name)
        if draw(st.booleans()):
            axis, parts = draw(st.integers(0, 1)), draw(st.sampled_from((2, 4)))
            said.append(f"  {name}: {{stream: {{{axis}: {parts}}}}}")
    lines = "\n".join(ops)
    shardings = "shardings:\n" + "\n".join(said) + "\n" if said else ""
    outputs = ", ".join(dict.fromkeys((names[-1], draw(st.sampled_from(names[2:])))))
    return (
        "fusion: drawn\ndims: {N: 16}\ninputs:\n  x: f32[N, N]\n  y: f32[N, N]\n"
        f"ops:\n{lines}\noutputs: [{outputs}]\n{shardings}"
    )


@given(streamed_texts(), st.integers(0, 2**32))
@drawn(15)
def test_drawn_loops_give_what_the_whole_gives(text: str, seed: int) -> None:
    """On small integers, whose sums are exact, to the bit; in any order that streams allow."""
    fusion = read_text(text, "drawn.yaml")
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes, 0, "integers")
    wanted = driver.reference(fusion, inputs, sizes)
    program = Compilation(fusion, LOOPED)
    try:
        found = run_rank(program, inputs, None, 0, draw=Random(seed))
    except Unsupported:
        return
    except FusecError as error:
        if "carries a dependence" not in str(error):
            raise
        return  # a sum along what divides its operand
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


LOOPED = CompileOptions(without=("loops_by_cost",))
"""Loops also where they are too small to be worth it."""
DIVIDED = {
    "an all-gather in a ring, and a product": """
inputs:
  x: {type: "f32[16, 8]", shard: {0: mesh}}
  w: {type: "f32[8, 8]", shard: {1: mesh}}
ops:
  - h = matmul(x, w)
  - y = relu(h)
outputs: [y]
shardings:
  h: {shard: {1: mesh}, stream: {0: 4}}
  y: {shard: {1: mesh}, stream: {0: 4}}
""",
    "sums over ranks in a loop": """
inputs:
  x: {type: "f32[16, 8]", shard: {1: mesh}}
  w: {type: "f32[8, 8]", shard: {0: mesh}}
ops:
  - h = matmul(x, w)
  - y = neg(h)
outputs:
  - y: {shard: {0: mesh}}
shardings:
  h: {stream: {0: 4}}
""",
    "sums over ranks of slices that come through a ring": """
inputs:
  x: {type: "f32[16, 8]", shard: {0: mesh}}
  w: {type: "f32[8, 8]", shard: {0: mesh}}
ops:
  - a = neg(x)
  - h = matmul(a, w)
  - y = relu(h)
outputs:
  - y: {shard: {}}
shardings:
  a: {shard: {1: mesh}, stream: {0: 4}}
  h: {stream: {0: 4}}
""",
    "outputs that lie otherwise than what ranks exchange": """
inputs:
  x: {type: "c64[8, 4]", shard: {0: mesh}}
  z: c64[8, 4]
  a: {type: "f32[8, 4]", shard: {0: mesh}}
  b: "f32[8, 4]"
  c: {type: "f32[8, 4]", stride_order: [0, 1]}
ops:
  - y = mul(x, x)
  - own = set(z)
  - turned = mul(a, a)
  - total = sum(x, dims=[0])
  - part = set(b)
  - into = set(b)
  - whole = neg(a)
outputs:
  - y: {shard: {}}
  - own: {shard: {0: mesh}}
  - turned: {shard: {}, stride_order: [0, 1]}
  - total
  - part: {shard: {0: mesh}, stride_order: [0, 1]}
  - into: {alias: a}
  - whole: {alias: c}
""",
    "factors that stay whole, of a size that only runs know": """
dims: {C: 3}
inputs:
  x: {type: "f32[C, 8]", shard: {1: mesh}}
ops:
  - a = neg(x)
  - y = reshape(a, new_shape=[C * 8])
outputs: [y]
""",
    "slices of a bias that is added behind an exchange": """
inputs:
  x: {type: "f32[8, 16]", shard: {1: mesh}, stream: {1: 2}}
  w: {type: "f32[12, 16]"}
  b: {type: "f32[12]", stream: {0: 3}}
ops:
  - a = neg(x)
  - y = linear(a, w, b)
outputs: [y]
""",
    "elements that share memory": """
inputs:
  x: {type: "f32[6, 3, 4]", strides: [1, 4, 1], shard: {2: mesh}}
ops:
  - y = neg(x)
outputs: [y]
""",
    "strides that NumPy forgets of one element": """
inputs:
  x: {type: "f32[8, 5, 1]", contiguity: [true, null, false], shard: {0: mesh}}
ops:
  - y = neg(x)
outputs: [y]
""",
    "slices of nothing": """
dims: {B: 0}
inputs:
  x: {type: "f32[B, 8, 4]"}
ops:
  - a = set(x)
  - y = neg(a)
outputs:
  - y: {shard: {1: mesh}, stream: {1: 2}}
""",
}


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize("text", DIVIDED.values(), ids=DIVIDED)
def test_loops_over_ranks_in_any_order(text: str, seed: int | None) -> None:
    """Ranks as threads, whose parts make the whole, to the bit."""
    fusion = read_text(f"fusion: divided\nmesh: [4]{text}", "divided.yaml")
    mesh = fusion.mesh
    assert mesh is not None
    sizes, program = choose_sizes(fusion), Compilation(fusion, LOOPED)
    inputs = random_inputs(fusion, sizes, 0, "integers")
    divided = partitioned(fusion)
    placed = divided.placed
    assert program.posts.name  # planned once, before the threads start

    def one(rank: int, transport: Threads) -> dict[str, Any]:
        own = parts_of(fusion, inputs, placed, mesh, rank, divided.fusion.hints)
        order = None if seed is None else Random(seed)
        return run_rank(program, own, transport, rank, draw=order)

    found, copies = assembled(fusion, by_ranks(4, one), placed, mesh, divided.fusion.hints)
    for name, wanted in driver.reference(fusion, inputs, sizes).items():
        np.testing.assert_array_equal(found[name], wanted, err_msg=name)
    assert copies == []


def test_a_mesh_needs_its_ranks() -> None:
    """One alone cannot run what several are for."""
    fusion = read_text(f"fusion: divided\nmesh: [4]{next(iter(DIVIDED.values()))}", "divided.yaml")
    program = Compilation(fusion, CompileOptions())
    with pytest.raises(FusecError, match="`divided` runs on 4 ranks"):
        run_rank(program, {}, None, 0)


def test_slices_of_all_ranks_come_together(tmp_path: Path) -> None:
    """On rank 0, which writes them."""
    path = tmp_path / "trace.json"

    def work(links: Links) -> None:
        own = [Slice("s0", "kernel", links.rank, 0, 1.0 + links.rank, 1e-3, "launch")]
        traced.gather_trace(links, str(path), "f", own)

    rank_processes.run(2, work, tmp_path)
    assert [(s["pid"], s["ts"]) for s in checked(path.read_text())] == [(0, 0), (1, 1e6)]
