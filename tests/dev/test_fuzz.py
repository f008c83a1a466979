"""The fuzzer: what it draws, what it finds, and how it makes that small."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import replace
from functools import cache
from math import inf
from pathlib import Path

import numpy as np
import pytest
from draws import times
from nightly import mostly_nightly

from fusec.ir.graph import Fusion
from fusec.ir.text import to_text
from fusec.ops import TABLE
from fusec.parse import read_text
from tools import fuzz, reduce
from tools import pool as pools
from tools.command_line import run as run_tool
from tools.draw import Run, draw_fusion, draw_runs
from tools.edits import candidates
from tools.fuzzing import themes_of
from tools.pool import Pool
from tools.reducing import file_text, read_case, reduce_case
from tools.trial import Depth, Outcome, Trials, kind_of
from tools.work import Case, Result, Task

QUICK = Depth(builds=False)


@cache
def fusions() -> list[Fusion]:
    return [draw_fusion(7, number) for number in range(150)]


def test_a_number_gives_one_fusion() -> None:
    for number in (0, 3, 11):
        first, second = (draw_runs(7, number) for _ in range(2))
        for a, b in zip(first, second, strict=True):
            assert to_text(a.fusion) == to_text(b.fusion)
            assert a.without == b.without
    assert to_text(draw_fusion(7, 1)) != to_text(draw_fusion(7, 2))
    assert to_text(draw_fusion(7, 1)) != to_text(draw_fusion(8, 1))


def test_fusions_read_back() -> None:
    for fusion in (draw_fusion(7, number) for number in range(times(60))):
        assert read_text(to_text(fusion)) == fusion


@pytest.mark.nightly
def test_everything_is_drawn() -> None:
    drawn = {n.op.name for number in range(1500) for n in draw_fusion(9, number).nodes}
    nodes = {name for name, op in TABLE.items() if op.family not in ("composite", "complex")}
    assert nodes <= drawn
    ranks = Counter(v.rank for f in fusions() for v in f.values)
    assert set(ranks) >= {0, 1, 2, 3, 4, 5}
    assert len({v.dtype for f in fusions() for v in f.values}) >= 9
    assert any(o.alias for f in fusions() for o in f.outputs)
    assert any(o.stride_order for f in fusions() for o in f.outputs)
    assert any(0 in (e.evaluate(f.hints) for e in v.shape) for f in fusions() for v in f.values)


def test_a_size_of_0_leaves_no_room_for_huge_ones() -> None:
    """An index into an empty tensor has the other extents, and may have elements itself."""
    for number in range(times(200)):
        fusion = draw_fusion(9, number)
        for value in fusion.values:
            extents = [e.evaluate(fusion.hints) or 1 for e in value.shape]
            assert np.prod(extents) < 1 << 25, f"{number}: {value.name} {extents}"


@pytest.mark.nightly
def test_variants_differ_from_the_fusion_in_boundaries_and_schedules_alone() -> None:
    pinned = apart = left_out = scheduled = 0
    for number in range(60):
        plain, variant = draw_runs(7, number)
        names = [n.op.name for n in variant.fusion.nodes if not n.output.name.endswith("_apart")]
        assert names == [n.op.name for n in plain.fusion.nodes]
        assert variant.fusion.inputs == plain.fusion.inputs
        pinned += bool(variant.fusion.pins)
        apart += len(variant.fusion.nodes) > len(plain.fusion.nodes)
        scheduled += bool(variant.fusion.schedules)
        left_out += bool(variant.without)
    assert min(pinned, apart, left_out, scheduled) > 3


@pytest.mark.parametrize("number", range(12))
def test_runs_come_through(number: int) -> None:
    trials = Trials(QUICK)
    for run in draw_runs(5, number):
        outcome = trials.perform(run)
        assert outcome.status in ("ok", "refused"), outcome.message


BROKEN = """
fusion: broken
dims: {A: 48, B: 7}
inputs: {x: "f32[A, B]", y: "bf16[A, B]"}
ops:
  - wide = cast(y, dtype=f32)
  - s = sin(x)
  - t = mul(s, wide)
  - bad = frac(t)
  - total = sum(bad, dims=[1])
  - other = exp(x)
outputs: [total, other, wide]
"""


@pytest.fixture
def broken_frac(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make fusions with a `frac` fail when they are segmented."""
    from fusec import driver, lowering

    def failing(fusion, options):
        if any(n.op.name == "frac" for n in fusion.nodes):
            raise ValueError(f"{len(fusion.nodes)} nodes")
        return lowering.segment(fusion, options)

    monkeypatch.setattr(driver.Compilation.segmented, "run", failing)


