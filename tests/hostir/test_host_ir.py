"""The text of host programs: as the seed has it, and read back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from cli_tools import fusec
from draws import drawn
from host_ir_parser import Container, Statement, parse, split
from host_json import from_json, to_json
from hypothesis import given
from hypothesis import strategies as st
from local_fusions import Local, program_of, segmented
from paths import TESTS
from test_artifacts import documented, keys_of
from test_hostir_loops import DIVIDED, LATER, divided

from fusec.driver import programs
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    Copy,
    For,
    Free,
    GetStream,
    Instruction,
    Post,
    Receive,
    Send,
    SetStream,
    Share,
    Synchronize,
    Unshare,
    Wait,
)
from fusec.hostir.program import HostProgram
from fusec.hostir.text import host_ir_text
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions

Capture = pytest.CaptureFixture[str]
FOLDER = TESTS / "host_ir"
EXAMPLES = ("complex_rotate", "layernorm_backward", "rope", "strided_add", "quantize_fp8_rows")
WITHOUT = [f"--without={name}" for name in ("remove_copies", "slice_buffers", "sink_joins")]
KINDS: dict[type[Instruction], tuple[str, ...]] = {
    Allocate: ("allocate",),
    Free: ("deallocate",),
    Alias: ("select", "alias"),
    Copy: ("copy",),
    Post: ("set", "launch"),
    GetStream: ("get",),
    SetStream: ("set_stream",),
    Synchronize: ("synchronize",),
    Collective: ("collective",),
    Send: ("p2p",),
    Receive: ("p2p",),
    Wait: ("wait",),
    For: ("for",),
    Share: ("share",),
    Unshare: ("unshare",),
}
PARALLEL = ("decode_projection_norm", "ring_gather_matmul", "matmul_reduce_scatter")


@pytest.mark.parametrize("script", [False, True], ids=["file", "script"])
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda p: p.stem)
def test_the_examples_of_the_seed(
    path: Path, script: bool, tmp_path: Path, capsys: Capture
) -> None:
    """One loop, two operations in one loop, and three in two loops: but for names of sizes."""
    seed = (FOLDER.parent / "seeds" / f"{path.stem}.host_ir").read_text(encoding="utf-8")
    golden = path.with_suffix(".txt").read_text(encoding="utf-8")
    assert re.sub(r"\bi2\b", "i1", seed) == golden
    if script:
        text = path.with_suffix(".script").read_text(encoding="utf-8")
        path = tmp_path / f"{path.stem}.py"
        path.write_text(text, encoding="utf-8")
    done = fusec(capsys, "dump", path, "--host-ir", "--as-written")
    assert done.code == 0, done.err
    assert done.out == golden
    parse(done.out)


@pytest.mark.parametrize("name", [*EXAMPLES, "layernorm", "softmax"])
def test_operations_as_they_are_written(name: str) -> None:
    """One segment for each, with casts and broadcasts; what is scalar its readers compute."""
    path = FOLDER.parents[1] / "examples" / f"{name}.yaml"
    for program in programs(str(path), CompileOptions(as_written=True)):
        for segment in program.segmented.segments:
            assert len([n for n in segment.nodes if not n.output.is_scalar]) == 1
        assert not any(isinstance(i, Free) for i in program.posts.instructions)
        agree(program.posts, parse(host_ir_text(program.posts, program.segmented)))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda p: p.stem)
def test_examples_of_the_seed_are_verified(path: Path, tmp_path: Path, capsys: Capture) -> None:
    """As they are written too, and from a folder, which keeps the option."""
    run = ("run", path, "--device", "reference")
    assert fusec(capsys, *run, "--as-written").code == 0
    assert fusec(capsys, *run).code == 0
    assert fusec(capsys, "compile", path, "-o", tmp_path / "out", "--as-written").code == 0
    assert '"as_written": true' in (tmp_path / "out" / "manifest.json").read_text(encoding="utf-8")
    assert fusec(capsys, "run", tmp_path / "out", "--device", "reference").code == 0
    done = fusec(capsys, "run", tmp_path / "out", "--device", "reference", "--as-written")
    assert done.code == 2
    assert "--as-written" in done.err


def test_passes_of_both_kinds_are_left_out_by_name(tmp_path: Path, capsys: Capture) -> None:
    """And what each over the host program changed is printed; a pin keeps two copies apart."""
    path, text = tmp_path / "two.yaml", (FOLDER / "two_set_ops.yaml").read_text(encoding="utf-8")
    path.write_text(f"{text}segments: {{first: [a]}}\n", encoding="utf-8")
    done = fusec(capsys, "dump", path, "--host-passes", "--without", "remove-copies")
    changed = [line for line in done.out.splitlines() if line.startswith(("+++", "---"))]
    assert changed == [
        "--- before",
        "+++ after slice_buffers",
        "--- before",
        "+++ after sink_joins",
    ]
    assert "-  temporary a.slices: f32[A, 1, B] " in done.out
    assert "+  temporary a.slices: f32[min(A, 4), 1, B] " in done.out
    done = fusec(capsys, "dump", path, "--host-passes", *WITHOUT)
    assert done.out == "no pass changes the host program\n"
    done = fusec(capsys, "dump", path, "--host-passes", "--without", "sink_join")
    assert done.code == 2
    assert "unknown pass `sink_join`" in done.err
    assert "did you mean `sink_joins`?" in done.err


def test_the_number_of_streams_is_chosen(capsys: Capture) -> None:
    """By an option; four without."""
    done = fusec(capsys, "dump", FOLDER / "two_set_ops.yaml", "--host-program", "--streams", "2")
    assert "for loop0.index from 0 to A on 2 streams:" in done.out
    assert fusec(capsys, "check", FOLDER / "two_set_ops.yaml", "--streams", "0").code == 2


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_program_has_a_text(name: str) -> None:
    """Which says what the program does, in its order."""
    for program in programs(str(FOLDER.parents[1] / "examples" / f"{name}.yaml")):
        agree(program.posts, parse(host_ir_text(program.posts, program.segmented)))


@pytest.mark.parametrize("name", PARALLEL)
def test_what_ranks_run_has_a_text_and_json(name: str) -> None:
    """Exchanges, loops and shared memory among it."""
    (program,) = programs(str(FOLDER.parents[1] / "examples" / "parallel" / f"{name}.yaml"))
    agree(program.posts, parse(host_ir_text(program.posts, program.segmented)))
    for made in (program.posts, program.host):
        assert from_json(json.loads(json.dumps(to_json(made)))) == made


@pytest.mark.parametrize("make", DIVIDED)
def test_loops_and_exchanges_are_read_back(make: Callable[[], Fusion]) -> None:
    """With the numbers of exchanges that waits end."""
    fusion = make()
    made = program_of(fusion)
    found = parse(host_ir_text(made, segmented(fusion)))
    agree(made, found)
    begun = [f"P2PCommunication {s.parts['number']}" for s in found.flat() if s.kind == "p2p"]
    begun += [f"Communication {s.parts['number']}" for s in found.flat() if s.kind == "collective"]
    assert {s.parts["exchange"] for s in found.flat() if s.kind == "wait"} <= {*begun}


@drawn(20)
@given(divided(), st.sets(st.sampled_from(LATER)), st.integers(1, 4))
def test_drawn_programs_are_read_back(
    drawn: tuple[Fusion, object, object], without: set[str], streams: int
) -> None:
    """Whatever passes ran."""
    made = program_of(drawn[0], without=sorted(without), streams=streams)
    agree(made, parse(host_ir_text(made, segmented(drawn[0]))))


def test_what_manifests_say_of_loops_and_exchanges_is_documented(
    tmp_path: Path, capsys: Capture
) -> None:
    """Every key; and a folder with a loop is planned again as it is recorded."""
    found = {key for make in DIVIDED for key in keys_of(to_json(program_of(make())))}
    assert {"count", "body", "stream", "axis", "place", "ranks", "kind"} <= found
    assert found <= documented()
    done = fusec(capsys, "compile", FOLDER / "two_set_ops.yaml", "-o", tmp_path, "--streams=2")
    assert done.code == 0
    assert '"is": "for"' in (tmp_path / "manifest.json").read_text(encoding="utf-8")
    assert fusec(capsys, "run", tmp_path, "--device", "reference").code == 0


def test_texts_that_do_not_hold_together_are_refused() -> None:
    """The reader sees a tensor that is printed in two ways, and words out of place."""
    b = Local("one")
    fusion = b.finish(b.op("y", "exp", b.input("x", 4, 8)))
    text = host_ir_text(program_of(fusion), segmented(fusion))
    parse(text)
    launch = text.index("LaunchKernel")
    for wrong in (
        text[:launch] + text[launch:].replace("T0_g", "T0_l"),
        text[:launch] + text[launch:].replace("iS3{8}", "iS3{4}"),
        text.replace("mem_type=global", "mem_type=shared"),
        text.replace("  LaunchKernel", "    LaunchKernel"),
        text.removesuffix("\n"),
    ):
        assert wrong != text
        with pytest.raises(AssertionError):
            parse(wrong)


def agree(program: HostProgram, found: Container) -> None:
    """Compare a program with what its text says: the order, loops, and one tensor each."""
    assert len(found.inputs) == len(program.inputs) + len(program.scalars)
    assert len(found.outputs) == len(program.outputs)
    named = dict(zip((b.name for b in program.inputs), found.inputs, strict=False))
    named |= dict(zip(program.outputs, found.outputs, strict=True))
    for buffer, tensor in _agreeing(program.instructions, found.body):
        assert named.setdefault(buffer, tensor) == tensor
    assert len(set(named.values())) == len(named)


def _agreeing(
    instructions: Sequence[Instruction], body: Sequence[Statement]
) -> Iterator[tuple[str, str]]:
    """Yield each buffer with the tensor that stands for it."""
    left = list(body)
    for instruction, after in pairwise((*instructions, None)):
        assert instruction is not None
        if isinstance(instruction, Allocate) and left[0].kind == "set":
            assert isinstance(after, Post)
            assert after.outputs == (instruction.buffer,)
            continue  # a `Set` gives its result memory
        statement = left.pop(0)
        assert statement.kind in KINDS[type(instruction)]
        parts = statement.parts
        match instruction:
            case For(_, _, inner):
                yield from _agreeing(inner, statement.body)
            case Alias(buffer, of, _):
                yield from ((buffer, parts["target"]), (of, parts["source"]))
            case Copy(target, source) | Collective(_, target, source):
                yield from ((target, parts["target"]), (source, parts["source"]))
            case Send(name) | Receive(name) | Allocate(name) | Free(name):
                yield name, parts["buffer"]
            case Share(source, views):
                yield source, parts["source"]
                yield from zip(views, split(parts["views"]), strict=True)
            case Unshare(source):
                yield source, parts["source"]
            case Post(_, inputs, outputs):
                texts = [
                    *split(parts.get("inputs") or parts["source"]),
                    *split(parts.get("outputs") or parts["target"]),
                ]
                yield from zip((*inputs, *outputs), texts, strict=True)
            case _:
                pass
    assert not left
