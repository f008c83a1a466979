"""An imported model is explained by its modules, and by what breaks it into kernels."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from cli_tools import fusec
from exported import perceptron
from paths import ROOT, TESTS

from fusec.commands.import_model import import_model
from fusec.commands.terminal.diagnose import Report
from fusec.diagnostics import FusecError
from fusec.driver import Compilation, programs
from fusec.explain import remedies
from fusec.explain.facts import Break, Segmentation
from fusec.explain.groups import groups_of
from fusec.explain.model_text import MOST_ROWS, model_explanation
from fusec.explain.modules import parents_of
from fusec.explain.page import Explained, page
from fusec.explain.record import Questions, explain, segmentation
from fusec.foreign import read_json
from fusec.models.folder import read_model_folder
from fusec.options import CompileOptions
from fusec.parse import read_text

Capture = pytest.CaptureFixture[str]
ARCHIVES = TESTS / "models" / "archives"


def folder_of(name: str, tmp_path: Path, capsys: Capture) -> Path:
    done = fusec(capsys, "import", ARCHIVES / f"{name}.pt2", "-o", tmp_path / name)
    assert done.code == 0, done.err
    return tmp_path / name


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> Explained:
    """Return a model of two GEMMs with a norm between them, and what is known of it."""
    folder = tmp_path_factory.mktemp("explained")
    path = perceptron()[0].save(folder / "small.pt2")
    import_model(str(path), str(folder / "small"), Report())
    (program,) = programs(str(folder / "small"))
    modules = read_model_folder(folder / "small").modules
    return Explained(explain(program, Questions({}, modules=modules)), program)


@pytest.fixture(scope="module")
def small(explained: Explained) -> Segmentation:
    return explained.record


def test_the_model_on_another_gpu_reports_where_coefficients_were_fitted(
    small: Segmentation,
) -> None:
    line = "cost model    its coefficients were fitted on another GPU, sm_90a"
    assert line not in model_explanation([small], ())
    other = replace(small, target={**small.target, "arch": "sm_80"})
    assert line in model_explanation([other], ())


def test_each_segment_counts_for_one_module_and_those_around_it(small: Segmentation) -> None:
    assert small.modules
    figures = {m.module: m for m in small.modules}
    for path, module in figures.items():
        members = [s for s in small.segments if path in parents_of(s.module)]
        assert module.segments == tuple(s.id for s in members)
        assert module.seconds == pytest.approx(sum(s.seconds for s in members))
        outer = [p for p in parents_of(path) if p != path]
        assert all(list(figures).index(p) < list(figures).index(path) for p in outer)
    whole = [m for m in small.modules if "." not in m.module]
    assert sum(m.seconds for m in whole) == pytest.approx(small.seconds)
    assert sorted(k for m in whole for k in m.segments) == [s.id for s in small.segments]
    assert [*figures] == ["net", "net.up", "net.down"]
    (up, norm, down) = small.segments
    assert (up.module, norm.module, down.module) == ("net.up", "net", "net.down")


GEMM = """\
fusion: gemm
inputs: {"x": "bf16[64, 64]", "w": "bf16[64, 64]"}
ops:
  - h = linear(x, w)
  - y = silu(h) * sigmoid(h) + h
