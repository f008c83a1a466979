"""What cannot be imported is rejected: the node, its module and line; nothing is written."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import fusec
from exported import Export, Word, perceptron, write_archive

from fusec.diagnostics import Unsupported
from fusec.models.sizes import size_of

Capture = pytest.CaptureFixture[str]
AT = {"module": "layers.0", "line": "25"}


def of_node(target: str, shape: tuple[int | str, ...] = (4,), **arguments: Any) -> Export:
    export = Export()
    x = export.input("x", "f32", (4,))
    export.output(export.node(target, [("f32", shape)], self=x, **AT, **arguments))
    return export


def rejected(
    capsys: Capture, path: Path, code: int, *words: str, place: tuple[str, ...] = ()
) -> None:
    """Expect an error with these words, and that nothing is left in the folder."""
    before = {*path.parent.iterdir()}
    fusec(capsys, "import", path, "-o", path.parent / "out").says(code, *words, *place)
    assert {*path.parent.iterdir()} == before


PLACE = ("module `layers.0`", "source line model.py:25 in forward")
CASES: dict[str, tuple[Callable[[], Export], int, tuple[str, ...]]] = {
    "an unknown operation": (
        lambda: of_node("aten.frobnicate.default"), 3,
        ("node `frobnicate_0` (aten.frobnicate.default)", "no such operation", *PLACE),
    ),
    "no kernel": (
        lambda: of_node("aten.nonzero.default"), 3,
        ("(aten.nonzero.default)", "depends on the data", *PLACE),
    ),
    "a subgraph": (
        lambda: of_node("higher_order.cond", graph=Word("as_graph", {"name": "g", "graph": {}})), 3,
        ("(higher_order.cond)", "subgraph", "control flow", *PLACE),
    ),
    "a subgraph of another kind": (
        lambda: of_node("higher_order.while_loop", body=Word("as_graph", {"name": "g"})), 3,
        ("(higher_order.while_loop)", "subgraph", *PLACE),
    ),
    "a custom operation that writes": (
        lambda: of_node("higher_order.auto_functionalized_v2", op=Word("as_operator", "a.b")), 3,
        ("auto_functionalized_v2", "writes into its operands", "return new tensors", *PLACE),
    ),
    "a number from data": (
        lambda: of_node("aten.mul.Tensor", other=Word("as_sym_float", {"as_name": "item"})), 3,
        ("(aten.mul.Tensor)", "a number that depends on data", "x.sum().item()", *PLACE),
    ),
    "an argument of no op line": (
        lambda: of_node("aten.mul.Tensor", other=Word("as_complex", {})), 3,
        ("an argument is a complex number, which op lines do not have", *PLACE),
    ),
    "a data-dependent size": (
        lambda: of_node("aten.neg.default", ("u0",)), 3,
        ("node `neg_0`", "the size `u0` depends on data", *PLACE),
    ),
    "an argument of another type": (
        lambda: of_node("aten.slice.Tensor", dim="first"), 3,
        ("(aten.slice.Tensor)", "arguments are not those of ATen", *PLACE),
    ),
    "an argument too many": (
        lambda: of_node("aten.neg.default", alpha=3), 3, ("(aten.neg.default)", "`alpha`", *PLACE),
    ),
    "another shape": (
        lambda: of_node("aten.neg.default", (5,)), 3,
        ("its result is f32[4], and f32[5] in the graph", *PLACE),
    ),
    "a wrong call": (
        lambda: of_node("aten.permute.default", dims=[1, 0]), 2, ("node `permute_0`", *PLACE),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "text", ["((a + b + c + d)**8)**8", "Pow(Pow(a + b + c + d, Integer(8)), Integer(8))",
             "*".join(["(a + b + c + d)"] * 40), f"Mul({', '.join(['a + b + c + d'] * 40)})"]
)  # fmt: skip
def test_sizes_of_too_many_terms_are_not_multiplied_out(text: str) -> None:
    with pytest.raises(Unsupported, match="over 256 terms"):
        size_of(text, {"a", "b", "c", "d"})


@pytest.mark.parametrize("name", CASES)
def test_nodes_are_named(name: str, tmp_path: Path, capsys: Capture) -> None:
    make, code, words = CASES[name]
    rejected(capsys, make().save(tmp_path / "a.pt2"), code, *words)


@pytest.mark.parametrize("version", [(7, 1), (9, 0)])
def test_other_schemas(version: tuple[int, int], tmp_path: Path, capsys: Capture) -> None:
    export = of_node("aten.neg.default")
    export.version = version
    text = f"version {version[0]}.{version[1]} of torch.export's schema"
    rejected(capsys, export.save(tmp_path / "a.pt2"), 3, text)


def with_model(change: Callable[[Any], None]) -> dict[str, bytes]:
    model = perceptron()[0].model()
    change(model)
    return {"models__model___json": json.dumps(model).encode()}


def custom(model: Any) -> None:
    model["graph_module"]["graph"]["custom_obj_values"] = {"lock": {"class_fqn": "a.Lock"}}


def no_nodes(model: Any) -> None:
    del model["graph_module"]["graph"]["nodes"]


def no_number(model: Any) -> None:
    model["graph_module"]["signature"]["input_specs"][0] = {"token": {"arg": {"name": "t"}}}


def sized(model: Any) -> None:
    specs = model["graph_module"]["signature"]["output_specs"]
    specs.append({"user_output": {"arg": {"as_sym_int": {"as_name": "size"}}}})


def test_lines_of_generated_code_are_not_shown(tmp_path: Path, capsys: Capture) -> None:
    export = of_node("aten.frobnicate.default")
    frames = [("<eval_with_key>.5", 9), ("/home/me/net.py", 4), ("<string>", 1)]
    lines = (f'  File "{file}", line {line}, in forward\n    x' for file, line in frames)
    export.nodes[0]["metadata"]["stack_trace"] = "\n".join(lines)
    rejected(capsys, export.save(tmp_path / "a.pt2"), 3, "source line net.py:4 in forward")


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (sized, 3, "an output of the model is a dynamic integer"),
        (custom, 3, "custom objects (lock)"),
        (no_nodes, 2, "nodes"),
        (no_number, 3, "is a token"),
    ],
)
def test_graphs_that_no_fusion_is(
    change: Callable[[Any], None], code: int, text: str, tmp_path: Path, capsys: Capture
) -> None:
    path = perceptron()[0].save(tmp_path / "a.pt2", **with_model(change))
    rejected(capsys, path, code, text)


def test_nothing_is_unpickled(tmp_path: Path, capsys: Capture) -> None:
    class Harmful:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "harm",))

    export = perceptron()[0]
    members = export.members()
    config = json.loads(members["data/weights/model_weights_config.json"])
    config["config"]["net.up.weight"]["use_pickle"] = True
    members["data/weights/model_weights_config.json"] = json.dumps(config).encode()
    members["data/weights/weight_0"] = pickle.dumps(Harmful())
    members["data/sample_inputs/model.pt"] = pickle.dumps(Harmful())
    path = write_archive(tmp_path / "a.pt2", members)
    rejected(capsys, path, 3, "weight `net.up.weight` is pickled, which is never read")


def without(name: str) -> dict[str, bytes]:
    return {n: d for n, d in perceptron()[0].members().items() if n != name}


@pytest.mark.parametrize(
    ("members", "text"),
    [
        (without("archive_format"), "no `archive_format`"),
        (without("models/model.json"), "no `models/model.json`"),
        (without("data/weights/weight_1"), "no `data/weights/weight_1`"),
        (without("data/weights/model_weights_config.json"), "no weight `net.up.weight`"),
        ({**perceptron()[0].members(), "data/weights/weight_0": b"short"}, "exceeds its bytes"),
        ({**perceptron()[0].members(), "byteorder": b"big"}, "big-endian"),
    ],
)
def test_members(members: dict[str, bytes], text: str, tmp_path: Path, capsys: Capture) -> None:
    code = 3 if "endian" in text else 2
    rejected(capsys, write_archive(tmp_path / "a.pt2", members), code, text)


def test_files_that_are_no_archives(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "text.pt2").write_text("not a zip")
    rejected(
        capsys, tmp_path / "text.pt2", 2, "is not an archive of torch.export", "torch.export.save"
    )
    rejected(capsys, tmp_path / "none.pt2", 2, "no such file")
    packed = write_archive(tmp_path / "packed.pt2", perceptron()[0].members(), zipfile.ZIP_DEFLATED)
    rejected(capsys, packed, 2, "is compressed or encrypted")
    (tmp_path / "empty.pt2").write_bytes(b"")
    rejected(capsys, tmp_path / "empty.pt2", 2, "is not an archive of torch.export")
    rejected(capsys, tmp_path, 2, "is a directory")


def test_a_changed_byte_is_noticed(tmp_path: Path, capsys: Capture) -> None:
    path = perceptron()[0].save(tmp_path / "a.pt2")
    data = path.read_bytes()
    weight = np.ascontiguousarray(perceptron()[0].weights["net.down.weight"]).tobytes()
    at = data.index(weight)
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    rejected(capsys, path, 2, "is damaged", "another checksum")


def test_another_folder_is_not_overwritten(tmp_path: Path, capsys: Capture) -> None:
    path = perceptron()[0].save(tmp_path / "a.pt2")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    rejected(capsys, path, 2, "holds other files: `mine.txt`")