@pytest.mark.usefixtures("broken_frac")
def test_a_failure_is_shrunk() -> None:
    case = Case(to_text(read_text(BROKEN)), ("merge_casts", "remove_dead"))
    with Pool(QUICK, 0) as pool:
        (result,) = pool.run([Task(0, 0, case)])
        outcome = result.outcomes[0]
        assert (outcome.status, outcome.stage) == ("failed", "segment")
        assert outcome.kind == "ValueError in test_fuzz.py:failing"
        found = reduce_case(pool, case, outcome, inf)
    fusion = read_text(found.case.text)
    assert [n.op.name for n in fusion.nodes] == ["frac"]
    assert [len(fusion.inputs), len(fusion.outputs)] == [1, 1]
    assert fusion.hints == {"A": 1, "B": 1}
    assert found.case.without == ()


def test_a_case_that_does_not_read_is_a_failure() -> None:
    case = Case("fusion: nothing\noutputs: [x]\n")
    with Pool(QUICK, 0) as pool:
        (result,) = pool.run([Task(0, 0, case)])
        assert result.outcomes[0].signature.startswith("text: FusecError")
        assert reduce_case(pool, case, result.outcomes[0], inf).case == case


@pytest.mark.usefixtures("broken_frac")
def test_reduce_writes_a_file_that_reads_back(tmp_path: Path, capsys) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(file_text(Case(BROKEN, ("merge_casts",)), Outcome("failed"), path.name))
    assert read_case(path).without == ("merge_casts",)
    assert run_tool(reduce.command, [str(path), "--jobs", "0", "--device", "none"]) == 0
    small = tmp_path / "broken.min.yaml"
    assert "frac(" in capsys.readouterr().out
    assert len(read_text(small.read_text()).nodes) == 1
    assert small.read_text().startswith("# fusec run broken.min.yaml\n# segment: ValueError")