outputs: [y]
"""


@pytest.mark.parametrize(
    ("modules", "module"),
    [
        ({"h": "up", "y": "act"}, "up"),
        ({"y": "act"}, "act"),
        ({"h": "up"}, "up"),
        ({"other": "up"}, ""),
    ],
)
def test_the_gemm_of_a_segment_decides(modules: dict[str, str], module: str) -> None:
    program = Compilation(read_text(GEMM), CompileOptions())
    found = explain(program, Questions({}, modules=modules))
    (segment,) = found.segments
    assert {n.op for n in segment.nodes} > {"linear", "add"}
    assert segment.module == module


def test_the_page_groups_segments_by_module(small: Segmentation) -> None:
    paths = [f"layers.{k}.part{j}" for k in range(4) for j in range(5)]
    segments = {k: replace(small.segments[0], id=k, module=path) for k, path in enumerate(paths)}
    groups = groups_of(segments)
    assert [(g.name, len(g.members)) for g in groups] == [(f"layers_{k}", 5) for k in range(4)]


def test_the_page_folds_modules(explained: Explained) -> None:
    shown = page([explained]).partition("<h2>Modules</h2>")[2].partition("<h2>Segments</h2>")[0]
    assert shown.count("<details") == 2, "net, and the breaks"
    assert re.findall(r'class="name">(net[.\w]*) <small>', shown) == ["net", "net.up", "net.down"]
    assert 'href="#f0-s2"' in shown
    assert shown.index("net.up") < shown.index("</details>") > shown.index("net.down")
    assert "none is known" in shown


def test_breaks_are_pairs_of_segments_with_what_crosses(small: Segmentation) -> None:
    assert small.breaks
    sizes = [b.bytes for b in small.breaks]
    assert sizes == sorted(sizes, reverse=True)
    modules = {s.name: s.module for s in small.segments}
    for each in small.breaks:
        assert (modules[each.producer], modules[each.consumer]) == (
            each.producer_module, each.consumer_module,
        )  # fmt: skip
        assert {*each.tensors} <= {c.name for c in small.crossing}
        assert each.because
        assert each.bytes > 0
        assert each.seconds > 0


def test_a_model_is_printed_by_module(tmp_path: Path, capsys: Capture) -> None:
    path = perceptron()[0].save(tmp_path / "small.pt2")
    assert fusec(capsys, "import", path, "-o", tmp_path / "small").code == 0
    done = fusec(capsys, "explain", tmp_path / "small")
    assert done.code == 0, done.err
    model, fusion = done.out.split("\nsmall on ")
    assert model.startswith("The model on H200 (sm_90a): 3 segments, 3 kernels\n")
    rows = re.findall(r"^  ( *\S+) +[\d.]+ us +(\d+) % +(\d)  ", model, re.MULTILINE)
    assert [(name, int(count)) for name, _, count in rows] == [
        ("net", 3), ("  up", 1), ("  down", 1),
    ]  # fmt: skip
    assert "  net.up -> net (s0 -> s1)\n    saves         at most" in model
    assert "s0 matmul" in fusion


@pytest.mark.nightly
def test_the_model_is_printed_before_its_fusions(tmp_path: Path, capsys: Capture) -> None:
    folder = folder_of("unet", tmp_path, capsys)
    done = fusec(capsys, "explain", folder)
    assert done.code == 0, done.err
    model, *fusions = re.split(r"\n(?=unet_\d on)", done.out)
    assert len(fusions) == 9
    assert re.match(r"The model on H200 \(sm_90a\): 9 fusions, \d+ segments, \d+ kernels\n", model)
    assert "aten.conv2d.default (10); not in these figures" in model
    assert re.search(r"^  middle +[\d.]+ us +\d+ % +4  ", model, re.MULTILINE)
    assert re.search(r"^    skip +[\d.]+ us +\d+ % +1  ", model, re.MULTILINE)
    assert "fix           " in model
    assert "  qkv -> the model (s4 -> s5 of unet_5)\n" in model
    assert "smaller breaks not shown: use `--all`" in model
    whole = sum(json.loads(f)["seconds"] for f in _records(folder, capsys))
    assert f"time          {whole * 1e6:.0f} us predicted" in model


def _records(folder: Path, capsys: Capture) -> list[str]:
    done = fusec(capsys, "explain", folder, "--json")
    return [json.dumps(record) for record in json.loads(done.out)]


def test_deep_modules_are_left_to_all(small: Segmentation) -> None:
    (segment, *_) = small.segments
    paths = (f"layers.{k}.part{j}" for k in range(12) for j in range(5))
    wide = [replace(segment, module=path) for path in paths]
    record = replace(small, segments=tuple(wide))
    short, long = (model_explanation([record], [], every=e) for e in (False, True))
    assert "    11  " in short
    assert "part4" not in short
    assert "60 inner modules not shown: use `--all`" in short
    assert len(re.findall("part4", long)) == 12
    assert len(short.partition("Breaks")[0].splitlines()) < MOST_ROWS
    order = [int(k) for k in re.findall(r"^    (\d+)  ", short, re.MULTILINE)]
    assert order == sorted(order) == list(range(12))


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["attention", "none"])
def test_advice_of_attention_is_for_attention(kind: str, tmp_path: Path, capsys: Capture) -> None:
    found = segmentation(folder_of("t5", tmp_path, capsys))
    fixes = {b.tensors: b.fix for b in found.breaks}
    if kind == "attention":
        fix = fixes["cross_matmul", "cross_softmax"]
        assert fix.startswith("compute attention in bf16 or f16")
    else:
        assert fixes["mul_2",] == "", "a GEMM, gelu and a GEMM are no attention"


@cache
def rules() -> set[str]:
    """Return the rules of all refusals, and the words that stand for them."""
    text = "\n".join(p.read_text() for p in (ROOT / "fusec").rglob("*.py"))
    return {*re.findall(r'Refusal\(\s*"([^"]+)"', text)}


def test_remedies_are_of_rules_that_there_are() -> None:
    known = {*remedies.OF_ALL, *remedies.OF_ATTENTION}
    assert known <= rules(), known - rules()
    assert remedies.remedy("matmul", "kernel")
    assert remedies.remedy("attention", "kernel") == ""
    assert remedies.remedy("pointwise", "softmax") == ""


def test_other_fusions_have_no_modules() -> None:
    found = explain(Compilation(read_text(GEMM), CompileOptions()), Questions({}))
    assert (found.modules, found.breaks, found.segments[0].module) == ((), (), "")


def test_modules_that_are_damaged(tmp_path: Path, capsys: Capture) -> None:
    path = perceptron()[0].save(tmp_path / "small.pt2")
    folder = tmp_path / "small"
    assert fusec(capsys, "import", path, "-o", folder).code == 0
    record = read_json(folder / "model.json", "a record")
    for damage in (None, [1], {"a": 3}):
        (folder / "model.json").write_text(json.dumps({**record, "modules": damage}))
        with pytest.raises(FusecError, match="record of a model"):
            segmentation(folder)


def test_a_break_without_a_remedy_says_so(small: Segmentation) -> None:
    bare = Break("s0", "s1", "a", "a", ("x",), 8, 1e-6, ("matmul: no (operation)",), "")
    text = model_explanation([replace(small, breaks=(bare,))], [])
    assert text.endswith(
        "  a (s0 -> s1)\n"
        "    saves         at most 8 B and 1 us: x\n"
        "    because       matmul: no (operation)\n"
        "    fix           none is known\n"
    )
