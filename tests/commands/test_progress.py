"""What is being done: a status line on a terminal after a second, and a log on request."""

from __future__ import annotations

import io
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_tools import fusec, small

from fusec.activity import activity, watched
from fusec.commands.terminal import progress
from fusec.commands.terminal.progress import ERASE, StatusLine, status_line

Capture = pytest.CaptureFixture[str]


class Terminal(io.StringIO):
    """A stream that counts as a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replace stderr; the thread draws so seldom that each test says what is drawn."""
    found = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=found))
    monkeypatch.setattr(progress, "TICK", 1000.0)
    return found


def shown(terminal: Terminal) -> list[str]:
    """Return what was drawn, without the spinner."""
    return [text[2:] for text in terminal.getvalue().split(ERASE)]


def test_nothing_is_shown_within_a_second(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "DELAY", 1e9)
    with status_line(), activity("segment it") as update:
        update("segment that")
    assert terminal.getvalue() == ""


def test_what_is_done_later_is_shown_and_erased(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "DELAY", 0.0)
    with status_line():
        with activity("segment it") as update:
            update("segment that")
            with activity("inner"):
                pass
        assert shown(terminal) == ["", "segment it", "segment that", "inner", ""]
        assert terminal.getvalue().endswith(ERASE)


def test_what_takes_long_is_shown_at_once(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "DELAY", 1e9)
    with status_line(), activity("measuring", immediately=True):
        assert shown(terminal)[-1] == "measuring"


def test_a_thread_draws_while_nothing_is_told(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "TICK", 0.001)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    with status_line(), activity("long"):
        drawn = len(shown(terminal))
        for _ in range(10_000):
            if len(shown(terminal)) > drawn + 2:
                break
            progress.time.sleep(0.001)
        assert len(shown(terminal)) > drawn + 2


def test_pipes_see_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=pipe))
    line = StatusLine()
    with watched(line), activity("long", immediately=True):
        pass
    line.close()
    assert pipe.getvalue() == ""


def test_stages_are_logged_with_their_times(tmp_path: Path, capsys: Capture) -> None:
    done = fusec(capsys, "check", small(tmp_path), "-v")
    assert done.code == 0
    stages = [re.fullmatch(r" *\d+\.\d ms  (.*)", line) for line in done.err.splitlines()]
    named = [match[1] for match in stages if match is not None]
    assert len(named) == len(stages)
    assert named[0].startswith("read ")
    assert {"passes small", "segment small", "codegen small"} <= {*named}
    assert fusec(capsys, "check", small(tmp_path)).err == ""


def test_long_dumps_and_ranges_say_how_far_they_are(
    tmp_path: Path, capsys: Capture, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "DELAY", 0.0)
    file = small(tmp_path)
    assert fusec(capsys, "dump", "--schedule-space", file).code == 0
    assert "schedules of s0 (1 of 1)" in shown(terminal)
    assert fusec(capsys, "explain", file, "--sizes", "B=1..8").code == 0
    assert "sizes of B: segmenting at B=4" in shown(terminal)
