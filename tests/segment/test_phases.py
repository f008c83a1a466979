"""Joint graphs: what the forward pass saves, and that its parts compute the whole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from gpu_check import check_on_gpu
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT, TESTS
from strategies import fusions

from fusec import driver, lowering
from fusec.cli import cli
from fusec.diagnostics import FusecError
from fusec.ir.annotations import Phase
from fusec.ir.graph import Fusion
from fusec.ir.text import to_text
from fusec.ir.verify import verify
from fusec.options import CompileOptions
from fusec.parse import read_file, read_text
from fusec.reference.evaluate import evaluate
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.segment.cheap import is_injective
from fusec.segment.phases import Phased, split

FOLDER = TESTS / "phases"
GRAPHS = sorted(p.stem for p in FOLDER.glob("*.yaml"))


def parts(name: str) -> tuple[Fusion, Phased]:
    fusion = lowering.optimise(read_file(FOLDER / f"{name}.yaml"), CompileOptions())
    return fusion, split(fusion)


def run_parts(fusion: Fusion, phased: Phased) -> None:
    """Compare the parts, run one after the other, with the whole."""
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes)
    whole = evaluate(fusion, inputs, sizes)
    known: dict[str, Any] = dict(inputs)
    for part in phased.parts:
        verify(part)
        mine = {d.name: sizes[d.name] for d in part.dims}
        results = evaluate(part, {i.value.name: known[i.value.name] for i in part.inputs}, mine)
        known |= {o.value.name: np.asarray(results[o.value.name]) for o in part.outputs}
    for output in fusion.outputs:
        name = output.value.name
        np.testing.assert_allclose(known[name], np.asarray(whole[name]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", GRAPHS)
def test_parts_compute_the_whole(name: str) -> None:
    fusion, phased = parts(name)
    assert [p.name for p in phased.parts] == [f"{name}_forward", f"{name}_backward"]
    run_parts(fusion, phased)


@pytest.mark.parametrize("name", GRAPHS)
def test_no_more_is_saved_than_pytorch_saves(name: str) -> None:
    fusion, phased = parts(name)
    figures = json.loads((FOLDER / "pytorch.json").read_text())
    assert 0 < phased.saved_bytes(fusion.hints) <= figures[name]["bytes"]


def test_what_is_saved_is_named_in_both_parts() -> None:
    _, phased = parts("norm_dropout_residual")
    forward, backward = phased.parts
    names = {v.name for v in phased.saved[0]}
    assert set(backward.saved) == names
    assert set(forward.saved) == names - {i.value.name for i in forward.inputs}
    # The mask follows from the place of an element: it is computed again.
    assert not any(v.dtype.name == "bool" for v in phased.saved[0])


def test_reductions_are_never_computed_again() -> None:
    for name in GRAPHS:
        _, phased = parts(name)
        forward, backward = phased.parts
        made = {n.output.name for n in forward.nodes if n.op.family == "reduction"}
        assert not made & {n.output.name for n in backward.nodes if n.op.family == "reduction"}


def test_three_phases() -> None:
    fusion = read_text(
        "fusion: f\ndims: {N: 64}\ninputs: {x: 'f32[N]', g: 'f32[N]', h: 'f32[N]'}\nops:\n"
        "  - e = exp(x)\n  - a = mul(e, g)\n  - b = mul(sin(a), h)\n  - c = add(b, e)\n"
        "outputs: [e, a, c]\n"
        "phases:\n  one: [e]\n  two: {inputs: [g], outputs: [a]}\n"
        "  three: {inputs: [h], outputs: [c]}\n"
    )
    phased = split(fusion)
    assert [p.name for p in phased.parts] == ["f_one", "f_two", "f_three"]
    assert [[v.name for v in values] for values in phased.saved] == [["e"], ["e", "a"]]
    run_parts(fusion, phased)


def test_an_output_that_a_later_phase_reads_is_saved_once() -> None:
    fusion = read_text(
        "fusion: f\ndims: {N: 64}\ninputs: {x: 'f32[N]', d: 'f32[N]'}\nops:\n  - y = exp(x)\n"
        "  - z = y * d\noutputs: [y, z]\n"
        "phases:\n  forward: [y]\n  backward: {inputs: [d], outputs: [z]}\n"
    )
    phased = split(fusion)
    assert [o.value.name for o in phased.parts[0].outputs] == ["y"]
    assert phased.parts[0].saved == ("y",)
    run_parts(fusion, phased)


def test_phases_are_printed_and_read_back() -> None:
    fusion = read_file(FOLDER / "swiglu.yaml")
    again = read_text(to_text(fusion))
    plain = [replace(p, span=None) for p in again.phases]
    assert plain == [
        Phase("forward", (), ("y",)),
        Phase("backward", ("dy",), ("dup", "dgate")),
    ]


HEAD = (
    "fusion: f\ndims: {N: 8}\ninputs: {x: 'f32[N]', d: 'f32[N]'}\nops:\n  - y = mul(x, d)\n"
    "  - z = mul(y, 2.0)\noutputs: [y, z]\nphases:\n"
)


@pytest.mark.parametrize(
    ("phases", "message", "place"),
    [
        ("  a: [y]\n  b: {inputs: [d], outputs: [z]}\n", "phase `a` needs `d`", "9:3"),
        ("  a: [y]\n  b: [w]\n", "`w` is not an output", "10:7"),
        ("  a: [y]\n  b: [y, z]\n", "`y` is in two phases", "10:7"),
        ("  a: [y, y]\n  b: [z]\n", "`y` is listed twice", "9:10"),
        ("  a: [y]\n  b: {inputs: [q], outputs: [z]}\n", "`q` is not an input", "10:16"),
        ("  a: [y]\n  b: {inputs: [d]}\n", "phase `b` needs `outputs`", "10:3"),
        ("  a: [y]\n  b: {outputs: [z], output: [z]}\n", "output", "10:21"),
        ("  a: [y, z]\n", "at least two phases", "9:3"),
        ("  a: [y]\n  b: []\n", "output `z` is in no phase", "10:3"),
        ("  a: 3\n  b: [z]\n", "expected a list of outputs", "9:6"),
    ],
)
def test_a_wrong_phase_is_told_with_its_place(
    phases: str, message: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(HEAD + phases)
    with pytest.raises(FusecError) as raised:
        driver.programs(str(path))
    assert raised.value.exit_code == 2
    assert message in str(raised.value)
    assert raised.value.diagnostic.span is not None
    assert raised.value.diagnostic.span.place().endswith(f":{place}")


def test_an_input_that_an_earlier_phase_overwrites() -> None:
    text = (
        "fusion: f\ndims: {N: 8}\ninputs: {x: 'f32[N]', d: 'f32[N]'}\nops:\n  - y = mul(x, 2.0)\n"
        "  - z = mul(x, d)\noutputs: [y: {alias: x}, z]\nphases:\n  a: [y]\n"
        "  b: {inputs: [d], outputs: [z]}\n"
    )
    with pytest.raises(FusecError, match="overwrites"):
        split(read_text(text))


def test_both_artifacts_are_written_and_run(tmp_path: Path) -> None:
    path = str(FOLDER / "swiglu.yaml")
    runner = CliRunner()
    done = runner.invoke(cli, ["compile", path, "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "swiglu_backward",
        "swiglu_forward",
    ]
    done = runner.invoke(cli, ["run", path, "--device", "reference"])
    assert done.exit_code == 0, done.output


@settings(max_examples=60, deadline=None)
@given(fusions(), st.data())
def test_parts_of_random_graphs_compute_the_whole(fusion: Fusion, data: Any) -> None:
    if any(o.alias is not None for o in fusion.outputs) or len(fusion.outputs) < 2:
        return
    names = [o.value.name for o in fusion.outputs]
    count = data.draw(st.integers(1, len(names) - 1))
    early, late = names[:count], names[count:]
    needed: set[str] = set(early)
    for node in reversed(fusion.nodes):
        if any(v.name in needed for v in node.outputs):
            needed |= {v.name for v in (*node.inputs, *node.outputs)}
    inputs = tuple(i.value.name for i in fusion.inputs if i.value.name not in needed)
    phases = (Phase("a", (), tuple(early)), Phase("b", inputs, tuple(late)))
    fusion = replace(fusion, phases=phases, pins=())
    made_early = {v.name for n in fusion.nodes if not is_injective(n) for v in n.outputs} & needed
    if made_early & {*late}:
        with pytest.raises(FusecError, match="is computed in phase `a`"):
            split(fusion)
        return
    run_parts(fusion, split(fusion))


def test_a_boundary_in_the_dsl(tmp_path: Path) -> None:
    script = tmp_path / "swiglu.py"
    script.write_text(
        "from fusec import DataType, FusionDefinition\n"
        "with FusionDefinition() as fd:\n"
        "    x = fd.define_tensor(shape=[-1, 64], contiguity=True, dtype=DataType.Float)\n"
        "    e = fd.ops.exp(x)\n"
        "    fd.add_output(fd.ops.sin(e))\n"
        "    fd.phase_boundary()\n"
        "    d = fd.define_tensor(shape=[-1, 64], contiguity=True, dtype=DataType.Float)\n"
        "    fd.add_output(fd.ops.mul(d, fd.ops.cos(e)))\n"
    )
    forward, backward = (p.original for p in driver.programs(str(script)))
    assert [len(p.inputs) for p in (forward, backward)] == [1, 2]
    assert backward.saved == (forward.inputs[0].value.name,)
    assert forward.name.endswith("_forward")
    assert backward.name.endswith("_backward")


def test_a_boundary_without_outputs_before_it() -> None:
    from fusec import DataType, FusionDefinition

    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[4], contiguity=True, dtype=DataType.Float)
        fd.phase_boundary()
        fd.add_output(fd.ops.exp(x))
    with pytest.raises(FusecError, match="phase `forward` has no outputs"):
        fd.fusion()


def test_the_joint_example_is_a_pair() -> None:
    folder = ROOT / "examples" / "joint"
    yaml = [p.original for p in driver.programs(str(folder / "norm_dropout_residual.yaml"))]
    python = [p.original for p in driver.programs(str(folder / "norm_dropout_residual.py"))]
    assert [p.name for p in yaml] == [p.name for p in python]
    assert [len(p.saved) for p in yaml] == [len(p.saved) for p in python] == [2, 7]
    for left, right in zip(yaml, python, strict=True):
        assert left == right


@pytest.mark.gpu
@pytest.mark.parametrize("name", GRAPHS)
def test_parts_on_a_gpu(name: str) -> None:
    for part in parts(name)[1].parts:
        check_on_gpu(part)


JOINT = str(ROOT / "examples" / "joint" / "norm_dropout_residual.yaml")


def dumped(*flags: str) -> str:
    done = CliRunner().invoke(cli, ["dump", JOINT, *flags])
    assert done.exit_code in (0, None), done.output
    return done.output


@pytest.mark.parametrize(
    "flags", [("--without", "share_expressions"), ("--stop-after", "fold_constants")]
)
def test_the_passes_that_are_left_out_do_not_run_on_the_whole(flags: tuple[str, ...]) -> None:
    assert dumped("--fusion-ir", *flags) != dumped("--fusion-ir")


def test_what_passes_make_of_the_whole_is_printed() -> None:
    told = dumped("--preseg")
    whole, *phases = told.split("# norm_dropout_residual_")
    assert whole.startswith("# norm_dropout_residual\n# before the passes\n")
    assert "\n# after share_expressions\n" in whole
    assert [p.partition("\n")[0] for p in phases] == ["forward", "backward"]
    left_out = dumped("--preseg", "--without", "share_expressions")
    assert "# after share_expressions" not in left_out


def test_a_pass_that_there_is_none_of_is_told_of_joint_graphs() -> None:
    with pytest.raises(FusecError, match="unknown pass `nothing`"):
        CliRunner().invoke(cli, ["check", JOINT, "--without", "nothing"], catch_exceptions=False)
