"""Loops that pass slices around ranks: what they take beside kernels, and when they are run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from paths import ROOT
from test_parallel_examples import small, verdict_of

from fusec import lowering
from fusec.cli import run_main
from fusec.driver import Compilation
from fusec.files import with_sizes
from fusec.hostir.overlap import program_time
from fusec.hostir.pipeline import Stage, pipeline_seconds
from fusec.ir.graph import Fusion
from fusec.ir.sharding import STREAM, Part
from fusec.ops.communication import RECEIVE_SLICE, SEND_SLICE
from fusec.options import CompileOptions
from fusec.parse import read_file, read_text
from fusec.shard.pieces import in_pieces
from fusec.target import Target, find

EXAMPLES = ROOT / "examples" / "parallel"
RINGS = ("ring_gather_matmul", "matmul_reduce_scatter")
LOOPED = CompileOptions(without=("loops-by-cost",))
H200 = find("sm_90a")
UNCROWDED = replace(H200, links={k: replace(v, crowding=0.0) for k, v in H200.links.items()})


def example(name: str, **sizes: int) -> Fusion:
    return with_sizes(read_file(EXAMPLES / f"{name}.yaml"), sizes)


PRICED = CompileOptions()


def loops(fusion: Fusion, options: CompileOptions = PRICED) -> bool:
    local = lowering.divide(fusion, options)
    return any(node.op in (RECEIVE_SLICE, SEND_SLICE) for node in local.nodes)


@pytest.mark.parametrize("name", RINGS)
@pytest.mark.parametrize(
    ("sizes", "looped"),
    [
        ({}, True),
        ({"M": 16384}, True),
        ({"M": 512}, False),
        ({"M": 64, "K": 128, "N": 128}, False),
    ],
)
def test_a_loop_is_run_where_it_is_cheaper(name: str, sizes: dict[str, int], looped: bool) -> None:
    fusion = example(name, **sizes)
    assert loops(fusion) == looped
    assert loops(fusion, LOOPED)
    (decision,) = lowering.division(fusion, CompileOptions()).decisions
    *told, whole = [float(part.split()[-1]) for part in decision.because.split(" us")[:-1]]
    assert (min(told) <= (1 - lowering.LOOP_SAVES) * whole) == looped
    assert lowering.division(fusion, LOOPED).decisions == ()


@pytest.mark.parametrize("name", RINGS)
def test_whoever_calls_sees_no_difference(name: str) -> None:
    fusion = example(name, M=512)
    one, other = (lowering.divide(fusion, options) for options in (CompileOptions(), LOOPED))
    assert one.nodes != other.nodes
    assert (one.dims, one.mesh) == (other.dims, other.mesh)
    for ends in ("inputs", "outputs"):
        pairs = zip(getattr(one, ends), getattr(other, ends), strict=True)
        assert all((a.value.name, a.value.type) == (b.value.name, b.value.type) for a, b in pairs)


@pytest.mark.parametrize("name", RINGS)
def test_both_are_right(name: str) -> None:
    fusion = small(name)
    assert not loops(fusion)
    assert verdict_of(fusion).ok  # of the loop
    assert verdict_of(fusion, options=CompileOptions()).ok


def sliced(name: str, ranks: int, pieces: int) -> Fusion:
    """Return a small example whose loops take so many pieces of each rank's part."""
    fusion = small(name, ranks)
    shardings = {
        n: replace(s, dims=tuple(tuple(_in_pieces(p, pieces) for p in parts) for parts in s.dims))
        for n, s in fusion.shardings.items()
    }
    return replace(fusion, shardings=shardings)


def _in_pieces(part: Part, pieces: int) -> Part:
    return replace(part, parts=part.parts * pieces) if part.axis == STREAM else part


@pytest.mark.parametrize("name", RINGS)
@pytest.mark.parametrize(("ranks", "pieces"), [(2, 2), (2, 3), (4, 3)])
def test_pieces_of_parts_are_right(name: str, ranks: int, pieces: int) -> None:
    fusion = sliced(name, ranks, pieces)
    assert loops(fusion, LOOPED)
    verdict = verdict_of(fusion)
    assert verdict.ok, verdict.text()


@pytest.mark.parametrize("name", RINGS)
def test_a_loop_takes_what_the_longer_part_does_and_an_end(name: str) -> None:
    segmented = Compilation(example(name), LOOPED).segmented
    whole = program_time(segmented, UNCROWDED, 4)
    (loop,) = whole.loops
    assert loop.iterations == 4
    assert loop.kernels < loop.seconds < loop.separate
    assert loop.separate == pytest.approx(loop.exchanges + loop.kernels)
    rest = sum(segmented.times(UNCROWDED)) - loop.separate
    assert whole.seconds == pytest.approx(loop.seconds + rest)
    # On one stream nothing runs beside anything.
    assert program_time(segmented, H200, 1).seconds == sum(segmented.times(H200))


def slower(rate: float) -> Target:
    """Return a GPU with other links."""
    return replace(UNCROWDED, link=H200.link * rate)


