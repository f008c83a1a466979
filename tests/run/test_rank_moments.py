"""A rank that is killed or stopped at ten moments of a run is named, and nothing is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rank_moments
import rank_processes
from gpu_rank_failures import try_moment
from rank_moments import HEADLINES, MOMENTS, SIGNALS
from test_gpu_ranks import RANKS, gathered, ring, run

from fusec.commands.running.rank import run_rank
from fusec.commands.running.run_inputs import RunOptions
from fusec.commands.terminal.diagnose import Report
from fusec.driver import Compilation
from fusec.hostir.program import HostProgram
from fusec.options import CompileOptions
from fusec.parse.reader import read_text
from fusec.run.bound import Bound
from fusec.run.distributed.links import Links, RankFailure
from fusec.run.distributed.measure_together import WARMUPS

TIMEOUT = 1.0
"""Seconds; a stopped rank is lost after half of them."""
DOING = {
    "the rendezvous": "rendezvous",
    "in all_reduce": "all_reduce sum sum_1 <- sum_1_partial over mesh: 2",
    "in all_gather": "all_gather y <- y_part over mesh: 2",
    "in a peer read": "share sum_1_partial_copy as sum_1_peer_views, sum_1_peer_views_2 over "
    "mesh: 2",
    "gathering outputs": "gather of `y`",
}
"""What the other rank does where that is always the same."""
_COMPILED: dict[str, Compilation] = {}


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of targets by which sums over ranks are read in place."""
    return rank_moments.let_reads_win(tmp_path_factory.mktemp("rates") / "targets")


def compiled(name: str, targets: Path) -> Compilation:
    """Return the program of a moment, planned before ranks are forked."""
    if name not in _COMPILED:
        moment = MOMENTS[name]
        options = CompileOptions(without=moment.options[1:], rates=targets)
        program = Compilation(read_text(moment.text), options)
        assert program.posts.name
        _COMPILED[name] = program
    return _COMPILED[name]


@pytest.mark.parametrize("act", SIGNALS)
@pytest.mark.parametrize("name", MOMENTS)
def test_a_rank_that_is_lost_at_any_moment_is_named(
    name: str, act: str, targets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, moment = compiled(name, targets), MOMENTS[name]
    options = RunOptions(device="reference", repeats=0, verify=False)
    monkeypatch.setenv(rank_moments.SIGNAL, str(int(SIGNALS[act])))
    monkeypatch.setenv(rank_moments.FOLDER, str(tmp_path))

    def before(rank: int) -> None:
        if rank:
            rank_moments.replace(moment.host, moment.exchange)

    def work(links: Links) -> None:
        run_rank(links, program, options, Report())
        links.close()
        links.check()

    ranks = rank_processes.start(2, work, tmp_path, TIMEOUT, before)
    try:
        ranks[0].join(20)
        assert (tmp_path / "acted").exists()
        took = time.time() - float((tmp_path / "acted").read_text())
        error = rank_processes.results(ranks[:1], tmp_path)[0]
    finally:
        ranks[1].kill()
    assert isinstance(error, RankFailure), error
    assert error.diagnostic.message == HEADLINES[act]
    (doing,) = error.diagnostic.notes
    assert doing.startswith("rank 0 was in ")
    if name in DOING and act == "stopped":  # the other may come later than one that is killed
        assert doing == f"rank 0 was in `{DOING[name]}`"
    assert took < TIMEOUT + 5


@pytest.mark.nightly
@pytest.mark.parametrize("act", SIGNALS)
@pytest.mark.parametrize("name", MOMENTS)
def test_a_run_of_several_processes_ends_with_its_lost_rank(
    name: str, act: str, tmp_path: Path
) -> None:
    case = try_moment(name, act, tmp_path, "reference", seconds=2.0)
    assert case.problems == (), case.said


@pytest.mark.parametrize(
    ("make", "name", "times"),
    [(gathered, "in all_gather", 1), (lambda: ring(1), "in a loop of sends", RANKS)],
)
def test_the_moments_of_exchanges_come_on_gpus_whenever_one_is_issued(
    make: Callable[[], HostProgram], name: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    acted, moment = list[int](), MOMENTS[name]
    # Restored after the test, with what `replace` puts there.
    monkeypatch.setattr(Bound, "_prepared", Bound._prepared)
    monkeypatch.setattr(rank_moments, "_act", lambda: acted.append(1))
    rank_moments.replace(moment.gpu, moment.exchange)
    run(make(), seed=0, runs=2)
    issued = 2 + WARMUPS + 2  # two runs, and those that are measured
    assert len(acted) == RANKS * times * issued


def test_all_moments_have_their_own_place() -> None:
    places: set[Any] = {(m.host, m.exchange) for m in MOMENTS.values()}
    assert len(places) == len(MOMENTS) == 10
