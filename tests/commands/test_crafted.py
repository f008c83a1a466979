"""Crafted names, paths and texts through every command: refused with a place, or harmless."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from cli_tools import SMALL, fusec, small
from crafted import (
    COMMANDS,
    DOCS,
    NAMES,
    PATHS,
    RAW,
    WORDS,
    Tags,
    every_command,
    files_below,
    yaml_of,
)
from nightly import mostly_nightly

from fusec import driver
from fusec.escape import c_comment, quoted, visible
from fusec.ir.text import to_text
from fusec.parse import read_file, read_text
from fusec.parse.twin import to_python

Capture = pytest.CaptureFixture[str]
PLACES = ("fusion", "dim", "given", "made", "segment", "phase")


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("fusec.run.device.device_available", lambda: "none today")
    monkeypatch.chdir(tmp_path)


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", mostly_nightly(NAMES, 4), ids=ascii)
def test_no_file_may_have_a_name(name: str, tmp_path: Path, capsys: Capture) -> None:
    for place in PLACES:
        path = tmp_path / f"{place}.yaml"
        path.write_text(yaml_of(**{place: name}), encoding="utf-8", errors="surrogatepass")
        for done in every_command(capsys, path, tmp_path / "out"):
            done.says(2, "--> ")
    assert files_below(tmp_path) == {f"{place}.yaml" for place in PLACES}


SCRIPT = """\
from fusec import DataType, FusionDefinition
n = {name!r}
with FusionDefinition({fusion}) as fd:
    d = fd.define_dim({dim}, 16)
    x = fd.define_tensor(shape=[d], contiguity=True, dtype=DataType.Float, name={given})
    y = fd.ops.exp(x, name={made})
    fd.pin({segment}, [y], scheduler={scheduler})
    fd.add_output(y)
