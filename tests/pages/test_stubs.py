"""Type stubs: as the operations declare them, and as a type checker reads them."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from fusec import FusionDefinition
from fusec.ops import TABLE
from fusec.pages.stubs import FILE, stub

REGENERATE = "run `python -m fusec.pages.stubs`"

SCRIPT = """\
from fusec import DataType, FusionDefinition

with FusionDefinition("f") as fd:
    x = fd.define_tensor(shape=[4, 8], dtype=DataType.Float)
    reveal_type(fd.ops.sum(x, dims=[1], keepdim=True))
    reveal_type(fd.ops.var_mean(x, [1]))
    reveal_type(x.exp().sum(-1))
    reveal_type(x.permute(1, 0) * 2 + x.float())
    reveal_type(x.shape)
    fd.ops.exp(x, 3)
    fd.ops.exp(x, nam="y")
    fd.ops.exp("x")
"""
REVEALED = ["Tensor", "tuple[Tensor, Tensor]", "Tensor", "Tensor", "Vector"]


def methods_of(name: str) -> dict[str, ast.FunctionDef]:
    """Return the first form of each method of a class of the stub."""
    tree = ast.parse(stub())
    (found,) = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name]
    methods = [n for n in found.body if isinstance(n, ast.FunctionDef)]
    return {n.name: n for n in reversed(methods)}


def test_the_stub_is_fresh() -> None:
    assert FILE.read_text(encoding="utf-8") == stub(), REGENERATE


def test_operations_are_typed_by_their_parameters() -> None:
    """The first of several forms is the declared one."""
    functions = methods_of("Functions")
    for name, op in TABLE.items():
        arguments = functions[name].args.args
        assert [a.arg for a in arguments] == ["self", *(p.name for p in op.params)]


@pytest.mark.parametrize("kind", ["Functions", "Methods"])
def test_what_is_typed_exists(kind: str) -> None:
    with FusionDefinition("f") as fd:
        x = fd.define_tensor(shape=[4, 8])
    of = fd.ops if kind == "Functions" else x
    for name in methods_of(kind):
        assert callable(getattr(of, name)), name


@pytest.mark.nightly
def test_a_type_checker_reads_examples_and_finds_mistakes(tmp_path: Path) -> None:
    pytest.importorskip("pyright")
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    for example in (ROOT / "examples").glob("*.py"):
        (tmp_path / example.name).write_bytes(example.read_bytes())
    config = {"extraPaths": [str(ROOT)], "typeCheckingMode": "basic"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    revealed = [d["message"] for d in found if d["severity"] == "information"]
    assert [m.split('" is "')[1].rstrip('"') for m in revealed] == REVEALED
    errors = [(Path(d["file"]).name, d["range"]["start"]["line"]) for d in found]
    wrong = [n for n, line in enumerate(SCRIPT.splitlines()) if "ops.exp(" in line]
    errors = [e for e, d in zip(errors, found, strict=True) if d["severity"] == "error"]
    assert errors == [("script.py", line) for line in wrong]
