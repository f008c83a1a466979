"""The corpus runner on tiny graphs, and the two references against each other."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import ROOT

from benchmarks import corpus_stages
from benchmarks.corpus import main
from benchmarks.corpus_graph import Example, define, old_forms, read_graph
from benchmarks.corpus_inputs import (
    MOST_TOTAL,
    draw_inputs,
    elements,
    fits,
    prepare,
    reduce_examples,
)
from benchmarks.corpus_layouts import settle_layouts
from benchmarks.corpus_reference import compare, differs, load_reference
from benchmarks.corpus_stages import STAGES, Settings, run_graph
from fusec.diagnostics import FusecError
from fusec.ir.dtype import BF16, BOOL, F32, I64
from fusec.reference.evaluate import evaluate
from fusec.run.inputs import random_inputs

CORPUS = ROOT.parent / "shared" / "corpus" / "graphs"
SMALL = 20_000


def tensor(name: str, shape: list[int], dtype: str = "float32", **more: Any) -> dict[str, Any]:
    contiguity = [None if n == 1 else True for n in shape]
    entry = {"id": name, "kind": "tensor", "shape": shape, "dtype": dtype}
    return {**entry, "contiguity": contiguity, "stride_order": None, "is_cpu": False, **more}


def op(name: str, args: list[str], output: str, **kwargs: Any) -> dict[str, Any]:
    refs = [{"ref": a} for a in args]
    return {"op": name, "args": refs, "kwargs": kwargs, "outputs": [output]}


def example(shape: list[int], stride: list[int], **more: Any) -> dict[str, Any]:
    return {"kind": "tensor", "shape": shape, "stride": stride, "dtype": "float32", **more}


def graph(
    inputs: list[Any], ops: list[Any], outputs: list[str], examples: list[Any] | None = None
) -> dict[str, Any]:
    return {
        "inputs": inputs, "scalars": [], "ops": ops, "example_inputs": examples,
        "outputs": [{"id": o, "alias_of": None, "stride_order": None} for o in outputs],
    }  # fmt: skip


ROW_SUM = graph(
    [tensor("T0", [-1, -1]), tensor("T1", [-1])],
    [
        op("size", ["T0"], "S2", dim=0),
        op("size", ["T0"], "S3", dim=1),
        op("broadcast_in_dim", ["T1"], "T4", shape=[{"ref": "S2"}, {"ref": "S3"}],
           broadcast_dims=[1]),
        op("mul", ["T0", "T4"], "T5"),
        op("sum", ["T5"], "T6", dims=[1], keepdim=False, dtype=None),
    ],
    ["T6"],
    [example([6, 8], [8, 1]), example([8], [1])],
)  # fmt: skip


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "graphs"
    folder.mkdir()
    graphs = {
        "row_sum": ROW_SUM,
        "bad_op": graph([tensor("T0", [4])], [op("nv_block_quantize", ["T0"], "T1")], ["T1"]),
        "bad_reference": graph([tensor("T0", [4])], [op("exp", ["T7"], "T1")], ["T1"]),
    }
    for name, data in graphs.items():
        (folder / f"{name}.json").write_text(json.dumps(data))
    (folder / "no_json.json").write_text('{"inputs": [')
    return folder


def test_the_runner_records_every_graph(corpus: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "results" / "corpus.json"
    code = main([str(corpus), "--jobs", "1", "--references", "--out", str(out)])
    assert code == 1
    data = json.loads(out.read_text())
    records = {r["name"]: r for r in data["graphs"]}
    assert set(records) == {"row_sum", "bad_op", "bad_reference", "no_json"}
    good = records["row_sum"]
    assert (good["exit"], good["message"]) == (0, "")
    assert good["segments"] == 1
    assert good["schedulers"] == {"reduction": 1}
    assert good["bytes"] == 4 * (48 + 8 + 6)
    assert good["spills"] == 0
    assert {"parse", "passes", "segment", "compile"} <= set(good["seconds"])
    refused = records["bad_op"]
    assert (refused["stage"], refused["refused_at"], refused["exit"]) == ("refused", "parse", 3)
    assert "nv_block_quantize" in refused["message"]
    assert records["bad_reference"]["exit"] == 2
    assert "malformed: KeyError 'T7'" in records["bad_reference"]["message"]
    assert records["no_json"]["exit"] == 2
    assert "cannot be read as a graph" in records["no_json"]["message"]
    assert data["stages"] == {"parse, exit 2": 2, "refused": 1, "compile": 1}
    printed = capsys.readouterr().out
    assert "nv_block_quantize" in printed
    assert "4 graphs in" in printed


def test_the_other_reference_judges_the_evaluator(corpus: Path) -> None:
    (corpus.parent / "reference.py").write_text(
        "import numpy as np, types\n"
        "class TooBig(Exception): pass\n"
        "class Unsupported(Exception): pass\n"
        "def evaluate(graph, inputs):\n"
        "    x, w = inputs\n"
        "    y = (x * w).sum(1) + len(graph['scalars'])\n"
        "    return types.SimpleNamespace(outputs=[y], comparable=[True])\n"
    )
    settings = Settings(corpus, references=True)
    right = run_graph("row_sum", settings, None, lambda _: None)
    assert (right.exit, right.facts["other_reference"]) == (0, "agrees")
    wrong = {**ROW_SUM, "scalars": [{"id": "S9", "value": 1, "dtype": "int64"}]}
    (corpus / "wrong.json").write_text(json.dumps(wrong))
    record = run_graph("wrong", settings, None, lambda _: None)
    assert record.exit == 1
    assert "differ from the other reference" in record.message


@pytest.mark.parametrize(("error", "code"), [(0.0, 0), (0.01, 1)])
def test_results_are_verified(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, error: float, code: int
) -> None:
    """What a device returns is compared with fusec's reference."""
    fusion = prepare(ROW_SUM, "graph").fusion

    def execute(device: Any, program: Any, cubins: Any, inputs: Any, sizes: Any) -> Any:
        assert device == "the device"
        assert set(cubins) == {launch.kernel for launch in program.launches}
        values = evaluate(fusion, inputs, sizes)
        return {name: (v + error).astype(np.float32) for name, v in values.items()}

    monkeypatch.setattr("fusec.run.execute.execute", execute)
    stages: list[str] = []
    record = run_graph("row_sum", Settings(corpus, cuda=True), "the device", stages.append)
    assert (record.stage, record.exit) == ("verify", code), record.message
    assert record.facts["checked"] == "all"
    assert ("elements differ" in record.message) == bool(code)
    assert list(dict.fromkeys(stages)) == list(STAGES)


