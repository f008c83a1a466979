"""Draws without a seed: anew in every call, the same in kernels, reference and backward."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cli_tools import fusec, small
from emulated import EmulatedDevice, emulated
from fake_device import FakeDevice
from test_twin import reloaded

import fusec as package
from fusec import DataType, FusionDefinition, driver, lowering
from fusec.diagnostics import FusecError
from fusec.generator import DRAWS_PER_CALL, Generator
from fusec.ir.dtype import F32, U64
from fusec.ir.graph import Fusion
from fusec.ir.text import to_text
from fusec.ops.builder.build import GraphBuilder
from fusec.ops.numerics import philox
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.parse.dsl.draws import torch_pair
from fusec.parse.twin import to_python
from fusec.reference.verdict import compare
from fusec.run.execute import Executable
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.segment.phases import split

TWO = """\
fusion: two
dims: {B: 6, H: 40}
inputs: {x: 'f32[B, H]'}
ops:
  - y, kept = dropout(x, 0.5)
  - z, again = dropout(y, 0.5)
outputs: [kept, again, z]
"""
JOINT = """\
fusion: joint
dims: {B: 4, H: 64}
inputs: {x: 'bf16[B, H]', dy: 'bf16[B, H]'}
ops:
  - y, mask = dropout(x, 0.5)
  - more = rand_like(cast(dy, f32))
  - dx = where(mask, mul(dy, 2.0), 0.0)
  - noise = mul(more, dy)
outputs: [y, dx, noise]
phases:
  forward: [y]
  backward: {inputs: [dy], outputs: [dx, noise]}
"""
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start every test with the generator of a new process, and without a GPU."""
    monkeypatch.setattr("fusec.run.device.device_available", lambda: "none today")
    package.manual_seed(0)
    yield
    package.manual_seed(0)


def mask(seed: int, offset: int, count: int) -> np.ndarray:
    return philox.uniforms(seed, offset, count, double=False) < 0.5


def defined() -> FusionDefinition:
    with FusionDefinition("dropped") as fd:
        x = fd.define_tensor(shape=[8, 32], contiguity=True, dtype=DataType.Float)
        _, kept = fd.ops.dropout(x, 0.5)
        fd.add_output(kept)
    return fd


def test_every_execution_draws_anew() -> None:
    fd, x = defined(), np.ones((8, 32), np.float32)
    for offset in (0, DRAWS_PER_CALL, 2 * DRAWS_PER_CALL):
        (kept,) = fd.execute([x])
        np.testing.assert_array_equal(np.asarray(kept).ravel(), mask(0, offset, 256))
    package.manual_seed(7)
    (kept,) = fd.execute([x])
    np.testing.assert_array_equal(np.asarray(kept).ravel(), mask(7, 0, 256))
    fd.validate([x])  # the reference draws as the execution that it is compared with


def test_the_generator_hands_out_each_pair_once_and_wraps() -> None:
    generator = Generator(-1)
    assert generator.next_pair() == (2**64 - 1, 0)
    assert generator.next_pair() == (2**64 - 1, DRAWS_PER_CALL)
    generator.manual_seed(3)
    assert generator.next_pair() == (3, 0)


def outputs(fusion: Fusion, seed: int) -> dict[str, Any]:
    sizes = choose_sizes(fusion)
    return driver.reference(fusion, random_inputs(fusion, sizes, seed), sizes)


def test_a_run_draws_from_its_seed(tmp_path: Path, capsys: Capture) -> None:
    path, masks = small(tmp_path, TWO), list[np.ndarray]()
    for number, seed in enumerate((5, 5, 6)):
        file = tmp_path / f"{number}.npz"
        done = fusec(capsys, "run", path, "--device", "reference", "--seed", seed,
                     "--outputs", file)  # fmt: skip
        assert done.code == 0, done.err
        saved = np.load(file)
        np.testing.assert_array_equal(saved["kept"].ravel(), mask(seed, 0, 240))
        np.testing.assert_array_equal(saved["again"].ravel(), mask(seed, 1, 240))
        masks.append(saved["kept"])
    assert np.array_equal(masks[0], masks[1])
    assert not np.array_equal(masks[0], masks[2])


def test_inputs_from_a_file_need_no_state_and_may_hold_it(tmp_path: Path, capsys: Capture) -> None:
    path, x = small(tmp_path, TWO), np.ones((6, 40), np.float32)
    state = {"rng_seed": np.uint64(9), "rng_offset": np.uint64(30)}
    for given, expected in (({}, mask(4, 0, 240)), (state, mask(9, 30, 240))):
        np.savez(tmp_path / "in.npz", x=x, **given)
        done = fusec(capsys, "run", path, "--device", "reference", "--seed", 4, "--inputs",
                     tmp_path / "in.npz", "--outputs", tmp_path / "out.npz")  # fmt: skip
        assert done.code == 0, done.err
        kept = np.load(tmp_path / "out.npz")["kept"]
        np.testing.assert_array_equal(kept.ravel(), expected)


