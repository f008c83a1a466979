"""Fields of schedules that the user sets: in a file, a script or on the command line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nightly import mostly_nightly

from fusec import FusionDefinition, driver, lowering
from fusec.cli import run_main
from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.graph import Fusion
from fusec.ir.text import to_text
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.parse.dsl.datatype import DataType
from fusec.parse.twin import to_python

OPTIONS = CompileOptions(targets=("sm_90a",))
ROWS = """fusion: rows
dims: {B: 512, H: 1024}
inputs: {x: "f32[B, H]"}
ops:
  - s = sum(x, dims=[1], keepdim=true)
  - y = div(x, s)
outputs: [y]
"""
JOINT = """fusion: joint
dims: {B: 64, H: 128}
inputs: {x: "f32[B, H]", dy: "f32[B, H]"}
ops:
  - t = tanh(x)
  - dx = mul(dy, sub(1.0, mul(t, t)))
outputs: [t, dx]
phases:
  forward: [t]
  backward: {inputs: [dy], outputs: [dx]}
"""


def with_schedules(lines: str, head: str = ROWS) -> Fusion:
    """Return a fusion with `schedules:` of some lines."""
    return read_text(f"{head}schedules:\n  {lines}\n", "rows.yaml")


def parameters_of(fusion: Fusion) -> Any:
    """Return the parameters of the only segment."""
    (plan,) = driver.Compilation(fusion, OPTIONS, segmented=segmented(fusion)).plans
    return plan.parameters


def phases_of(fusion: Fusion) -> list[Fusion]:
    """Return the phases of a joint graph."""
    return [p.original for p in driver.Compilation(fusion, OPTIONS).parts]


def segmented(fusion: Fusion):
    """Return the segments."""
    return lowering.segment(lowering.optimise(fusion, OPTIONS), OPTIONS)


@pytest.mark.parametrize("of", ["y", "s", "s0", "inner_persistent"])
def test_a_field_is_set_for_the_segment_that_is_meant(of: str) -> None:
    free = parameters_of(read_text(ROWS))
    found = parameters_of(with_schedules(f"{of}: {{threads_x: 256, storage: shared}}"))
    wanted = {"threads_x": 256, "storage": "shared"}
    assert {k: getattr(found, k) for k in wanted} == wanted
    assert {k: getattr(free, k) for k in wanted} != wanted
    assert found.chunks == 1


def test_a_pin_is_a_name_too() -> None:
    pinned = ROWS + "segments:\n  main: [s, y]\n"
    assert parameters_of(with_schedules("main: {threads_x: 256}", pinned)).threads_x == 256


def test_what_is_said_of_one_segment_counts_more() -> None:
    both = with_schedules("y: {threads_x: 256}\n  inner_persistent: {threads_x: 64}")
    assert parameters_of(both).threads_x == 256


def test_the_price_is_that_of_the_plan() -> None:
    free, set_ = read_text(ROWS), with_schedules("y: {storage: none}")
    seconds = [s.segments[0].estimate for s in map(segmented, (free, set_))]
    assert seconds[0] is not None
    assert seconds[1] is not None
    assert seconds[1].bytes > seconds[0].bytes


MISTAKES = [
    ("y: {threads_x: 48}", 9, 18, 3, "threads_x 48", "32 to 1024 by 32"),
    ("y: {vector_width: 8}", 9, 21, 3, "at most 4 elements", "here: 1, 2, 4"),
    ("y: {threads_x: 1024, threads_y: 2}", 9, 35, 3, "at most 1024 threads, got 2048", "here: 1"),
    ("y: {storage: shared, threads_y: 4}", 9, 35, 3, "one row in shared memory", "here: 1"),
    ("y: {keep_values: true}", 9, 20, 3, "no row has special", "here: false"),
    ("y: {threadsx: 64}", 9, 7, 2, "no parameter `threadsx`", "did you mean `threads_x`"),
    ("y: {chunks: 4}", 9, 7, 2, "no parameter `chunks`", "storage, vector_width"),
    ("y: {storage: shard}", 9, 16, 2, "cannot be `shard`", "did you mean `shared`"),
    ("y: {threads_x: many}", 9, 18, 2, "cannot be `many`", "1, 2, 4"),
    ("y: {threads_x: true}", 9, 18, 2, "cannot be `true`", "1, 2, 4"),
    ("y: {threads_x: 1.5}", 9, 18, 2, "found `1.5`", "threads_x: 128"),
    ("y: 64", 9, 6, 2, "expected the fields of `y`", "threads_x: 128"),
    ("yy: {threads_x: 64}", 9, 3, 2, "unknown value, segment or scheduler", "did you mean `y`"),
    ("x: {threads_x: 64}", 9, 3, 2, "is an input", "name a result"),
    (
        "s1: {threads_x: 64}",
        9,
        3,
        2,
        "no segment is named `s1` or computes it",
        "s0 (inner_persistent)",
    ),
    ("reductoin: {splits: 2}", 9, 3, 2, "unknown value, segment", "did you mean `reduction`"),
    ("reduction: {splits: 2}", 9, 3, 2, "no segment is named", "s0 (inner_persistent)"),
    ("y: {threads_x: 64, threads_x: 32}", 9, 22, 2, "duplicate key", "keep one"),
    ("y: {threads_x: 64}\n  s0: {threads_x: 32}", 10, 19, 2, "is set twice", "`y` is also in s0"),
    ("y: {class: 64}", 9, 7, 2, "no schedule has a parameter `class`", ""),
]


@pytest.mark.parametrize(
    ("lines", "line", "column", "code", "told", "help"), mostly_nightly(MISTAKES, 2)
)
def test_mistakes_are_told_where_they_stand(
    lines: str, line: int, column: int, code: int, told: str, help: str
) -> None:
    with pytest.raises(FusecError) as caught:
        segmented(with_schedules(lines))
    span = caught.value.diagnostic.span
    assert span is not None
    assert (caught.value.exit_code, span.line) == (code, line)
    assert span.column == column
    assert told in caught.value.render()
    assert help in caught.value.render()


def test_the_text_and_the_script_keep_what_is_set(tmp_path: Path) -> None:
    fusion = with_schedules("y: {threads_x: 256, storage: shared, keep_values: false}")
    wanted = [(o.of, o.name, o.value) for o in fusion.schedules]
    again = read_text(to_text(fusion)).schedules
    assert [(o.of, o.name, o.value) for o in again] == wanted
    script = tmp_path / "rows.py"
    script.write_text(to_python(fusion))
    assert (
        'fd.schedule("y", threads_x=256, storage="shared", keep_values=False)' in script.read_text()
    )
    found = driver.load(str(script)).schedules
    assert [(o.of, o.name, o.value) for o in found] == wanted
    assert all(o.span is not None and o.span.file.endswith("rows.py") for o in found)


def test_former_names_are_read() -> None:
    text = (
        "fusion: p\ninputs: {a: 'bf16[2048, 256]', b: 'bf16[2048, 256]'}\n"
        "ops:\n  - y = linear(a, b)\noutputs: [y]\n"
        "schedules:\n  matmul: {kernel: wgmma, multicast: 4x1, tile_m: 128}\n"
    )
    fusion = read_text(text)
    parameters = parameters_of(fusion)
    assert (parameters.cluster_m, parameters.cluster_n) == (4, 1)
    again = read_text(to_text(fusion)).schedules
    assert [(o.name, o.value) for o in again] == [(o.name, o.value) for o in fusion.schedules]


def test_a_definition_sets_fields_of_a_value() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[64, 64], contiguity=True, dtype=DataType.Float)
        y = fd.ops.exp(x)
        fd.schedule(y, unroll=4)
        fd.add_output(y)
    assert parameters_of(fd.fusion()).unroll == 4


def test_a_file_of_its_own_is_added_and_counts_more(tmp_path: Path, capsys) -> None:
    file, own = tmp_path / "rows.yaml", tmp_path / "own.yaml"
    file.write_text(ROWS + "schedules:\n  y: {threads_x: 64, storage: shared}\n")
    own.write_text("schedules:\n  s0: {threads_x: 256}\n")
    assert run_main(["explain", str(file), "--schedule", str(own)]) == 0
    shown = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert f"threads_x 256 ({own}:2)" in shown
    assert f"storage shared ({file}:9)" in shown
    own.write_text("schedule:\n  s0: {threads_x: 256}\n")
    assert run_main(["check", str(file), "--schedule", str(own)]) == 2
    assert "did you mean `schedules`" in capsys.readouterr().err
    own.write_text("schedules:\n  s0: {threads_x: 48}\n")
    assert run_main(["check", str(file), "--schedule", str(own)]) == 3
    assert "own.yaml:2:19" in capsys.readouterr().err


def test_a_compiled_folder_holds_what_was_set(tmp_path: Path, capsys) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    file, folder = tmp_path / "rows.yaml", tmp_path / "out"
    own = tmp_path / "own.yaml"
    file.write_text(ROWS)
    own.write_text("schedules:\n  y: {threads_x: 256}\n")
    assert run_main(["compile", str(file), "-o", str(folder), "--schedule", str(own)]) == 0
    (segment,) = json.loads((folder / "manifest.json").read_text())["plans"][0]["segments"]
    assert segment["overridden"] == ["threads_x"]
    assert segment["parameters"]["threads_x"] == 256
    assert "y: {threads_x: 256}" in (folder / "fusion.yaml").read_text()
    assert run_main(["run", str(folder), "--repeat", "0"]) == 0
    capsys.readouterr()


def test_what_a_script_executes_has_what_is_set(tmp_path: Path, capsys) -> None:
    script, own = tmp_path / "script.py", tmp_path / "own.yaml"
    script.write_text(
        "import numpy as np\nfrom fusec import DataType, FusionDefinition\n"
        "with FusionDefinition() as fd:\n"
        "    x = fd.define_tensor(shape=[4, 64], contiguity=[True, True], dtype=DataType.Float)\n"
        "    y = fd.ops.sum(x, dims=[1])\n    fd.add_output(y)\n"
        "fd.execute([np.ones((4, 64), np.float32)])\n"
    )
    own.write_text("schedules:\n  s0: {threads_x: 48}\n")
    assert run_main(["run", str(script), "--schedule", str(own), "--device", "auto"]) == 3
    assert "48" in capsys.readouterr().err
    own.write_text("schedules:\n  s0: {threads_x: 8}\n")
    assert run_main(["run", str(script), "--schedule", str(own), "--device", "auto"]) == 0


def test_phases_have_the_schedules_of_what_they_make() -> None:
    forward, backward = phases_of(with_schedules("dx: {unroll: 4}", JOINT))
    assert [o.of for o in backward.schedules] == ["dx"]
    assert parameters_of(backward).unroll == 4
    assert not forward.schedules
    of_all = with_schedules("pointwise: {unroll: 4}", JOINT)
    assert all(parameters_of(p).unroll == 4 for p in phases_of(of_all))
    with pytest.raises(FusecError, match="has several phases"):
        with_schedules("s0: {unroll: 4}", JOINT)


@pytest.mark.nightly
def test_spaces_are_listed_with_fields_and_prices(tmp_path: Path, capsys) -> None:
    file = tmp_path / "rows.yaml"
    file.write_text(ROWS + "schedules:\n  y: {threads_y: 1}\n")
    assert run_main(["dump", str(file), "--schedule_space"]) == 0
    text = capsys.readouterr().out
    assert "s0 inner_persistent (y): " in text
    assert "  storage: registers, shared, ring, none\n" in text
    assert "  threads_y: 1" in text
    assert "overridden" in text
    assert run_main(["dump", str(file), "--schedule-space", "--style", "json"]) == 0
    (space,) = json.loads(capsys.readouterr().out)
    assert space["overridden"] == ["threads_y"]
    assert 1 < len(space["candidates"]) <= 64
    first = space["candidates"][0]
    assert first["settings"] == {
        k: getattr(parameters_of(driver.load(str(file))), k) for k in first["settings"]
    }
    assert run_main(["dump", str(file), "--cuda-kernel", "--style", "json"]) == 2


def test_a_set_field_stays_where_a_kernel_is_planned_for_fewer_registers() -> None:
    fusion = with_schedules("y: {storage: registers}", ROWS.replace("1024", "4096"))
    others: list[Any] = list(driver.plan(fusion, OPTIONS).other_plans(0))
    assert others
    assert all(p.parameters.storage == "registers" for p in others)


def test_a_removed_value_is_told() -> None:
    unused = ROWS.replace("ops:\n", "ops:\n  - u = exp(x)\n")
    with pytest.raises(FusecError, match="no segment is named `u` or computes it") as caught:
        segmented(with_schedules("u: {unroll: 2}", unused))
    assert "a pass may have removed it" in caught.value.render()


@pytest.mark.parametrize("of", ["a", "b", "c", "y"])
def test_a_schedule_of_what_a_pass_takes_away_is_of_what_is_next_to_it(of: str) -> None:
    head = """fusion: chain
