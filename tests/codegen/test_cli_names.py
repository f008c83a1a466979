"""Names that templates use for themselves are free for users, in every kernel family."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_tools import ROOT, fusec, small
from nightly import mostly_nightly

from fusec.kernel.ctext import C_NAMES, TEMPLATE_NAMES
from fusec.kernel.names import KEYWORDS
from fusec.ops import TABLE
from fusec.schedule.registry import families

# A declaration in a template: a type (or what the view puts there), a name, and what may follow.
DECLARED = re.compile(
    r"(?:\b(?:int|unsigned|bool|auto|float|double|char|fusec::\w+(?:<[^;={}]*>)?)|\{\{[^}]*\}\})"
    r"[*&]?\s+([A-Za-z]\w*)\s*(?:=|;|\[|\{(?!\{)|\()"
)
TEMPLATES = sorted((ROOT / "fusec" / "templates").glob("*.j2"))
RESERVED = frozenset[str]().union(*(family.vocabulary for family in families()))
WORDS = sorted(TEMPLATE_NAMES)


def test_the_list_holds_identifiers() -> None:
    assert all(name.isidentifier() for name in TEMPLATE_NAMES | RESERVED)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda p: p.name)
def test_the_list_is_complete(path: Path) -> None:
    text = re.sub(r"//.*|\{#.*?#\}", "", path.read_text())
    known = TEMPLATE_NAMES | RESERVED | KEYWORDS
    assert set(DECLARED.findall(text)) - known == set()


# By scheduler: the operation after the sum of all inputs, and the shape of the inputs.
FAMILIES = {
    "pointwise": "exp({})",
    "reduction": "sum({}, dims=[1])",
    "inner_persistent": "softmax({}, dim=1)",
    "outer_persistent": "softmax({}, dim=0)",
    "transpose": "permute({}, dims=[1, 0])",
}


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("family", mostly_nightly(FAMILIES, 2))
def test_inputs_may_have_them(
    family: str, half: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = WORDS[half::2] if family not in ("transpose", "outer_persistent") else WORDS[half:12:2]
    result = "value_of_all"
    lines = [
        f"  - sum{k} = add({words[0] if k == 1 else f'sum{k - 1}'}, {word})"
        for k, word in enumerate(words[1:], start=1)
    ]
    last = f"sum{len(words) - 1}"
    made = [*(f"sum{k}" for k in range(1, len(words))), result]
    lines.append(f"  - {result} = {FAMILIES[family].format(last)}")
    inputs = "".join(f'  {word}: "f32[dim0, dim1]"\n' for word in words)
    text = (
        "fusion: named\ndims: {dim0: 64, dim1: 128}\ninputs:\n"
        + inputs
        + "ops:\n"
        + "\n".join(lines)
        + f"\noutputs: [{result}]\n"
        + f"segments: {{s0: {{values: [{', '.join(made)}], scheduler: {family}}}}}\n"
    )
    done = fusec(capsys, "compile", small(tmp_path, text), "-o", tmp_path / "out")
    assert (done.code, done.err) == (0, "")
    assert re.search(rf"named_(s\d_)?{family} sm_90a", done.out)


WRITTEN = {
    "index_add": "index_add({base}, rows, {source}, dim=0)",
    "scatter": "scatter({base}, places, {source}, dim=0)",
    "pointwise": "add({base}, {source})",
    "matmul": "add(matmul({source}, permute({source}, dims=[1, 0])), {base})",
}
"""Results that are written into an input, by the scheduler that writes them."""


@pytest.mark.parametrize("words", [("base", "there"), ("target", "sums"), ("row", "lane")])
@pytest.mark.parametrize("kind", WRITTEN)
def test_inputs_that_are_written_may_have_them(
    kind: str, words: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, source = words
    text = (
        f"fusion: named\ninputs:\n  rows: i64[64]\n  places: i64[64, 64]\n"
        f"  {base}: bf16[64, 64]\n  {source}: bf16[64, 64]\n"
        f"ops:\n  - y = {WRITTEN[kind].format(base=base, source=source)}\n"
        f"outputs:\n  - y: {{alias: {base}}}\n"
    )
    done = fusec(capsys, "compile", small(tmp_path, text), "-o", tmp_path / "out")
    assert done.code == 0, done.err
    assert "error" not in done.err


def test_results_and_dims_may_have_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        "fusion: row\ndims: {rows: 64, columns: 128}\n"
        'inputs: {lane: "f32[rows, columns]", v: "f32 = 2.0"}\n'
        "ops:\n  - chunk = mul(lane, v)\n  - column = softmax(chunk, dim=1)\n"
        "  - index = add(column, chunk)\noutputs: [index]\n"
    )
    done = fusec(capsys, "compile", small(tmp_path, text), "-o", tmp_path / "out")
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("dims", ["[0]", "[1]"])
def test_inputs_may_be_called_like_workspaces(
    dims: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = "{B: 4, H: 1048576}" if dims == "[1]" else "{B: 1048576, H: 4}"
    kept = "B" if dims == "[1]" else "H"
    names = ("arrived", "arrived_", "t_partials", "t_parts", "t_part")
    text = (
        f"fusion: f\ndims: {sizes}\ninputs:\n  x: f32[B, H]\n"
        + "".join(f"  {name}: f32[{kept}]\n" for name in names)
        + f"ops:\n  - t = sum(x, dims={dims})\n  - s0 = add(t, {names[0]})\n"
        + "".join(f"  - s{k} = add(s{k - 1}, {n})\n" for k, n in enumerate(names[1:], start=1))
        + f"outputs: [s{len(names) - 1}]\n"
    )
    done = fusec(capsys, "compile", small(tmp_path, text), "-o", tmp_path / "out")
    assert (done.code, done.err) == (0, "")
    (kernel,) = (tmp_path / "out" / "kernels").glob("*.cu")
    assert "fusec::last_block(arrived_2 + " in kernel.read_text(), "the blocks share results"


CALLED = re.compile(r"(?<![:\w.>{])([A-Za-z]\w*)\s*\(")


def test_the_list_of_functions_is_complete() -> None:
    """What stands in a kernel without a namespace must not be hidden by a user's name."""
    texts = [text for op in TABLE.values() for text in op.cuda.values()]
    texts += [re.sub(r"//.*|\{[#%{].*?[#%}]\}", "", p.read_text()) for p in TEMPLATES]
    called = {name for text in texts for name in CALLED.findall(text)}
    assert called - C_NAMES - TEMPLATE_NAMES - RESERVED - KEYWORDS == set()
    assert {"expf", "min"} <= called & C_NAMES