def test_only_and_missing_graphs(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "one.json"
    assert main([str(corpus), "--only", "bad_op", "--jobs", "1", "--out", str(out)]) == 0
    assert [r["name"] for r in json.loads(out.read_text())["graphs"]] == ["bad_op"]
    assert main([str(corpus), "--only", "nothing", "--out", str(out)]) == 2


@pytest.mark.nightly
def test_a_crash_and_a_hang_cost_one_graph_each(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker processes read the hook from the environment, as they share nothing else."""
    hook = tmp_path / "sitecustomize.py"
    hook.write_text(
        "import os, time, sys\n"
        "if os.environ.get('CORPUS_TEST_HOOK'):\n"
        "    import benchmarks.corpus_stages as stages\n"
        "    plain = stages.run_graph\n"
        "    def run_graph(name, *rest):\n"
        "        if name == 'bad_op':\n"
        "            os._exit(9)\n"
        "        if name == 'bad_reference':\n"
        "            time.sleep(60)\n"
        "        return plain(name, *rest)\n"
        "    stages.run_graph = run_graph\n"
    )
    root = str(Path(corpus_stages.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), root]))
    monkeypatch.setenv("CORPUS_TEST_HOOK", "1")
    out = tmp_path / "out.json"
    assert main([str(corpus), "--jobs", "1", "--limit", "3", "--out", str(out)]) == 1
    records = {r["name"]: r for r in json.loads(out.read_text())["graphs"]}
    assert records["bad_op"]["exit"] == 70
    assert "the process ended in parse: exit code 9" in records["bad_op"]["message"]
    assert records["bad_reference"]["exit"] == 70
    assert "over the limit of 3 s in parse" in records["bad_reference"]["message"]
    assert records["row_sum"]["exit"] == 0


def test_a_traceback_is_recorded(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_stages.driver.Compilation.fusion, "run", lambda *_: 1 // 0)
    record = run_graph("row_sum", Settings(corpus), None, lambda _: None)
    assert (record.stage, record.exit) == ("passes", 70)
    assert record.message.startswith("ZeroDivisionError")
    assert "test_corpus.py:" in record.message


def test_sizes_are_synthesised() -> None:
    data = {**ROW_SUM, "example_inputs": None}
    found = prepare(data, "g")
    assert [e.shape for e in found.examples] == [(16, 16), (16,)]
    assert found.changes == {"synthetic": 16}


def test_sizes_that_the_graph_names_are_tried() -> None:
    ops = [
        op("slice", ["T0"], "T1", start_indices=[0, 0], end_indices=[1, 48], strides=[1, 1]),
        op("broadcast_in_dim", ["T1"], "T2", shape=[24, 48], broadcast_dims=[0, 1]),
        op("add", ["T2", "T3"], "T4"),
    ]
    found = prepare(graph([tensor("T0", [1, -1]), tensor("T3", [-1, -1])], ops, ["T4"]), "g")
    assert [e.shape for e in found.examples] == [(1, 48), (24, 48)]
    assert found.changes == {"synthetic": "constants of the graph"}


def test_sizes_that_the_graph_fixes_are_found() -> None:
    data = graph(
        [tensor("T0", [-1, -1]), tensor("T1", [5, 7])], [op("add", ["T0", "T1"], "T2")], ["T2"]
    )
    assert [e.shape for e in prepare(data, "g").examples] == [(5, 7), (5, 7)]


def test_a_constant_without_a_value_is_an_input(tmp_path: Path) -> None:
    data = graph([tensor("T0", [4])], [op("mul", ["T0", "S1"], "T2")], ["T2"])
    path = tmp_path / "open.json"
    path.write_text(
        json.dumps({**data, "scalars": [{"id": "S1", "value": None, "dtype": "float64"}]})
    )
    found = prepare(read_graph(path), "g")
    assert [i.value.name for i in found.fusion.inputs] == ["T0", "S1"]
    assert found.examples[1].value == 0.5


def test_operands_recorded_before_attributes() -> None:
    data = graph(
        [tensor("T0", [4, 6])],
        [{**op("pad", ["T0"], "T1", pad_widths=[1, 1]), "args": [{"ref": "T0"}, 2.5]}],
        ["T1"],
    )
    node = prepare(data, "g").fusion.nodes[0]
    assert node.operands[1].value == 2.5


def test_large_sizes_are_halved_together() -> None:
    rows, columns = 1 << 16, 3 << 12
    data = {
        **ROW_SUM,
        "example_inputs": [example([rows, columns], [columns, 1]), example([columns], [1])],
    }
    whole = prepare(data, "g")
    assert not fits(whole.fusion)
    small = reduce_examples(whole)
    assert fits(small.fusion)
    (m, n), (k,) = (e.shape for e in small.examples)
    assert n == k
    assert (rows % m, columns % n) == (0, 0)
    assert small.examples[0].strides == (n, 1)
    assert small.changes["reduced"][str(rows)] == m
    assert 4 * m * n > MOST_TOTAL // 16


def test_constants_are_not_halved() -> None:
    rows = 1 << 20
    data = graph(
        [tensor("T0", [-1, 512])],
        [op("exp", ["T0"], "T1"), op("reshape", ["T1"], "T2", new_shape=[rows, 2, 256])],
        ["T2"],
        [example([rows, 512], [512, 1])],
    )
    assert reduce_examples(prepare(data, "g")).examples[0].shape == (rows, 512)


def test_contiguity_in_the_order_of_the_shape() -> None:
    data = graph(
        [tensor("T0", [-1, -1, -1], contiguity=[None, True, True], stride_order=[0, 1, 2])],
        [op("exp", ["T0"], "T1")],
        ["T1"],
        [example([4, 3, 2], [0, 1, 3])],
    )
    contiguity, examples, changed = settle_layouts(data, [Example((4, 3, 2), (0, 1, 3))])
    assert contiguity == {"T0": [True, True, None]}
    assert (examples[0].strides, changed) == ((0, 1, 3), [])
    assert prepare(data, "g").fusion.inputs[0].strides[0] == 0


def test_strides_of_declared_broadcasts() -> None:
    data = graph(
        [tensor("T0", [8, 4], contiguity=[None, True])],
        [op("exp", ["T0"], "T1")],
        ["T1"],
        [example([8, 4], [4, 1])],
    )
    found = prepare(data, "g")
    assert found.examples[0].strides == (0, 1)
    assert found.changes == {"restrided": ["T0"]}


def test_errors_name_the_operation_of_the_graph() -> None:
    data = graph(
        [tensor("T0", [2, 3])], [op("reshape", ["T0"], "T1", new_shape=[5])], ["T1"]
    )  # fmt: skip
    with pytest.raises(FusecError) as caught:
        define(data, "g")
    assert "operation 0 of the graph: T1 = reshape(...)" in caught.value.diagnostic.notes
    assert caught.value.diagnostic.span is None


@pytest.mark.parametrize(
    ("found", "expected", "dtype", "agree"),
    [
        ([1.0, 2.0], [1.0, 2.0 + 1e-7], F32, True),
        ([1.0, 2.0], [1.0, 2.1], F32, False),
        ([1.0, 2.0], [1.0, 2.02], BF16, True),
        ([1.0, np.inf], [1.0, np.inf], F32, True),
        ([1.0, np.nan, 3.0, 4.0], [1.0, 2.0, 3.0, 5.0], F32, False),
        ([1, 2, 3], [1, 3, 4], I64, False),
        ([True, False, True], [True, True, False], BOOL, False),
    ],
)
def test_what_differs(found: Any, expected: Any, dtype: Any, agree: bool) -> None:
    precision = 2.0**-8 if dtype is BF16 else 2.0**-17
    why = differs(np.asarray(found).astype(dtype.numpy), np.asarray(expected), dtype, precision)
    assert (why is None) == agree, why


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not here")
@pytest.mark.nightly
def test_the_references_agree_on_small_graphs() -> None:
    """Fusec's evaluator and the corpus's own, on the same inputs, graph by graph."""
    reference = load_reference(CORPUS)
    assert reference is not None
    agreed, wrong = 0, list[str]()
    for path in sorted(CORPUS.glob("*.json")):
        if path.stat().st_size > SMALL:
            continue
        data = read_graph(path)
        try:
            prepared = prepare(data, "g")
        except FusecError:
            continue
        if elements(prepared.fusion)[1] > 10 * SMALL:
            continue
        if old_forms(data):
            continue
        fusion = prepared.fusion
        inputs = draw_inputs(prepared, seed=0)
        results = evaluate(fusion, inputs, fusion.hints)
        ordered = [results[o.value.name] for o in fusion.outputs]
        verdict, why = compare(reference, data, fusion, inputs, ordered)
        agreed += verdict == "agrees"
        if verdict == "differs":
            wrong.append(f"{path.stem}: {why}")
    assert not wrong
    assert agreed >= 100


def test_our_reference_on_a_graph_of_the_format() -> None:
    prepared = prepare(ROW_SUM, "g")
    inputs = random_inputs(prepared.fusion, prepared.fusion.hints)
    (result,) = evaluate(prepared.fusion, inputs, prepared.fusion.hints).values()
    x, w = (np.asarray(inputs[n]).astype(np.float64) for n in ("T0", "T1"))
    np.testing.assert_allclose(result, (x * w).sum(1))
