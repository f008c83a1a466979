"""The table of operations imports the modules that declare them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from declared import temporary_ops
from paths import ROOT

from fusec.diagnostics import InternalError
from fusec.ops import TABLE
from fusec.ops.declare import pointwise


def test_every_listed_operation_is_declared() -> None:
    assert [op.name for op in TABLE.values()] == list(TABLE)
    assert len(TABLE) == len(list(TABLE)) == len({*TABLE})


def test_a_name_imports_its_module_alone() -> None:
    code = (
        "import sys; from fusec.ops import TABLE\n"
        "assert 'erf' in TABLE and TABLE.imported('erf', 'exp') == ()\n"
        "exp = TABLE['exp']; assert TABLE.imported('erf', 'exp') == (exp,)\n"
        "print(*(m for m in sys.modules if m.startswith('fusec.ops.pointwise.')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.split() == ["fusec.ops.pointwise.exponential"]


@pytest.mark.parametrize(
    ("module", "name", "wrong"),
    [
        ("fusec.ops.pointwise.unary", "twice", "`twice` is not listed in fusec/ops/table.py"),
        ("fusec.ops.pointwise.unary", "erf", "`erf` is declared twice"),
        ("elsewhere", "erf", "`erf` is declared twice"),
    ],
)
def test_declarations_follow_the_list(module: str, name: str, wrong: str) -> None:
    def body(x: object) -> object:
        return x

    body.__module__, body.__name__, body.__annotations__ = module, name, {"x": "Array"}
    with temporary_ops(), pytest.raises(InternalError, match=wrong):
        pointwise(cuda="{x}")(body)
