"""Operations that fusec does not compile: the model is partitioned around them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import fusec
from convolutions import FUNCTIONS, conv, convolution
from exported import Export, Tensor, Word
from paths import ROOT, TESTS

import fusec as package
from fusec.call.chain import as_like
from fusec.call.frameworks import kind_of
from fusec.call.model import Model
from fusec.diagnostics import FusecError, Unsupported
from fusec.models.calls import as_data, from_data
from fusec.models.folder import read_model_folder
from fusec.models.parts import Part
from fusec.models.read import imported
from fusec.models.recorded import recorded_graphs

Capture = pytest.CaptureFixture[str]
ARCHIVES = TESTS / "models" / "archives"
X = np.linspace(-1, 1, 4, dtype=np.float32)
HALF = {"module": "layers.0", "line": "25"}


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for place in ("fusec.run.device", "fusec.call.host", "fusec.compiling"):
        monkeypatch.setattr(f"{place}.device_available", lambda: "none today")
    monkeypatch.chdir(tmp_path)


def folder_of(export: Export, capsys: Capture, *more: str) -> Path:
    export.save(Path("a.pt2"))
    done = fusec(capsys, "import", "a.pt2", "-o", "out", *more)
    assert done.code == 0, done.err
    return Path("out")


def kernel(export: Export, x: Tensor, name: str = "fast", **arguments: Any) -> Tensor:
    """Add a call of a user's kernel."""
    shape = [("f32", x.shape)]
    return export.node(f"mylib.{name}.default", shape, **HALF, x=x, **arguments)


def relu(export: Export, x: Tensor) -> Tensor:
    return export.node("aten.relu.default", [("f32", x.shape)], self=x)


def files(path: Path) -> list[str]:
    return sorted(p.name for p in path.iterdir())


@pytest.mark.parametrize("form", ["", pytest.param("_core", marks=pytest.mark.nightly)])
def test_a_model_with_convolutions_calls_the_users_functions(form: str, capsys: Capture) -> None:
    done = fusec(capsys, "import", ARCHIVES / f"unet{form}.pt2", "-o", "unet")
    assert done.code == 0, done.err
    target = f"aten.conv{'olution' if form else '2d'}.default"
    assert f"10 external calls between 9 fusions: {target} (10)" in done.out
    model = package.load("unet", calls={target: FUNCTIONS[target]})
    arrays = np.load(ARCHIVES / "unet.npz")
    found = model(arrays["in0"], arrays["in1"])
    assert np.abs(found - arrays["out0"]).max() < 1e-6 * np.abs(arrays["out0"]).max()
    assert repr(model).startswith(f"<Model unet{form}(")
    assert list(model.inputs.values()) == ["f32[2, 3, 8, 8]", "i64[2]"]
    assert list(model.outputs.values()) == ["f32[2, 3, 8, 8]"]


def test_commands_take_the_fusions_between_the_calls(capsys: Capture) -> None:
    export = Export()
    x = export.input("x", "f32", (4,))
    export.output(relu(export, kernel(export, relu(export, x))))
    folder = folder_of(export, capsys)
    assert files(folder) == ["model.json", "part_0.yaml", "part_1.yaml"]
    assert "# of mylib.fast.default" in (folder / "part_1.yaml").read_text()
    for command in ("check", "explain", "dump"):
        done = fusec(capsys, command, folder)
        assert done.code == 0, done.err
        assert "a_0" in done.out
        assert "a_1" in done.out


@pytest.mark.nightly
def test_the_fusions_are_compiled_each_into_a_folder(capsys: Capture) -> None:
    export = Export()
    x = export.input("x", "f32", (4,))
    export.output(relu(export, kernel(export, relu(export, x))))
    done = fusec(capsys, "compile", folder_of(export, capsys), "-o", "built", "--emit", "c")
    assert done.code == 0, done.err
    assert files(Path("built")) == ["a_0", "a_1"]
    assert "a_0.c" in files(Path("built/a_0"))


