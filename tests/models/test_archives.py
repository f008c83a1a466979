"""Archives that PyTorch wrote, in both forms, compute what PyTorch computed.

`record_archives.py` makes them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import fusec
from convolutions import values_of
from nightly import mostly_nightly
from paths import TESTS

import fusec as package
from fusec.call.model import Model
from fusec.models.read import Imported, imported
from fusec.reference.evaluate import evaluate

ARCHIVES = TESTS / "models" / "archives"
NAMES = sorted(p.stem for p in ARCHIVES.glob("*.pt2"))
FIRST = ("adamw", "cache", "convnet", "gpt_core", "llama", "mamba", "moe_core", "unet", "views")
ORDER = [*FIRST, *(n for n in NAMES if n not in FIRST)]


def arrays_of(name: str) -> Any:
    return np.load(ARCHIVES / f"{name.removesuffix('_core')}.npz")


def inputs_of(found: Imported, arrays: Any) -> dict[str, Any]:
    weights = {n: np.ndarray(w.shape, w.dtype.numpy, w.data) for n, w in found.weights.items()}
    order = [i.name for i in found.model.graph.inputs if i.kind == "input"]
    given = {
        n: arrays[f"in{order.index(e.name)}"] for n, e in found.model.inputs if e.kind == "input"
    }
    return weights | given


@pytest.mark.parametrize("name", mostly_nightly(ORDER, len(FIRST)))
def test_values_are_pytorchs(name: str) -> None:
    (found,) = imported(str(ARCHIVES / f"{name}.pt2"))
    arrays = arrays_of(name)
    results = values_of(found, inputs_of(found, arrays))
    tolerance = 1e-2 if name.startswith("half") else 1e-6  # bf16 rounds each value
    for place, output in enumerate(found.model.returned):
        assert isinstance(output, str)
        expected = arrays[f"out{place}"]
        result = np.asarray(results[output]).astype(expected.dtype)
        assert result.shape == expected.shape
        difference = np.abs(result.astype("f8") - expected.astype("f8")).max()
        assert difference <= tolerance * np.abs(expected).max()


def test_both_forms_of_each_are_here() -> None:
    assert len(NAMES) == 40
    assert {n.removesuffix("_core") for n in NAMES} == {n for n in NAMES if "_core" not in n}


def test_sizes_of_an_export_are_dims() -> None:
    (found,) = imported(str(ARCHIVES / "llama.pt2"))
    assert dict(found.fusion.hints).items() >= {"s23": 2, "s27": 8}.items()
    arrays = arrays_of("llama")
    inputs = inputs_of(found, arrays)
    (name,) = (i.value.name for i in found.fusion.inputs if i.value.dtype.name == "i64")
    (output,) = found.model.outputs
    whole = np.asarray(evaluate(found.fusion, inputs, {"s23": 2, "s27": 8})[output])
    part = {**inputs, name: inputs[name][:1, :5]}
    short = np.asarray(evaluate(found.fusion, part, {"s23": 1, "s27": 5})[output])
    assert np.allclose(short, whole[:1, :5], atol=1e-6), "later tokens are masked"


def test_a_model_keeps_its_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("fusec.call.host", "fusec.compiling"):
        monkeypatch.setattr(f"{place}.device_available", lambda: "none today")
    path = ARCHIVES / "cache.pt2"
    assert fusec(capsys, "import", path, "-o", tmp_path / "cache").code == 0
    model, arrays = package.load(tmp_path / "cache"), arrays_of("cache")
    assert isinstance(model, Model)
    first = model(arrays["in0"], arrays["in1"])
    assert np.allclose(first, arrays["out0"], atol=1e-6)
    assert model.weights["steps"] == [1]
    second = model(arrays["in0"], arrays["in1"] + 1)
    assert model.weights["steps"] == [2]
    assert not np.allclose(first, second)
    assert np.array_equal(model.weights["keys"][:, 5], model.weights["keys"][:, 6])
    again = package.load(tmp_path / "cache")
    assert isinstance(again, Model)
    assert again.weights["steps"] == [0], "the file stays as it is"
