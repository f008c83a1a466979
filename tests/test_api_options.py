"""Options of the Python functions: those of the command line, by one record."""

from __future__ import annotations

from typing import Any

import pytest
from paths import ROOT

import fusec
from fusec import FusecError, driver
from fusec.commands.terminal.flags import compile_options
from fusec.diagnostics import EnvironmentProblem
from fusec.keywords import Options, options_of
from fusec.options import CompileOptions

EXAMPLES = ROOT / "examples"
ROWS = """
fusion: rows
dims: {B: 1024, H: 1024}
inputs: {x: "f32[B, H]"}
ops:
  - v = var(x, [1], correction=0)
  - a = exp(x)
  - y = mul(a, 2.0)
outputs: [y, v]
"""


def test_every_flag_of_the_command_line_is_an_argument() -> None:
    @compile_options
    def command(**given: Any) -> int:
        return 0

    flags = {p.name for p in command.__click_params__}  # pyright: ignore[reportFunctionMemberAccess]
    others = {"jobs", "no_cache", "verbose"}  # of builds and logs, not of what is built
    known = set(Options.__annotations__)
    assert flags - others <= known
    assert known - flags == {"should_merge", "segments"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"witout": ["merge_casts"]}, "has no argument `witout`"),
        ({"without": "merge_casts"}, "`without` is 'merge_casts'"),
        ({"without": ["merge_cast"]}, "unknown pass `merge_cast`"),
        ({"redefine": "sometimes"}, "`redefine` is 'sometimes'"),
        ({"stop_after": "nothing"}, "unknown pass `nothing`"),
        ({"streams": 0}, "`streams` is 0"),
        ({"streams": "2"}, "`streams` is '2'"),
        ({"sum_chunks": 65}, "`sum_chunks` is 65"),
        ({"sizes": {"B": "8"}}, "`sizes` is"),
        ({"sizes": [1]}, "`sizes` is"),
        ({"segments": "s"}, "`segments` is 's'"),
        ({"segments": {"s": ["q"]}, "target": "sm_90a"}, "`q`"),
        ({"should_merge": 3}, "`should_merge` is 3"),
        ({"precise": "yes"}, "`precise` is 'yes'"),
    ],
)
def test_wrong_options_are_named(given: Any, message: str) -> None:
    path = str(EXAMPLES / "layernorm.yaml")
    with pytest.raises(FusecError, match=message):
        fusec.segmentation(path, **given)
    with pytest.raises(FusecError, match=message):
        fusec.compile(path, **given)


def test_what_options_do() -> None:
    fusion = driver.load(str(EXAMPLES / "layernorm.yaml"))
    assert len(fusec.segmentation(fusion).segments) == 1
    apart = fusec.segmentation(fusion, should_merge=lambda a, b: False)
    assert len(apart.segments) > 1
    program = fusec.compile(fusion, target="sm_90a", should_merge=lambda a, b: False)
    assert len(program.variants[0].host.launches) == sum(s.kernels for s in apart.segments)


def test_segments_pin_values() -> None:
    from fusec.parse import read_text

    fusion = read_text(ROWS)
    assert len(fusec.segmentation(fusion).segments) == 1
    pinned = fusec.segmentation(fusion, segments={"first": ["a"], "second": ["y"]})
    assert {s.pin for s in pinned.segments} >= {"first", "second"}


def test_host_passes_end_the_pipeline_too() -> None:
    fusion = driver.load(str(EXAMPLES / "layernorm.yaml"))
    for name in ("slice_buffers", "order_segments", "merge_casts"):
        assert driver.plan(fusion, CompileOptions(stop_after=name)).host.launches
    assert options_of("compile", {"stop_after": "sink_waits"}).stop_after == "sink_waits"


@pytest.mark.parametrize("part", ["forward", "backward"])
def test_a_phase_is_named_by_its_own_name(part: str) -> None:
    path = EXAMPLES / "joint" / "norm_dropout_residual.yaml"
    name = f"norm_dropout_residual_{part}"
    assert fusec.segmentation(str(path), part=part).fusion == name
    assert fusec.compile(path, part=part, build=False).name == name
    assert fusec.compile(path, part=name, build=False).name == name


def test_options_of_nvfuser_without_effect_are_noted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fusec.diagnostics import note_once
    from fusec.nvfuser import options

    note_once.cache_clear()
    monkeypatch.setenv("NVFUSER_ENABLE", "id_model")
    options.note_environment()
    options.check(["fast_math"], ["fma"])
    options.check(["fast_math"], ["fma"])
    said = capsys.readouterr().err
    for name in ("NVFUSER_ENABLE", "_enable_options fast_math", "_disable_options fma"):
        assert said.count(f"fusec: {name}: no effect") == 1
    with pytest.raises(FusecError, match="nvFuser has no enable option `fast_maths`"):
        options.check(["fast_maths"], None)


def test_dump_names_without_a_counterpart_are_noted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fusec.commands.dump import environment_kinds
    from fusec.diagnostics import note_once

    note_once.cache_clear()
    monkeypatch.setenv("NVFUSER_DUMP", "launch_param,preseg_pass,ca_map,host_ir_lowering")
    assert environment_kinds() == ["preseg_pass", "host_ir_lowering"]
    said = capsys.readouterr().err
    assert "NVFUSER_DUMP: `launch_param` has no equivalent; see `fusec explain`" in said
    assert "NVFUSER_DUMP: `ca_map` has no equivalent\n" in said


def test_benchmarks_end_with_a_message_where_there_is_no_gpu() -> None:
    from benchmarks.entry import end_with

    def main() -> int:
        raise EnvironmentProblem("no GPU", help="take another machine")

    with pytest.raises(SystemExit) as ended:
        end_with(main)
    assert ended.value.code == EnvironmentProblem("").exit_code


def test_everything_that_the_package_names_is_there() -> None:
    assert {name for name in dir(fusec) if getattr(fusec, name, None) is None} == set()
    assert issubclass(fusec.RankFailure, EnvironmentProblem)
