"""Commands in the documentation: all are understood, and those on examples run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from paths import ROOT

from fusec.cli import cli, run_main

PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
WORDS = {
    "FILE": "examples/softmax.yaml", "FILE...": "examples/softmax.yaml", "F": "examples/rope.yaml",
    "MODEL.pt2": "tests/models/archives/adamw.pt2", "A": "examples/rope.yaml",
    "B": "examples/softmax.yaml", "N": "2", "NAME": "sum", "CODE": "E0201", "PAGE": "files",
    "DIM=SIZE,SIZE": "H=8,16",
}  # fmt: skip
"""What is given for the placeholders of pages; others are names of files to be written."""
RUN = {"check", "dump", "explain", "ops", "docs"}
"""Commands that need neither a GPU nor a compiler."""


def commands_of(text: str) -> list[str]:
    """Return the commands of a page: lines of shell blocks, and code within paragraphs."""
    found: list[str] = []
    for kind, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if kind in ("sh", "console"):
            lines = block.replace("\\\n", " ").splitlines()
            parts = [p.strip() for line in lines for p in line.removeprefix("$ ").split("&&")]
            found += [p for p in parts if not p.endswith("# wrong")]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    found += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose)]
    return [c for c in dict.fromkeys(found) if re.match(r"fusec [a-z]", c)]


COMMANDS = [
    pytest.param(command, id=f"{page.stem}: {command[:60]}")
    for page in PAGES
    for command in commands_of(page.read_text(encoding="utf-8"))
]
ON_EXAMPLES = [
    param
    for param in COMMANDS
    if re.match(rf"fusec ({'|'.join(RUN)})\b(?! E)", command := str(param.values[0]))
    and re.search(r"examples/[\w/]+\.(yaml|py)|^fusec (ops|docs)( [a-z]\w+)?$", command)
    and "..." not in command
]


def arguments_of(command: str, folder: Path) -> list[str]:
    """Return the words of a command, with files that exist for its placeholders."""
    command = re.split(r" \| | > |  ", command)[0]
    words = [w for w in shlex.split(command, comments=True)[1:] if w != "..."]
    words = [w.replace("_", "-") if w.startswith("--") and "=" not in w else w for w in words]
    given = [WORDS.get(word, word) for word in words]
    written = re.compile(r"(?:[a-z]\w*/)?\w+\.(?:html|json|toml)|/tmp/[\w.]+|DIR|OUT|NEW|PAGE")
    return [given[0], *(str(folder / w.split("/")[-1]) if written.fullmatch(w) else w
                        for w in given[1:])]  # fmt: skip


def test_pages_have_commands() -> None:
    assert len(COMMANDS) > 100
    assert len(ON_EXAMPLES) > 10


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_understood(command: str, tmp_path: Path) -> None:
    """Commands and options exist; what names a file besides is parsed with the values given."""
    name, *rest = arguments_of(command, tmp_path)
    found: click.Command = cli.commands[name]
    while isinstance(found, click.Group) and rest:
        found = found.commands[rest.pop(0)]
    options = {o for p in found.params for o in (*p.opts, *p.secondary_opts)}
    flags = [w for w in rest if re.match(r"--?[a-z]", w)]
    assert {flag.split("=")[0] for flag in flags} <= {*options, "--help"}
    if any(not word.startswith("-") for word in rest[:1]):
        found.make_context(name, rest)


@pytest.mark.nightly
@pytest.mark.parametrize("command", ON_EXAMPLES)
def test_a_command_on_an_example_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert run_main(arguments_of(command, tmp_path)) == 0