def test_a_folder_with_calls_is_not_run(capsys: Capture) -> None:
    export = Export()
    x = export.input("x", "f32", (4,))
    export.output(relu(export, kernel(export, kernel(export, x))))
    folder = folder_of(export, capsys)
    fusec(capsys, "run", folder).says(
        3, "`out` has external calls, which are not compiled: mylib.fast.default (2)",
        "the first is `fast_0` of module `layers.0`, source line model.py:25 in forward",
        "fusec.load('out', calls={'mylib.fast.default': f, ...})", "fusec run out/part_0.yaml",
    )  # fmt: skip
    with pytest.raises(Unsupported, match=r"external calls.*mylib\.fast\.default \(2\)"):
        package.load(folder)
    with pytest.raises(FusecError, match=r"no external call `aten\.conv2d\.default`"):
        package.load(folder, calls={"aten.conv2d.default": conv})


def test_arguments_and_results_of_calls(capsys: Capture) -> None:
    export = Export()
    x = export.input("x", "f32", (4,))
    w = export.weight("w", X + 2)
    both = export.node(
        "mylib.pair.default", [("f32", (4,)), ("f32", (4,))], a=[x, relu(export, x)], scale=1e-5,
        count=3, name="sum", flag=True, nothing=None, sizes=[1, 2], w=w,
    )  # fmt: skip
    export.output(both[1])
    folder = folder_of(export, capsys)
    seen: dict[str, Any] = {}

    def pair(**given: Any) -> Any:
        seen.update(given)
        return [None, given["a"][1] + given["w"]]

    model = package.load(folder, calls={"mylib.pair.default": pair})
    assert np.allclose(model(X), np.maximum(X, 0) + X + 2)
    assert [type(a) for a in seen["a"]] == [np.ndarray] * 2
    plain = {name: seen[name] for name in ("scale", "count", "name", "flag", "nothing", "sizes")}
    assert plain == {
        "scale": 1e-5, "count": 3, "name": "sum", "flag": True, "nothing": None, "sizes": [1, 2],
    }  # fmt: skip
    short = package.load(folder, calls={"mylib.pair.default": lambda **_: X})
    with pytest.raises(FusecError, match="returned 1 values, expected 2"):
        short(X)
    (call,) = read_model_folder(folder).calls
    assert from_data(json.loads(json.dumps(as_data(call)))) == call


def test_values_are_in_the_first_fusion_that_has_their_operands() -> None:
    export = Export()
    x, w = export.input("x", "f32", (4,)), export.weight("w", X)
    early, late = relu(export, x), relu(export, w)
    y = kernel(export, early)
    export.output(export.node("aten.add.Tensor", [("f32", (4,))], self=y, other=late))
    export.output(export.node("aten.mul.Tensor", [("f32", (4,))], self=y, other=early))
    (found,) = imported(str(export.save(Path("a.pt2"))))
    first, call, last = found.steps
    assert isinstance(first, Part)
    assert isinstance(last, Part)
    assert not isinstance(call, Part)
    assert [str(n.op.name) for n in first.fusion.nodes] == ["relu"], "a weight's is in the second"
    assert [i.value.name for i in last.fusion.inputs] == ["w", "relu_2", "v_0"]
    assert [n.op.name for n in last.fusion.nodes] == ["relu", "add", "mul"]


def test_what_a_model_updates_is_written_last(capsys: Capture) -> None:
    export = Export()
    x, state = export.input("x", "f32", (4,)), export.weight("state", X * 2, buffer=True)
    new = export.node("aten.add.Tensor", [("f32", (4,))], self=state, other=x)
    y = kernel(export, relu(export, new))
    export.output(export.node("aten.add.Tensor", [("f32", (4,))], self=y, other=state))
    export.updates("state", new)
    folder = folder_of(export, capsys)
    model = package.load(folder, calls={"mylib.fast.default": lambda x: x * 10})
    assert isinstance(model, Model)
    state = X * 2
    for _ in range(2):
        expected = np.maximum(state + X, 0) * 10 + state
        assert np.allclose(model(X), expected), "the old contents are read"
        state = state + X
        assert np.allclose(model.weights["state"], state)


