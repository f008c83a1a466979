"""`fusec docs`: pages by name, and paragraphs by their words."""

from __future__ import annotations

import pytest
from cli_tools import fusec
from documented import documented
from paths import ROOT

from fusec.pages.files import examples, pages, root

Capture = pytest.CaptureFixture[str]


def test_pages_are_listed_with_their_titles(capsys: Capture) -> None:
    done = fusec(capsys, "docs")
    assert done.code == 0
    assert done.out.startswith(f"in {ROOT}:\n")
    for page in (ROOT / "docs").glob("*.md"):
        title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        assert f"  {page.stem:<16} {title}\n" in done.out


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("files", "docs/files.md"), ("docs/files.md", "docs/files.md"), ("readme", "README.md"),
        ("docs/query.md", "docs/query.md"), ("CHANGELOG", "CHANGELOG.md"),
    ],
)  # fmt: skip
def test_a_page_is_printed(capsys: Capture, name: str, file: str) -> None:
    assert fusec(capsys, "docs", name).out == (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["41", "041", "decisions/041-the-verdict", "docs/decisions/41"])
def test_a_decision_is_printed_by_number(capsys: Capture, name: str) -> None:
    assert fusec(capsys, "docs", name).out.startswith("# 041: ")


def test_examples_are_printed_by_path(capsys: Capture) -> None:
    paths = fusec(capsys, "docs", "examples").out.split()
    assert str(ROOT / "examples" / "split_k" / "serial.yaml") in paths
    assert paths == [str(root() / p) for p in examples()]


def test_paragraphs_are_found_by_their_words(capsys: Capture) -> None:
    done = fusec(capsys, "docs", "--search", "EXIT code")
    assert any(line.startswith("commands:") for line in done.out.splitlines())
    for line in documented(fusec(capsys, "docs", "--search", "EXIT code", "--json").out)["matches"]:
        assert "exit" in line["text"].lower()
        text = pages()[line["name"]].text.splitlines()[line["line"] - 1]
        assert " ".join(text.split()) in line["text"]


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("pin schedule", "files.md#schedules-kernel-parameters"),
        ("why segment split", "explain.md"),
        ("ship C++ library", "c.md"),
        ("what a message means", "errors.md"),
        ("norm quantization", ""),
        ("guard in CI", "commands.md"),
        ("from nvFuser", "coming-from.md"),
        ("call from Python", "calls.md"),
        ("how do I pin a schedule?", "files.md"),
    ],
)
def test_tasks_are_found_in_the_how_to_index(capsys: Capture, words: str, page: str) -> None:
    """Only headings come before them."""
    found = documented(fusec(capsys, "docs", "--search", words, "--json").out)["matches"]
    match = next(m for m in found if not m["text"].startswith("#"))
    assert match["name"] == "how-to"
    assert f"]({page}" in match["text"] if page else "`examples/" in match["text"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["filse"], "did you mean `fusec docs files`?"),
        (["epilogues"], "`fusec docs --search epilogues`"),
        (["e0501"], "`fusec explain E0501`"),
        (["decisions/999"], "no page 'decisions/999'"),
        (["files", "--search", "x"], "not both"),
        (["--search", "zzyzx"], "no paragraph"),
        (["--search", " "], "no paragraph"),
    ],
)
def test_wrong_requests_are_errors(capsys: Capture, arguments: list[str], said: str) -> None:
    done = fusec(capsys, "docs", *arguments)
    done.says(2, said)


def test_json_is_documented(capsys: Capture) -> None:
    assert documented(fusec(capsys, "docs", "--json").out)["docs"]["pages"]
    assert documented(fusec(capsys, "docs", "files", "--json").out)["page"]["text"].startswith("# ")
