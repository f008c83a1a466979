"""Where the kernel that reads a sum over ranks adds its rows, and what the host program says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import programs_ranks as texts
from fusec.driver import Compilation
from fusec.explain.pushed_rows import rows_decisions
from fusec.hostir.form import RECORDS
from fusec.hostir.instructions import Collective, Free, Launch, Wait
from fusec.hostir.program import HostProgram
from fusec.lowering import ROWS_SAVE
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.schedule.plan import PushedKernel
from fusec.target import find

TEXT = texts.norm(4, 64)
H200 = find("sm_90a")


def compiled(text: str, **options: object) -> Compilation:
    return Compilation(read_text(text), replace(CompileOptions(), **options))  # type: ignore[arg-type]


def pushed(program: Compilation) -> list[PushedKernel]:
    """Return the kernels that add their rows."""
    return [k for p in program.plans for k in p.kernels if isinstance(k, PushedKernel)]


@pytest.mark.parametrize(
    ("ranks", "rows", "selected"),
    [
        (2, 64, 0), (4, 1, 0), (4, 8, 1), (3, 64, 1), (4, 64, 1), (8, 64, 1), (8, 1, 0),
        (4, 512, 0), (8, 512, 0),
    ],
)  # fmt: skip
def test_it_is_selected_where_it_is_predicted_to_be_faster(
    ranks: int, rows: int, selected: int
) -> None:
    """Two ranks add in one step; many bytes take as long either way, or are NCCL's."""
    program = compiled(texts.norm(ranks, rows))
    assert len(pushed(program)) == selected
    decisions = rows_decisions(program.segmented, program.plans, H200)
    assert len(decisions) == selected
    for each in decisions:
        own, _, apart = each.because.partition(" us rather than ")
        times = float(own.split()[-1]), float(apart.split()[0])
        assert times[0] <= (1 - ROWS_SAVE) * times[1]


SUM = "  - r = add(sum(x, dims=[0]), residual)"
OTHERS = {
    "left out": (TEXT, ("pushed_rows",)),
    "the sum is an output": (
        TEXT.replace(SUM, "  - r = sum(x, dims=[0])").replace("[y, s]", "[y, s, r]"), (),
    ),
    "two kernels read the sum": (
        TEXT.replace(SUM, f"  - q = sum(x, dims=[0])\n{SUM}").replace("sum(x, dims=[0]), ", "q, ")
        .replace("outputs: [y, s]", "  - t = permute(q, dims=[1, 0])\noutputs: [y, t]"), (),
    ),
    "it is no sum": (TEXT.replace("sum(x, dims=[0])", "max(x, dims=[0])"), ()),
    "f64": (TEXT.replace("bf16", "f64"), ()),
    "rows are odd": (TEXT.replace("H: 8192", "H: 8190"), ()),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_otherwise_sum_and_kernel_are_two(name: str) -> None:
    text, without = OTHERS[name]
    assert pushed(compiled(text, without=without)) == []


def test_what_is_added_keeps_its_memory_until_the_launch() -> None:
    program = compiled(TEXT).host
    kinds = [i for i in program.instructions if isinstance(i, Collective | Wait | Launch | Free)]
    collective, wait, launch, *freed = kinds
    assert isinstance(collective, Collective)
    assert isinstance(launch, Launch)
    assert wait == Wait(collective.target)
    assert launch.pushed is not None
    assert (launch.pushed.source, launch.pushed.target) == (collective.source, collective.target)
    assert [f.buffer for f in freed if isinstance(f, Free)] == [
        collective.source,
        collective.target,
    ]
    assert launch.pushed.buffers[0] == collective.source
    assert collective.target not in launch.pushed.buffers
    assert f" or {launch.pushed.kernel} of {collective.source} where GPUs push" in str(launch)
    again = RECORDS.decode(HostProgram, RECORDS.encode(program), "program")
    assert again == program
