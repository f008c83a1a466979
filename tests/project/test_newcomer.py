"""What CONTRIBUTING says to do for a pass, a kernel family and a field of it is enough.

The files in `tests/newcomer` are put into a copy of the package, with the lines that CONTRIBUTING
names in other files. `tests/ops/test_new_op.py` declares an operation, `test_new_kinds.py` a
movement, a scan and a contraction.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT, TESTS

OUTSIDE = {
    "passes/__init__.py": [
        (
            "from fusec.passes.merge_permutes import merge_permutes\n",
            "from fusec.passes.drop_double_neg import drop_double_neg\n",
        ),
        ("    _pass(merge_permutes),\n", "    _pass(drop_double_neg),\n"),
    ],
    "schedule/registry.py": [
        (
            "_KERNELS = (\n",
            '    Entry("elements", "fusec.schedule.elements.family", "ElementsFamily",'
            " requirements.flat),\n",
        ),
    ],
    "options.py": [("SCHEDULERS = (\n", '    "elements",\n')],
}
"""Lines after which one is inserted: of the pass, and the two files of a family."""
FILE = """
fusion: newcomer
dims: {B: 24, H: 40}
inputs: {x: "f32[B, H]", w: "f32[H]"}
ops:
  - y = mul(neg(neg(x)), w)
outputs: [y]
segments: {a: {values: [y], scheduler: elements}}
"""
FIELD = "schedules: {y: {per_thread: 4}}\n"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a copy of the package and the newcomer's files in it."""
    folder = tmp_path_factory.mktemp("newcomer")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "fusec", folder / "fusec", ignore=ignored)
    shutil.copytree(TESTS / "newcomer" / "fusec", folder / "fusec", dirs_exist_ok=True)
    for name, edits in OUTSIDE.items():
        path = folder / "fusec" / name
        text = path.read_text(encoding="utf-8")
        for after, line in edits:
            assert text.count(after) == 1, (name, after)
            text = text.replace(after, after + line)
        path.write_text(text, encoding="utf-8")
    (folder / "plain.yaml").write_text(FILE, encoding="utf-8")
    (folder / "field.yaml").write_text(FILE + FIELD, encoding="utf-8")
    return folder


def fusec(copy: Path, *arguments: str, code: str | None = None) -> str:
    """Return what a command of the copy prints, or Python code run with it."""
    command = [*(("-c", code) if code else ("-m", "fusec")), *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(copy), str(TESTS)))}
    done = subprocess.run(
        [sys.executable, *command], cwd=copy, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_pass_is_applied_and_can_be_disabled(copy: Path) -> None:
    assert "after drop_double_neg" in fusec(copy, "dump", "plain.yaml", "--preseg")
    disabled = fusec(copy, "dump", "plain.yaml", "--preseg", "--without", "drop_double_neg")
    assert "drop_double_neg" not in disabled


@pytest.mark.nightly
def test_a_family_and_its_field_are_explained_and_documented(copy: Path) -> None:
    assert "elements" in fusec(copy, "explain", "plain.yaml")
    assert "per_thread: 4" in fusec(copy, "dump", "field.yaml", "--scheduler-params")
    assert "elements that a thread computes" in fusec(copy, "docs", "schedules")


def test_the_kernels_of_a_family_compute_their_segments(copy: Path) -> None:
    code = """
from pathlib import Path
from fusec.parse import read_file
from families import plan_of, run_on_host, text_of
for name in ("plain", "field"):
    fusion = read_file(f"{name}.yaml")
    for per_thread in (1, 4):
        text = text_of(plan_of("elements", fusion, per_thread=per_thread))
        assert f"kPerThread = {per_thread};" in text
    Path(name).mkdir()
    run_on_host("elements", fusion, Path(name))
"""
    fusec(copy, code=code)