"""
PARTS = {
    "fusion": "'f'", "dim": "'D'", "given": "'x'", "made": "'z'", "segment": "'s'",
    "scheduler": "None",
}  # fmt: skip


@pytest.mark.parametrize("name", mostly_nightly(NAMES, 4), ids=ascii)
def test_no_script_may_have_a_name(name: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "script.py"
    for place in PARTS:
        if not name and place == "fusion":
            continue  # without a name it is called after the script
        path.write_text(SCRIPT.format(name=name, **{**PARTS, place: "n"}))
        for command in ("check", "compile", "run", "dump", "explain"):
            done = fusec(capsys, command, path)
            assert done.code == 2, (place, done.out)
            assert not RAW.search(done.out + done.err)
    assert files_below(tmp_path) == {"script.py"}


def test_variables_with_names_of_their_own(tmp_path: Path, capsys: Capture) -> None:
    """What Python takes and C++ does not is called after its operation."""
    text = (
        "from fusec import DataType, FusionDefinition\n"
        "with FusionDefinition() as fd:\n"
        "    caf\u00e9 = fd.define_tensor(shape=[8], contiguity=True, dtype=DataType.Float)\n"
        "    f32 = fd.ops.exp(caf\u00e9)\n    double = fd.ops.neg(f32)\n"
        "    null = fd.ops.abs(double)\n"
        "    fd.add_output(null)\n"
    )
    path = tmp_path / "a.py"
    path.write_text(text)
    fusion = driver.load(str(path))
    assert [v.name for v in fusion.values] == ["T0", "exp_1", "neg_1", "abs_1"]
    assert fusec(capsys, "compile", path, "-o", tmp_path / "out").code == 0
    assert fusec(capsys, "run", tmp_path / "out").code == 0


@pytest.mark.parametrize("name", mostly_nightly(WORDS, 4))
def test_words_are_names_as_others(name: str, tmp_path: Path, capsys: Capture) -> None:
    texts = [
        yaml_of(fusion=name, given=name, segment=name),
        yaml_of(dim=name, phase=name),
        yaml_of(made=name),
    ]
    path = tmp_path / "words.yaml"
    for text in texts:
        path.write_text(text)
        for part in (p.original for p in driver.programs(str(path))):
            script = tmp_path / "twin.py"
            script.write_text(to_python(part))
            assert driver.load(str(script)) == part
            assert read_text(to_text(part)) == part
    path.write_text(texts[0])
    assert fusec(capsys, "compile", path, "-o", tmp_path / "out").code == 0


TOGETHER = 6
"""Words that are names in one file, which is compiled once."""


@pytest.mark.parametrize("words", [WORDS[k::5] for k in range(len(WORDS) // TOGETHER)], ids=str)
def test_words_are_names_in_kernels(
    words: tuple[str, ...], tmp_path: Path, capsys: Capture
) -> None:
    """Of sizes and phases, each with a kernel of its own, and of values in one kernel."""
    path, count = tmp_path / "words.yaml", range(len(words))
    at = [quoted(word) for word in words]
    types = [quoted(f"f32[{word}]") for word in words]
    path.write_text(
        "fusion: f\n"
        f"dims: {{{', '.join(f'{w}: 16' for w in at)}}}\n"
        f"inputs: {{{', '.join(f'x{k}: {types[k]}' for k in count)}}}\n"
        f"ops: [{', '.join(f'z{k} = exp(x{k})' for k in count)}]\n"
        f"outputs: [{', '.join(f'z{k}' for k in count)}]\n"
        f"phases: {{{', '.join(f'{at[k]}: [z{k}]' for k in count)}}}\n"
    )
    assert fusec(capsys, "compile", path, "-o", tmp_path / "sizes").code == 0
    assert len(list((tmp_path / "sizes").rglob("*.cu"))) == len(words)
    before = ("x", *words)
    ops = (quoted(f"{word} = exp({before[k]})") for k, word in enumerate(words))
    path.write_text(
        "fusion: f\ndims: {N: 16}\ninputs: {x: 'f64[N]'}\n"
        f"ops: [{', '.join(ops)}]\noutputs: [{', '.join(at)}]\n"
    )
    assert fusec(capsys, "compile", path, "-o", tmp_path / "values").code == 0


@pytest.mark.parametrize("name", mostly_nightly(NAMES, 4), ids=ascii)
def test_names_of_sizes_and_arrays(name: str, tmp_path: Path, capsys: Capture) -> None:
    path, inputs = small(tmp_path), tmp_path / "in.npz"
    for given in (f"{name}=8", f"B={name}", f"x.stride{name}=8"):
        done = fusec(capsys, "check", path, "--set", given)
        assert done.code == 2
        assert not RAW.search(done.err)
    key = name.replace("\0", "").encode(errors="replace").decode()  # an archive takes no others
    np.savez(inputs, **{key or "_": np.zeros(3)})
    done = fusec(capsys, "run", path, "--inputs", inputs)
    done.says(2, "has no array `x`")
    assert not RAW.search(done.err)
    assert files_below(tmp_path) == {"small.yaml", "in.npz"}


# --- paths ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Return the tags of the page of the small fusion."""
    from fusec.cli import run_main

    base = tmp_path_factory.mktemp("plain")
    assert run_main(["explain", str(small(base)), "--html", str(base / "page.html")]) == 0
    return Tags((base / "page.html").read_text()).found


@pytest.mark.parametrize("part", mostly_nightly(PATHS, 4), ids=ascii)
def test_paths(part: str, tmp_path: Path, capsys: Capture, plain: dict[str, int]) -> None:
    inside = tmp_path / part / part
    inside.mkdir(parents=True)
    path, out = small(inside, name=f"{part}.yaml"), inside / "out"
    assert {done.code for done in every_command(capsys, path, out)} == {0}, "NVRTC compiled it, too"
    assert Tags(out.with_suffix(".html").read_text()).found == plain
    (kernel,) = (out / "kernels").glob("*.cu")
    text = kernel.read_text()
    assert not RAW.search(text)
    assert re.match(r"// small_pointwise: .*\n// Source: .*\n//   \d+: ", text)
    assert fusec(capsys, "run", out).code == 0
    golden = {f for f in files_below(inside) if "golden" in f.split("/")}
    assert files_below(inside) - golden - {
        f for f in files_below(inside) if f.startswith("out")
    } == {f"{part}.yaml"}
    assert {f.split("/")[0] for f in files_below(tmp_path)} == {part}


