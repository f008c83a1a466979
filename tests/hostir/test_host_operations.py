"""Segments that the host runs without a kernel: copies, zeros, and what the CPU evaluates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from called import framework, on_gpu
from cli_tools import fusec
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_threads import over_sockets
from stream_device import StreamDevice

import fusec as api
from fusec import DataType, FusionDefinition
from fusec.commands.running.rank import assembled, parts_of
from fusec.diagnostics import FusecError, Unsupported
from fusec.driver import Compilation
from fusec.hostir.instructions import Copy, For, Launch, Memset, Post
from fusec.lowering import division
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.rank import run_rank
from fusec.reference.verdict import compare
from fusec.run.execute import Executable
from fusec.run.inputs import choose_sizes, random_inputs

Capture = pytest.CaptureFixture[str]
OPTIONS = CompileOptions(targets=("sm_90a",), targets_given=True, jobs=1)
MIXED = """
fusion: mixed
dims: {B: 6, H: 8}
inputs: {x: "f32[B, H]", z: "f32[B, H]", scale: f32 = 2.0}
ops:
  - a = set(x)
  - t = permute(x, [1, 0])
  - s = slice(x, [1, 2], [5, 7])
  - c = cat([x, z], 1)
  - n = full([B, H], 0.0)
  - b = add(mul(x, scale), z)
  - r = sum(b, dims=[1])
  - e = exp(c)
outputs: [a, t, s, c, n, b, r, e]
segments:
""" + "".join(f"  at_{v}: {{values: [{v}], scheduler: host}}\n" for v in "atscnbr")


def planned(text: str) -> Compilation:
    return Compilation(read_text(text, "fusion.yaml"), OPTIONS)


def executed(program: Compilation, device: Any, inputs: Any) -> dict[str, np.ndarray]:
    """Return the outputs of a program without kernels on a device."""
    executable = Executable(device, program.host, {}, None, program.evaluated)
    with executable.bind(inputs, choose_sizes(program.original)) as bound:
        bound.reset()
        bound.run()
        return bound.outputs()


def agree(program: Compilation, device: Any, seed: int = 0) -> None:
    """Fail unless a device gives what the reference does."""
    fusion = program.original
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes, seed)
    verdict = compare(fusion, sizes, inputs, executed(program, device, inputs))
    assert verdict.ok, verdict.text()


def test_each_operation_is_what_was_asked_for(tmp_path: Path, capsys: Capture) -> None:
    """Copies and a memset where elements are moved alone, else an evaluation; e has a kernel."""
    program = planned(MIXED)
    kinds = {s.pin: s.scheduler for s in program.segmented.segments}
    assert {kinds.pop(f"at_{v}") for v in "atscnbr"} == {"host"}
    assert list(kinds.values()) == ["pointwise"]
    found = program.host.instructions
    targets = sorted(i.target for i in found if isinstance(i, Copy))
    assert targets == ["a", "c.part0", "c.part1", "s", "t"]
    assert [i.buffer for i in found if isinstance(i, Memset)] == ["n"]
    assert [i.outputs for i in found if isinstance(i, Post)] == [("b",), ("r",)]
    assert [i.segment for i in found if isinstance(i, Launch)] == [
        s.name for s in program.segmented.segments if s.pin is None
    ]
    path = tmp_path / "mixed.yaml"
    path.write_text(MIXED, encoding="utf-8")
    done = fusec(capsys, "run", path, "--device", "reference")
    assert done.code == 0, done.err
    done = fusec(capsys, "explain", path)
    assert "host          2 copies" in done.out
    assert "host          1 memset" in done.out
    assert done.out.count("evaluated on the CPU") == 2
    done = fusec(capsys, "dump", path, "--host-ir")
    assert done.out.count("Evaluate( Group ID: ") == 2


def without_kernel(text: str) -> str:
    lines = (line for line in text.splitlines() if " e = " not in line)
    return "\n".join(lines).replace(", e]", "]")


@pytest.mark.parametrize("seed", range(4))
def test_a_device_runs_them_in_stream_order(seed: int) -> None:
    """What is evaluated waits for what computes its operands, and its readers for it."""
    agree(planned(without_kernel(MIXED)), StreamDevice({}, seed), seed)


def test_the_definition_in_python_is_the_same() -> None:
    with FusionDefinition("mixed") as fd:
        x = fd.define_tensor([6, 8], contiguity=True, dtype=DataType.Float)
        y, r = fd.ops.set(x), fd.ops.sum(x, [1])
        fd.add_output(y)
        fd.add_output(r)
        fd.pin("copied", [y], "host")
        fd.pin("summed", [r], "host")
    program = Compilation(fd.graph(), OPTIONS)
    assert [s.scheduler for s in program.segmented.segments] == ["host", "host"]
    assert not program.host.launches
    agree(program, StreamDevice({}))


def test_a_call_writes_into_the_callers_arrays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Copies, sums and a kernel between them, without memory for outputs; also on the CPU."""
    text = """
fusion: called
dims: {B: 4, H: 64}
inputs: {x: "f32[B, H]", k: f32 = 3.0}
ops:
  - y = set(x)
  - e = exp(x)
  - s = sum(mul(e, k), [1])
outputs: [y, e, s]
segments: {copied: {values: [y], scheduler: host}, summed: {values: [s], scheduler: host}}
"""
    x = np.random.default_rng(1).standard_normal((4, 64), np.float32)
    shapes = (4, 64), (4, 64), (4,)

    def check(program: Any, put: Any, read: Any) -> None:
        for factor in (3.0, 5.0):
            out = [put(np.zeros(s, np.float32)) for s in shapes]
            found = program(put(x), factor, out=tuple(out))
            assert all(a is b for a, b in zip(found, out, strict=True))
            y, e, s = map(read, out)
            np.testing.assert_array_equal(y, x)
            np.testing.assert_allclose(e, np.exp(x), rtol=1e-5)
            np.testing.assert_allclose(s, factor * np.exp(x).sum(1), rtol=1e-5)

    check(api.compile(text, target="sm_90a"), np.copy, np.asarray)
    framework(monkeypatch, tmp_path)
    program = api.compile(text, target="sm_90a")
    check(program, on_gpu, lambda a: a.array)
    with pytest.raises(Unsupported, match="the CPU evaluates segment"):
        program.graph(on_gpu(x), 3.0)