def test_dynamic_sizes_cross_the_calls(capsys: Capture) -> None:
    export = Export(symbols={"s7": 4, "s8": 3})
    x, z = export.input("x", "f32", ("s7",)), export.input("z", "f32", ("s8",))
    y = kernel(export, relu(export, x))
    export.output(export.node("aten.neg.default", [("f32", ("s7",))], self=y), relu(export, z))
    folder = folder_of(export, capsys)
    texts = [(folder / f"part_{k}.yaml").read_text() for k in range(2)]
    assert ["s7" in text for text in texts] == [True, True]
    assert ["s8" in text for text in texts] == [True, False]
    model = package.load(folder, calls={"mylib.fast.default": lambda x: x * 2})
    for count in (4, 6):
        longer = np.linspace(-1, 1, count, dtype=np.float32)
        first, second = model(longer, X)
        assert np.allclose(first, -2 * np.maximum(longer, 0))
        assert np.array_equal(second, np.maximum(X, 0))
    done = fusec(capsys, "check", folder, "--set", "s7=8", "--set", "s8=9")
    assert done.code == 0, done.err
    fusec(capsys, "check", folder, "--set", "s9=8").says(2, "a dim `s9`", "it has s7, s8")


def test_an_operation_is_made_external_by_name(capsys: Capture) -> None:
    export = Export()
    x = export.input("x", "f32", (4,))
    export.output(relu(export, export.node("aten.frobnicate.self", [("f32", (4,))], self=x)))
    export.save(Path("a.pt2"))
    fusec(capsys, "import", "a.pt2").says(3, "--external aten.frobnicate.self")
    assert fusec(capsys, "import", "a.pt2", "--external", "aten.frobnicate").code == 0
    model = package.load("a", calls={"aten.frobnicate.self": lambda self: self + 1})
    assert np.array_equal(model(X), np.maximum(X + 1, 0))


@pytest.mark.parametrize(("scale", "calls"), [(3.0, 0), (3.2, 1)])
def test_a_scale_decides_which_pixels_are_read(scale: float, calls: int) -> None:
    """9 places of 3 by the scale 3.2 read the first pixel in 4, not 3, of them."""
    export = Export()
    image = export.input("image", "f32", (1, 2, 3, 3))
    made = export.node(
        "aten.upsample_nearest2d.vec", [("f32", (1, 2, 9, 9))], input=image, output_size=None,
        scale_factors=[scale, scale],
    )  # fmt: skip
    export.output(relu(export, made))
    (found,) = imported(str(export.save(Path("a.pt2"))))
    assert len(found.calls) == calls


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda e, x: e.node("mylib.store.default", [], x=x, **HALF), "it returns nothing"),
        (lambda e, x: kernel(e, x, to=Word("as_scalar_type", 7)), "a dynamic size or a type"),
        (lambda e, x: e.node("mylib.find.default", [("i64", ("u0",))], x=x, **HALF),
         "the size `u0` depends on data"),
        (lambda e, x: kernel(e, x), "nothing but external calls"),
    ],
)  # fmt: skip
def test_calls_that_cannot_be_external(make: Any, words: str, capsys: Capture) -> None:
    export = Export()
    x = export.input("x", "f32", (4,))
    made = make(export, x)
    export.output(made if isinstance(made, Tensor) else relu(export, x))
    place = () if "nothing but" in words else ("module `layers.0`", "source line model.py:25")
    fusec(capsys, "import", export.save(Path("a.pt2")), "-o", "out").says(3, words, *place)
    assert not Path("out").exists()


def test_arrays_become_those_of_the_caller() -> None:
    array = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    kind = kind_of(X)
    assert kind is not None
    made = as_like(array, kind, X)
    assert np.array_equal(made, array)
    assert made is not array


@pytest.mark.nightly
def test_convolutions_of_recordings_are_external() -> None:
    path = ROOT.parent / "shared" / "models" / "resnet18_train.json"
    if not path.is_file():
        pytest.skip("no ../shared")
    found = list(imported(str(path)))
    assert len(found) == len(recorded_graphs(path)) == 2
    for each in found:
        assert (len(each.parts), len(each.calls)) == (18, 21)
    assert all(call.positional for call in found[0].calls), "recordings have no names"


def test_the_functions_of_these_tests_are_convolutions() -> None:
    x, w = np.arange(10.0, dtype="f4").reshape(1, 2, 5), np.ones((4, 1, 3), "f4")
    found = convolution(x, w, None, [2], [1], [1], groups=2)
    one = [[1, 6, 7], [11, 21, 17]]
    assert found.tolist() == [[one[0], one[0], one[1], one[1]]]