@pytest.mark.parametrize("part", mostly_nightly(PATHS, 4), ids=ascii)
def test_paths_of_scripts(part: str, tmp_path: Path, capsys: Capture) -> None:
    text = to_python(driver.load(str(small(tmp_path))))
    path = tmp_path / f"{part}.py"
    path.write_text(text)
    for command in (
        ("check",),
        ("compile", "-o", tmp_path / "out"),
        ("run",),
        ("dump", "--python"),
    ):
        done = fusec(capsys, command[0], path, *command[1:])
        assert done.code == 0, done.err
        assert not RAW.search(done.out + done.err)
    path.write_text(text.replace("fd.ops.", "fd.ops.no_", 1))
    done = fusec(capsys, "check", path)
    done.says(2, "--> ")
    assert not RAW.search(done.err)


@pytest.mark.parametrize("name", ["..yaml", "...yaml", "..yml"])
def test_golden_files_stay_in_their_folder(name: str, tmp_path: Path, capsys: Capture) -> None:
    """Golden files replace what lies in their folder: it must not be that of other files."""
    path = small(tmp_path, name=name)
    (tmp_path / "golden").mkdir()
    for own in ("mine.txt", "golden/mine.json"):
        (tmp_path / own).write_text("mine")
    for _ in range(2):
        fusec(capsys, "golden", path, "--update").says(2, "cannot be used for golden files")
    assert files_below(tmp_path) == {name, "mine.txt", "golden/mine.json"}


# --- texts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("doc", mostly_nightly(DOCS, 3), ids=ascii)
def test_docs_of_scripts(doc: str, tmp_path: Path) -> None:
    path = tmp_path / "doc.py"
    path.write_text(SCRIPT.format(name=doc, **{**PARTS, "fusion": "'f', doc=n"}))
    fusion = driver.load(str(path))
    again = read_text(to_text(fusion))
    assert again == fusion
    if doc.strip() and doc.isprintable():
        assert again.doc == doc
    twin = tmp_path / "twin.py"
    twin.write_text(to_python(fusion))
    assert driver.load(str(twin)) == fusion


@pytest.mark.parametrize(
    "doc", mostly_nightly([d for d in DOCS if d.strip() and d != "\ud800"], 5), ids=ascii
)
def test_docs_of_files(doc: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "doc.yaml"
    path.write_text(yaml_of(doc=doc))
    fusion = read_file(path)
    assert fusion.doc == doc
    assert read_text(to_text(fusion)).doc == doc
    assert {done.code for done in every_command(capsys, path, tmp_path / "out")} == {0}
    assert Tags((tmp_path / "out.html").read_text()).found["script"] == 1  # its own
    assert fusec(capsys, "run", tmp_path / "out").code == 0


def test_what_would_be_a_line_of_its_own_in_yaml(tmp_path: Path, capsys: Capture) -> None:
    for separator in "\x85\u2028\u2029":
        path = small(tmp_path, SMALL + f"# a comment{separator}segments: [y]\n")
        fusec(capsys, "check", path).says(2, f"line separator U+{ord(separator):04X}", "--> ")


def test_escapes() -> None:
    assert visible("a\x1b\u202e\n\ud800") == "a\\x1b\\u202e\\n\\ud800"
    assert quoted('a"\\\n') == '"a\\"\\\\\\n"'
    assert c_comment("a\\ b*/c??/d\\\\") == "a\\ b*\\x2fc?\\x3f/d\\x5c\\x5c"


ON_A_GPU = ("bench", "tune")
"""Commands that take a file, and do nothing with it where there is no GPU."""


def test_every_command_is_tried() -> None:
    from fusec.cli import cli

    known = {command for command, *_ in COMMANDS}
    others = {"ops", "schema", "doctor", "dev", "cache", "docs", "import", *ON_A_GPU}
    assert set(cli.commands) - known <= others
    assert json.dumps(sorted(known))
