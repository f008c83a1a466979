"""One command for all that is measured on several GPUs: its parts, and how they are resumed."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from benchmarks import four_gpus
from benchmarks.four_gpus import EXAMPLES, TIMED, Part, main, parts, resized, run, small
from benchmarks.segmentation import read
from benchmarks.stages import divided_mlps
from benchmarks.two_gpus import PARTS, keep
from fusec.driver import Compilation
from fusec.options import CompileOptions
from fusec.parse import read_text


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_every_example_is_there_for_so_many_ranks(ranks: int, tmp_path: Path) -> None:
    names = [p.name for p in parts(ranks, "cuda", tmp_path / "out.json", tmp_path)]
    divided = [f.stem for f in EXAMPLES.glob("*.yaml") if "mesh:" in f.read_text()]
    assert len(divided) == 8
    assert {f"example {name}" for name in divided} < {*names}
    assert {*TIMED, f"mesh {ranks // 2}x2", "all_to_all", "failures"} < {*names}
    assert {*TIMED} == {*PARTS}
    for file in tmp_path.glob("*.yaml"):
        mesh = read_text(file.read_text()).mesh
        assert mesh is not None
        assert mesh.size == ranks


def test_without_gpus_sizes_are_small_and_nothing_is_timed(tmp_path: Path) -> None:
    every = [*parts(2, "reference", tmp_path / "out.json", tmp_path)]
    assert not {*TIMED} & {p.name for p in every}
    for part in every[:-1]:
        assert [o for o in part.command if o.startswith("--set=")]
        assert part.command[part.command.index("--device") + 1] == "reference"
    assert "--set=M=128" in small(EXAMPLES / "ring_gather_matmul.yaml")


def test_slices_around_ranks_follow_the_mesh() -> None:
    text = resized((EXAMPLES / "ring_gather_matmul.yaml").read_text(), 8)
    assert "mesh: [8]" in text
    assert "stream: {0: 8}" in text
    assert "M: 8192" in text


def command(text: str) -> tuple[str, ...]:
    return sys.executable, "-c", text


def test_a_part_ends_with_its_limit_and_all_that_it_started(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    child = f"import time, pathlib\ntime.sleep(1.5)\npathlib.Path({str(alive)!r}).touch()"
    text = (
        "import subprocess, sys\nprint('begun', flush=True)\n"
        f"subprocess.run([sys.executable, '-c', {child!r}])"
    )
    begun = time.monotonic()
    found = run(Part("slow", command(text), 1))
    assert found["ended"] == "more than 1 s"
    assert found["said"] == ["begun"]
    time.sleep(max(0.0, 2 - (time.monotonic() - begun)))
    assert not alive.exists()


def test_what_has_ended_well_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only what failed, what is named, and what was run for another tree or device."""
    out, count = tmp_path / "out.json", tmp_path / "count"
    noted = f"import pathlib\nwith pathlib.Path({str(count)!r}).open('a') as f: f.write("
    every = [
        Part("good", command(f"{noted}'g')"), 20), Part("bad", command(f"{noted}'b')\nexit(1)"), 20)
    ]  # fmt: skip
    monkeypatch.setattr(four_gpus, "parts", lambda *given: every)
    monkeypatch.setenv("FUSEC_TREE", "one")
    asked = ["--device", "reference", "--out", str(out)]
    assert main(asked) == 1
    assert main(asked) == 1
    assert count.read_text() == "gbb"
    assert main([*asked, "--only", "good"]) == 0
    assert count.read_text() == "gbbg"
    monkeypatch.setenv("FUSEC_TREE", "two")
    assert main(asked) == 1
    assert count.read_text() == "gbbggb"
    assert main([*asked, "--again"]) == 1
    assert count.read_text() == "gbbggbgb"
    runs = read(out)["runs"]
    assert {n: r["ended"] for n, r in runs.items()} == {"good": "exit 0", "bad": "exit 1"}
    assert runs["good"]["tree"] == "two"
    capsys.readouterr()
    assert main([*asked, "--limit", "-1"]) == 1
    assert "bad: left for the next time" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*asked, "--only", "nothing"])


def test_a_part_that_is_cut_keeps_its_rows(tmp_path: Path) -> None:
    out, cut = tmp_path / "out.json", TimeoutError("cut")

    def rows() -> Iterator[Mapping[str, int]]:
        yield {"1 row": 1}
        yield {"1 row": 1, "8 rows": 2}
        raise cut

    with pytest.raises(TimeoutError):
        keep(rows(), out, "norm", {"ranks": 4})
    keep(iter(({"row": 3},)), out, "other", {})
    keep(iter(({"row": 3},)), None, "nobody", {})
    assert read(out) == {"norm": {"ranks": 4, "1 row": 1, "8 rows": 2}, "other": {"row": 3}}


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_each_part_is_run_by_its_name_alone(
    ranks: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within the ten minutes that a command may take."""
    every = [*parts(ranks, "cuda", tmp_path / "out.json", tmp_path)]
    for part in every:
        asked = ["--ranks", str(ranks), "--out", str(tmp_path / "out.json"), "--list"]
        assert main([*asked, "--only", part.name]) == 0
        assert capsys.readouterr().out == f"{part.name}: not run\n"
        assert part.limit < 600


def test_the_sums_of_an_mlp_are_sent_in_a_loop() -> None:
    for name, sent in (("4 ranks", True), ("4 ranks, all-reduce", False)):
        text, without = divided_mlps(4)[name]
        program = Compilation(read_text(text), CompileOptions(without=tuple(without)))
        kinds = [s.nodes[0].op.name for s in program.segmented.segments if s.estimate]
        assert ("all_reduce" not in kinds) == ({"send_slice", "all_gather"} <= {*kinds}) == sent
