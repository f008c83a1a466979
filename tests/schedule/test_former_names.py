"""Former names of schedule fields and values: read, with the present ones in a warning."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_tools import fusec

from fusec import driver
from fusec.diagnostics import FusecError
from fusec.ir.annotations import Setting
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.schedule.former import all_present, present
from fusec.schedule.matmul.choice import MatmulParameters
from fusec.schedule.registry import find_scheduler, schedulers
from fusec.schedule.rows.reduction.choice import ReductionParameters
from fusec.schedule.scatter.family import ScatterParameters
from fusec.schedule.space import Parameters

RECORDS: dict[str, type[Parameters]] = {
    "matmul": MatmulParameters, "reduction": ReductionParameters, "scatter": ScatterParameters,
}  # fmt: skip
GEMM = """fusion: gemm
inputs: {{a: "bf16[1024, 512]", b: "bf16[512, 1024]"}}
ops:
  - c = a @ b
outputs: [c]
schedules:
  c: {{{settings}}}
"""
SOFTMAX = """fusion: rows
inputs: {x: "bf16[64, 65536]"}
ops:
  - y = softmax(x, dim=1)
outputs: [y]
schedules:
  y: {storage: ring, cluster: 4}
"""


def planned(text: str) -> Parameters:
    program = driver.Compilation(read_text(text), CompileOptions(targets=("sm_90a",)))
    (plan,) = program.plans
    assert isinstance(plan.parameters, Parameters)
    return plan.parameters


def test_present_names_are_fields_and_former_ones_are_not() -> None:
    families = [s.family for s in schedulers() if s.family.former]
    assert {f.name for f in families} == RECORDS.keys()
    for family in families:
        former = family.former
        values = {f.name: f.values for f in RECORDS[family.name].free}
        for name, each in former.items():
            assert {*each.fields} <= {*values}
            assert name not in values or all(v not in values[name] for v in each.values)
            for now in each.values.values():
                assert all(v in values[f] for f, v in zip(each.fields, now, strict=True))


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("kernel: wgmma, multicast: both, staged: true",
         "kernel: wgmma, cluster_m: 2, cluster_n: 2, epilogue_smem: true"),
        ("kernel: wgmma, multicast: 1x4, band: 16",
         "kernel: wgmma, cluster_n: 4, raster_group: 16"),
        ("kernel: split_k, cluster: 2, splits: 3", "kernel: split_k, cluster_k: 2, splits: 3"),
        ("kernel: split_k, splits: 2, split_method: two_kernel, partials: half",
         "kernel: split_k, splits: 2, split_method: two_pass, workspace_dtype: half"),
    ],
)  # fmt: skip
def test_former_names_plan_what_present_ones_do(former: str, now: str) -> None:
    assert planned(GEMM.format(settings=former)) == planned(GEMM.format(settings=now))


def test_a_field_of_another_scheduler_keeps_its_name() -> None:
    assert planned(SOFTMAX).settings["cluster"] == 4


@pytest.mark.parametrize(
    ("name", "value", "now"),
    [
        ("multicast", "4x2", {"cluster_m": 4, "cluster_n": 2}), ("cluster", 2, {"cluster_k": 2}),
        ("kernel", "vector", {"kernel": "gemv"}), ("kernel", "wgmma", {"kernel": "wgmma"}),
        ("multicast", "5x2", {"multicast": "5x2"}), ("tile_m", 128, {"tile_m": 128}),
    ],
)  # fmt: skip
def test_other_names_and_values_stay(name: str, value: Setting, now: dict[str, Setting]) -> None:
    assert present(find_scheduler("matmul").former, name, value) == now


def test_commands_print_what_to_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gemm.yaml"
    path.write_text(GEMM.format(settings="kernel: wgmma, multicast: 4x2, band: 16"))
    fusec(capsys, "check", path).says(
        0,
        "warning: `multicast: 4x2` is a former name",
        "write `cluster_m: 4, cluster_n: 2`",
        f"{path}:7:22",
        "write `raster_group: 16`",
    )
    path.write_text(GEMM.format(settings="kernel: wgmma, cluster_m: 4, raster_group: 16"))
    assert "former" not in fusec(capsys, "check", path).err


def test_a_field_and_its_former_name_are_one_field() -> None:
    with pytest.raises(FusecError, match="`cluster_m` of `c` is set twice"):
        planned(GEMM.format(settings="kernel: wgmma, cluster_m: 2, multicast: b"))


def test_an_unknown_value_of_a_former_field_is_an_error_of_that_field() -> None:
    with pytest.raises(FusecError, match="no parameter `multicast`"):
        planned(GEMM.format(settings="kernel: wgmma, multicast: 3x3"))


def test_settings_of_tuned_entries_have_present_names() -> None:
    former: dict[str, Setting] = {"kernel": "vector", "multicast": "none", "tile_m": 8}
    now = {"kernel": "gemv", "cluster_m": 1, "cluster_n": 1, "tile_m": 8}
    assert all_present(find_scheduler("matmul").former, former) == now
    assert all_present(find_scheduler("pointwise").former, former) is former