def test_copies_to_several_ranks_share_the_links_and_slow_each_other_down() -> None:
    """Three come at once in a loop of four slices; of eight, two ranks' before the third's."""

    def seconds(pieces: int, target: Target) -> float:
        fusion = in_pieces(example("ring_gather_matmul"), pieces, 4)
        assert fusion is not None
        segmented = lowering.segment(lowering.optimise(fusion.fusion, LOOPED), LOOPED)
        return program_time(segmented, target, 4).seconds

    assert seconds(2, H200) < 0.9 * seconds(1, H200)
    assert seconds(1, UNCROWDED) < 0.8 * seconds(1, H200)
    (decision,) = lowering.division(example("ring_gather_matmul"), CompileOptions()).decisions
    assert decision.because.startswith("a loop of 8 slices")
    (sends,) = lowering.division(example("matmul_reduce_scatter"), CompileOptions()).decisions
    assert "8 slices" not in sends.because


RECEIVED = Stage(seconds=30, latency=5, slows=0, sends=False, ranks=2, pieces=2)
SENT = replace(RECEIVED, sends=True)
TO_THREE = Stage(seconds=30, latency=0, slows=0, sends=False, ranks=4, crowding=0.5)


@pytest.mark.parametrize(
    ("stages", "streams", "end"),
    [
        # Own slices until 20, the others there at 35 and 70; then a kernel of 10.
        ([RECEIVED], 4, 80),
        # Two that are alike share the links.
        ([RECEIVED, RECEIVED], 4, 140),
        # Computed at 10 and 20, sent until 45 and 80, beside own slices until 40.
        ([SENT], 4, 80),
        # Received at 35 and, as the first is sent from 50 on, at 90; the last is sent from 105 on.
        ([RECEIVED, SENT], 4, 135),
        # Three at once take 3 x 30 x 2, and the last kernel ends two behind the first.
        ([TO_THREE], 4, 210),
        # On one stream each is received after the last kernel.
        ([TO_THREE], 1, 130),
    ],
)
def test_a_loop_is_simulated(stages: list[Stage], streams: int, end: float) -> None:
    assert pipeline_seconds(4, 10, 0, stages, streams) == pytest.approx(end)


def test_launches_are_hidden_by_kernels_of_other_streams() -> None:
    alone = pipeline_seconds(4, 10, 3, [replace(RECEIVED, seconds=0, latency=0)], 4)
    assert alone == pytest.approx(10 + 3 * 7)


def test_the_host_bounds_calls_of_short_loops() -> None:
    segmented = Compilation(sliced("ring_gather_matmul", 2, 2), LOOPED).segmented
    found = program_time(segmented, H200, 4)
    assert found.host == pytest.approx(H200.host_call + 4 * H200.host_slice)
    assert found.call == max(found.seconds, found.host)
    slow = replace(H200, host_slice=1.0)
    assert program_time(segmented, slow, 4).call > 4 > program_time(segmented, slow, 4).seconds


def test_slow_links_bind_a_loop_and_memory_is_shared() -> None:
    segmented = Compilation(example("ring_gather_matmul"), LOOPED).segmented
    fast, slow = (program_time(segmented, slower(rate), 4).loops[0] for rate in (1, 0.25))
    assert fast.kernels == slow.kernels
    assert slow.exchanges > 3 * fast.exchanges
    # Three ranks' slices come together, and are computed when they are there.
    assert slow.seconds == pytest.approx(slow.exchanges + 3 / 4 * slow.kernels, rel=0.1)
    # Kernels that wait for memory lose what exchanges take of it.
    poor = replace(UNCROWDED, bandwidth=H200.bandwidth / 3)
    (found,) = program_time(segmented, poor, 4).loops
    assert found.seconds > 1.2 * max(found.kernels, found.exchanges)
    # So much of it that nothing is won: then the parts count one after the other.
    assert program_time(segmented, replace(UNCROWDED, contention=10.0), 4).loops == ()


MIXED = """
fusion: mixed
mesh: [4]
inputs:
  x: {type: "bf16[64, 64]", shard: {0: mesh}}
  w: {type: "bf16[64, 64]", shard: {1: mesh}}
  z: {type: "bf16[64, 64]", shard: {}}
ops:
  - y = matmul(x, w)
  - u = relu(z)
outputs:
  - y: {shard: {1: mesh}, stream: {0: 4}}
  - u: {shard: {}, stream: {0: 8}}
"""


def test_other_loops_stay_as_the_file_says() -> None:
    """And those beside them: only where all loops go around ranks one exchange is all of them."""
    fusion = read_text(MIXED)
    assert loops(fusion)
    assert lowering.division(fusion, CompileOptions()).decisions == ()
    assert not loops(read_text(MIXED.replace("  - u: {shard: {}, stream: {0: 8}}\n", "")))


def test_explain_tells_both_times(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(EXAMPLES / "matmul_reduce_scatter.yaml")
    assert run_main(["explain", file]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "loop x a loop of 4 slices: " in text
    assert "us with reduce_scatter of the whole" in text
    assert "of communication overlaps" in text
    assert run_main(["explain", file, "--set", "M=512"]) == 0
    assert "loop x no loop: " in " ".join(capsys.readouterr().out.split())


def test_a_division_is_found_once() -> None:
    fusion, options = example("ring_gather_matmul"), CompileOptions()
    assert lowering.division(fusion, options) is lowering.division(fusion, CompileOptions())
