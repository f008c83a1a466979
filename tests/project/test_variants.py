"""Which variants of tests run by default."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
import variants
from paths import ROOT, TESTS

pytest_plugins = ["pytester"]


def test_slow_tests_run_a_few_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "SECONDS", 0.5)
    slow = [(f"tests/test_a.py::test_slow[{k}]", 0.2) for k in range(10)]
    quick = [(f"tests/test_a.py::test_quick[{k}]", 0.001) for k in range(10)]
    one = [("tests/test_b.py::test_minutes", 60.0)]
    dear = [("tests/test_b.py::test_dear[a-b]", 30.0), ("tests/test_b.py::test_dear[a]", 30.0)]
    found = variants.chosen([*slow, *quick, *one, *dear], {})
    assert found == {"test_a.py": {"test_slow": 2}, "test_b.py": {"test_dear": 1}}


def test_tests_of_which_few_variants_ran_stay_in_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(variants, "SECONDS", 0.5)
    known = {"test_a.py": {"test_slow": 2, "test_other": 3}}
    times = [("tests/test_a.py::test_slow[1]", 0.1), ("tests/test_a.py::test_slow[2]", 0.1)]
    assert variants.chosen(times, known) == {"test_a.py": {"test_slow": 5, "test_other": 3}}


def test_each_entry_is_of_a_test() -> None:
    paths: dict[str, list[Path]] = {}
    for path in TESTS.rglob("test_*.py"):
        paths.setdefault(path.name, []).append(path)
    for file, tests in json.loads((TESTS / "variants.json").read_text()).items():
        (path,) = paths[file]
        known = set(re.findall(r"^ *def (\w+)\(", path.read_text(), re.MULTILINE))
        assert {test.rpartition("::")[2] for test in tests} <= known, file


def test_the_same_variants_run_wherever_they_are_asked_for(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.copy_example(str(TESTS / "conftest.py"))
    Path("variants.json").write_text(json.dumps({"test_many.py": {"test_it": 2}}))
    Path("test_many.py").write_text(
        "import pytest\n@pytest.mark.parametrize('k', range(9))\ndef test_it(k): pass\n"
        "@pytest.mark.parametrize('k', range(9))\ndef test_other(k): pass\n"
        "@pytest.mark.nightly\n@pytest.mark.parametrize('k', [1, 2])\ndef test_late(k): pass\n"
        "LATE = [pytest.param(k, marks=pytest.mark.nightly) for k in range(3)]\n"
        "@pytest.mark.parametrize('k', LATE)\ndef test_every_one_late(k): pass\n"
        "@pytest.mark.parametrize('k', [*LATE, 7])\ndef test_some_late(k): pass\n"
        "@pytest.mark.gpu\n@pytest.mark.parametrize('k', [1, 2])\ndef test_on_gpu(k): pass\n"
    )
    Path("test_gpu_it.py").write_text("import pytest\npytestmark = pytest.mark.gpu\n1 / 0\n")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "")  # put back after the test: set by the conftest

    def names(test: str, *options: str) -> set[str]:
        monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        monkeypatch.setattr(sys, "pycache_prefix", None)
        done = pytester.runpytest_inprocess("-q", "--collect-only", *options)
        return {line for line in done.outlines if f"::{test}" in line}

    every, given = names("test_", "-m", "not gpu"), ("-m", "nightly", "test_many.py")
    default, nightly = ({n for n in every if "::test_it" in n}, names("test_it", *given))
    assert len(default) == 2
    assert len(nightly) == 7
    assert not default & nightly
    assert every - default == {f"test_many.py::test_other[{k}]" for k in range(9)} | {
        "test_many.py::test_some_late[7]"
    }
    assert names("test_", "-k", "test_it or on_gpu", "test_many.py") == default | {
        f"test_many.py::test_on_gpu[{k}]" for k in (1, 2)
    }
    assert not [*Path().glob("**/__pycache__/test_*")]
    assert [*Path(".pytest_cache").rglob("test_many*.pyc")]
    assert Path(os.environ["PYTHONPYCACHEPREFIX"]) == Path(".pytest_cache/d/bytecode").resolve()


@pytest.mark.nightly
def test_processes_that_begin_at_both_ends_have_the_tests_in_one_order(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.copy_example(str(TESTS / "conftest.py"))
    Path("variants.json").write_text("{}")
    for name in ("test_a", "sub/test_c", "test_b", "other/test_d"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(f"{name}.py").write_text("def test_one(): pass\ndef test_two(): pass\n")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{TESTS}")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.runpytest_subprocess("-q", "-n", "2").assert_outcomes(passed=8)