PLACES = st.sampled_from(("x", "z"))


@st.composite
def moved(draw: st.DrawFn) -> str:
    """Return a fusion that moves elements: through views, into several tensors at once."""
    ops: list[str] = []
    parts: list[str] = []
    for k in range(draw(st.integers(1, 3))):
        of, name = draw(PLACES), f"p{k}"
        begin, end = draw(st.integers(0, 3)), draw(st.integers(4, 6))
        step = draw(st.integers(1, 2))
        ops.append(f"{name} = slice({of}, [0, {begin}], [6, {end}], [{step}, 1])")
        parts.append(name)
    outputs = list(parts)
    if draw(st.booleans()):
        ops.append("q = permute(x, [1, 0])")
        outputs.append("q")
    ops.append(f"whole = cat([x, {parts[0]}], 1)" if "[1, 1]" in ops[0] else "whole = set(z)")
    outputs.append("whole")
    order = draw(st.sampled_from(("", "{stride_order: [0, 1]}")))
    names = ", ".join(outputs)
    pins = ", ".join(f"at_{n}: {{values: [{n}], scheduler: host}}" for n in outputs)
    kind = draw(st.sampled_from(("f32", "bf16", "i64")))
    last = f"  - whole: {order}\n" if order else "  - whole\n"
    shown = "".join(f"  - {n}\n" for n in outputs[:-1]) + last
    assert names
    return (
        (
            f'fusion: moved\ninputs: {{x: "{kind}[6, 6]", z: "{kind}[6, 6]"}}\n'
            f"ops: [{', '.join(ops)}]\noutputs:\n{shown}segments: {{{pins}}}\n"
        )
        .replace("ops: [", "ops:\n  - ")
        .replace("), ", ")\n  - ")
        .replace(")]\n", ")\n")
    )


@pytest.mark.gpu
def test_a_gpu_runs_them(tmp_path: Path, capsys: Capture) -> None:
    """A kernel, copies, a memset and evaluations of one program; also for slices of a loop."""
    for name, text in (("mixed", MIXED), ("loop", LOOP)):
        path = tmp_path / f"{name}.yaml"
        path.write_text(text, encoding="utf-8")
        done = fusec(capsys, "run", path, "--device", "cuda")
        assert done.code == 0, done.out + done.err
        assert "verified" in done.out


@settings(max_examples=12, deadline=None)
@given(moved(), st.integers(0, 3))
def test_elements_are_moved_to_where_they_belong(text: str, seed: int) -> None:
    program = planned(text)
    assert all(s.scheduler == "host" for s in program.segmented.segments)
    assert not program.evaluated
    agree(program, StreamDevice({}, seed), seed)


def test_what_takes_many_copies_is_evaluated() -> None:
    """A transpose of a large tensor would be a call of the driver for each row."""
    text = """
fusion: t
inputs: {x: "f32[512, 8]"}
ops:
  - y = permute(x, [1, 0])
outputs: [y]
segments: {at: {values: [y], scheduler: host}}
"""
    assert not planned(text).evaluated
    agree(planned(text.replace("512, 8", "9, 512")), StreamDevice({}))
    assert len(planned(text.replace("512, 8", "512, 300")).evaluated) == 1


def test_an_output_in_place_is_copied_there() -> None:
    text = """
fusion: into
inputs: {x: "f32[4, 6]", w: "f32[6, 4]"}
ops:
  - y = permute(w, [1, 0])
outputs:
  - y: {alias: x}
segments: {at: {values: [y], scheduler: host}}
"""
    program = planned(text)
    device = StreamDevice({})
    inputs = random_inputs(program.original, choose_sizes(program.original), 0)
    np.testing.assert_array_equal(executed(program, device, inputs)["y"], inputs["w"].array.T)


