"""Error codes: each example has exactly its error, and its mend has none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_tools import fusec
from paths import ROOT, TESTS

from fusec.codes import CODES, RETIRED, THEMES
from fusec.codes.code import Code
from fusec.commands.error_pages import errors_page
from fusec.diagnostics import Diagnostic, FusecError, Span

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("number", CODES)
def test_the_example_has_the_error_and_the_mend_has_none(
    number: str, tmp_path: Path, capsys: Capture
) -> None:
    code = CODES[number]
    wrong, right = tmp_path / "wrong.yaml", tmp_path / "right.yaml"
    wrong.write_text(code.wrong, encoding="utf-8")
    right.write_text(code.right, encoding="utf-8")
    done = fusec(capsys, "check", wrong, *code.wrong_arguments)
    kind = "unsupported" if number.startswith("E09") else "error"
    assert done.code == (3 if kind == "unsupported" else 2), done.out + done.err
    heads = re.findall(r"^(\w+)\[(E\d{4})\]: ", done.err, re.MULTILINE)
    assert heads == [(kind, number)], done.err
    done = fusec(capsys, "check", right, *code.right_arguments)
    assert (done.code, re.findall(r"^(?:error|unsupported).*", done.err, re.M)) == (0, []), done.err


def test_numbers_are_given_once_and_for_ever() -> None:
    """error_codes.json remembers what each number has been given to; a new kind adds a line."""
    named = [(n, v) for theme in THEMES for n, v in vars(theme).items() if isinstance(v, Code)]
    numbers = [code.number for _, code in named]
    assert len({*numbers}) == len(numbers)
    assert numbers == sorted(numbers)
    assert all(re.fullmatch(r"E\d{4}", number) for number in numbers)
    given = json.loads((TESTS / "error_codes.json").read_text(encoding="utf-8"))
    kept = {number: name for number, name in given.items() if number not in RETIRED}
    assert kept == {code.number: name for name, code in named}
    assert given.keys() >= RETIRED


def test_every_code_is_raised_somewhere() -> None:
    sources = (p for p in (ROOT / "fusec").rglob("*.py") if p.parent.name != "codes")
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    named = {n for theme in THEMES for n, v in vars(theme).items() if isinstance(v, Code)}
    assert {n for n in named if not re.search(rf"code=\s*{n}\b|coded\({n}\)", text)} == set()


def test_explain_prints_the_page(capsys: Capture) -> None:
    done = fusec(capsys, "explain", "e0201")
    assert done.code == 0
    code = CODES["E0201"]
    assert done.out.startswith(f"E0201: undefined name\n\n{code.cause}\n")
    for text in (code.wrong, code.right):
        assert "".join(f"  {line}\n" for line in text.splitlines()) in done.out
    told = json.loads(fusec(capsys, "explain", "E0801", "--json").out)
    assert told["wrong"]["arguments"] == ["--set", "K=16"]
    fusec(capsys, "explain", "E9999").says(2, "there is no error code E9999")


def test_the_page_of_the_docs_is_generated() -> None:
    assert (ROOT / "docs" / "errors.md").read_text(encoding="utf-8") == errors_page()


def test_codes_reach_tools_and_survive_a_placement() -> None:
    error = FusecError("m", code=CODES["E0201"]).at(Span("f", 1, 2))
    assert error.diagnostic.as_dict()["code"] == "E0201"
    assert Diagnostic.of_dict(error.diagnostic.as_dict()) == error.diagnostic
    assert error.coded(CODES["E0101"]).diagnostic.code == "E0201"
    assert FusecError("m").coded(CODES["E0101"]).render() == "error[E0101]: m"
    assert FusecError("m").render() == "error: m"
