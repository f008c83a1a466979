"""Passes run until nothing changes, and none again on what it left as it is."""

from __future__ import annotations

from collections.abc import Callable

from fusec.passes.pipeline import Pass, run_passes


def test_a_pass_does_not_run_again_on_what_it_left_as_it_is() -> None:
    ran: list[str] = []

    def step(name: str, change: Callable[[str], str]) -> Pass[str]:
        def run(value: str) -> str:
            ran.append(name)
            return change(value)

        return Pass(name, run)

    pipeline = (
        step("first", lambda value: value),
        step("shorten", lambda value: value.replace("aa", "a") if "aa" in value else value),
        step("last", lambda value: value),
    )
    assert run_passes(pipeline, "aaaa") == "a"
    assert ran == [*("first", "shorten", "last") * 2, "first", "shorten"]
    ran.clear()
    assert run_passes(pipeline, "aaaa", stop_after="shorten") == "aa"
    assert ran == ["first", "shorten"]