def test_a_script_draws_anew_in_each_execution(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        "import sys, numpy as np, fusec\nfrom nvfuser import FusionDefinition\n"
        "with FusionDefinition() as fd:\n"
        "    x = fd.define_tensor(shape=[4, 4], contiguity=True)\n"
        "    fd.add_output(fd.ops.rand_like(x))\n"
        "x = np.ones((4, 4), np.float32)\n"
        "first, second = (fd.execute([x])[0] for _ in range(2))\n"
        "assert not np.array_equal(first, second)\n"
        "fusec.manual_seed(11)\n"
        "assert np.array_equal(first, fd.execute([x])[0])\n"
    )
    done = fusec(capsys, "run", path, "--device", "reference", "--seed", 11)
    assert done.code == 0, done.err


def test_torch_seeds_the_draws_of_its_tensors(tmp_path: Path, capsys: Capture) -> None:
    """PyTorch itself, or the stand-in where it is not installed."""
    path = tmp_path / "script.py"
    path.write_text(
        "import torch\nfrom nvfuser import FusionDefinition\n"
        "with FusionDefinition() as fd:\n"
        "    x = fd.define_tensor(shape=[4, 4], contiguity=True)\n"
        "    fd.add_output(fd.ops.rand_like(x))\n"
        "def draw(seed):\n"
        "    torch.manual_seed(seed)\n"
        "    return fd.execute([torch.ones(4, 4)])[0]\n"
        "torch.testing.assert_close(draw(3), draw(3))\n"
        "assert not torch.equal(draw(3), draw(4))\n"
    )
    done = fusec(capsys, "run", path, "--device", "reference")
    assert done.code == 0, done.err


def test_tensors_of_torch_draw_from_its_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    class Drawing:
        offset = 12

        def get_offset(self) -> int:
            return self.offset

        def set_offset(self, offset: int) -> None:
            self.offset = offset

        def initial_seed(self) -> int:
            return 99

    class Number(int):
        def random_(self) -> int:
            return 123

    generator = Drawing()
    cuda = SimpleNamespace(default_generators=[None, generator])
    fake = SimpleNamespace(cuda=cuda, int64=None, empty=lambda shape, dtype: Number())
    monkeypatch.setitem(sys.modules, "torch", fake)
    tensor = SimpleNamespace(is_cuda=True, device=SimpleNamespace(index=1))
    assert torch_pair(tensor) == (99, 12)
    assert torch_pair(tensor) == (99, 12 + DRAWS_PER_CALL)
    assert DRAWS_PER_CALL % 4 == 0, "PyTorch takes multiples of 4"
    assert torch_pair(SimpleNamespace(is_cuda=False)) == (123, 0)


def test_a_backward_sees_the_mask_of_its_forward() -> None:
    phased = split(lowering.optimise(read_text(JOINT, "joint.yaml"), CompileOptions()))
    forward, backward = phased.parts
    assert [i.generator for i in forward.inputs if i.generator] == ["seed", "offset"]
    # The backward draws by itself, too, but what it is given is the pair of the forward.
    assert not any(i.generator for i in backward.inputs)
    assert {"rng_seed", "rng_offset"} <= set(backward.saved)
    assert not any(v.dtype.name == "bool" for v in phased.saved[0])
    for seed in (0, 1):
        known: dict[str, Any] = random_inputs(forward, choose_sizes(forward), seed)
        assert np.asarray(known["x"]).all(), "a zero would look like a dropped element"
        known |= driver.reference(forward, known, choose_sizes(forward))
        ones = np.ones((4, 64), backward.inputs[0].value.dtype.numpy)
        given = {i.value.name: known.get(i.value.name, ones) for i in backward.inputs}
        found = driver.reference(backward, given, choose_sizes(backward))
        np.testing.assert_array_equal(found["dx"] != 0, np.asarray(known["y"]) != 0)
        np.testing.assert_array_equal((found["dx"] != 0).ravel(), mask(seed, 0, 256))
        noise = np.asarray(found["noise"], np.float64).ravel()
        expected = philox.uniforms(seed, 1, 256, double=False)
        np.testing.assert_allclose(noise, expected, atol=2**-8)


def test_a_phase_that_alone_draws_asks_the_generator() -> None:
    text = JOINT.replace("y, mask = dropout(x, 0.5)", "mask = gt(x, 0.0)\n  - y = relu(x)")
    phased = split(lowering.optimise(read_text(text, "joint.yaml"), CompileOptions()))
    forward, backward = phased.parts
    assert not any(i.generator for i in forward.inputs)
    assert [i.generator for i in backward.inputs if i.generator] == ["seed", "offset"]
    assert not {"rng_seed", "rng_offset"} & set(backward.saved)