dims: {B: 512, H: 1024}
inputs: {x: "f32[B, H]"}
ops:
  - a = mul(x, 2.0)
  - b = reshape(a, [H, B])
  - c = reshape(b, [B * H])
  - y = add(c, 1.0)
outputs: [y]
"""
    (plan,) = driver.Compilation(with_schedules(f"{of}: {{unroll: 2}}", head), OPTIONS).plans
    assert plan.parameters.unroll == 2


@pytest.mark.parametrize("of", ["u", "y"])
def test_a_schedule_of_a_complex_value_is_of_both_of_its_parts(of: str) -> None:
    head = """fusion: complex
inputs: {x: "c64[8, 96]"}
ops:
  - u = mul(x, x)
  - y = cumsum(u, dim=1)
outputs: [y]
"""
    plans = driver.Compilation(with_schedules(f"{of}: {{threads_x: 32}}", head), OPTIONS).plans
    scans = [p for p in plans if p.scheduler == "scan"]
    assert len(scans) == 2
    assert {p.parameters.threads_x for p in scans} == {32}


def test_overrides_are_of_the_fusion_not_of_its_structure() -> None:
    fusion = with_schedules("y: {threads_x: 256}")
    assert replace(fusion, schedules=()) == fusion
    assert not segmented(fusion).segments[0].fusion.schedules


def test_what_no_kernel_has_is_unsupported() -> None:
    with pytest.raises(Unsupported):
        segmented(with_schedules("y: {threads_x: 1024, storage: registers, vector_width: 16}"))