def test_outputs_that_overwrite_one_anothers_operands_are_evaluated() -> None:
    """All of them from what was there before."""
    text = """
fusion: swapped
inputs: {x: "f32[4, 6]", w: "f32[4, 6]"}
ops:
  - a = set(w)
  - b = set(x)
outputs:
  - a: {alias: x}
  - b: {alias: w}
segments: {at: {values: [a, b], scheduler: host}}
"""
    program = planned(text)
    inputs = random_inputs(program.original, choose_sizes(program.original), 0)
    found = run_rank(program, inputs, None, 0)  # a kernel saves one of both
    np.testing.assert_array_equal(found["a"], inputs["w"].array)
    np.testing.assert_array_equal(found["b"], inputs["x"].array)


def test_complex_outputs_in_place() -> None:
    text = """
fusion: turned
inputs: {x: "c64[4, 6]"}
ops:
  - y = mul(x, c64(0, 1))
outputs:
  - y: {alias: x}
segments: {at: {values: [y], scheduler: host}}
"""
    program = planned(text)
    inputs = random_inputs(program.original, choose_sizes(program.original), 0)
    wanted = 1j * inputs["x"].array
    np.testing.assert_allclose(executed(program, StreamDevice({}), inputs)["y"], wanted, rtol=1e-6)


LOOP = """
fusion: loop
dims: {B: 8, H: 6}
inputs: {x: "f32[B, H]"}
ops:
  - a = set(x)
  - b = mul(x, 2.0)
  - s = sum(b, [1])
outputs:
  - a: {stream: {0: 4}}
  - s: {stream: {0: 4}}
segments:
  first: {values: [a], scheduler: host}
  then: {values: [b], scheduler: host}
  last: {values: [s], scheduler: host}
"""


@pytest.mark.parametrize("seed", range(3))
def test_in_loops_over_streams(seed: int) -> None:
    program = planned(LOOP)
    inside = [i for loop in program.host.instructions if isinstance(loop, For) for i in loop.body]
    assert Copy("a_slice", "x_slice") in inside
    assert sum(isinstance(i, Post) for i in inside) == 2
    agree(program, StreamDevice({}, seed), seed)


def test_among_ranks() -> None:
    """A copy on the one rank that holds a tensor, and a sum of what a rank has."""
    text = """
fusion: ranked
mesh: [2]
inputs: {x: {type: "f32[8, 6]", shard: {0: mesh}}, w: {type: "f32[4, 4]", ranks: [1]}}
ops:
  - c = set(w)
  - s = sum(x, [0])
  - y = add(s, 1.0)
outputs: [c, y]
shardings: {c: {ranks: [1]}}
segments: {copied: {values: [c], scheduler: host}, summed: {values: [y], scheduler: host}}
"""
    program = planned(text)
    fusion = program.original
    divided = division(fusion, OPTIONS).partition
    assert program.host.name
    inputs = random_inputs(fusion, choose_sizes(fusion), 0)
    mesh = fusion.mesh
    assert mesh is not None
    kinds = [s.scheduler for s in program.segmented.segments]
    assert kinds.count("host") == 2
    shares = divided.fusion.hints
    parts = over_sockets(
        2,
        lambda rank, transport: run_rank(
            program, parts_of(fusion, inputs, divided.placed, mesh, rank, shares), transport, rank
        ),
    )
    found, copies = assembled(fusion, parts, divided.placed, mesh, shares)
    assert not copies
    np.testing.assert_array_equal(found["c"], inputs["w"])
    np.testing.assert_allclose(found["y"], inputs["x"].array.sum(0) + 1, rtol=1e-5)


def test_only_a_file_selects_the_host() -> None:
    text = MIXED[: MIXED.index("segments:")]
    assert not any(s.scheduler == "host" for s in planned(text).segmented.segments)


def test_programs_that_the_cpu_takes_part_in_are_refused(tmp_path: Path, capsys: Capture) -> None:
    """As C, where copies alone are accepted, and for whoever has machine code alone."""
    path = tmp_path / "mixed.yaml"
    path.write_text(MIXED, encoding="utf-8")
    emitted = ("compile", path, "--emit", "c", "-o")
    done = fusec(capsys, *emitted, tmp_path / "no")
    assert done.code == 3
    assert "remove its `scheduler: host`" in done.err
    text = MIXED.replace("  at_b: {values: [b], scheduler: host}\n", "")
    path.write_text(text.replace("  at_r: {values: [r], scheduler: host}\n", ""), encoding="utf-8")
    done = fusec(capsys, *emitted, tmp_path / "out")
    assert done.code == 0, done.err
    program = planned(without_kernel(MIXED))
    with pytest.raises(Unsupported, match="the CPU evaluates segment"):
        Executable(StreamDevice({}), program.host, {})  # pyright: ignore[reportArgumentType]


def test_a_name_that_is_wrong_is_an_error_with_its_place() -> None:
    with pytest.raises(FusecError, match="unknown scheduler `hosts`") as caught:
        planned(MIXED.replace("values: [t], scheduler: host", "values: [t], scheduler: hosts"))
    assert caught.value.diagnostic.span is not None