def test_phases_of_a_run_share_the_pair(tmp_path: Path, capsys: Capture) -> None:
    done = fusec(capsys, "run", small(tmp_path, JOINT), "--device", "reference", "--seed", 3)
    assert done.code == 0, done.err
    folder = tmp_path / "out"
    done = fusec(capsys, "compile", small(tmp_path, JOINT), "-o", folder)
    assert done.code == 0, done.err
    inputs = json.loads((folder / "joint_forward" / "manifest.json").read_text())["inputs"]
    assert {i["name"]: i["generator"] for i in inputs if "generator" in i} == {
        "rng_seed": "seed", "rng_offset": "offset",
    }  # fmt: skip


FAMILIES = {
    "pointwise": "outputs: [y]",
    "reduction": "  - t = sum(y, dims=[1])\noutputs: [y, t]",
    "inner_persistent": "  - s = softmax(y, 1)\noutputs: [s]",
    "scan": "  - c = cumsum(y, 1)\noutputs: [c]",
}


@pytest.mark.parametrize("scheduler", FAMILIES)
def test_kernels_read_the_pair_from_memory(scheduler: str, tmp_path: Path) -> None:
    """One build serves every pair: machine code is loaded once, two runs draw apart."""
    text = (
        "fusion: f\ndims: {B: 6, H: 40}\ninputs: {x: 'f32[B, H]'}\nops:\n"
        "  - a, _ = dropout(x, 0.5)\n  - y, _ = dropout(a, 0.25)\n" + FAMILIES[scheduler]
    )
    fusion = read_text(text, "f.yaml")
    compiled = driver.compile_fusion(fusion, CompileOptions(targets=("sm_90a",)))
    assert [s.scheduler for s in compiled.program.segmented.segments] == [scheduler]
    device: EmulatedDevice = emulated(compiled.program, tmp_path)
    found = [ran(device, compiled, seed) for seed in (0, 1)]
    assert any(not np.array_equal(found[0][name], found[1][name]) for name in found[0])


def test_a_draw_computed_in_two_segments_is_the_same(tmp_path: Path) -> None:
    text = (
        "fusion: f\ndims: {B: 6, H: 40}\ninputs: {x: 'f32[B, H]'}\nops:\n"
        "  - _, first = dropout(x, 0.5)\n  - _, m = dropout(x, 0.5)\n"
        "  - t = sum(where(m, x, 0.0), dims=[0])\n  - d = sum(where(m, x, 0.0), dims=[1])\n"
        "outputs: [first, t, d]\nsegments: {rows: [d], columns: [t]}\n"
    )
    compiled = driver.compile_fusion(read_text(text, "f.yaml"), CompileOptions(targets=("sm_90a",)))
    drawing = [s for s in compiled.program.kernel_sources if "uniform_f32" in s.text]
    assert len(drawing) >= 2
    device = emulated(compiled.program, tmp_path)
    for seed in (0, 1):
        found = ran(device, compiled, seed)
        drawn = mask(seed, 1, 240).reshape(6, 40)
        np.testing.assert_array_equal(found["t"], drawn.sum(0))
        np.testing.assert_array_equal(found["d"], drawn.sum(1))


def ran(device: FakeDevice, compiled: driver.Package, seed: int) -> dict[str, Any]:
    """Return the outputs of a program on the pair of a seed, compared with the reference."""
    fusion = compiled.program.original
    sizes = choose_sizes(fusion)
    ones = {"x": np.ones((6, 40), np.float32)}
    inputs = {**random_inputs(fusion, sizes, seed), **ones}
    executable = Executable(device, compiled.program.host, compiled.cubins("sm_90a"))  # pyright: ignore[reportArgumentType]
    with executable.bind(inputs, sizes) as bound:
        bound.reset()
        bound.run()
        results = bound.outputs()
    verdict = compare(fusion, sizes, inputs, results)
    assert verdict.ok, verdict.text()
    return results


def test_two_draws_are_never_merged_and_one_pair_is_drawn_once() -> None:
    builder = GraphBuilder()
    x = builder.input("x", F32, [8])
    seed, offset = builder.input("s", U64, []), builder.input("o", U64, [])
    for _ in range(2):
        builder.output(builder.apply("rand_like", x))
        builder.output(builder.apply("uniform", 0.0, 1.0, [8], seed, offset))
    optimised = lowering.optimise(builder.finish(), CompileOptions())
    assert sum(n.op.name == "uniform" for n in optimised.nodes) == 3


