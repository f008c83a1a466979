"""Diagnostics as text, as data and as exceptions."""

from __future__ import annotations

import pickle

import pytest

from fusec.diagnostics import Diagnostic, FusecError, Span, Unsupported, warning
from fusec.parse import read_text

TEXT = """\
fusion: f
inputs: {x: f32}
ops:
  - y = epx(x)
  - z = neg(x, x)
outputs: [y, z]
"""


def test_an_exception_as_text_says_all_that_is_known() -> None:
    with pytest.raises(FusecError) as caught:
        read_text(TEXT, "wrong.yaml")
    error = caught.value
    assert error.diagnostic.message == "unknown operation `epx`"
    told = str(error)
    assert told.startswith("unknown operation `epx`\n  --> wrong.yaml:4:9\n")
    assert " 4 |   - y = epx(x)\n" in told
    assert "= help: did you mean `exp`?" in told
    assert "`neg` takes 1 argument, got 2" in told, "the others are among it"
    assert error.render().startswith(f"error[E0205]: {error.diagnostic.text()}")


def test_text_comes_without_what_is_not_known() -> None:
    assert str(FusecError("no")) == "no"
    assert str(Unsupported("no", notes=["because"], help="else")) == (
        "no\n  = because\n  = help: else"
    )


def test_exceptions_go_from_process_to_process() -> None:
    error = FusecError("no", span=Span("f", 1, 2, 3, "text"), notes=["because"], help="else")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.diagnostic, str(again)) == (
        FusecError, error.diagnostic, str(error),
    )  # fmt: skip


def test_data_for_tools() -> None:
    found = warning("odd", span=Span("f.yaml", 3, 5, 2, "text"), notes=["why"], help="mend it")
    assert found.as_dict() == {
        "severity": "warning", "code": None, "message": "odd", "file": "f.yaml", "line": 3,
        "column": 5, "width": 2, "notes": ["why"], "help": "mend it",
    }  # fmt: skip
    assert Diagnostic("error", "no").as_dict() == {
        "severity": "error", "code": None, "message": "no", "file": None, "line": None,
        "column": None, "width": None, "notes": [], "help": None,
    }  # fmt: skip
