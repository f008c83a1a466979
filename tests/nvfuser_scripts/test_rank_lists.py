"""Values on some of the ranks: sent to others where these compute with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lockstep import agree, exchanges_of
from loop_scripts import X

from fusec.cli import run_main
from fusec.diagnostics import FusecError, Unsupported
from fusec.driver import Compilation
from fusec.hostir.instructions import Collective, For, Post
from fusec.hostir.unroll import unroll
from fusec.ir.graph import Fusion
from fusec.ir.text import to_text
from fusec.nvfuser.definition import DirectDefinition
from fusec.nvfuser.script import load_script
from fusec.ops.communication import BROADCAST, holders
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.parse.dsl.mesh import DeviceMesh
from fusec.parse.twin import to_python
from fusec.shard.partition import partition, partitioned

PIPELINE = """\
fusion: pipeline
mesh: [3]
dims: {T: 8, H: 16}
inputs:
  x: {type: "f32[T, H]", ranks: [0]}
  w0: {type: "f32[H, H]", ranks: [0]}
  w1: {type: "f32[H, H]", ranks: [1]}
  w2: {type: "f32[H, H]", ranks: [1, 2]}
ops:
  - a = relu(linear(x, w0))
  - b = relu(linear(a, w1))
  - y = add(linear(b, w2), b)
outputs:
  - y: {ranks: [2]}
shardings:
  b: {ranks: [1]}
"""


def read(text: str = PIPELINE) -> Fusion:
    """Return the fusion of a file."""
    return read_text(text, "pipeline.yaml")


def test_each_stage_runs_on_its_ranks() -> None:
    local = agree(read())
    assert exchanges_of(local) == ["broadcast_rank"] * 3
    held = {v.name: sorted(ranks) for v, ranks in holders(local).items()}
    assert (held["a"], held["a_sent"], held["b"], held["y"]) == ([0], [1], [1], [2])
    assert partitioned(read()).placed["y"].ranks == (2,)


def test_programs_post_segments_on_their_ranks_alone() -> None:
    """Each rank meets the others in all exchanges."""
    program = Compilation(read(), CompileOptions()).posts
    assert not any(isinstance(i, Post) for i in program.instructions)
    conditions = [i for i in program.instructions if isinstance(i, For)]
    posted = {
        rank: sum(isinstance(i, Post) for i in unroll(program, {"mesh.place": rank}).instructions)
        for rank in range(3)
    }
    assert sum(posted.values()) == len(conditions)
    assert all(posted.values())


@pytest.mark.nightly
def test_ranks_run_a_pipeline(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With inputs of zeros where a rank does not hold them."""
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE, encoding="utf-8")
    assert run_main(["run", str(path), "--device", "reference", "--ranks", "3"]) == 0
    assert "verified" in capfd.readouterr().out


def test_files_scripts_and_text_say_the_same(tmp_path: Path) -> None:
    fusion = read()
    assert read_text(to_text(fusion)) == fusion
    path = tmp_path / "pipeline.py"
    path.write_text(to_python(fusion), encoding="utf-8")
    (again,) = load_script(path)
    said = {n: (s.dims, s.ranks) for n, s in fusion.shardings.items()}
    assert {n: (s.dims, s.ranks) for n, s in again.shardings.items()} == said


@pytest.mark.parametrize(
    ("said", "exchanges"),
    [
        ({"x": [0], "y": [0]}, []),
        ({"x": [0], "y": [0, 1, 2]}, ["broadcast_rank"]),
        ({"x": [0], "y": None}, []),  # computed where x is
        ({"x": [0, 1], "y": [1]}, []),
        ({"x": None, "y": [1]}, []),
        ({"x": [2], "y": [0, 1]}, ["broadcast_rank"]),
    ],
)
def test_what_is_sent(said: dict[str, list[int] | None], exchanges: list[str]) -> None:
    lines = "".join(f"  {n}: {{ranks: {ranks}}}\n" for n, ranks in said.items() if ranks)
    text = (
        "fusion: f\nmesh: [3]\ninputs: {x: 'f32[4, 4]'}\nops:\n  - y = exp(x)\n"
        f"outputs: [y]\nshardings:\n{lines}"
    )
    assert exchanges_of(agree(read_text(text))) == exchanges


