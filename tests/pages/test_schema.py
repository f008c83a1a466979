"""The JSON Schema of fusion files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from declared import temporary_ops
from followed import error_of
from hypothesis import given, settings
from nightly import mostly_nightly
from paths import ROOT
from test_followed import HEAD, LINES, WRITTEN
from test_shardings import divided
from wrong_files import right

from fusec.ir.graph import Fusion
from fusec.ir.text import to_text
from fusec.ops import TABLE
from fusec.ops.declare import Array, pointwise
from fusec.ops.dtypes import PROMOTE
from fusec.ops.examples import examples as operation_examples
from fusec.pages.schedules import fields_of, records
from fusec.pages.schema import schema, schema_text
from fusec.parse import read_file
from fusec.parse.reserved import RESERVED

jsonschema = pytest.importorskip("jsonschema")  # of the dev extra alone
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
GOOD: dict[str, Any] = {
    "fusion": "f",
    "doc": "Text.",
    "dims": {"B": 4, "H": {"default": 8, "multiple_of": 8}, "D": "B * H"},
    "inputs": {"x": "f32[B, H]", "s": "f32 = 1e-5", "w": {"type": "f32[H]", "range": [0, 1]}},
    "ops": ["y = relu(x)", "v, m = var_mean(x, [1])"],
    "outputs": ["y", {"m": {"alias": "x"}}],
    "segments": {"a": ["y"], "b": {"values": ["m"], "scheduler": "reduction"}},
}


def errors(document: Any) -> list[str]:
    """Return the messages of a validator."""
    validator = jsonschema.Draft7Validator(schema())
    return [e.message for e in validator.iter_errors(document)]


def test_the_file_is_fresh() -> None:
    """`fusec.schema.json` is what `fusec schema` prints."""
    assert (ROOT / "fusec.schema.json").read_text() == schema_text()
    jsonschema.Draft7Validator.check_schema(json.loads(schema_text()))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_are_valid(path: Path) -> None:
    """Every example, and every fusion as fusec prints it, fits the schema."""
    assert path.read_text().startswith("# yaml-language-server: $schema=../fusec.schema.json\n")
    assert errors(yaml.safe_load(path.read_text())) == []
    assert errors(yaml.safe_load(to_text(read_file(path)))) == []


@settings(max_examples=15, deadline=None)
@given(divided())
def test_drawn_shardings_are_valid(fusion: Fusion) -> None:
    """Meshes and shardings as fusec prints them fit the schema."""
    text = to_text(fusion)
    assert errors(yaml.safe_load(text)) == [], text


READ = """
gf = g.float()
m1 = torch.lerp(m, gf, 1 - beta1)
sorted, order = torch.sort(l, dim=-1, descending=True)
kept = sorted.masked_fill(before > top_p, -inf)
b = F.normalize(image, dim=-1)
labels = torch.arange(N)
lt = F.cross_entropy(logits.T, labels)
grouped = choice.view(T, 4, 8)
xf = x.float().view(T, G, 128)
lo = xf.amin(-1, keepdim=True)
bias = F.embedding(bucket, table).permute(2, 0, 1)
i = arange(S)[:, none]
ce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
w = normed.to(torch.bfloat16)
v, i = (x + y).topk(2)
t = x.T
p = math.pi
row = x[0]
v, i = x[0].topk(2)
n = ceildiv(B, 4)
"""


@pytest.mark.parametrize("line", READ.strip().splitlines())
def test_lines_of_pytorch_programs_are_valid(line: str) -> None:
    assert errors({**GOOD, "ops": [line]}) == []


BLOCK = re.compile(r"^```yaml\n(fusion: .*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("part", mostly_nightly(range(3), 3))
def test_all_that_the_reader_accepts_is_valid(part: int) -> None:
    """Files of examples, tests and docs, examples of all operations, and mended lines."""
    files = [*(ROOT / "examples").rglob("*.yaml"), *(ROOT / "tests").rglob("*.yaml")]
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    texts = [path.read_text() for path in files]
    texts += [block for page in pages for block in BLOCK.findall(page.read_text())]
    texts += [example.text for example in right()]
    texts += [HEAD.replace("{LINE}", line) for line in (*LINES.values(), *WRITTEN.values())]
    accepted = [text for text in texts[part::3] if error_of(text) is None]
    assert len(accepted) > 130
    wanted = schema()
    del wanted["definitions"]["op"]["allOf"][2:]  # hovers, which accept everything
    validator = jsonschema.Draft7Validator(wanted)
    for text in accepted:
        assert not list(validator.iter_errors(yaml.safe_load(text))), text


def test_a_misspelled_operation_is_called_unknown() -> None:
    """An editor prints the message of the pattern that a line does not match."""
    form, name, *_ = schema()["definitions"]["op"]["allOf"]
    assert re.search(form["pattern"], "y = epx(x)")
    assert re.search(name["if"]["pattern"], "y = epx(x)")
    assert not re.search(name["then"]["pattern"], "y = epx(x)")
    assert "unknown operation" in name["then"]["patternErrorMessage"]
    assert not re.search(form["pattern"], "y = exp x")


def test_each_operation_has_a_hover() -> None:
    """Of the lines of all examples, each has that of its outermost operation alone."""
    _, _, *hovers = schema()["definitions"]["op"]["allOf"]
    shown = {name: hover for name, hover in zip(TABLE, hovers, strict=True)}
    for name, op in TABLE.items():
        line = next(iter(operation_examples(op))).rpartition("; ")[2]
        outermost = re.fullmatch(r"[^=]*= *(\w+)\(.*", line)
        assert outermost is not None, line
        found = {n for n, h in shown.items() if re.search(h["if"]["pattern"], line)}
        assert found == {outermost[1]}, line
        assert f"{name}(" in shown[name]["then"]["markdownDescription"]


@pytest.mark.parametrize("scheduler", records())
def test_schedule_parameters_have_their_values(scheduler: str) -> None:
    validator = jsonschema.Draft7Validator(schema())

    def valid(of: str, name: str, value: object) -> bool:
        schedules = {of: {name: value}}
        return validator.is_valid({"fusion": "f", "outputs": ["y"], "schedules": schedules})

    for field in fields_of(scheduler).values():
        for of in (scheduler, "y"):
            assert all(valid(of, field.name, v) for v in (field.values[0], field.values[-1]))
            assert not valid(of, f"{field.name}s", field.values[0])
            assert not valid(of, field.name, -1)
    others = {f for s in records() for f in fields_of(s)} - {*fields_of(scheduler)}
    assert not any(valid(scheduler, name, 1) for name in others)


def test_reserved_fields_are_named_and_refused() -> None:
    for name in RESERVED:
        assert errors(GOOD | {name: {}})
        assert "Not supported yet" in schema()["properties"][name]["description"]


def test_a_good_document() -> None:
    """The schema takes every field in every form."""
    assert errors(GOOD) == []
    for line in (
        "n = 4", "n = B * 2 - 1", "n = -(B // 2)", "n = min(B, 4) % (B + 1)", "c = 1e-5",
        "y = x * w + 1.0", "y = -x", "y = (x - m) * rsqrt(v + s)", "y = relu(x) @ w", "y = x == w",
        "y = sum(x, dims=[1], keepdim=true) / H", "y = ~(x >= 2)", "c = .5", "y = x ** 2",
    ):  # fmt: skip
        assert errors({**GOOD, "ops": [line]}) == [], line
    assert errors({**GOOD, "outputs": {"y": {"stride_order": [0, 1]}, "m": None}}) == []


@pytest.mark.parametrize(
    "change",
    [
        {"op": []},
        {"fusion": "3f"},
        {"fusion": None},
        {"dims": {"a-b": 4}},
        {"dims": {"B": -1}},
        {"dims": {"B": {"multiple_of": 8}}},
        {"dims": {"B": {"default": 8, "multipleof": 8}}},
        {"inputs": {"x": "f33[B]"}},
        {"inputs": {"x": {"range": [0, 1]}}},
        {"inputs": {"x": {"type": "f32[B]", "range": [0]}}},
        {"inputs": ["x"]},
        {"ops": ["y = reluu(x)"]},
        {"ops": ["relu(x)"]},
        {"ops": ["y = reluu(x, -1)"]},
        {"ops": ["y = reluu(x) z"]},
        {"ops": ["y = x"]},
        {"ops": ["y = reluu(x)[0]"]},
        {"ops": ["y = x[0] z"]},
        {"ops": ["y, z = x + w"]},
        {"ops": [{"y = pad(x, value": "1)"}]},
        {"outputs": []},
        {"outputs": "y"},
        {"outputs": [{"y": {"alais": "x"}}]},
        {"segments": {"a": {"values": ["y"], "scheduler": "pointwize"}}},
    ],
    ids=str,
)
def test_bad_documents(change: dict[str, Any]) -> None:
    """What the reader refuses by structure, the schema refuses too."""
    assert errors({**GOOD, **change})


def test_every_op_has_a_snippet() -> None:
    """Editors offer each operation with its signature and documentation."""
    snippets = {s["label"]: s for s in schema()["definitions"]["op"]["defaultSnippets"]}
    assert set(snippets) == set(TABLE)
    assert snippets["sum"]["body"] == "${1:out} = sum(${2:arg})"
    assert TABLE["sum"].doc in snippets["sum"]["description"]


def test_a_new_op_shows_in_the_schema() -> None:
    """The schema derives from the op table."""
    line = {**GOOD, "ops": ["y = cube(x)"]}
    assert errors(line)
    with temporary_ops():

        @pointwise(cuda="{x} * {x} * {x}", dtype=PROMOTE)
        def cube(x: Array) -> Array:
            """Raise to the third power."""
            return np.power(x, 3)

        assert errors(line) == []
    assert errors(line)
