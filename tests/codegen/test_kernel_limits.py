"""What exceeds the limits of one kernel is several: long kernels, reads at many shifts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from families import GPU, plan_of
from nightly import mostly_nightly
from segments_on_cpu import planned, wrong

from fusec.driver import Compilation
from fusec.parse import read_text
from fusec.run.build import Source, build
from fusec.schedule.pressure import MOST
from fusec.schedule.segments import occupancies
from fusec.segment import offers
from fusec.segment.graph import Graph
from fusec.segment.groups import Groups
from fusec.segment.halves import find_waist
from fusec.segment.limits import MOST_AGAIN, MOST_LENGTH
from fusec.segment.offers import takes_long
from fusec.segment.regions import singles

SHIFTS = (2, 3, 5, 9, 17, 33, 65, 129, 257)
"""Shifts of which each doubles the places at which an input is read; later ones are of 1."""


def text_of(inputs: str, ops: Iterable[str], output: str) -> str:
    lines = "".join(f"- {op}\n" for op in ops)
    return f"fusion: report\ninputs: {{{inputs}}}\nops:\n{lines}outputs: [{output}]\n"


def ladder(steps: int, shape: str, dtype: str = "f16") -> str:
    """Return sin(a) + cos(a) of the last such sum, so many times."""
    ops = ["a0 = add(cast(x, f32), cast(y, f32))"]
    for k in range(1, steps + 1):
        ops += [f"p{k} = cos(a{k - 1})", f"q{k} = sin(a{k - 1})", f"a{k} = add(p{k}, q{k})"]
    ops.append(f"z = cast(a{steps}, {dtype})")
    return text_of(f"x: '{dtype}{shape}', y: '{dtype}{shape}'", ops, "z")


def shifted_sums(steps: int, rows: int, columns: int) -> str:
    """Return sums of a value and itself shifted, each of the last one."""
    ops = ["a0 = set(x)"]
    for k in range(1, steps + 1):
        shift = SHIFTS[k - 1] if k <= len(SHIFTS) else 1
        part = f"slice(a{k - 1}, [0, {shift}], [{rows}, {columns}])"
        ops += [f"b{k} = pad({part}, [0, {shift}])", f"a{k} = add(a{k - 1}, b{k})"]
    return text_of(f"x: 'f32[{rows}, {columns}]'", ops, f"a{steps}")


def rolled(count: int) -> str:
    """Return a sum of an input rolled by different distances: two reads for each."""
    ops = list[str]()
    last = "x"
    for k in range(1, count + 1):
        parts = f"slice(x, [0, {k}], [64, 1024]), slice(x, [0, 0], [64, {k}])"
        ops.append(f"t{k} = add({last}, cat([{parts}], 1))")
        last = f"t{k}"
    return text_of("x: 'f32[64, 1024]'", ops, last)


def slid(count: int) -> str:
    """Return a sum of slices, each of which begins one element later."""
    ops, last = ["a = relu(x)"], "a0"
    ops += [f"a{k} = slice(a, [0, {k}], [64, {1024 + k}])" for k in range(count)]
    for k in range(1, count):
        ops.append(f"t{k} = add({last}, a{k})")
        last = f"t{k}"
    return text_of(f"x: 'f32[64, {1024 + count}]'", ops, last)


def wanted(program: Compilation) -> int:
    """Return the registers that a thread would like, of all kernels the most, as predicted."""
    return max(o.wanted for plan in program.plans for o in occupancies(plan, GPU))


def assert_no_spills(program: Compilation) -> None:
    """Build all kernels, like texts once, and fail where a thread spills."""
    pytest.importorskip("cuda.bindings.nvrtc")
    sources = [Source.of(s) for s in program.kernel_sources]
    for (name, _), artifact in build(sources, ("sm_90a",), jobs=1).items():
        assert artifact.spill_bytes == 0, name


@pytest.mark.nightly
def test_a_ladder_is_few_texts_of_limited_length() -> None:
    program = planned(ladder(500, "[13]"))
    segments = program.segmented.segments
    assert 8 < len(segments) < 20
    assert not any(takes_long(s.estimate) for s in segments if s.estimate is not None)
    # Parts end where one tensor crosses, so that most are the same number of steps.
    assert all(len(s.fusion.inputs) == 1 for s in segments[1:])
    assert len({s.digest for s in program.kernel_sources}) <= 8


@pytest.mark.nightly
def test_a_ladder_builds_without_spills() -> None:
    assert_no_spills(planned(ladder(500, "[13]")))


def test_the_limit_is_what_parts_a_ladder(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(planned(ladder(80, "[13]")).segmented.segments) == 2
    monkeypatch.setattr(offers, "MOST_LENGTH", 10 * MOST_LENGTH)
    assert len(planned(ladder(80, "[13]")).segmented.segments) == 1


LONG = {
    "transpose": "z = permute(a40, [1, 0])",
    "reduction": "z = sum(a40, dims=[1])",
    "scan": "z = cumsum(a40, 1)",
    "matmul": "z = matmul(a40, permute(a40, [1, 0]))",
}


@pytest.mark.parametrize("family", mostly_nightly(LONG, 3))
def test_kernels_of_every_family_have_limited_length(family: str) -> None:
    """40 steps are one plain loop; a tile of a product would take NVRTC more than a minute."""
    text = ladder(40, "[64, 80]", "f32").replace("z = cast(a40, f32)", LONG[family])
    segments = planned(text).segmented.segments
    assert not any(takes_long(s.estimate) for s in segments if s.estimate is not None)
    assert all(len(s.nodes) < 20 for s in segments if s.scheduler not in ("pointwise", "reduction"))


READS = {
    "shifts of shifts": shifted_sums(12, 64, 1024),
    "40 shifts": shifted_sums(40, 64, 1024),
    "slid": slid(128),
    "rolled": rolled(81),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", mostly_nightly(READS, 2))
def test_reads_at_many_shifts_do_not_spill(name: str) -> None:
    program = planned(READS[name])
    assert wanted(program) <= MOST
    assert_no_spills(program)


@pytest.mark.nightly
def test_more_rows_at_a_time_would_spill() -> None:
    """As before the rows of a thread were limited by what it loads at shifts."""
    plan = plan_of("pointwise", read_text(rolled(64)))
    chosen = plan.parameters
    more = plan_of("pointwise", read_text(rolled(64)), unroll=2, vector_width=2)
    assert chosen.unroll == 1  # pyright: ignore[reportAttributeAccessIssue]
    (few,), (many,) = occupancies(plan, GPU), occupancies(more, GPU)
    assert few.wanted < MOST < many.wanted


@pytest.mark.nightly
def test_the_limit_is_what_parts_shifted_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = planned(READS["shifts of shifts"]).segmented.segments
    monkeypatch.setattr(offers, "MOST_AGAIN", 10 * MOST_LENGTH)
    whole = planned(READS["shifts of shifts"])
    assert len(whole.segmented.segments) < len(parts)
    repeated = [s.estimate.build for s in whole.segmented.segments if s.estimate is not None]
    assert max(b.seconds - b.separate for b in repeated) > 2 * MOST_AGAIN


@pytest.mark.nightly
def test_parts_of_shifted_sums_are_right(tmp_path: Path) -> None:
    text = shifted_sums(8, 3, 96).replace("129", "40")
    assert len(planned(text).segmented.segments) > 1
    assert not wrong(text, tmp_path)


def test_the_waist_is_where_the_fewest_bytes_cross() -> None:
    fusion = read_text(ladder(8, "[64]", "f32"))
    graph = Graph(fusion, frozenset())
    groups = Groups(graph, singles(graph, ()))
    pieces = sorted(groups.pieces)
    at = find_waist(groups, pieces)
    made = {v.name for p in pieces[:at] for n in p.nodes for v in n.outputs}
    read = {v.name for p in pieces[at:] for n in p.nodes for v in n.inputs}
    assert len(made & read) == 1
    assert abs(at - len(pieces) // 2) <= 1
