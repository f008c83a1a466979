"""Twins: YAML and Python examples are equal, and a fusion's script defines the same fusion."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import ROOT

from fusec import DataType, FusionDefinition
from fusec.ir.graph import Fusion
from fusec.nvfuser.script import load_script
from fusec.parse import read_file, read_text
from fusec.parse.twin import to_python

EXAMPLES = ROOT / "examples"
YAML = sorted(EXAMPLES.glob("*.yaml"))


def reloaded(fusion: Fusion, folder: Path) -> Fusion:
    path = folder / "twin_of_fusion.py"
    path.write_text(to_python(fusion))
    (loaded,) = load_script(path)
    return loaded


def test_every_yaml_example_has_a_python_twin() -> None:
    assert len(YAML) >= 14
    assert {p.stem for p in YAML} == {p.stem for p in EXAMPLES.glob("*.py")}


@pytest.mark.parametrize("path", YAML, ids=lambda p: p.stem)
def test_examples_are_pairs(path: Path) -> None:
    (python,) = load_script(path.with_suffix(".py"))
    yaml = read_file(path)
    assert python == yaml
    assert (python.name, python.doc) == (yaml.name, yaml.doc)
    assert [p.values for p in python.pins] == [p.values for p in yaml.pins]
    assert [i.value.name for i in python.inputs] == [i.value.name for i in yaml.inputs]
    assert [o.value.name for o in python.outputs] == [o.value.name for o in yaml.outputs]


@pytest.mark.parametrize("path", YAML, ids=lambda p: p.stem)
def test_the_script_of_an_example_defines_it(path: Path, tmp_path: Path) -> None:
    fusion = read_file(path)
    loaded = reloaded(fusion, tmp_path)
    assert loaded == fusion
    assert loaded.name == fusion.name
    assert [(p.name, p.values, p.scheduler) for p in loaded.pins] == [
        (p.name, p.values, p.scheduler) for p in fusion.pins
    ]
    assert [v.name for v in loaded.values] == [v.name for v in fusion.values]


ODD = """
fusion: odd
doc: 'Says "odd" \\ things'
dims: {lambda: 6, fd: {default: 8, multiple_of: 4, buckets: [8, 16]}}
inputs:
  in: {type: "f32[lambda, fd]", contiguity: [false, true]}
  is:
    type: f32[fd, lambda]
    stride_order: [0, 1]
  n: i64 = 3
  cut: f32 = inf
ops:
  - del = minimum(in, cut)
  - y = pad(permute(is, [1, 0]), [1, 2, 0, 3], 0.5)
  - part = slice(del, start_indices=[1, 2], end_indices=[lambda, fd], strides=[2, 3])
  - filled = full(shape=[n * 2, ceildiv(fd, 3)], fill_value=true, dtype=bool)
  - picked = where(filled, 1, 2)
  - a, b = var_mean(cast(del, f32), dims=[0])
  - size_of = size(in, 1)
  - grown = add(b, size_of)
outputs: [y, part, picked, a, grown: {stride_order: [0]}]
segments: {first: {values: [y, part]}}
"""


def test_names_layouts_and_literals_survive(tmp_path: Path) -> None:
    fusion = read_text(ODD, "odd.yaml")
    text = to_python(fusion)
    loaded = reloaded(fusion, tmp_path)
    assert loaded == fusion
    assert loaded.pins[0].values == fusion.pins[0].values
    assert loaded.doc == fusion.doc
    assert "lambda_ = fd.define_dim" in text


def test_repr_is_the_script(tmp_path: Path) -> None:
    with FusionDefinition("twice") as fd:
        x = fd.define_tensor([-1, 3], [True, True], DataType.Half)
        fd.add_output(fd.ops.cast(x, DataType.Float) * 2.0)
    path = tmp_path / "twice.py"
    path.write_text(repr(fd))
    assert load_script(path) == [fd.fusion()]


def test_a_change_of_the_fusion_changes_its_script(tmp_path: Path) -> None:
    fusion = read_file(EXAMPLES / "softmax.yaml")
    text = to_python(fusion)
    for old, new in (("fd.ops.exp", "fd.ops.exp2"), ("fd.ops.max", "fd.ops.min"), ("4096", "4104")):
        path = tmp_path / "changed.py"
        path.write_text(text.replace(old, new))
        assert load_script(path) != [fusion], old


def test_results_that_are_not_wanted_leave_the_others_their_names(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(
        "from fusec import DataType, FusionDefinition\n"
        'with FusionDefinition("two") as fd:\n'
        "    x = fd.define_tensor(shape=[4, 8], contiguity=True, dtype=DataType.Float)\n"
        "    _, middle = fd.ops.var_mean(x, dims=[1])\n"
        "    fd.add_output(middle)\n"
    )
    (fusion,) = load_script(script)
    assert [o.value.name for o in fusion.outputs] == ["middle"]
