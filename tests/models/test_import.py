"""`fusec import`: archives of torch.export become folders that all commands take."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_tools import fusec
from documented import documented
from exported import Export, perceptron, write_archive
from paths import ROOT

import fusec as package
from fusec.models.convert import converted
from fusec.models.folder import read_model_folder
from fusec.models.fusion_text import fusion_text
from fusec.models.read import imported
from fusec.models.recorded import recorded_graphs
from fusec.reference.evaluate import evaluate

Capture = pytest.CaptureFixture[str]
SHARED = ROOT.parent / "shared" / "models"
RECORDED = sorted(SHARED.glob("*.json"))
TINY = ("gpt2_tiny", "llama_tiny", "vit_tiny")
X = np.linspace(-1, 1, 18, dtype=np.float32).reshape(3, 6)


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("fusec.run.device.device_available", lambda: "none today")
    monkeypatch.setattr("fusec.call.host.device_available", lambda: "none today")
    monkeypatch.setattr("fusec.compiling.device_available", lambda: "none today")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder(tmp_path: Path, capsys: Capture) -> Path:
    export, _ = perceptron()
    done = fusec(capsys, "import", export.save(tmp_path / "small.pt2"), "-o", tmp_path / "model")
    assert done.code == 0, done.err
    return tmp_path / "model"


def test_the_fusion_file_reads_as_the_model(folder: Path) -> None:
    text = (folder / "fusion.yaml").read_text()
    assert "  x: f32[3, 6]\n" in text
    assert "  up_weight: f32[8, 6]  # net.up.weight\n" in text
    assert "  # net.up\n  - up = linear(x, up_weight, up_bias)  # model.py:11 in forward\n" in text
    assert "unread" not in text
    assert "dropout" not in text, "the model is in evaluation"
    assert {p.name for p in folder.iterdir()} == {
        "fusion.yaml",
        "model.json",
        "weights.safetensors",
    }


def test_values_are_those_of_the_model(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    _, compute = perceptron()
    np.savez(tmp_path / "in.npz", x=X)
    np.savez(tmp_path / "out.npz", down=compute(X))
    done = fusec(
        capsys, "run", folder, "--device", "reference", "--inputs", "in.npz", "--expect", "out.npz"
    )
    assert done.code == 0, done.out + done.err
    assert "as in out.npz" in done.out


def test_a_model_is_called_with_its_own_inputs(folder: Path) -> None:
    _, compute = perceptron()
    model = package.load(folder)
    assert list(model.inputs) == ["x"]
    assert list(model.outputs) == ["down"]
    assert "3 weights" in repr(model)
    assert np.allclose(model(X), compute(X), atol=1e-5)
    assert np.allclose(model(x=X), compute(X), atol=1e-5)
    with pytest.raises(package.FusecError, match="got 2 arguments"):
        model(X, X)
    for arguments, named, text in (
        ((), {}, "`x` is missing"),
        ((X,), {"x": X}, "`x` is specified twice"),
        ((X,), {"up_bias": X}, "`up_bias` is unknown"),
    ):
        with pytest.raises(package.FusecError, match=text) as caught:
            model(*arguments, **named)
        assert "takes x" in str(caught.value).splitlines()[-1]


@pytest.mark.parametrize("word", ["input", "output"])
def test_names_that_the_fusion_does_not_have(word: str, folder: Path) -> None:
    record = json.loads((folder / "model.json").read_text())
    record[f"{word}s"] = [{"input": "gone", "type": "f32[1]"} if word == "input" else "gone"]
    (folder / "model.json").write_text(json.dumps(record))
    with pytest.raises(package.FusecError, match=f"the {word} `gone`"):
        package.load(folder)


@pytest.mark.parametrize(
    "command",
    [
        ("check",),
        ("explain",),
        ("dump",),
        pytest.param(("compile", "--emit", "c"), marks=pytest.mark.nightly),
    ],
)
def test_commands_take_the_folder(command: tuple[str, ...], folder: Path, capsys: Capture) -> None:
    more = ("-o", folder.parent / "out") if command[0] == "compile" else ()
    done = fusec(capsys, *command, folder, *more)
    assert done.code == 0, done.err


def test_a_run_without_a_gpu_builds_the_kernels(folder: Path, capsys: Capture) -> None:
    done = fusec(capsys, "run", folder)
    assert done.code == 0, done.err
    assert f"fusec explain {folder} " in done.out
    fusec(capsys, "run", folder, "--inputs-kind", "integers").says(2, "weights of a model")


def test_weights_are_those_of_the_archive(folder: Path) -> None:
    export, _ = perceptron()
    found = read_model_folder(folder).load_weights()
    assert sorted(found) == ["down_weight", "up_bias", "up_weight"]
    assert np.array_equal(found["down_weight"], export.weights["net.down.weight"])


def test_weights_are_checked(folder: Path) -> None:
    path, record = folder / "weights.safetensors", folder / "model.json"
    text, data = record.read_text(), path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(package.FusecError, match="damaged: weight `down_weight` has another che"):
        package.load(folder)
    path.write_bytes(data)
    record.write_text(text.replace('"f32[4, 8]"', '"f32[8, 4]"'))
    with pytest.raises(package.FusecError, match=r"`down_weight` is f32\[4, 8\], expected f32\[8"):
        package.load(folder)
    record.write_text(text.replace('"format": 2', '"format": 1'))
    with pytest.raises(package.FusecError, match="format 1, expected 2"):
        package.load(folder)


def test_a_weight_of_another_shape_is_named_before_its_bytes_are_read(
    tmp_path: Path, capsys: Capture
) -> None:
    members = perceptron()[0].members()
    config = json.loads(members["data/weights/model_weights_config.json"])
    config["config"]["net.up.weight"]["tensor_meta"]["sizes"][0] = {"as_int": 9}
    members["data/weights/model_weights_config.json"] = json.dumps(config).encode()
    path = write_archive(tmp_path / "a.pt2", members)
    fusec(capsys, "import", path).says(2, "`net.up.weight` is f32[9, 6], and f32[8, 6] in the")


def test_arguments_that_are_no_tensors_keep_their_places(tmp_path: Path, capsys: Capture) -> None:
    export = Export()
    export.constant("mask", "as_none", True)
    x = export.input("x", "f32", (4,))
    export.constant("causal", "as_bool", True)
    y = export.input("y", "f32", (4,))
    export.constant("scale", "as_float", 0.5)
    export.output(export.node("aten.sub.Tensor", [("f32", (4,))], self=x, other=y))
    export.save(tmp_path / "a.pt2")
    assert fusec(capsys, "import", "a.pt2").code == 0
    model = package.load("a")
    a, b = np.arange(4, dtype="f4"), np.ones(4, "f4")
    for arguments, named in (
        ((None, a, True, b, 0.5), {}), ((None, a, True, b), {}), ((), {"y": b, "x": a}),
        ((None, a), {"scale": 0.5, "y": b}),
    ):  # fmt: skip
        assert np.array_equal(model(*arguments, **named), a - b)
    for arguments, text in (
        ((None, a, False, b), "`causal` is False, and the model was exported with True"),
        ((a, b), "`mask` is array"),
        ((None, a, True, b, 1), "`scale` is 1, and the model was exported with 0.5"),
    ):
        with pytest.raises(package.FusecError, match=text) as caught:
            model(*arguments)
        assert "export the model again" in str(caught.value)
    with pytest.raises(package.FusecError, match="`x` is missing") as caught:
        model()
    assert "takes x, y, mask=None, causal=True, scale=0.5" in str(caught.value)


def test_results_that_are_no_tensors_keep_their_places(tmp_path: Path, capsys: Capture) -> None:
    export = Export()
    x = export.input("x", "f32", (4,))
    for kind, value in (("as_none", True), ("as_int", 3)):
        export.outputs.append({"user_output": {"arg": {kind: value}}})
        export.output(export.node("aten.neg.default", [("f32", (4,))], self=x))
    assert fusec(capsys, "import", export.save(tmp_path / "a.pt2")).code == 0
    model = package.load("a")
    a = np.arange(4, dtype="f4")
    nothing, first, three, second = model(a)
    assert (nothing, three) == (None, 3)
    assert np.array_equal(first, -a)
    assert np.array_equal(second, -a)
    assert list(model.outputs.values()) == ["f32[4]", "f32[4]"]


def test_a_dynamic_integer_is_rejected_by_name(tmp_path: Path, capsys: Capture) -> None:
    export = perceptron()[0]
    export.specs.append({"user_input": {"arg": {"as_sym_int": {"as_name": "count"}}}})
    path = export.save(tmp_path / "a.pt2")
    fusec(capsys, "import", path).says(
        3, "input `count` of the model is a dynamic integer", "sizes of tensors may be dynamic"
    )
    assert not Path("a").exists()


def test_an_edited_fusion_file_is_kept(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "small.pt2"
    assert fusec(capsys, "import", path, "-o", folder).code == 0, "what fusec wrote is replaced"
    (folder / "fusion.yaml").write_text((folder / "fusion.yaml").read_text() + "# mine\n")
    fusec(capsys, "import", path, "-o", folder).says(2, "edit")
    assert (folder / "fusion.yaml").read_text().endswith("# mine\n")


def test_facts_for_tools(tmp_path: Path, capsys: Capture) -> None:
    path = perceptron()[0].save(tmp_path / "small.pt2")
    done = fusec(capsys, "import", path, "--json")
    (found,) = documented(done.out)["folders"]
    assert (found["folder"], found["fusion"], found["nodes"]) == ("small", "small", 5)
    assert found["inputs"] == [{"name": "x", "type": "f32[3, 6]"}]
    assert found["outputs"] == [{"name": "down", "type": "f32[3, 4]", "alias": None}]
    assert [w["key"] for w in found["weights"]] == [
        "net.up.weight",
        "net.up.bias",
        "net.down.weight",
    ]
    assert {"name": "aten.linear.default", "count": 2} in found["calls"]


def test_dynamic_sizes_are_dims(tmp_path: Path) -> None:
    export = Export(symbols={"s77": 24})
    x = export.input("x", "f32", ("s77", 4))
    y = export.node("aten.cat.default", [("f32", ("2*s77", 4))], tensors=[x, x], dim=0)
    export.output(y)
    (found,) = imported(str(export.save(tmp_path / "a.pt2")))
    assert "dims:\n  s77: 24  # 2 to 512\n" in found.text
    assert str(found.fusion.outputs[0].value.type) == "f32[s77 * 2, 4]"


# -- recorded by PyTorch


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared")
@pytest.mark.parametrize("name", TINY)
def test_models_of_pytorch_equal_eager(name: str) -> None:
    (found,) = imported(str(SHARED / f"{name}.pt2"))
    arrays = np.load(SHARED / f"{name}.npz")
    inputs = {n: np.ndarray(w.shape, w.dtype.numpy, w.data) for n, w in found.weights.items()} | {
        n: arrays[f"in{k}"] for k, n in enumerate(i.value.name for i in found.fusion.inputs[:1])
    }
    (name,) = found.model.outputs
    result = np.asarray(evaluate(found.fusion, inputs, dict(found.fusion.hints))[name])
    assert np.abs(result - arrays["out"]).max() < 1.4e-6 * np.abs(arrays["out"]).max()


FEW = ("adamw_step", "llama_prefill_dynamic")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(p, id=p.stem, marks=() if p.stem in FEW else pytest.mark.nightly)
        for p in RECORDED
    ]
    or [pytest.param(SHARED, marks=pytest.mark.skip("no ../shared"))],
)
def test_recorded_graphs_are_whole(path: Path) -> None:
    for graph in recorded_graphs(path):
        if graph.name.startswith("resnet18"):
            continue  # of `test_external_calls.py`
        text, fusion = fusion_text(converted(graph))
        assert len(fusion.nodes) > 10
        assert text.startswith(f"fusion: {graph.name}\n")


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared")
def test_a_recording_is_imported(tmp_path: Path, capsys: Capture) -> None:
    done = fusec(capsys, "import", SHARED / "adamw_step.json", "-o", tmp_path / "out")
    assert done.code == 0, done.err
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"fusion.yaml", "model.json"}
