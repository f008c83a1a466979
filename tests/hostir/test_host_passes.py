"""Passes over the host programs of real segments: run in any order of streams, results stay."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from cli_tools import ROOT, fusec

from benchmarks.host_memory import row_of, summary
from fusec.driver import Compilation
from fusec.hostir.instructions import Free, Post, SetStream, Synchronize
from fusec.hostir.passes import run_pipeline
from fusec.hostir.passes.known import known_of
from fusec.hostir.program import HostProgram
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.run.interpret import interpret
from fusec.target import find

OPTIONS = CompileOptions(targets=("sm_90a",), untuned=True)
SQUARE = "f32[96, 96]"


def fusion_of(*ops: str, outputs: str = "e", inputs: str = "x w v") -> Fusion:
    declared = "".join(f"  {name}: '{SQUARE}'\n" for name in inputs.split())
    lines = "".join(f"  - {line}\n" for line in ops)
    text = f"fusion: products\ninputs:\n{declared}ops:\n{lines}outputs: [{outputs}]\n"
    return read_text(text, "products.yaml")


def products() -> Fusion:
    """Return products of which the first three are independent, and a chain of two."""
    return fusion_of(
        "a = matmul(x, w)", "b = matmul(x, v)", "c = matmul(w, v)", "d = matmul(a, b)",
        "e = matmul(d, c)",
    )  # fmt: skip


def inputs_of(fusion: Fusion) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {i.value.name: rng.integers(-2, 3, (96, 96)).astype(np.float32) for i in fusion.inputs}


def results(program: Compilation, posts: HostProgram, seed: int | None = None) -> Mapping[str, Any]:
    segments = {s.name: s.fusion for s in program.segmented.segments}
    inputs = inputs_of(program.original)
    draw = None if seed is None else Random(seed)
    return interpret(posts, segments, inputs, {}, draw=draw)


def test_streams_compute_the_same_in_any_order() -> None:
    plain = Compilation(products(), OPTIONS)
    asked = Compilation(products(), replace(OPTIONS, with_=("assign-streams",)))
    kinds = [i for i in asked.posts.instructions if isinstance(i, SetStream | Synchronize)]
    assert kinds
    assert not any(isinstance(i, SetStream) for i in plain.posts.instructions)
    expected = results(plain, plain.posts)
    for seed in range(6):
        found = results(asked, asked.posts, seed)
        np.testing.assert_array_equal(found["e"], expected["e"])


def waiting() -> Fusion:
    """Return a product of a first one, which waits meanwhile, with one of two others."""
    return fusion_of(
        "a = matmul(x, w)", "b = matmul(x, v)", "c = matmul(w, v)", "d = matmul(b, c)",
        "e = matmul(a, d)",
    )  # fmt: skip


def test_another_order_computes_the_same() -> None:
    program = Compilation(waiting(), OPTIONS)
    kept = Compilation(waiting(), replace(OPTIONS, without=("order-segments",)))
    orders = [
        [i.outputs[0] for i in p.posts.instructions if isinstance(i, Post)] for p in (kept, program)
    ]
    assert orders == [list("abcde"), list("bcdae")]
    np.testing.assert_array_equal(
        results(program, program.posts)["e"], results(kept, kept.posts)["e"]
    )
    assert program.sources == kept.sources


def test_a_pass_can_be_left_out() -> None:
    program = Compilation(products(), OPTIONS)
    known = known_of(program.segmented, program.plans, find("sm_90a"), 4)
    left = run_pipeline(program.posts, known, without=["assign_streams"], asked=["assign_streams"])
    assert left is program.posts


def test_the_memory_of_a_graph_beside_the_least() -> None:
    row = row_of("waiting", waiting())
    assert row.peak == row.least == 3 * 96 * 96 * 4
    assert row.in_order == row.apart == 4 * 96 * 96 * 4
    assert summary([row], 0).startswith("1 graphs (0 refused), 1 with temporary memory; 1 at the")


@pytest.mark.parametrize("place", [0, -1])
def test_events_that_are_left_out_are_missed(place: int) -> None:
    """What the interpreter draws finds it: without an event, a product comes too early."""
    asked = Compilation(products(), replace(OPTIONS, with_=("assign_streams",)))
    events = [k for k, i in enumerate(asked.posts.instructions) if isinstance(i, Synchronize)]
    kept = [i for k, i in enumerate(asked.posts.instructions) if k != events[place]]
    broken = replace(asked.posts, instructions=tuple(kept))
    expected = results(asked, asked.posts)["e"]
    drawn = (results(asked, broken, seed)["e"] for seed in range(20))
    assert any(not np.array_equal(found, expected) for found in drawn)
    assert any(isinstance(i, Free) for i in kept)


DOC = (ROOT / "docs" / "host-programs.md").read_text(encoding="utf-8")
SHELL = re.findall(r"```sh\n(.*?)```", DOC, re.DOTALL)
COMMANDS = [line for text in SHELL for line in text.splitlines()]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_document(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    done = fusec(capsys, *shlex.split(command)[1:])
    assert (done.code, done.err) == (0, "")