@pytest.mark.usefixtures("broken_frac")
def test_fuzz_keeps_what_fails(tmp_path: Path, capsys) -> None:
    themes = themes_of(("general",))
    first = next(k for k in range(400) if _has(draw_fusion(3, k, themes), "frac"))
    command = f"--seed 3 --first {first} --count 1 --no-build --jobs 0 --stats"
    command += " --theme general"
    assert run_tool(fuzz.command, [*command.split(), "--keep", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "2 failed" in printed
    assert "frac" in printed
    assert {p.name for p in tmp_path.glob("*.yaml")} >= {f"3-{first}a.yaml", f"3-{first}b.yaml"}
    assert len(list(tmp_path.glob("*.min.yaml"))) == 1


def _has(fusion, op: str) -> bool:
    return any(n.op.name == op for n in fusion.nodes)


def test_candidates_are_simpler() -> None:
    fusion = read_text(BROKEN)
    made = list(candidates(fusion))
    assert len(made) > 20
    for other in made:
        assert read_text(to_text(other)) == other
        sizes = sum(other.hints.values())
        smaller = (
            len(other.nodes) < len(fusion.nodes)
            or len(other.outputs) < len(fusion.outputs)
            or sizes < sum(fusion.hints.values())
            or other.inputs != fusion.inputs
        )
        assert smaller


def test_a_mismatch_of_segments_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from fusec import driver, lowering

    def wrong(fusion, options):
        done = lowering.optimise(fusion, options)
        nodes = [replace(n, op=TABLE["cos"]) if n.op.name == "sin" else n for n in done.nodes]
        users = {n.output: m.output for n, m in zip(done.nodes, nodes, strict=True)}
        assert all(k is v for k, v in users.items())
        return done.with_nodes(nodes)

    monkeypatch.setattr(driver.Compilation.fusion, "run", wrong)
    outcome = Trials(QUICK).perform(Run(read_text(BROKEN)))
    assert outcome.signature == "segments: mismatch"


def _crash(trials: Trials, task: Task) -> Result:
    if task.number == 1:
        os._exit(9)
    if task.number == 2:
        time.sleep(60)
    return Result(task, (Outcome("ok"),))


def test_a_process_that_dies_or_hangs_takes_nothing_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import multiprocessing

    monkeypatch.setattr(pools, "perform", _crash)
    with Pool(QUICK, 2, limit=1.5) as pool:
        pool._context = multiprocessing.get_context("fork")
        results = {r.task.number: r.outcomes[0] for r in pool.run(Task(0, k) for k in range(6))}
    assert {k: o.status for k, o in results.items()} == {
        0: "ok", 1: "failed", 2: "failed", 3: "ok", 4: "ok", 5: "ok"
    }  # fmt: skip
    assert results[1].kind == "exit code 9"
    assert results[2].kind == "hang"


def _tell_gpu(trials: Trials, task: Task) -> Result:
    time.sleep(0.2)
    return Result(task, (Outcome("ok", kind=str(trials.gpu)),))


def test_processes_are_spread_over_the_gpus_and_end_by_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import multiprocessing

    monkeypatch.setattr(pools, "perform", _tell_gpu)
    with Pool(replace(QUICK, gpus=3), 6) as pool:
        pool._context = multiprocessing.get_context("fork")
        found = Counter(r.outcomes[0].kind for r in pool.run(Task(0, k) for k in range(6)))
        processes = [w.process for w in pool._workers]
    assert found == {"0": 2, "1": 2, "2": 2}
    assert [p.exitcode for p in processes] == [0] * 6


@pytest.mark.nightly
def test_processes_give_the_same_as_none(tmp_path: Path, capsys) -> None:
    printed: list[list[str]] = []
    for jobs in ("0", "2"):
        command = f"--seed 5 --count 6 --no-build --theme general --jobs {jobs}"
        assert run_tool(fuzz.command, [*command.split(), "--keep", str(tmp_path)]) == 0
        printed.append(capsys.readouterr().out.splitlines()[2:])
    assert printed[0] == printed[1]


def test_kinds_have_no_names_or_numbers() -> None:
    from fusec.diagnostics import InternalError

    def kind(name: str, number: int) -> str:
        try:
            raise InternalError(f"`{name}` has {number} dims")
        except InternalError as error:
            return kind_of(error)

    assert kind("a", 1) == kind("b", 22)
    assert "has # dims" in kind("a", 1)


def on_the_host(monkeypatch: pytest.MonkeyPatch, folder: Path, spoil: float = 0.0) -> Trials:
    """Return trials whose device runs kernels on the host; `spoil` is added to downloads."""
    import cuda_on_cpu
    from emulated import EmulatedDevice, is_on_host

    from fusec import driver, lowering
    from fusec.diagnostics import Unsupported

    sources: list = []

    def noting(plans, options):
        made = lowering.render(plans, options)
        sources[:] = [source for each in made for source in each]
        return made

    class Host(Trials):
        def device(self):
            functions = {
                source.name: cuda_on_cpu.build(source.kernel, source.text, folder)
                for source in sources
            }
            device = EmulatedDevice(functions)
            download = device.download

            def spoiled(address: int, size: int):
                data = download(address, size)
                if spoil and size == 48 * 7 * 4:
                    data.view(np.float32)[5] += spoil
                return data

            device.download = spoiled
            return device

        def artifacts(self, made):
            if not all(is_on_host(source.text) for source in made):
                raise Unsupported("not on the host")
            return super().artifacts(made)

    monkeypatch.setattr(driver.Compilation.sources, "run", noting)
    return Host(Depth(on_gpu=True, seeds=(0, 1, 2)))


def test_a_run_on_a_device_is_verified(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = Run(read_text(BROKEN))
    good = on_the_host(monkeypatch, tmp_path).perform(run)
    assert good.status == "ok", good.message
    assert {"build", "run", "verify"} <= good.seconds.keys()
    bad = on_the_host(monkeypatch, tmp_path, spoil=0.5).perform(run)
    assert bad.signature == "verify: mismatch"
    assert "`wide`" in bad.message or "wide:" in bad.message


@pytest.mark.parametrize("number", mostly_nightly(range(16), 2))
def test_kernels_of_drawn_fusions(
    number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The kernels' own text, run on the host, is right: also at sizes it was not planned for."""
    outcome = on_the_host(monkeypatch, tmp_path).perform(draw_runs(31, number)[number % 2])
    assert outcome.status in ("ok", "refused"), outcome.message


def test_a_fault_ends_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from fusec.diagnostics import InternalError

    trials = on_the_host(monkeypatch, tmp_path)

    def fault(*_: object) -> None:
        raise InternalError("the GPU reports CUDA_ERROR_ILLEGAL_ADDRESS (running the kernels)")

    monkeypatch.setattr("fusec.run.bound.Bound.run", fault)
    outcome = trials.perform(Run(read_text(BROKEN)))
    assert outcome.fatal
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in outcome.kind