def test_the_pair_of_an_attention_is_a_copy_of_the_state() -> None:
    text = (
        "fusion: f\ndims: {S: 16}\ninputs: {q: 'f32[1, 1, S, 8]'}\nops:\n"
        "  - o, l, seed, offset = sdpfa_fwd(q, q, q, dropout_p=0.5)\n"
        "outputs: [o, seed, offset]\n"
    )
    fusion = read_text(text, "f.yaml")
    compiled = driver.plan(fusion, CompileOptions())
    views = {v.name for plan in compiled.plans for v in plan.views}
    assert not views & {"seed", "offset"}, "a view would move on with the generator"
    found = outputs(fusion, 21)
    assert found["seed"].tolist() == [21, 21]
    assert found["offset"] == 0


def test_the_state_is_part_of_the_text_and_of_the_script(tmp_path: Path) -> None:
    fusion = read_text(TWO, "two.yaml")
    assert [i.value.name for i in fusion.given] == ["x"]
    text = to_text(fusion)
    assert "  rng_seed:\n    type: u64[]\n    generator: seed\n" in text
    again = read_text(text, "again.yaml")
    assert again == fusion
    assert to_text(again) == text
    script = to_python(fusion)
    assert "rng_" not in script, "the script draws as the file does"
    assert reloaded(fusion, tmp_path) == fusion
    # What is left of a fusion cannot be written so: its draws must keep their numbers.
    optimised = lowering.optimise(read_text(TWO.replace("kept, again, z", "again"), "l.yaml"),
                                CompileOptions())  # fmt: skip
    assert 'rng_seed = fd.define_generator("seed", name="rng_seed")' in to_python(optimised)
    assert reloaded(optimised, tmp_path) == optimised


def test_names_of_the_file_go_before_those_of_the_state() -> None:
    text = TWO.replace("z, again = dropout(y, 0.5)",
                       "rng_seed, again = dropout(y, 0.5)\n  - z = relu(rng_seed)")  # fmt: skip
    fusion = read_text(text, "two.yaml")
    assert [i.value.name for i in fusion.inputs] == ["x", "rng_seed_2", "rng_offset"]
    assert read_text(to_text(fusion), "again.yaml") == fusion
    np.testing.assert_array_equal(outputs(fusion, 8)["kept"].ravel(), mask(8, 0, 240))


@pytest.mark.parametrize(
    ("inputs", "ops", "message", "place"),
    [
        ("{type: 'u64[]', generator: state}", "set(x)", "expected `seed` or `offset`", "5:33"),
        ("{type: 'i64[]', generator: seed}", "set(x)", "are `u64[]`", "5:13"),
        ("{type: 'u64[4]', generator: seed}", "set(x)", "are `u64[]`", "5:13"),
        ("{type: u64, generator: seed}", "set(x)", "are `u64[]`", "5:13"),
        ("{type: 'u64[]', generator: seed, range: [0, 1]}", "set(x)", "has no `range`", "5:46"),
        ("{type: 'u64[]', generator: seed}\n  t: {type: 'u64[]', generator: seed}", "set(x)",
         "two inputs are declared as the generator's seed", "6:3"),
        ("{type: 'u64[]', generator: seed}", "rand_like(x)", "a random op without a seed", "7:9"),
    ],
)  # fmt: skip
def test_mistakes(inputs: str, ops: str, message: str, place: str) -> None:
    text = f"fusion: f\ndims: {{N: 8}}\ninputs:\n  x: f32[N]\n  s: {inputs}\nops:\n  - y = {ops}\n"
    with pytest.raises(FusecError) as caught:
        read_text(text + "outputs: [y]\n", "f.yaml")
    rendered = caught.value.render()
    assert message in rendered
    assert f"f.yaml:{place}" in rendered


def test_the_state_is_not_written() -> None:
    builder = GraphBuilder()
    builder.apply("rand_like", builder.input("x", F32, [4]))
    value = builder.apply("full", [], 1, dtype=U64)
    with pytest.raises(FusecError, match="belongs to the random generator and cannot be written"):
        builder.output(value, alias="rng_seed")


def test_a_fusion_draws_at_most_as_often_as_a_call_moves_the_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fusec.ops.builder.draws.DRAWS_PER_CALL", 2)
    builder = GraphBuilder()
    x = builder.input("x", F32, [4])
    builder.apply("rand_like", x)
    builder.apply("rand_like", x)
    with pytest.raises(FusecError, match="more than 2 random ops") as caught:
        builder.apply("rand_like", x)
    assert caught.value.exit_code == 3


def test_fewer_inputs_are_told_without_the_state() -> None:
    with pytest.raises(FusecError, match="got 0 inputs, the fusion takes 1") as caught:
        defined().execute([])
    assert "rng" not in caught.value.render()