def test_parts_of_all_ranks_meet_values_of_some() -> None:
    """What rank 1 alone has, all get before they multiply it with their columns."""
    text = """
fusion: f
mesh: [2]
inputs:
  x: {type: "f32[4, 8]", ranks: [1]}
  w: {type: "f32[6, 8]", shard: {0: mesh}}
ops: ["y = linear(x, w)"]
outputs: [y]
"""
    assert exchanges_of(agree(read_text(text))) == ["broadcast_rank"]


MISTAKES = [
    ("ranks: [0]}\n  w0", "ranks: [3]}\n  w0", "`x` is on rank 3, of a mesh of 3", 5, FusecError),
    ("ranks: [0]}\n  w0", "ranks: []}\n  w0", "`x` is on no rank", 5, FusecError),
    ("ranks: [0]}\n  w0", "ranks: [1, 1]}\n  w0", "`x` is on a rank twice", 5, FusecError),
    ("ranks: [0]}\n  w0", "ranks: 0}\n  w0", "expected the ranks that hold a value", 5, FusecError),
    ("ranks: [0]}\n  w0", "ranks: [0, 1], shard: {0: mesh}}\n  w0",
     r"`x` is divided over some of the ranks along `mesh`: \[0, 1\], without 2", 5, Unsupported),
    ("mesh: [3]\n", "", "`x` is on some ranks, but the fusion has no mesh", 4, FusecError),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message", "line", "kind"), MISTAKES)
def test_mistakes_are_placed(
    old: str, new: str, message: str, line: int, kind: type[FusecError]
) -> None:
    text = PIPELINE.replace(old, new, 1)
    assert text != PIPELINE
    with pytest.raises(kind, match=message) as caught:
        read(text)
    span = caught.value.diagnostic.span
    assert span is not None
    assert span.line == line


def test_meshes_of_scripts_are_any_list_of_ranks() -> None:
    with DirectDefinition() as fd:
        x = fd.define_tensor([4, 4])
        fd.add_output(fd.ops.exp(x))
        x.set_device_mesh(DeviceMesh([1]))
    graph = fd.graph()
    assert graph.mesh is not None
    assert (graph.mesh.size, graph.shardings["x"].ranks) == (2, (1,))
    assert exchanges_of(partition(graph)) == []
    with DirectDefinition() as fd:
        x = fd.define_tensor([4, 4])
        y = fd.ops.exp(x)
        fd.add_output(y)
        x.set_device_mesh(DeviceMesh(np.arange(4)))
        x.axis(0).parallelize(X)
        y.set_device_mesh(DeviceMesh([2, 3]))
        y.outer_split(0, 2)
        y.axis(0).parallelize(X)
    with pytest.raises(Unsupported, match="divided over some of the ranks"):
        fd.graph()


STAGES = """\
fusion: stages
mesh: {stage: 2, tp: 2}
dims: {T: 8, H: 16}
inputs:
  x: {type: "f32[T, H]", ranks: [0, 1]}
  w0: {type: "f32[H, H]", ranks: [0, 1], shard: {0: tp}}
  w1: {type: "f32[H, H]", ranks: [2, 3], shard: {1: tp}}
ops:
  - a = relu(linear(x, w0))
  - y = linear(a, w1)
outputs:
  - y: {ranks: [2, 3]}
shardings:
  a: {ranks: [0, 1], shard: {1: tp}}
"""


def test_ranks_of_a_stage_send_what_each_has() -> None:
    """Columns go to the rank with the same index of the next stage, none through a gather."""
    local = agree(read(STAGES))
    assert exchanges_of(local) == ["broadcast_rank", "all_reduce"]
    sent = next(n for n in local.nodes if n.op is BROADCAST)
    assert str(sent.output.type) == "f32[T, H]"
    assert local.hints["H"] == 8
    assert dict(sent.attributes) == {"axis": "stage", "ranks": 2, "root": 0, "to": (2, 3)}
    held = {v.name: sorted(ranks) for v, ranks in holders(local).items()}
    assert (held["a"], held["a_sent"], held["y_partial"], held["y"]) == (
        [0, 1], [2, 3], [2, 3], [2, 3],
    )  # fmt: skip


def test_the_next_stage_divides_otherwise() -> None:
    """Rows of what columns were: the ranks of one stage exchange blocks, and send a half each."""
    text = STAGES.replace("y: {ranks: [2, 3]}", "y: {ranks: [2, 3], shard: {0: tp}}")
    text = text.replace("[2, 3], shard: {1: tp}", "[2, 3], shard: {0: tp}")
    assert sorted(exchanges_of(agree(read(text)))) == ["all_gather", "all_to_all", "broadcast_rank"]


@pytest.mark.nightly
def test_ranks_run_stages_of_several(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "stages.yaml"
    path.write_text(STAGES, encoding="utf-8")
    assert run_main(["run", str(path), "--device", "reference", "--ranks", "4"]) == 0
    assert "verified" in capfd.readouterr().out


def test_each_rank_posts_the_segments_of_its_stage() -> None:
    program = Compilation(read(STAGES), CompileOptions()).posts
    posted = [
        [
            i.segment
            for i in unroll(program, {"stage.place": s, "tp.place": t}).instructions
            if isinstance(i, Post)
        ]
        for s in range(2)
        for t in range(2)
    ]
    assert posted[0] == posted[1] != []
    assert posted[2] == posted[3] != []
    assert not {*posted[0]} & {*posted[2]}


@pytest.mark.parametrize(("ranks", "to"), [([1], (1,)), ([1, 2], (1, 2)), ([0, 1, 2], ())])
def test_nothing_is_sent_to_other_ranks(ranks: list[int], to: tuple[int, ...]) -> None:
    text = (
        "fusion: f\nmesh: [3]\ninputs: {x: {type: 'f32[4, 4]', ranks: [0]}}\nops:\n  - y = exp(x)\n"
        f"outputs: [y]\nshardings: {{y: {{ranks: {ranks}}}}}\n"
    )
    program = Compilation(read_text(text), CompileOptions()).posts
    (sent,) = (i for i in program.instructions if isinstance(i, Collective))
    assert sent.to == to


def test_a_mesh_of_one_axis_says_how_blocks_are_declared() -> None:
    text = STAGES.replace("{stage: 2, tp: 2}", "{tp: 4}")
    with pytest.raises(Unsupported) as caught:
        read(text)
    assert "`mesh: {stage: 2, tp: 2}`" in str(caught.value)


def test_scripts_divide_over_blocks_of_ranks() -> None:
    """Two meshes of two ranks each, as of the stages of a pipeline."""
    with DirectDefinition() as fd:
        x, w = fd.define_tensor([8, 16]), fd.define_tensor([16, 16])
        a = fd.ops.relu(x)
        y = fd.ops.linear(a, w)
        fd.add_output(y)
        for tensor, ranks, at in ((x, [0, 1], 0), (a, [0, 1], 0), (w, [2, 3], 0), (y, [2, 3], 1)):
            tensor.set_device_mesh(DeviceMesh(ranks))
            tensor.outer_split(at, 2)
            tensor.axis(at).parallelize(X)
    graph = fd.graph()
    assert str(graph.mesh) == "mesh_y: 2, mesh_x: 2"
    assert graph.shardings["y"].ranks == (2, 3)
    local = agree(graph)
    assert exchanges_of(local)[-1:] != []
    assert "broadcast_rank" in exchanges_of(local)
