"""The digests of summation trees: equal where outputs are summed alike, whatever their names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_tools import fusec
from paths import ROOT

from benchmarks import summation_trees as report
from fusec import driver
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.schedule.orders import PlannedOrder
from fusec.schedule.summation import digest_at, summation_trees

TWO = """fusion: two
dims: {B: 512, H: 1024}
inputs: {x: "f32[B, H]", w: "f32[H]"}
ops:
  - s = sum(x, dims=[1])
  - m = max(x, dims=[1])
  - y = mul(x, w)
  - t = sum(y, dims=[1])
  - u = add(s, t)
outputs: [s, m, y, u]
"""


def planned(fusion: Fusion, **sizes: int) -> driver.Compilation:
    return driver.Compilation(
        fusion, CompileOptions(targets=("sm_90a",), targets_given=True, sizes=sizes)
    )


def test_outputs_have_the_trees_of_the_sums_that_they_depend_on() -> None:
    program = planned(read_text(TWO))
    trees = program.posts.summation
    assert trees.keys() == {"s", "u"}
    assert trees["s"] != trees["u"]
    other = program.posts.orders | {"t": PlannedOrder(())}
    changed = summation_trees(program.local, other)
    assert (changed["s"], changed["u"] == trees["u"]) == (trees["s"], False)


def test_names_do_not_count() -> None:
    def digest(text: str) -> str:
        program = planned(read_text(text))
        return digest_at(program.local, program.posts.orders, program.local.hints)

    other = TWO.replace("- t =", "- total =").replace("add(s, t)", "add(s, total)")
    assert digest(TWO) == digest(other.replace("H", "WIDTH"))
    assert digest(TWO) != digest(TWO.replace("H: 1024", "H: 1031"))
    assert digest(TWO) != digest(TWO.replace('"f32[', '"f64['))


def test_a_set_schedule_has_another_tree() -> None:
    text = TWO + "schedules:\n  s: {threads_x: 32}\n"
    assert planned(read_text(text)).posts.summation != planned(read_text(TWO)).posts.summation


def test_manifest_and_explain_say_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(TWO)
    done = fusec(capsys, "explain", "--json", file)
    found: dict[str, Any] = json.loads(done.out)["summation"]
    assert found == planned(read_text(TWO)).posts.summation
    golden = json.loads((ROOT / "examples/golden/layernorm/manifest.json").read_text())
    program = planned(driver.load(str(ROOT / "examples" / "layernorm.yaml")))
    assert golden["plans"][0]["program"]["summation"] == program.posts.summation


@pytest.mark.parametrize(("name", "one"), [("layernorm", 1), ("column_mean", 16)])
def test_trees_are_counted_over_batches(name: str, one: int) -> None:
    found = report.counts(ROOT / "examples" / f"{name}.yaml", 4096)
    assert found is not None
    batch, of_one_plan, of_plans = found
    assert (batch, of_one_plan) == ("B", one)
    assert of_plans >= 1


def test_what_has_no_sums_is_not_counted() -> None:
    assert report.counts(ROOT / "examples" / "swiglu.yaml", 8) is None


def test_sizes_that_a_plan_does_not_cover_have_no_tree() -> None:
    program = planned(read_text(TWO))
    hints = dict(program.local.hints)
    assert report.trees_of(program, hints) is not None
    assert report.trees_of(program, {**hints, "H": 7}) is None


def test_the_whole_order_counts() -> None:
    program = planned(read_text(TWO))
    order = program.posts.orders["s"]
    seen = {program.posts.summation["s"]}
    for k, stage in enumerate(order.stages):
        for changes in ({"depth": stage.depth + 1}, {"run": stage.run + 1}, {"kept": "f16"}):
            stages = list(order.stages)
            stages[k] = replace(stage, **changes)
            changed = program.posts.orders | {"s": replace(order, stages=tuple(stages))}
            seen.add(summation_trees(program.local, changed)["s"])
    grouped = program.posts.orders | {"s": replace(order, group=16)}
    seen.add(summation_trees(program.local, grouped)["s"])
    assert len(seen) == 2 + 3 * len(order.stages)
